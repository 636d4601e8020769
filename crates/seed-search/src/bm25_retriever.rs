//! Finding passages by their words.
//!
//! Not for: the ranking itself ([`seed_retrieval::Bm25Index`]).

use std::sync::Arc;

use seed_retrieval::{Accents, Bm25Builder, Bm25Options, Document};

use crate::passages::Passages;
use crate::retriever::{FoundPassage, Retriever, RetrieverError};
use crate::{Passage, SearchError};

/// Passages analysed between two calls of an observer.
const BATCH: usize = 4096;

/// Ranks passages by BM25 with Anserini's analysis and constants.
#[derive(Debug)]
pub struct Bm25Retriever {
    passages: Arc<Passages>,
    index: seed_retrieval::Bm25Index,
}

impl Bm25Retriever {
    /// Indexes a collection; `observer` is told how many passages are done. People write names without their accents:
    /// with [`Accents::Fold`] these are found too, where Anserini does not.
    ///
    /// # Errors
    /// [`SearchError::Retrieval`] when there are too many passages for one index.
    pub fn new(
        passages: Arc<Passages>,
        accents: Accents,
        observer: &mut dyn FnMut(usize),
    ) -> Result<Self, SearchError> {
        let mut builder = Bm25Builder::new(Bm25Options {
            accents,
            ..Bm25Options::default()
        })?;
        let all: Vec<&Passage> = passages.iter().collect();
        let mut done = 0;
        for batch in all.chunks(BATCH) {
            let documents: Vec<Document<'_>> = batch
                .iter()
                .map(|passage| Document {
                    id: &passage.id,
                    text: &passage.contents,
                })
                .collect();
            builder.add(&documents)?;
            done += batch.len();
            observer(done);
        }
        Ok(Self {
            index: builder.finish(),
            passages,
        })
    }
}

impl Retriever for Bm25Retriever {
    fn retrieve(&self, queries: &[&str], count: usize) -> Result<Vec<Vec<FoundPassage>>, RetrieverError> {
        Ok(queries
            .iter()
            .map(|query| found(&self.passages, self.index.search(query, count)))
            .collect())
    }

    fn identity(&self) -> String {
        let accents = match self.index.accents() {
            Accents::Keep => "",
            Accents::Fold => " without accents",
        };
        format!("bm25 over {}{accents}", self.passages.digest())
    }
}

/// The passages behind hits.
pub(crate) fn found(passages: &Passages, hits: Vec<seed_retrieval::Hit>) -> Vec<FoundPassage> {
    hits.into_iter()
        .filter_map(|hit| {
            Some(FoundPassage {
                passage: Arc::clone(passages.get(hit.document)?),
                score: Some(hit.score),
            })
        })
        .collect()
}
