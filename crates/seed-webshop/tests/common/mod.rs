//! Data that several test files share.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the helpers of these tests fail as tests do, and a skipped test says so"
)]

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;

use flate2::read::GzDecoder;
use seed_webshop::{Catalogue, CatalogueFiles, GoalKind, Shop};
use serde::de::DeserializeOwned;

/// The recorded data, or `None` (and a line that says so) on machines that do not have it.
pub(crate) fn folder() -> Option<PathBuf> {
    let root = std::env::var_os("SEED_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")),
        PathBuf::from,
    );
    let path = root.join("data").join("webshop");
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: shared data not found at {}", path.display());
    None
}

pub(crate) fn files() -> Option<CatalogueFiles> {
    let folder = folder()?;
    Some(CatalogueFiles {
        products: folder.join("items_shuffle_1000.reconstructed.json.gz"),
        attributes: folder.join("items_ins_v2_1000.json"),
        human_instructions: Some(folder.join("items_human_ins.1k_subset.json")),
        title_nouns: Some(folder.join("title_nouns.jsonl.gz")),
    })
}

pub(crate) fn catalogue() -> Option<Arc<Catalogue>> {
    Some(Arc::new(Catalogue::read(&files()?).unwrap()))
}

/// The catalogue with the goals of the recordings named so.
pub(crate) fn shop(catalogue: &Arc<Catalogue>, recording: &str) -> Shop {
    let (kind, seed) = match recording {
        "synthetic_seed0" => (GoalKind::Synthetic, 0),
        "synthetic_seed233" => (GoalKind::Synthetic, 233),
        "human_seed0" => (GoalKind::Human, 0),
        other => unreachable!("no recording `{other}`"),
    };
    Shop::new(Arc::clone(catalogue), kind, seed).unwrap()
}

/// The three recorded settings with their number of goals.
pub(crate) const RECORDINGS: [(&str, usize); 3] = [
    ("synthetic_seed0", 6_910),
    ("synthetic_seed233", 6_910),
    ("human_seed0", 13),
];

pub(crate) fn text(name: &str) -> String {
    let path = folder().unwrap().join(name);
    let mut bytes = fs_err::read(path).unwrap();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        GzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).unwrap();
        bytes = plain;
    }
    String::from_utf8(bytes).unwrap()
}

pub(crate) fn lines<T: DeserializeOwned>(name: &str) -> Vec<T> {
    BufReader::new(text(name).as_bytes())
        .lines()
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect()
}
