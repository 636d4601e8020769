//! A model folder: what it is, how it ends a turn, whether text can pass for structure, whether it computes.

use std::sync::Arc;

use seed_model::{
    Adapter, ChatTemplate, Decoder, DecoderConfig, Engine, EngineOptions, GenerateRequest, Message,
    ModelDirectory, ModelError, Parameters, Sampling, SequenceState, TokenSequence, Tokenizer, TurnFormat,
};
use seed_random::RandomKey;

use crate::Finding;
use crate::machine::shown;

const AREA: &str = "model";

/// Tokens generated to see that the model computes.
const GENERATED: usize = 8;

/// A word that no template contains.
const WORD: &str = "QWordQ";

/// Texts that a tokenizer should give back as they are: code, other scripts, symbols, runs. In composed form and without
/// space at their ends, which some tokenizers change on purpose.
const TEXTS: [&str; 5] = [
    "fn main() {\n\tlet x = [0; 16];\n}",
    "It's 3.14159 % of 1,000,000; naïve café",
    "東京都と中国的文字, 한국어, العربية",
    "🙂 👩‍👩‍👧 … ≤ ∑ —",
    "aaaaaaaaaaaaaaaaaaaaaaaa      b\n\n\n\nc",
];

/// What there is to say about a folder that cannot be read as a model.
pub fn unreadable_model(error: &impl ToString) -> Finding {
    Finding::wrong(
        AREA,
        error.to_string(),
        "correct what is named, or fetch or export the model again; docs/models.md lists the files and families that are read",
    )
}

/// What there is to say about a model, which is made to generate a few tokens, with `adapter` beside its weights if there
/// is one.
pub fn examine_model(directory: ModelDirectory, adapter: Option<Adapter>) -> Vec<Finding> {
    let mut findings = vec![sizes(&directory.config, &directory.parameters)];
    findings.push(embeddings(&directory.config));
    findings.push(vocabulary(&directory));
    findings.push(round_trips(&directory.tokenizer));
    stop_tokens(&directory, &mut findings);
    template(&directory, &mut findings);
    control_tokens(&directory, &mut findings);
    findings.push(match computes(directory, adapter) {
        Ok(finding) => finding,
        Err(error) => unreadable_model(&error),
    });
    findings
}

fn sizes(config: &DecoderConfig, parameters: &Parameters) -> Finding {
    let total = parameters.total();
    let count = match total {
        0..1_000_000 => total.to_string(),
        _ => format!("{:.1} million", total as f64 / 1e6),
    };
    let text = format!(
        "{}: {count} parameters, {} in f32; context of {} tokens",
        config.family.model_type(),
        shown(4 * total as u64),
        config.max_positions
    );
    Finding::fine(AREA, text)
}

fn embeddings(config: &DecoderConfig) -> Finding {
    Finding::fine(
        AREA,
        if config.tied_embeddings {
            "input and output embeddings are one tensor (tied)"
        } else {
            "input and output embeddings are two tensors (not tied)"
        },
    )
}

fn vocabulary(directory: &ModelDirectory) -> Finding {
    let (model, tokenizer) = (
        directory.config.vocabulary_size,
        directory.tokenizer.vocabulary_size(),
    );
    // The other way round the folder cannot be read.
    let padding = model - tokenizer.min(model);
    let text = match padding {
        0 => format!("the tokenizer has all {model} ids of the model"),
        padding => format!("the tokenizer has {tokenizer} of the model's {model} ids; {padding} are padding"),
    };
    Finding::fine(AREA, text)
}

fn round_trips(tokenizer: &Tokenizer) -> Finding {
    let changed = TEXTS.iter().find_map(|text| {
        let decoded = tokenizer.decode(&tokenizer.encode_text(text), false);
        (decoded != *text).then_some((text, decoded))
    });
    match changed {
        None => Finding::fine(AREA, "texts come back from the tokenizer as they were"),
        Some((text, decoded)) => Finding::warning(
            AREA,
            format!("the tokenizer changes texts: {text:?} comes back as {decoded:?}"),
            "nothing where the model was trained so; ids that were sampled are never encoded again here",
        ),
    }
}

fn name(tokenizer: &Tokenizer, id: u32) -> String {
    match tokenizer.token_name(id) {
        Some(name) => format!("`{name}` ({id})"),
        None => format!("id {id}, which the tokenizer does not know"),
    }
}

fn stop_tokens(directory: &ModelDirectory, findings: &mut Vec<Finding>) {
    let tokenizer = &directory.tokenizer;
    if directory.end_tokens.is_empty() {
        findings.push(Finding::wrong(
            AREA,
            "no token ends a response: every one would go on to its greatest length",
            "name the end tokens as `eos_token_id` in generation_config.json",
        ));
        return;
    }
    let names: Vec<String> = directory
        .end_tokens
        .iter()
        .map(|&id| name(tokenizer, id))
        .collect();
    findings.push(Finding::fine(
        AREA,
        format!("responses end with {}", names.join(", ")),
    ));
    let padding = tokenizer
        .named_token("pad_token")
        .and_then(|token| tokenizer.token_id(token));
    if padding.is_some_and(|padding| directory.end_tokens.contains(&padding)) {
        findings.push(Finding::fine(
            AREA,
            "the padding token also ends responses; nothing is padded here, so that ends are trained",
        ));
    }
}

