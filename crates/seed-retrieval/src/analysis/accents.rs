//! Letters without their accents, so that *Dvorak* finds *Dvořák*.
//!
//! Not for: scripts other than Latin, Greek and Cyrillic, whose marks can change what a word means; they stay.

use unicode_normalization::UnicodeNormalization as _;

/// What index terms make of accents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Accents {
    /// They count, as in Lucene's `EnglishAnalyzer`.
    #[default]
    Keep,
    /// They are taken away, and Latin letters that are no letter with an accent are spelt with plain ones (*ø* as *o*,
    /// *ß* as *ss*), as Lucene's `ASCIIFoldingFilter` does after lower case.
    Fold,
}

impl Accents {
    /// [`Accents::Fold`] where `fold` says so.
    pub fn folded(fold: bool) -> Self {
        if fold { Self::Fold } else { Self::Keep }
    }
}

/// The combining diacritical marks.
const MARKS: std::ops::RangeInclusive<char> = '\u{300}'..='\u{36f}';

/// A lower-case word without accents. What has none comes back as it is.
pub(super) fn fold(word: String) -> String {
    if word.is_ascii() {
        return word;
    }
    let mut folded = String::with_capacity(word.len());
    for character in word.nfd().filter(|character| !MARKS.contains(character)).nfc() {
        match plain(character) {
            Some(letters) => folded.push_str(letters),
            None => folded.push(character),
        }
    }
    folded
}

/// Lower-case Latin letters that have no decomposition.
fn plain(character: char) -> Option<&'static str> {
    Some(match character {
        'æ' => "ae",
        'đ' | 'ð' => "d",
        'ħ' => "h",
        'ı' => "i",
        'ł' => "l",
        'ŋ' => "n",
        'ø' => "o",
        'œ' => "oe",
        'ß' => "ss",
        'ŧ' => "t",
        'þ' => "th",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latin_letters_lose_their_accents_and_other_scripts_keep_their_marks() {
        for (word, folded) in [
            ("dvořák", "dvorak"),
            ("łódź", "lodz"),
            ("søren", "soren"),
            ("straße", "strasse"),
            ("þórðarson", "thordarson"),
            ("e\u{301}tude", "etude"),
            ("plain", "plain"),
            ("한국", "한국"),
            ("が", "が"),
            ("हिन्दी", "हिन्दी"),
        ] {
            assert_eq!(fold(word.to_owned()), folded);
        }
    }
}
