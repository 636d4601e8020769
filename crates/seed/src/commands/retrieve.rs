//! `seed retrieve`: make a dense index of passages, and serve passages over HTTP.

use std::path::Path;
use std::sync::Arc;

use seed_run::{ExitCode, StopFlag};
use seed_search::{
    Accents, Bm25Retriever, DenseRetriever, EncoderOptions, Passages, RetrievalServer, Retriever,
    SentenceEncoder, ServerOptions,
};
use serde_json::json;

use crate::arguments::{EncoderArguments, Output, Retrieve, RetrieveIndex, RetrieveServe};
use crate::display::{Display, output_line};
use crate::failure::{Failure, Outcome};

pub(crate) fn run(command: &Retrieve, output: Output) -> Outcome {
    match command {
        Retrieve::Index(command) => index(command, output),
        Retrieve::Serve(command) => serve(command, output),
    }
}

fn index(command: &RetrieveIndex, output: Output) -> Outcome {
    let mut display = Display::new(output);
    let encoder = Arc::new(open_encoder(&command.encoder_path, &command.encoder)?);
    let passages = Arc::new(read_passages(&command.passages, &mut display)?);
    let total = passages.len();
    let mut observer = |done| display.progress("encoding", done, total);
    let retriever = DenseRetriever::encode(passages, encoder, &mut observer)?;
    retriever.save(&command.out)?;
    display.clear();
    if output.json {
        output_line(&json!({ "index": command.out, "passages": total }).to_string());
    } else {
        output_line(&format!("{total} passages in {}", command.out.display()));
    }
    Ok(ExitCode::Success)
}

fn serve(command: &RetrieveServe, output: Output) -> Outcome {
    let mut display = Display::new(output);
    let passages = Arc::new(read_passages(&command.passages, &mut display)?);
    let total = passages.len();
    // Both or neither, as the two require each other.
    let retriever: Arc<dyn Retriever> =
        if let (Some(index), Some(encoder)) = (&command.index, &command.encoder_path) {
            let encoder = Arc::new(open_encoder(encoder, &command.encoder)?);
            Arc::new(DenseRetriever::load(index, passages, encoder)?)
        } else {
            let accents = Accents::folded(!command.keep_accents);
            Arc::new(Bm25Retriever::new(passages, accents, &mut |done| {
                display.progress("indexing", done, total);
            })?)
        };
    display.clear();
    let options = ServerOptions {
        default_count: command.top_k,
        concurrency: command.concurrency,
        token_variable: command.token_env.clone(),
        ..ServerOptions::new(command.address)
    };
    let server = RetrievalServer::bind(retriever, options)?;
    let url = format!("http://{}/retrieve", server.address());
    if output.json {
        output_line(&json!({ "url": url, "passages": total }).to_string());
    } else {
        output_line(&format!("{total} passages at {url}"));
    }
    let stop = StopFlag::on_signals()?;
    server.run(move || stop.is_set())?;
    Ok(ExitCode::Success)
}

fn read_passages(path: &Path, display: &mut Display) -> Result<Passages, Failure> {
    Ok(Passages::read(path, &mut |done| {
        display.progress("reading", done, done);
    })?)
}

fn open_encoder(folder: &Path, arguments: &EncoderArguments) -> Result<SentenceEncoder, Failure> {
    let options = EncoderOptions {
        query_prefix: arguments.query_prefix.clone(),
        passage_prefix: arguments.passage_prefix.clone(),
        max_tokens: arguments.max_tokens,
        pooling: None,
    };
    Ok(SentenceEncoder::open(folder, options).map_err(seed_search::SearchError::from)?)
}