fn template(directory: &ModelDirectory, findings: &mut Vec<Finding>) {
    let Some(chat) = &directory.chat else {
        findings.push(Finding::wrong(
            AREA,
            "there is no chat template, which playing, fine-tuning and chats need",
            "add the template as chat_template.jinja; plain completions of `seed serve` work without",
        ));
        return;
    };
    let format = match TurnFormat::derive(chat, &directory.tokenizer) {
        Ok(format) => format,
        Err(error) => {
            findings.push(Finding::wrong(
                AREA,
                error.to_string(),
                "use a template that shows every message once and in order",
            ));
            return;
        }
    };
    findings.push(end_of_turn(directory, chat, &format));
    if format.history_changes().is_empty() {
        findings.push(Finding::fine(
            AREA,
            "the template only ever appends: a later prompt begins with the earlier one",
        ));
    }
    for change in format.history_changes() {
        findings.push(Finding::warning(
            AREA,
            format!("the template changes history: {change}"),
            "nothing for runs here, which only append; another program that renders the whole conversation each turn shows the model other prompts",
        ));
    }
}

/// How the model's turn ends, which it must write itself.
fn end_of_turn(directory: &ModelDirectory, chat: &ChatTemplate, format: &TurnFormat) -> Finding {
    let Some(id) = format.end_of_turn() else {
        return Finding::warning(
            AREA,
            "the template puts no control token at the end of the model's turn",
            "see that `eos_token_id` names what the model itself writes at its end",
        );
    };
    let end = name(&directory.tokenizer, id);
    let spelling = directory.tokenizer.token_name(id).unwrap_or_default();
    let prompt = chat.render(&[Message::user(WORD)], false).unwrap_or_default();
    // A token that stands before a user's text and not after it begins turns.
    let begins = prompt
        .split_once(WORD)
        .is_some_and(|(before, after)| before.contains(&spelling) && !after.contains(&spelling));
    if begins {
        return Finding::warning(
            AREA,
            format!("the model's turn is ended by {end}, which begins the next turn"),
            "see that the model was trained to write it: here it is sampled and trained as the end of a response",
        );
    }
    Finding::fine(AREA, format!("the template ends the model's turn with {end}"))
}

fn control_tokens(directory: &ModelDirectory, findings: &mut Vec<Finding>) {
    let tokenizer = &directory.tokenizer;
    let ids = 0..tokenizer.vocabulary_size() as u32;
    let (mut control, mut leaks, mut open) = (Vec::new(), Vec::new(), Vec::new());
    for id in ids {
        let Some(spelling) = tokenizer.token_name(id) else {
            continue;
        };
        if tokenizer.is_control(id) {
            if tokenizer
                .encode_text(&spelling)
                .iter()
                .any(|&id| tokenizer.is_control(id))
            {
                leaks.push(name(tokenizer, id));
            }
            control.push(spelling);
        } else if spelling.starts_with("<|") && spelling.ends_with("|>") {
            open.push(name(tokenizer, id));
        }
    }
    if !leaks.is_empty() {
        findings.push(Finding::wrong(
            AREA,
            format!("ordinary text becomes the control tokens {}", leaks.join(", ")),
            "use the tokenizer.json that the model was published with",
        ));
    }
    if !open.is_empty() {
        findings.push(Finding::warning(
            AREA,
            format!(
                "{} look like control tokens and are not marked as such: text that spells one becomes it",
                open.join(", ")
            ),
            "set `special` to true for them in tokenizer.json if they structure conversations",
        ));
    }
    let text = control.concat();
    let prompt = directory
        .chat
        .as_ref()
        .map(|chat| chat.encode(tokenizer, &[Message::user(text)], true));
    match prompt {
        Some(Err(error)) => findings.push(Finding::wrong(
            AREA,
            error.to_string(),
            "use a template that shows the texts of messages as they are",
        )),
        _ if leaks.is_empty() => findings.push(Finding::fine(
            AREA,
            format!("text cannot become any of the {} control tokens", control.len()),
        )),
        _ => {}
    }
}

/// Generates a few tokens and scores them again.
fn computes(directory: ModelDirectory, adapter: Option<Adapter>) -> Result<Finding, ModelError> {
    let prompt = match &directory.chat {
        Some(chat) => chat.encode(&directory.tokenizer, &[Message::user("Hello")], true)?,
        None => directory.tokenizer.encode_text("Hello"),
    };
    let mut decoder = Decoder::new(directory.config, directory.parameters)?;
    if let Some(adapter) = adapter {
        decoder = decoder.with_adapter(adapter)?;
    }
    let start = prompt.len();
    let mut engine = Engine::new(&decoder, EngineOptions::default());
    let request = GenerateRequest {
        id: 0,
        state: SequenceState::new(&decoder),
        append: prompt,
        max_new_tokens: GENERATED,
        max_length: usize::MAX,
        sampling: Sampling::default(),
        stop: Arc::from(directory.end_tokens),
        key: RandomKey::new(0),
    };
    let generated: Vec<_> = engine.run(vec![request])?;
    for generation in generated {
        let tokens = generation.state.token_ids();
        let scored: Vec<u32> = (start as u32..tokens.len() as u32).collect();
        let sequence = TokenSequence {
            tokens,
            scored: &scored,
        };
        let scores = decoder.score(&[sequence], 1.0)?;
        let again = scores.iter().flat_map(|scores| &scores.log_probs);
        let same = again
            .map(|value| value.to_bits())
            .eq(generation.log_probs.iter().map(|value| value.to_bits()));
        if !same {
            return Ok(Finding::wrong(
                AREA,
                "scoring gives other log-probs than generating, which is a fault of this program",
                "report it with the model's config.json",
            ));
        }
    }
    Ok(Finding::fine(
        AREA,
        "it generates, and scoring gives the log-probs of generating to the last bit",
    ))
}

#[cfg(test)]
mod tests;
