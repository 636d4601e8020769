//! Collections of passages.
//!
//! Not for: finding any of them ([`crate::Retriever`]).

use std::path::Path;
use std::sync::Arc;

use seed_run::read_json_lines;
use serde_json::Value;

use crate::SearchError;
use crate::retriever::Passage;

/// Passages between two calls of an observer.
const REPORT_EVERY: usize = 1000;

/// Passages in a fixed order.
#[derive(Clone, Debug)]
pub struct Passages {
    list: Vec<Arc<Passage>>,
    digest: String,
}

impl Passages {
    /// A collection of the given passages.
    pub fn new(passages: impl IntoIterator<Item = Passage>) -> Self {
        let list: Vec<Arc<Passage>> = passages.into_iter().map(Arc::new).collect();
        let mut hasher = blake3::Hasher::new();
        for passage in &list {
            for text in [&passage.id, &passage.contents] {
                // The length in front keeps neighbours apart.
                hasher.update(&(text.len() as u64).to_le_bytes());
                hasher.update(text.as_bytes());
            }
        }
        Self {
            list,
            digest: hasher.finalize().to_hex().to_string(),
        }
    }

    /// Reads lines of JSON, plain or compressed (`.zst`, `.gz`): objects with `contents` (a quoted title, a line
    /// break, the text, as in the collections for Search-R1), or with `title` and `text`; `id` is the line's
    /// number, from 0, where there is none. `observer` is told now and then how many passages have been read.
    ///
    /// # Errors
    /// [`SearchError::Passage`] naming the first record that is no passage, [`SearchError::NoPassages`] for an
    /// empty file, [`SearchError::File`] for one that cannot be read.
    pub fn read(path: &Path, observer: &mut dyn FnMut(usize)) -> Result<Self, SearchError> {
        let mut passages = Vec::new();
        for (index, record) in read_json_lines::<Value>(path)?.enumerate() {
            let passage = passage(&record?, index).map_err(|message| SearchError::Passage {
                path: path.to_owned(),
                record: index + 1,
                message,
            })?;
            passages.push(passage);
            if passages.len().is_multiple_of(REPORT_EVERY) {
                observer(passages.len());
            }
        }
        if passages.is_empty() {
            return Err(SearchError::NoPassages {
                path: path.to_owned(),
            });
        }
        observer(passages.len());
        Ok(Self::new(passages))
    }

    /// Number of passages.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The passage at a position.
    pub fn get(&self, position: usize) -> Option<&Arc<Passage>> {
        self.list.get(position)
    }

    /// All passages in order.
    pub fn iter(&self) -> impl Iterator<Item = &Passage> {
        self.list.iter().map(AsRef::as_ref)
    }

    /// A hexadecimal BLAKE3 digest of ids and contents in order.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

/// Reads one record.
fn passage(record: &Value, number: usize) -> Result<Passage, String> {
    let text = |name: &str| record.get(name).and_then(Value::as_str);
    let contents = match (text("contents"), text("title"), text("text")) {
        (Some(contents), ..) => contents.to_owned(),
        (None, Some(title), Some(text)) => format!("\"{title}\"\n{text}"),
        _ => return Err("it has neither the text `contents` nor the texts `title` and `text`".to_owned()),
    };
    let id = match record.get("id") {
        Some(Value::String(id)) => id.clone(),
        Some(Value::Number(id)) => id.to_string(),
        _ => number.to_string(),
    };
    Ok(Passage { id, contents })
}
