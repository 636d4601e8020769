//! Exact match with normalised answers, as SQuAD, Search-R1 and its successors score.
//!
//! Not for: rewards of anything but the final answer; the protocol has none.

use std::sync::LazyLock;

use regex::Regex;

use crate::block::{Tag, last_block};
use crate::python::{is_space, strip};

/// Maximal runs of what Python's `\w` matches, the underscore aside, which is punctuation and gone by then.
#[expect(
    clippy::expect_used,
    reason = "the pattern is a constant that every test compiles"
)]
static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[\p{L}\p{N}]+").expect("a valid pattern"));

/// An answer as it is compared: lower case, without the 32 ASCII punctuation characters, without the words `a`, `an`
/// and `the`, with single spaces between words and none around.
pub fn normalise_answer(answer: &str) -> String {
    let bare: String = answer
        .to_lowercase()
        .chars()
        .filter(|character| !character.is_ascii_punctuation())
        .collect();
    let without_articles = WORD.replace_all(&bare, |found: &regex::Captures<'_>| match &found[0] {
        "a" | "an" | "the" => " ".to_owned(),
        word => word.to_owned(),
    });
    without_articles
        .split(is_space)
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The trimmed text of the last `<answer>…</answer>` in a transcript.
pub fn extract_answer(transcript: &str) -> Option<&str> {
    transcript.get(last_block(transcript, Tag::Answer)?).map(strip)
}

/// Whether `prediction` equals one of the golden answers once all are normalised.
pub fn exact_match<S: AsRef<str>>(prediction: &str, golden_answers: &[S]) -> bool {
    let prediction = normalise_answer(prediction);
    golden_answers
        .iter()
        .any(|golden| normalise_answer(golden.as_ref()) == prediction)
}

/// The reward of a transcript: 1 when its last answer matches a golden one exactly, else 0.
///
/// All of the transcript counts, retrieved passages too, so that an answer block in a passage would be scored if it
/// came last. The reference scores so.
pub fn score_transcript<S: AsRef<str>>(transcript: &str, golden_answers: &[S]) -> f32 {
    match extract_answer(transcript) {
        Some(answer) if exact_match(answer, golden_answers) => 1.0,
        _ => 0.0,
    }
}
