//! Document lengths as Lucene keeps them: in one byte.
//!
//! Not for: the exact lengths, whose mean the ranking uses.

/// Lengths below this are kept as they are (what is left of 256 values beside the others).
const EXACT: u32 = 24;

/// The length that Lucene's ranking sees for a document of `terms` terms (`SmallFloat.intToByte4` and back): exact up
/// to 40, then rounded down to four significant bits above 24.
///
/// ```
/// assert_eq!([7, 40, 41, 108, 5_000].map(seed_retrieval::quantised_length), [7, 40, 40, 104, 4_632]);
/// ```
pub fn quantised_length(terms: u32) -> u32 {
    let terms = terms.min(i32::MAX as u32);
    let Some(above) = terms.checked_sub(EXACT) else {
        return terms;
    };
    let dropped = (u32::BITS - above.leading_zeros()).saturating_sub(4);
    EXACT + (above >> dropped << dropped)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn steps_double_in_width() {
        let kept: Vec<u32> = [39, 40, 41, 42, 55, 56, 59, 60, 87, 88, 95, 96]
            .into_iter()
            .map(quantised_length)
            .collect();
        assert_eq!(kept, [39, 40, 40, 42, 54, 56, 56, 60, 84, 88, 88, 96]);
    }

    proptest! {
        #[test]
        fn lengths_are_rounded_down_by_less_than_an_eighth_and_stay_in_order(a in 0u32..3_000_000, b in 0u32..3_000_000) {
            let (kept_a, kept_b) = (quantised_length(a), quantised_length(b));
            prop_assert!(kept_a <= a && a - kept_a <= a / 8);
            prop_assert_eq!(quantised_length(kept_a), kept_a);
            prop_assert!(a > b || kept_a <= kept_b);
        }
    }
}
