//! Counter-keyed random numbers.
//!
//! Every random decision in `seed` is addressed by *what it is for* (run seed, iteration, task, sample, step,
//! purpose), never by how many numbers were drawn before it. Threads, batch splits, skipped episodes and resumed
//! runs therefore cannot change a single draw. A [`RandomKey`] is a hash over labelled fields; from it come either
//! independent numbers addressed by a counter ([`RandomKey::uniform`]) or a sequential generator
//! ([`RandomKey::generator`]) for code that draws an unknown amount, such as a level generator.
//!
//! Not for: cryptographic secrets, or reproducing another program's generator.

pub use rand_core::Rng;

use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

/// Domain separator of the key derivation. Changing it changes every random number of every run.
const DOMAIN: &[u8] = b"seed-random v1";

/// Identity of one stream of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RandomKey([u8; 32]);

impl RandomKey {
    /// The root key of a run.
    pub fn new(run_seed: u64) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(DOMAIN).update(&run_seed.to_le_bytes());
        Self(*hasher.finalize().as_bytes())
    }

    /// The key of a sub-stream: `label` names the field, `value` is its value. Order matters.
    #[must_use]
    pub fn with(&self, label: &str, value: u64) -> Self {
        self.derive(label, &value.to_le_bytes())
    }

    /// Like [`RandomKey::with`] for a field that is text, such as a task id.
    #[must_use]
    pub fn with_text(&self, label: &str, value: &str) -> Self {
        self.derive(label, value.as_bytes())
    }

    fn derive(&self, label: &str, value: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        // The length prefix keeps ("ab", "c") and ("a", "bc") apart.
        hasher
            .update(&(label.len() as u64).to_le_bytes())
            .update(label.as_bytes())
            .update(value);
        Self(*hasher.finalize().as_bytes())
    }

    /// The number at `counter` of this stream: uniform in `[0, 1)` with 53 bits, independent of any other draw.
    pub fn uniform(&self, counter: u64) -> f64 {
        let mut generator = self.generator();
        // Two 32-bit words per number.
        generator.set_word_pos(u128::from(counter) * 2);
        to_unit(generator.next_u64())
    }

    /// A sequential generator over this stream, starting at its beginning.
    pub fn generator(&self) -> ChaCha8Rng {
        ChaCha8Rng::from_seed(self.0)
    }

    /// 64 bits of the key itself, for seeding something that takes an integer.
    pub fn to_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(bytes)
    }

    /// The whole key as 64 hexadecimal digits, for a process that is to draw from the same stream.
    pub fn to_hex(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// The key that [`RandomKey::to_hex`] wrote; `None` for anything else.
    pub fn from_hex(text: &str) -> Option<Self> {
        let hash = blake3::Hash::from_hex(text).ok()?;
        Some(Self(*hash.as_bytes()))
    }
}

/// Draws from a sequential generator with fixed algorithms, so that a library upgrade cannot move them.
pub trait Draw: Rng {
    /// Uniform in `[0, 1)`, 53 bits.
    fn unit(&mut self) -> f64 {
        to_unit(self.next_u64())
    }

    /// Uniform integer in `0..bound` without modulo bias; `0` when `bound` is `0`.
    fn below(&mut self, bound: usize) -> usize {
        if bound == 0 {
            return 0;
        }
        let bound = bound as u64;
        // Rejection from the largest multiple of `bound` that fits in 64 bits.
        let limit = u64::MAX - u64::MAX % bound;
        loop {
            let draw = self.next_u64();
            if draw < limit {
                return (draw % bound) as usize;
            }
        }
    }

    /// A uniformly chosen element, `None` for an empty slice.
    fn choose<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() {
            None
        } else {
            items.get(self.below(items.len()))
        }
    }

    /// Fisher-Yates shuffle, from the last element down.
    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// True with probability `probability`.
    fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
}

impl<R: Rng + ?Sized> Draw for R {}

fn to_unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_do_not_depend_on_order_or_on_other_draws() {
        let key = RandomKey::new(7)
            .with("iteration", 3)
            .with_text("task", "kitchen");
        let forward: Vec<f64> = (0..64).map(|i| key.uniform(i)).collect();
        let backward: Vec<f64> = (0..64).rev().map(|i| key.uniform(i)).collect();
        assert_eq!(forward, backward.into_iter().rev().collect::<Vec<_>>());
        let mut generator = key.generator();
        let sequential: Vec<f64> = (0..64).map(|_| generator.unit()).collect();
        assert_eq!(
            forward, sequential,
            "counter i is the i-th number of the sequential stream"
        );
    }

    #[test]
    fn labels_and_values_separate_streams() {
        let root = RandomKey::new(1);
        let keys = [
            root.with("ab", 1),
            root.with("a", 1),
            root.with("ab", 2),
            root.with_text("ab", "1"),
            root.with("ab", 1).with("c", 2),
            root.with("c", 2).with("ab", 1),
            RandomKey::new(2).with("ab", 1),
        ];
        for (i, left) in keys.iter().enumerate() {
            for right in &keys[i + 1..] {
                assert_ne!(left, right);
            }
        }
    }

    /// Values pinned on purpose: if they move, every recorded run stops being reproducible.
    #[test]
    fn stream_is_pinned() {
        let key = RandomKey::new(0).with("purpose", 1);
        let mut order: Vec<u32> = (0..8).collect();
        key.generator().shuffle(&mut order);
        assert_eq!(
            (key.to_u64(), key.uniform(0).to_bits(), order),
            (
                14_744_065_004_683_537_597,
                4_603_279_318_348_412_827,
                vec![2, 5, 7, 0, 4, 1, 3, 6]
            )
        );
    }

    #[test]
    fn a_key_survives_being_written() {
        let key = RandomKey::new(3).with("step", 4);
        let text = key.to_hex();
        assert_eq!(text.len(), 64);
        assert_eq!(RandomKey::from_hex(&text), Some(key));
        for other in [
            "",
            &text[1..],
            &format!("{text}0"),
            &text.replace(&text[..1], "g"),
        ] {
            assert_eq!(RandomKey::from_hex(other), None, "{other}");
        }
    }

    #[test]
    fn below_is_within_bounds_and_reaches_every_value() {
        let mut generator = RandomKey::new(5).generator();
        let mut seen = [0usize; 7];
        for _ in 0..7_000 {
            seen[generator.below(7)] += 1;
        }
        assert!(seen.iter().all(|&count| (850..1150).contains(&count)), "{seen:?}");
        assert_eq!(generator.below(0), 0);
        assert_eq!(generator.choose::<u8>(&[]), None);
    }
}
