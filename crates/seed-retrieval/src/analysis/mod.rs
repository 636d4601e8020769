//! From English text to index terms.
//!
//! The chain is that of Lucene's `EnglishAnalyzer` (Lucene 9): words by UAX #29, `'s` removed from their ends, lower
//! case, 33 stop words dropped, Porter's stemmer.
//!
//! Not for: highlighting or phrase queries; positions are not kept.

mod accents;
mod pictographs;
mod porter;
mod tokens;

pub use accents::Accents;
pub use porter::stem;

/// Lucene's `EnglishAnalyzer.ENGLISH_STOP_WORDS_SET`, sorted.
const STOP_WORDS: [&str; 33] = [
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no",
    "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to",
    "was", "will", "with",
];

/// The index terms of a text, in order, repeats included, as Lucene's `EnglishAnalyzer` makes them.
///
/// ```
/// assert_eq!(seed_retrieval::analyse("The baker's easily adjustable racks™"), ["baker", "easili", "adjust", "rack", "™"]);
/// ```
pub fn analyse(text: &str) -> Vec<String> {
    analyse_with(text, Accents::Keep)
}

/// The index terms of a text, in order, repeats included, with or without accents.
///
/// ```
/// # use seed_retrieval::{Accents, analyse_with};
/// assert_eq!(analyse_with("Dvořák's études", Accents::Fold), analyse_with("Dvorak etudes", Accents::Keep));
/// ```
pub fn analyse_with(text: &str, accents: Accents) -> Vec<String> {
    let mut terms = Vec::new();
    tokens::for_each_token(text, |token| {
        let mut word: String = without_possessive(token).chars().map(lower_case).collect();
        if accents == Accents::Fold {
            word = accents::fold(word);
        }
        if STOP_WORDS.binary_search(&word.as_str()).is_err() {
            terms.push(porter::stem(word));
        }
    });
    terms
}

/// The token without an English possessive at its end, written with any of Unicode's three apostrophes.
fn without_possessive(token: &str) -> &str {
    token
        .strip_suffix(['s', 'S'])
        .and_then(|rest| rest.strip_suffix(['\'', '\u{2019}', '\u{ff07}']))
        .unwrap_or(token)
}

/// Lower case of one character as one character, as Java's `Character.toLowerCase` has it: where Unicode's full
/// mapping is longer, its first character.
fn lower_case(character: char) -> char {
    character.to_lowercase().next().unwrap_or(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn possessives_stop_words_and_case_are_taken_away() {
        assert_eq!(
            analyse("Women\u{2019}s SHOES, the baker's rack and it's BOSS'S"),
            ["women", "shoe", "baker", "rack", "boss"]
        );
    }

    #[test]
    fn the_stop_words_are_sorted_for_the_search() {
        assert!(STOP_WORDS.is_sorted());
    }
}
