//! Porter's stemmer as Lucene has it.
//!
//! The algorithm is M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980, with the author's two later
//! departures: `bli` becomes `ble` where the paper has `abli`, and `logi` becomes `log`. Words of one or two
//! characters stay as they are. Not Snowball's "English" stemmer (Porter 2), which gives other stems.
//!
//! Works on UTF-16 units as Lucene does; every unit that is no ASCII vowel counts as a consonant.

/// Suffixes of step 2 and what replaces them where the rest has a measure above 0.
const STEP_2: [(&str, &str); 21] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("logi", "log"),
];

/// Suffixes of step 3, likewise.
const STEP_3: [(&str, &str); 7] = [
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
];

/// Suffixes that step 4 takes away where the rest has a measure above 1. The first that fits decides. `ion` is
/// handled apart.
const STEP_4: [&str; 18] = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ou", "ism", "ate",
    "iti", "ous", "ive", "ize",
];

/// The stem of a lower-cased word.
///
/// ```
/// assert_eq!(seed_retrieval::stem("relational".to_owned()), "relat");
/// ```
pub fn stem(word: String) -> String {
    let mut units: Vec<u16> = word.encode_utf16().collect();
    if units.len() <= 2 {
        return word;
    }
    plurals_and_participles(&mut units);
    final_y(&mut units);
    replace(&mut units, &STEP_2);
    replace(&mut units, &STEP_3);
    derivations(&mut units);
    final_e_and_l(&mut units);
    // Only ASCII letters were taken away or replaced, so what is left is the text it was; were it not, the word
    // itself would be its stem.
    String::from_utf16(&units).unwrap_or(word)
}

fn is_consonant(word: &[u16], index: usize) -> bool {
    // `y` is a vowel after a consonant: walk back over the run of `y`s to what decides.
    let mut index = index;
    let mut consonant = true;
    while let Some(&unit) = word.get(index) {
        if [b'a', b'e', b'i', b'o', b'u'].map(u16::from).contains(&unit) {
            return !consonant;
        }
        if unit != u16::from(b'y') || index == 0 {
            return consonant;
        }
        consonant = !consonant;
        index -= 1;
    }
    consonant
}

/// Porter's measure: how often a vowel is followed by a consonant.
fn measure(word: &[u16]) -> usize {
    let mut count = 0;
    let mut after_vowel = false;
    for index in 0..word.len() {
        let consonant = is_consonant(word, index);
        count += usize::from(after_vowel && consonant);
        after_vowel = !consonant;
    }
    count
}

fn has_vowel(word: &[u16]) -> bool {
    (0..word.len()).any(|index| !is_consonant(word, index))
}

/// Whether the word ends in two equal consonants.
fn ends_double(word: &[u16]) -> bool {
    matches!(word, [.., before, last] if before == last) && is_consonant(word, word.len() - 1)
}

/// Whether the word ends consonant, vowel, consonant, the last being none of `w`, `x`, `y`.
fn ends_short(word: &[u16]) -> bool {
    let length = word.len();
    length >= 3
        && is_consonant(word, length - 1)
        && !is_consonant(word, length - 2)
        && is_consonant(word, length - 3)
        && !word
            .last()
            .is_some_and(|unit| [b'w', b'x', b'y'].map(u16::from).contains(unit))
}

/// The word before `suffix`.
fn before<'a>(word: &'a [u16], suffix: &str) -> Option<&'a [u16]> {
    let stem = word.get(..word.len().checked_sub(suffix.len())?)?;
    let end = word.get(stem.len()..)?;
    end.iter()
        .copied()
        .eq(suffix.bytes().map(u16::from))
        .then_some(stem)
}

fn ends(word: &[u16], suffix: &str) -> bool {
    before(word, suffix).is_some()
}

fn last_is(word: &[u16], letters: &[u8]) -> bool {
    word.last()
        .is_some_and(|unit| letters.iter().any(|&letter| u16::from(letter) == *unit))
}

