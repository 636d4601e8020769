//! Finding passages by what they mean: a flat index of sentence embeddings, and its files.
//!
//! An index is a folder: `vectors.f32` holds the vectors, 32-bit floats with the least significant byte first,
//! passage by passage; `index.json` says of which passages and by which encoder, with BLAKE3 digests of all three.
//! It is written last, so that an index with it is whole.
//!
//! Not for: making vectors of texts ([`seed_retrieval::SentenceEncoder`]).

use std::path::Path;
use std::sync::Arc;

use seed_retrieval::{DenseIndex, SentenceEncoder};
use seed_run::{write_atomic, write_atomic_with};
use serde::{Deserialize, Serialize};

use crate::bm25_retriever::found;
use crate::passages::Passages;
use crate::retriever::{FoundPassage, Retriever, RetrieverError};
use crate::{Passage, SearchError};

const MANIFEST: &str = "index.json";
const VECTORS: &str = "vectors.f32";

/// Largest manifest that is read, in bytes.
const MANIFEST_LIMIT: u64 = 1 << 20;

/// Passages encoded between two calls of an observer.
const BATCH: usize = 256;

/// Numbers converted at once when writing.
const PIECE: usize = 4096;

/// What `index.json` says.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    passages: usize,
    dimension: usize,
    passages_digest: String,
    encoder_digest: String,
    vectors_digest: String,
}

/// Ranks passages by the cosine between their vector and the query's.
#[derive(Debug)]
pub struct DenseRetriever {
    passages: Arc<Passages>,
    encoder: Arc<SentenceEncoder>,
    index: DenseIndex,
}

impl DenseRetriever {
    /// Encodes a collection; `observer` is told how many passages are done.
    ///
    /// # Errors
    /// [`SearchError::Retrieval`] when a text cannot be encoded.
    pub fn encode(
        passages: Arc<Passages>,
        encoder: Arc<SentenceEncoder>,
        observer: &mut dyn FnMut(usize),
    ) -> Result<Self, SearchError> {
        let all: Vec<&Passage> = passages.iter().collect();
        let mut vectors = Vec::with_capacity(all.len() * encoder.dimension());
        let mut done = 0;
        for batch in all.chunks(BATCH) {
            let texts: Vec<&str> = batch.iter().map(|passage| passage.contents.as_str()).collect();
            vectors.extend(encoder.encode_passages(&texts)?);
            done += batch.len();
            observer(done);
        }
        let index = DenseIndex::new(encoder.dimension(), vectors)?;
        Ok(Self {
            passages,
            encoder,
            index,
        })
    }

    /// Writes the index to a folder, replacing one that is there.
    ///
    /// # Errors
    /// [`SearchError::File`] or [`SearchError::Io`] naming the file.
    pub fn save(&self, folder: &Path) -> Result<(), SearchError> {
        fs_err::create_dir_all(folder)?;
        let path = folder.join(MANIFEST);
        // An old manifest must not describe the new vectors.
        if path.exists() {
            fs_err::remove_file(&path)?;
        }
        let mut hasher = blake3::Hasher::new();
        write_atomic_with(&folder.join(VECTORS), &mut |file| {
            hasher.reset();
            let mut piece = Vec::with_capacity(PIECE * 4);
            for numbers in self.index.vectors().chunks(PIECE) {
                piece.clear();
                piece.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
                hasher.update(&piece);
                file.write_all(&piece)?;
            }
            Ok(())
        })?;
        let manifest = Manifest {
            format: 1,
            passages: self.passages.len(),
            dimension: self.index.dimension(),
            passages_digest: self.passages.digest().to_owned(),
            encoder_digest: self.encoder.digest().to_owned(),
            vectors_digest: hasher.finalize().to_hex().to_string(),
        };
        let json = serde_json::to_vec_pretty(&manifest).map_err(std::io::Error::other)?;
        Ok(write_atomic(&path, &json)?)
    }

    /// Reads an index that [`DenseRetriever::save`] wrote.
    ///
    /// # Errors
    /// [`SearchError::Index`] when it is not whole, damaged, or of other passages or another encoder than the given
    /// ones.
    pub fn load(
        folder: &Path,
        passages: Arc<Passages>,
        encoder: Arc<SentenceEncoder>,
    ) -> Result<Self, SearchError> {
        let path = folder.join(MANIFEST);
        let unusable = |message: String| SearchError::Index {
            folder: folder.to_owned(),
            message,
        };
        if !path.is_file() {
            return Err(unusable(format!(
                "it has no `{MANIFEST}`; `seed retrieve index` makes an index"
            )));
        }
        if fs_err::metadata(&path)?.len() > MANIFEST_LIMIT {
            return Err(unusable(format!("its `{MANIFEST}` is too long")));
        }
        let manifest: Manifest = serde_json::from_slice(&fs_err::read(&path)?)
            .map_err(|error| unusable(format!("its `{MANIFEST}` is damaged: {error}")))?;
        if manifest.format != 1 {
            return Err(unusable(format!("it has the unknown format {}", manifest.format)));
        }
        if manifest.passages_digest != passages.digest() || manifest.passages != passages.len() {
            return Err(unusable(format!(
                "it is of {} other passages than the {} given ones; make it again",
                manifest.passages,
                passages.len()
            )));
        }
        if manifest.encoder_digest != encoder.digest() || manifest.dimension != encoder.dimension() {
            return Err(unusable(
                "it was made by another encoder, or with another prefix, pooling or length; make it again"
                    .to_owned(),
            ));
        }
        let path = folder.join(VECTORS);
        let expected = (manifest.passages as u64)
            .checked_mul(manifest.dimension as u64 * 4)
            .ok_or_else(|| unusable("its sizes are too large".to_owned()))?;
        let length = fs_err::metadata(&path)?.len();
        if length != expected {
            return Err(unusable(format!(
                "its `{VECTORS}` has {length} bytes instead of {expected}"
            )));
        }
        let bytes = fs_err::read(&path)?;
        if blake3::hash(&bytes).to_hex().as_str() != manifest.vectors_digest {
            return Err(unusable(format!(
                "its `{VECTORS}` is damaged: the digest does not match"
            )));
        }
        let vectors = bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&bytes| f32::from_le_bytes(bytes))
            .collect();
        Ok(Self {
            index: DenseIndex::new(manifest.dimension, vectors)?,
            passages,
            encoder,
        })
    }
}

impl Retriever for DenseRetriever {
    fn retrieve(&self, queries: &[&str], count: usize) -> Result<Vec<Vec<FoundPassage>>, RetrieverError> {
        let failed = |error: seed_retrieval::RetrievalError| RetrieverError {
            message: error.to_string(),
        };
        let vectors = self.encoder.encode_queries(queries).map_err(failed)?;
        vectors
            .chunks_exact(self.index.dimension())
            .map(|vector| {
                Ok(found(
                    &self.passages,
                    self.index.search(vector, count).map_err(failed)?,
                ))
            })
            .collect()
    }

    fn identity(&self) -> String {
        format!("dense {} over {}", self.encoder.digest(), self.passages.digest())
    }
}
