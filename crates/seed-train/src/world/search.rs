//! Opening the search worlds: their rules, their questions, and who finds passages. The worlds themselves are in
//! `seed-search`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use seed_search::{
    Accents, Bm25Retriever, DenseRetriever, EncoderOptions, FailureHandling, HttpOptions, HttpRetriever,
    KnowledgeConfig, KnowledgeWorld, Passages, QueryPayload, QuestionSplits, Retriever, SearchError,
    SearchOptions, SearchStyle, SearchWorld, SentenceEncoder,
};

use super::{OpenWorld, WorldError};
use crate::config::{FailedSearch, PromptStyle, SearchDialect, SearchRetriever, SearchSection, WorldSection};

impl From<PromptStyle> for SearchStyle {
    fn from(style: PromptStyle) -> Self {
        match style {
            PromptStyle::Full => Self::Full,
            PromptStyle::Compact => Self::Compact,
        }
    }
}

/// Questions from files.
pub(super) fn open_questions(
    section: &WorldSection,
    search: &SearchSection,
) -> Result<OpenWorld, WorldError> {
    let questions = named(section.data.as_ref(), "world.data", "a folder of questions")?;
    let splits = QuestionSplits::read(questions)?;
    let options = search_options(section, search);
    let world = SearchWorld::new("search-qa", splits, open_retriever(search)?, options);
    Ok(OpenWorld::of(Arc::new(world)))
}

/// Generated questions and passages.
pub(super) fn open_knowledge(
    section: &WorldSection,
    search: &SearchSection,
) -> Result<OpenWorld, WorldError> {
    let config = KnowledgeConfig::new(section.generator_seed);
    let world = Arc::new(KnowledgeWorld::new(&config, search_options(section, search))?);
    Ok(OpenWorld {
        knowledge: Some(world.clone()),
        ..OpenWorld::of(world)
    })
}

/// A path that a search world cannot do without.
fn named<'a>(
    path: Option<&'a PathBuf>,
    key: &'static str,
    what: &'static str,
) -> Result<&'a PathBuf, WorldError> {
    path.ok_or(WorldError::NoSearchData { key, what })
}

fn search_options(section: &WorldSection, search: &SearchSection) -> SearchOptions {
    SearchOptions {
        dialect: match search.dialect {
            SearchDialect::VerlAgent => seed_search::SearchDialect::VerlAgent,
            SearchDialect::SearchR1 => seed_search::SearchDialect::SearchR1,
        },
        style: section.prompts.into(),
        max_turns: section.max_steps,
        top_k: search.top_k,
        failures: match search.failed_search {
            FailedSearch::EnvironmentError => FailureHandling::EnvironmentError,
            FailedSearch::Observation => FailureHandling::Observation,
        },
    }
}

fn open_retriever(search: &SearchSection) -> Result<Arc<dyn Retriever>, WorldError> {
    let passages = || -> Result<Arc<Passages>, WorldError> {
        let path = named(search.passages.as_ref(), "search.passages", "a file of passages")?;
        Ok(Arc::new(Passages::read(path, &mut |_| {})?))
    };
    Ok(match search.retriever {
        SearchRetriever::Bm25 => {
            let accents = Accents::folded(search.fold_accents);
            Arc::new(Bm25Retriever::new(passages()?, accents, &mut |_| {})?)
        }
        SearchRetriever::Dense => {
            let index = named(search.index.as_ref(), "search.index", "a dense index")?;
            let folder = named(search.encoder.as_ref(), "search.encoder", "a sentence encoder")?;
            let options = EncoderOptions {
                query_prefix: search.query_prefix.clone(),
                passage_prefix: search.passage_prefix.clone(),
                max_tokens: search.max_tokens,
                pooling: None,
            };
            let encoder = SentenceEncoder::open(folder, options).map_err(SearchError::from)?;
            Arc::new(DenseRetriever::load(index, passages()?, Arc::new(encoder))?)
        }
        SearchRetriever::Http => Arc::new(HttpRetriever::new(HttpOptions {
            payload: match search.dialect {
                SearchDialect::VerlAgent => QueryPayload::Single,
                SearchDialect::SearchR1 => QueryPayload::Batch,
            },
            timeout_seconds: search.timeout_seconds,
            // In range by the key's rule.
            attempts: u32::try_from(search.attempts).unwrap_or(u32::MAX),
            retry_delay: Duration::try_from_secs_f64(search.retry_delay_seconds).unwrap_or(Duration::MAX),
            token_variable: search.token_env.clone(),
            ..HttpOptions::new(search.urls.clone())
        })?),
    })
}
