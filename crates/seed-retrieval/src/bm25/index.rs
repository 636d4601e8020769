//! The index: terms to the documents that hold them.
//!
//! Not for: the formula's meaning, which stands in the parent module.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::{Bm25Options, Document, TieOrder, quantised_length};
use crate::ranking::best;
use crate::{Accents, Hit, RetrievalError, analyse_with};

/// Documents of one index at most; positions are 32-bit inside.
const MOST_DOCUMENTS: usize = u32::MAX as usize;

/// A term's occurrences in one document.
#[derive(Clone, Copy, Debug)]
struct Posting {
    document: u32,
    frequency: u32,
}

/// Takes documents in and makes an index of them. Documents can be added in parts, so that a caller can show
/// progress or read them piece by piece; how they are parted changes nothing.
#[derive(Debug)]
pub struct Bm25Builder {
    options: Bm25Options,
    ids: Vec<Box<str>>,
    lengths: Vec<u32>,
    /// Never iterated: terms are numbered in order of first occurrence.
    terms: FxHashMap<String, u32>,
    postings: Vec<Vec<Posting>>,
}

impl Bm25Builder {
    /// An empty builder.
    ///
    /// # Errors
    /// [`RetrievalError::K1`] and [`RetrievalError::B`] when a constant is out of its range.
    pub fn new(options: Bm25Options) -> Result<Self, RetrievalError> {
        if !(options.k1.is_finite() && options.k1 >= 0.0) {
            return Err(RetrievalError::K1(options.k1.to_string()));
        }
        if !(0.0..=1.0).contains(&options.b) {
            return Err(RetrievalError::B(options.b.to_string()));
        }
        Ok(Self {
            options,
            ids: Vec::new(),
            lengths: Vec::new(),
            terms: FxHashMap::default(),
            postings: Vec::new(),
        })
    }

