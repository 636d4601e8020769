//! Requests and answers as JSON.
//!
//! Not for: sending them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::retriever::{FoundPassage, Passage};

/// A request as a server reads it: other fields are passed over, as the reference's server does.
#[derive(Debug, Deserialize)]
pub(super) struct Request {
    pub(super) query: Option<String>,
    pub(super) queries: Option<Vec<String>>,
    pub(super) topk: Option<u64>,
    #[serde(default)]
    pub(super) return_scores: bool,
}

impl Request {
    /// The queries in order; none when the request has neither form.
    pub(super) fn queries(&self) -> Option<Vec<&str>> {
        match (&self.queries, &self.query) {
            (Some(queries), _) => Some(queries.iter().map(String::as_str).collect()),
            (None, Some(query)) => Some(vec![query]),
            (None, None) => None,
        }
    }
}

/// A passage as it is sent.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Item<'a> {
    Scored { document: &'a Passage, score: f32 },
    Bare(&'a Passage),
}

/// The body of a server's answer.
pub(super) fn answer_body<'a>(
    results: &'a [Vec<FoundPassage>],
    with_scores: bool,
) -> Result<Vec<u8>, serde_json::Error> {
    #[derive(Serialize)]
    struct Answer<'b> {
        result: Vec<Vec<Item<'b>>>,
    }
    let item = |found: &'a FoundPassage| -> Item<'a> {
        if with_scores {
            Item::Scored {
                document: &found.passage,
                // A passage forwarded from a server that gives no scores.
                score: found.score.unwrap_or(0.0),
            }
        } else {
            Item::Bare(&found.passage)
        }
    };
    serde_json::to_vec(&Answer {
        result: results
            .iter()
            .map(|list| list.iter().map(item).collect())
            .collect(),
    })
}

/// The body of a client's request.
pub(super) fn request_body(queries: &[&str], count: usize, single: bool) -> String {
    let mut body = match queries {
        [query] if single => json!({"query": query}),
        _ => json!({"queries": queries}),
    };
    if let Some(body) = body.as_object_mut() {
        body.insert("topk".to_owned(), json!(count));
        body.insert("return_scores".to_owned(), json!(true));
    }
    body.to_string()
}

/// Reads a server's answer to `queries` queries.
pub(super) fn read_answer(bytes: &[u8], queries: usize) -> Result<Vec<Vec<FoundPassage>>, String> {
    let answer: Value = serde_json::from_slice(bytes).map_err(|error| format!("it is no JSON: {error}"))?;
    let lists = answer
        .get("result")
        .and_then(Value::as_array)
        .ok_or("it has no list `result`")?;
    // A server that found nothing at all may leave the lists out.
    if lists.is_empty() {
        return Ok(vec![Vec::new(); queries]);
    }
    if lists.len() != queries {
        return Err(format!("it has {} lists for {queries} queries", lists.len()));
    }
    lists
        .iter()
        .map(|list| {
            list.as_array()
                .ok_or("a part of `result` is no list")?
                .iter()
                .map(|item| read_item(item).ok_or_else(|| "it holds a passage without `contents`".to_owned()))
                .collect()
        })
        .collect()
}

/// A passage with its score, or a bare one; with `contents`, or with `title` and `content` as some servers have it.
fn read_item(item: &Value) -> Option<FoundPassage> {
    let document = item.get("document").unwrap_or(item);
    let text = |name: &str| document.get(name).and_then(Value::as_str);
    let contents = match text("contents") {
        Some(contents) => contents.to_owned(),
        None => match (text("title").map(str::trim), text("content")?.trim()) {
            (Some(title), content) if !title.is_empty() => format!("\"{title}\"\n{content}"),
            (_, content) => content.to_owned(),
        },
    };
    let id = match document.get("id") {
        Some(Value::String(id)) => id.clone(),
        Some(Value::Number(id)) => id.to_string(),
        _ => String::new(),
    };
    Some(FoundPassage {
        passage: Arc::new(Passage { id, contents }),
        score: item
            .get("score")
            .and_then(Value::as_f64)
            .map(|score| score as f32),
    })
}
