//! Python's `random` module.
//!
//! Not for: numbers nobody compares with Python's. The sequence depends on how many numbers were drawn before.

use rand_mt::Mt;

/// The state of `random` after `random.seed(seed)`.
pub(crate) struct PythonRandom(Mt);

impl PythonRandom {
    /// The generator as `random.seed` leaves it.
    pub(crate) fn new(seed: u64) -> Self {
        // Python seeds with the 32-bit limbs of the number, lowest first, without leading zeros, and at least one.
        let limbs = [seed as u32, (seed >> 32) as u32];
        let used = if limbs[1] == 0 { &limbs[..1] } else { &limbs[..] };
        Self(Mt::new_with_key(used.iter().copied()))
    }

    /// `random.random()`: uniform in `[0, 1)`, 53 bits of two draws.
    pub(crate) fn unit(&mut self) -> f64 {
        let high = u64::from(self.0.next_u32() >> 5);
        let low = u64::from(self.0.next_u32() >> 6);
        ((high << 26) | low) as f64 / (1_u64 << 53) as f64
    }

    /// `random.uniform(low, high)`.
    pub(crate) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// `random.randrange(count)`, for `count` from 1; 0 for 0.
    pub(crate) fn below(&mut self, count: u32) -> u32 {
        if count == 0 {
            return 0;
        }
        let bits = u32::BITS - count.leading_zeros();
        loop {
            let drawn = self.0.next_u32() >> (u32::BITS - bits);
            if drawn < count {
                return drawn;
            }
        }
    }

    /// `random.shuffle(items)`. At most 2³² items.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u32 + 1) as usize;
            items.swap(last, other);
        }
    }

    /// `random.sample(items, 2)` of at most 21 items (Python samples longer lists in another way); `None` when there
    /// are fewer than two.
    pub(crate) fn pair<T: Copy>(&mut self, items: &[T]) -> Option<(T, T)> {
        let count = items.len() as u32;
        let last = *items.last()?;
        if count < 2 {
            return None;
        }
        let first_place = self.below(count) as usize;
        let first = *items.get(first_place)?;
        // The last item moves to the place of the one taken.
        let second_place = self.below(count - 1) as usize;
        let second = if second_place == first_place {
            last
        } else {
            *items.get(second_place)?
        };
        Some((first, second))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// From CPython 3.11.
    #[test]
    fn draws_are_pythons() {
        let mut random = PythonRandom::new(0);
        assert_eq!(random.unit(), 0.844_421_851_525_048_1);
        assert_eq!(random.uniform(10.0, 20.0), 17.579_544_029_403_024);
        let mut random = PythonRandom::new(233);
        let mut items: Vec<u32> = (0..10).collect();
        random.shuffle(&mut items);
        assert_eq!(items, [5, 9, 0, 1, 4, 7, 6, 3, 8, 2]);
        let mut random = PythonRandom::new(7);
        let pairs: Vec<(u32, u32)> = (0..5).filter_map(|_| random.pair(&[1, 2, 3, 4])).collect();
        assert_eq!(pairs, [(3, 1), (4, 3), (1, 4), (1, 2), (1, 3)]);
        assert_eq!(PythonRandom::new(1 << 40).unit(), 0.103_639_456_281_237_5);
    }

    #[test]
    fn a_pair_needs_two() {
        let mut random = PythonRandom::new(0);
        assert_eq!(random.pair::<u32>(&[]), None);
        assert_eq!(random.pair(&[1]), None);
        assert_eq!(random.below(0), 0);
    }

    proptest! {
        #[test]
        fn numbers_stay_below_their_bound(seed: u64, count in 1u32..) {
            prop_assert!(PythonRandom::new(seed).below(count) < count);
        }
    }
}
