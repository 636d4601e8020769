//! Which characters are pictographs to Lucene's tokenizer.
//!
//! Not for: what newer Unicode versions say. Lucene 9 is built on Unicode 12.1, and later versions took some
//! characters (such as the black star) out of the property.

use std::cmp::Ordering;

/// `Extended_Pictographic` of Unicode 12.1 (`emoji-data.txt`): first and last code point of each range, ascending.
#[rustfmt::skip]
const EXTENDED_PICTOGRAPHIC: [(u32, u32); 77] = [
    (0xa9, 0xa9), (0xae, 0xae), (0x203c, 0x203c), (0x2049, 0x2049), (0x2122, 0x2122), (0x2139, 0x2139),
    (0x2194, 0x2199), (0x21a9, 0x21aa), (0x231a, 0x231b), (0x2328, 0x2328), (0x2388, 0x2388), (0x23cf, 0x23cf),
    (0x23e9, 0x23f3), (0x23f8, 0x23fa), (0x24c2, 0x24c2), (0x25aa, 0x25ab), (0x25b6, 0x25b6), (0x25c0, 0x25c0),
    (0x25fb, 0x25fe), (0x2600, 0x2605), (0x2607, 0x2612), (0x2614, 0x2685), (0x2690, 0x2705), (0x2708, 0x2712),
    (0x2714, 0x2714), (0x2716, 0x2716), (0x271d, 0x271d), (0x2721, 0x2721), (0x2728, 0x2728), (0x2733, 0x2734),
    (0x2744, 0x2744), (0x2747, 0x2747), (0x274c, 0x274c), (0x274e, 0x274e), (0x2753, 0x2755), (0x2757, 0x2757),
    (0x2763, 0x2767), (0x2795, 0x2797), (0x27a1, 0x27a1), (0x27b0, 0x27b0), (0x27bf, 0x27bf), (0x2934, 0x2935),
    (0x2b05, 0x2b07), (0x2b1b, 0x2b1c), (0x2b50, 0x2b50), (0x2b55, 0x2b55), (0x3030, 0x3030), (0x303d, 0x303d),
    (0x3297, 0x3297), (0x3299, 0x3299), (0x1f000, 0x1f0ff), (0x1f10d, 0x1f10f), (0x1f12f, 0x1f12f),
    (0x1f16c, 0x1f171), (0x1f17e, 0x1f17f), (0x1f18e, 0x1f18e), (0x1f191, 0x1f19a), (0x1f1ad, 0x1f1e5),
    (0x1f201, 0x1f20f), (0x1f21a, 0x1f21a), (0x1f22f, 0x1f22f), (0x1f232, 0x1f23a), (0x1f23c, 0x1f23f),
    (0x1f249, 0x1f3fa), (0x1f400, 0x1f53d), (0x1f546, 0x1f64f), (0x1f680, 0x1f6ff), (0x1f774, 0x1f77f),
    (0x1f7d5, 0x1f7ff), (0x1f80c, 0x1f80f), (0x1f848, 0x1f84f), (0x1f85a, 0x1f85f), (0x1f888, 0x1f88f),
    (0x1f8ae, 0x1f8ff), (0x1f90c, 0x1f93a), (0x1f93c, 0x1f945), (0x1f947, 0x1fffd),
];

/// Whether `character` is a pictograph, such as `™`, `★` or `💡`.
pub(super) fn is_pictograph(character: char) -> bool {
    // Two characters of Latin-1 are pictographs; most text has neither and needs no search.
    if character.is_ascii() {
        return false;
    }
    let code = u32::from(character);
    EXTENDED_PICTOGRAPHIC
        .binary_search_by(|&(first, last)| {
            if last < code {
                Ordering::Less
            } else if first > code {
                Ordering::Greater
            } else {
                Ordering::Equal
            }
        })
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_with_the_property_are_told_from_those_without() {
        for character in ['©', '™', '★', '♬', '✅', '💡', '\u{1fffd}'] {
            assert!(is_pictograph(character), "{character}");
        }
        for character in ['a', '#', '7', '☆', '\u{2606}', '•', '→', '\u{fe0f}', '中'] {
            assert!(!is_pictograph(character), "{character}");
        }
    }

    #[test]
    fn the_ranges_are_in_order() {
        assert!(EXTENDED_PICTOGRAPHIC.iter().all(|(first, last)| first <= last));
        assert!(EXTENDED_PICTOGRAPHIC.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }
}