    /// Adds documents behind those that are there. Texts are analysed on all threads.
    ///
    /// # Errors
    /// [`RetrievalError::TooManyDocuments`]; nothing is added then.
    pub fn add(&mut self, documents: &[Document<'_>]) -> Result<(), RetrievalError> {
        if documents.len() > MOST_DOCUMENTS - self.ids.len() {
            return Err(RetrievalError::TooManyDocuments {
                limit: MOST_DOCUMENTS,
            });
        }
        let accents = self.options.accents;
        let analysed: Vec<(Vec<(String, u32)>, u32)> = documents
            .par_iter()
            .map(|document| counted(document.text, accents))
            .collect();
        for (document, (counts, length)) in documents.iter().zip(analysed) {
            // Fits by the check above.
            let position = self.ids.len() as u32;
            self.ids.push(document.id.into());
            self.lengths.push(length);
            for (term, frequency) in counts {
                let next = self.postings.len() as u32;
                let number = *self.terms.entry(term).or_insert(next);
                if number == next {
                    self.postings.push(Vec::new());
                }
                if let Some(list) = self.postings.get_mut(number as usize) {
                    list.push(Posting {
                        document: position,
                        frequency,
                    });
                }
            }
        }
        Ok(())
    }

    /// The index of all documents added.
    pub fn finish(self) -> Bm25Index {
        let Bm25Options { k1, b, ties, accents } = self.options;
        let with_terms = self.lengths.iter().filter(|&&length| length > 0).count();
        let all_terms: u64 = self.lengths.iter().map(|&length| u64::from(length)).sum();
        let mean_length = (all_terms as f64 / with_terms.max(1) as f64) as f32;
        let inverse_norms = self
            .lengths
            .iter()
            .map(|&length| 1.0 / (k1 * ((1.0 - b) + b * quantised_length(length) as f32 / mean_length)))
            .collect();
        let ranks = match ties {
            TieOrder::Position => None,
            TieOrder::Id => {
                let mut order: Vec<u32> = (0..self.ids.len() as u32).collect();
                order.sort_by_key(|&position| self.ids.get(position as usize));
                let mut ranks = vec![0; order.len()];
                for (rank, position) in order.into_iter().enumerate() {
                    if let Some(slot) = ranks.get_mut(position as usize) {
                        *slot = rank as u32;
                    }
                }
                Some(ranks)
            }
        };
        Bm25Index {
            accents,
            documents_with_terms: with_terms,
            ids: self.ids,
            lengths: self.lengths,
            inverse_norms,
            ranks,
            terms: self.terms,
            postings: self.postings.into_iter().map(Vec::into_boxed_slice).collect(),
        }
    }
}

/// The distinct terms of a text in order of first occurrence with how often each occurs, and their sum.
fn counted(text: &str, accents: Accents) -> (Vec<(String, u32)>, u32) {
    let mut counts: Vec<(String, u32)> = Vec::new();
    let mut places: FxHashMap<String, usize> = FxHashMap::default();
    let mut length = 0;
    for term in analyse_with(text, accents) {
        length += 1;
        let place = *places.entry(term).or_insert_with_key(|term| {
            counts.push((term.clone(), 0));
            counts.len() - 1
        });
        if let Some((_, count)) = counts.get_mut(place) {
            *count += 1;
        }
    }
    (counts, length)
}

/// Documents that can be searched. Reading only: any number of threads can share it.
#[derive(Debug)]
pub struct Bm25Index {
    /// As in the documents, so in the queries.
    accents: Accents,
    documents_with_terms: usize,
    ids: Vec<Box<str>>,
    lengths: Vec<u32>,
    /// By document: 1 / (k1 · (1 − b + b · dl / avgdl)).
    inverse_norms: Vec<f32>,
    /// By document: its place in the order of ties, where that is not its position.
    ranks: Option<Vec<u32>>,
    /// Never iterated.
    terms: FxHashMap<String, u32>,
    postings: Vec<Box<[Posting]>>,
}

impl Bm25Index {
    /// An index of `documents` (see [`Bm25Builder`] for adding them in parts).
    ///
    /// # Errors
    /// As [`Bm25Builder::new`] and [`Bm25Builder::add`].
    ///
    /// ```
    /// # use seed_retrieval::{Bm25Index, Bm25Options, Document};
    /// let documents = [("a", "green tea"), ("b", "black tea and milk")].map(|(id, text)| Document { id, text });
    /// let index = Bm25Index::build(&documents, Bm25Options::default()).unwrap();
    /// let hits = index.search("the blackest of black teas", 10);
    /// assert_eq!(index.id(hits[0].document), Some("b"));
    /// ```
    pub fn build(documents: &[Document<'_>], options: Bm25Options) -> Result<Self, RetrievalError> {
        let mut builder = Bm25Builder::new(options)?;
        builder.add(documents)?;
        Ok(builder.finish())
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are no documents.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// What terms make of accents.
    pub fn accents(&self) -> Accents {
        self.accents
    }

    /// The id of the document at a position.
    pub fn id(&self, document: usize) -> Option<&str> {
        self.ids.get(document).map(AsRef::as_ref)
    }

    /// The number of terms of the document at a position.
    pub fn document_length(&self, document: usize) -> Option<u32> {
        self.lengths.get(document).copied()
    }

    /// The best `count` documents that hold at least one term of `query`, best first.
    pub fn search(&self, query: &str, count: usize) -> Vec<Hit> {
        let mut scores = vec![0.0_f64; self.len()];
        for (term, boost) in counted(query, self.accents).0 {
            let list = self
                .terms
                .get(&term)
                .and_then(|&number| self.postings.get(number as usize));
            let Some(list) = list else { continue };
            let weight = boost as f32 * self.inverse_document_frequency(list.len());
            for posting in list {
                let document = posting.document as usize;
                if let (Some(score), Some(norm)) =
                    (scores.get_mut(document), self.inverse_norms.get(document))
                {
                    *score += f64::from(weight - weight / (1.0 + posting.frequency as f32 * norm));
                }
            }
        }
        let hits: Vec<Hit> = scores
            .into_iter()
            .enumerate()
            .filter(|&(_, score)| score > 0.0)
            .map(|(document, score)| Hit {
                document,
                score: score as f32,
            })
            .collect();
        best(hits, count, |document| self.rank(document))
    }

    fn inverse_document_frequency(&self, documents: usize) -> f32 {
        let with_term = documents as f64;
        // The system's logarithm may differ in the last bit from machine to machine.
        libm::log(1.0 + (self.documents_with_terms as f64 - with_term + 0.5) / (with_term + 0.5)) as f32
    }

    /// A document's place in the order of ties; no two have the same.
    fn rank(&self, document: usize) -> usize {
        self.ranks
            .as_ref()
            .and_then(|ranks| ranks.get(document))
            .map_or(document, |&rank| rank as usize)
    }
}
