//! How alike two short texts are, by their words: `token_set_ratio` of thefuzz 0.22.
//!
//! Not for: other scores of that library, or long texts; the common subsequence is found in quadratic time.

use std::collections::BTreeSet;

/// The words of a text, prepared for comparison: without the characters U+0080 to U+00FF, lower-cased, anything that
/// is no letter or digit a gap, each word once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Words(BTreeSet<String>);

impl Words {
    pub(crate) fn new(text: &str) -> Self {
        let plain: String = text
            .chars()
            .filter(|character| !('\u{80}'..='\u{ff}').contains(character))
            .map(|character| {
                if character.is_alphanumeric() {
                    character
                } else {
                    ' '
                }
            })
            .collect();
        Self(
            plain
                .to_lowercase()
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
        )
    }

    /// The score of two texts, 0 to 100: 100 when one text's words are all in the other, 0 when one has none.
    pub(crate) fn ratio(&self, other: &Self) -> u8 {
        if self.0.is_empty() || other.0.is_empty() {
            return 0;
        }
        let common: Vec<&str> = self.0.intersection(&other.0).map(String::as_str).collect();
        let rest = joined(self.0.difference(&other.0));
        let other_rest = joined(other.0.difference(&self.0));
        if !common.is_empty() && (rest.is_empty() || other_rest.is_empty()) {
            return 100;
        }
        let common =
            common.iter().map(|word| word.chars().count()).sum::<usize>() + common.len().saturating_sub(1);
        // Lengths of the common words with each rest behind, a gap between.
        let gap = usize::from(common > 0);
        let whole = common + gap + rest.len();
        let other_whole = common + gap + other_rest.len();
        let distance = rest.len() + other_rest.len() - 2 * longest_common_subsequence(&rest, &other_rest);
        let mut best = similarity(distance, whole + other_whole);
        if common > 0 {
            best = best
                .max(similarity(gap + rest.len(), common + whole))
                .max(similarity(gap + other_rest.len(), common + other_whole));
        }
        // 0 to 100 by construction.
        best.round_ties_even() as u8
    }
}

/// How alike two texts are, 0 to 100, as thefuzz's `token_set_ratio` says it: 100 when one text's words are all in the
/// other, 0 when one has none.
///
/// ```
/// assert_eq!(seed_webshop::token_set_ratio("grey", "color: coal grey"), 100);
/// assert_eq!(seed_webshop::token_set_ratio("easy clean", "easy care"), 74);
/// ```
pub fn token_set_ratio(left: &str, right: &str) -> u8 {
    Words::new(left).ratio(&Words::new(right))
}

fn joined<'a>(words: impl Iterator<Item = &'a String>) -> Vec<char> {
    let mut characters = Vec::new();
    for word in words {
        if !characters.is_empty() {
            characters.push(' ');
        }
        characters.extend(word.chars());
    }
    characters
}

/// Insertions and deletions as a share of both lengths, turned into a score.
fn similarity(distance: usize, lengths: usize) -> f64 {
    100.0 - 100.0 * distance as f64 / lengths as f64
}

fn longest_common_subsequence(left: &[char], right: &[char]) -> usize {
    let mut lengths = vec![0; right.len()];
    for character in left {
        // The value up and left of the current one.
        let mut diagonal = 0;
        let mut before = 0;
        for (length, other) in lengths.iter_mut().zip(right) {
            let above = *length;
            before = if character == other {
                diagonal + 1
            } else {
                above.max(before)
            };
            *length = before;
            diagonal = above;
        }
    }
    lengths.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_score_is_symmetric_and_full_for_contained_words(left in "[a-c ]{0,12}", right in "[a-d ]{0,12}") {
            let score = token_set_ratio(&left, &right);
            prop_assert!(score <= 100);
            prop_assert_eq!(score, token_set_ratio(&right, &left));
            let both = format!("{left} {right}");
            let expected = if left.trim().is_empty() { 0 } else { 100 };
            prop_assert_eq!(token_set_ratio(&both, &left), expected);
        }
    }
}