/// Step 1a and 1b.
fn plurals_and_participles(word: &mut Vec<u16>) {
    if last_is(word, b"s") {
        if ends(word, "sses") || ends(word, "ies") {
            word.truncate(word.len() - 2);
        } else if !ends(word, "ss") {
            word.pop();
        }
    }
    if let Some(stem) = before(word, "eed") {
        if measure(stem) > 0 {
            word.pop();
        }
        return;
    }
    let Some(stem) = before(word, "ed")
        .or_else(|| before(word, "ing"))
        .filter(|stem| has_vowel(stem))
    else {
        return;
    };
    let length = stem.len();
    word.truncate(length);
    if ["at", "bl", "iz"].iter().any(|end| ends(word, end)) {
        word.push(u16::from(b'e'));
    } else if ends_double(word) {
        if !last_is(word, b"lsz") {
            word.pop();
        }
    } else if measure(word) == 1 && ends_short(word) {
        word.push(u16::from(b'e'));
    }
}

/// Step 1c.
fn final_y(word: &mut [u16]) {
    if before(word, "y").is_some_and(has_vowel)
        && let Some(last) = word.last_mut()
    {
        *last = u16::from(b'i');
    }
}

/// Steps 2 and 3: the first suffix that fits is replaced, if enough is before it.
fn replace(word: &mut Vec<u16>, rules: &[(&str, &str)]) {
    for (suffix, replacement) in rules {
        if let Some(stem) = before(word, suffix) {
            if measure(stem) > 0 {
                let length = stem.len();
                word.truncate(length);
                word.extend(replacement.bytes().map(u16::from));
            }
            return;
        }
    }
}

/// Step 4.
fn derivations(word: &mut Vec<u16>) {
    let ion = before(word, "ion").filter(|stem| last_is(stem, b"st"));
    let stem = ion.or_else(|| STEP_4.iter().find_map(|suffix| before(word, suffix)));
    if let Some(length) = stem.filter(|stem| measure(stem) > 1).map(<[u16]>::len) {
        word.truncate(length);
    }
}

/// Step 5.
fn final_e_and_l(word: &mut Vec<u16>) {
    if let Some(stem) = before(word, "e") {
        let measure = measure(stem);
        if measure > 1 || (measure == 1 && !ends_short(stem)) {
            word.pop();
        }
    }
    // The measure of the whole word, whose last letter is a consonant.
    if last_is(word, b"l") && ends_double(word) && measure(word) > 1 {
        word.pop();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Examples of Porter's paper, step by step, and the two departures.
    #[test]
    fn the_papers_examples_come_out() {
        for (word, expected) in [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("ties", "ti"),
            ("caress", "caress"),
            ("cats", "cat"),
            ("feed", "feed"),
            ("agreed", "agre"),
            ("plastered", "plaster"),
            ("bled", "bled"),
            ("motoring", "motor"),
            ("sing", "sing"),
            ("conflated", "conflat"),
            ("troubled", "troubl"),
            ("sized", "size"),
            ("hopping", "hop"),
            ("falling", "fall"),
            ("hissing", "hiss"),
            ("fizzed", "fizz"),
            ("failing", "fail"),
            ("filing", "file"),
            ("happy", "happi"),
            ("sky", "sky"),
            ("relational", "relat"),
            ("conditional", "condit"),
            ("digitizer", "digit"),
            ("vietnamization", "vietnam"),
            ("formaliti", "formal"),
            ("electriciti", "electr"),
            ("hopeful", "hope"),
            ("goodness", "good"),
            ("revival", "reviv"),
            ("adjustable", "adjust"),
            ("replacement", "replac"),
            ("adjustment", "adjust"),
            ("adoption", "adopt"),
            ("probate", "probat"),
            ("rate", "rate"),
            ("cease", "ceas"),
            ("controll", "control"),
            ("roll", "roll"),
            ("possibly", "possibl"),
            ("archaeology", "archaeolog"),
            ("always", "alwai"),
            ("as", "as"),
        ] {
            assert_eq!(stem(word.to_owned()), expected, "{word}");
        }
    }

    #[test]
    fn letters_beyond_ascii_are_consonants_and_words_are_measured_in_utf_16() {
        assert_eq!(stem("cafés".to_owned()), "café");
        assert_eq!(stem("éàing".to_owned()), "éàing");
        assert_eq!(stem("𝐀s".to_owned()), "𝐀");
    }

    proptest! {
        #[test]
        fn a_stem_is_never_longer_than_its_word(word in "[a-zéy]{0,14}") {
            prop_assert!(stem(word.clone()).len() <= word.len());
        }
    }
}
