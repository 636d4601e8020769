//! Lanes as a plain array: the definition that the other implementations must equal bit for bit.
//!
//! Not for: x86 speed. On targets whose baseline has fused multiply-add (aarch64) the compiler vectorises this well.

use super::{LANES, Lanes};
use crate::InstructionSet;

/// Sixteen values in an array.
#[derive(Clone, Copy)]
pub(crate) struct Portable([f32; LANES]);

impl Portable {
    #[inline(always)]
    fn zip(self, other: Self, operation: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(
            #[inline(always)]
            |lane| operation(self.0[lane], other.0[lane]),
        ))
    }
}

impl Lanes for Portable {
    const SET: InstructionSet = InstructionSet::Portable;
    // Sized for the 32 128-bit registers of aarch64.
    const ACCUMULATORS: usize = 6;
    const TILE_ROWS: usize = 6;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        Self([value; LANES])
    }

    #[inline(always)]
    fn load(values: &[f32; LANES]) -> Self {
        Self(*values)
    }

    #[inline(always)]
    fn store(self, out: &mut [f32; LANES]) {
        *out = self.0;
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        self.zip(other, |a, b| a / b)
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(self.0.map(f32::sqrt))
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        Self(std::array::from_fn(
            #[inline(always)]
            |lane| self.0[lane].mul_add(factor.0[lane], addend.0[lane]),
        ))
    }

    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn select_less(self, bound: Self, then: Self, otherwise: Self) -> Self {
        Self(std::array::from_fn(
            #[inline(always)]
            |lane| {
                if self.0[lane] < bound.0[lane] {
                    then.0[lane]
                } else {
                    otherwise.0[lane]
                }
            },
        ))
    }

    #[inline(always)]
    fn half_power_of_two(self) -> Self {
        // The low bits of `1.5 * 2^23 + n` are n; moved to the exponent field, with the bias less one added.
        Self(
            self.0
                .map(|value| f32::from_bits((value.to_bits() << 23).wrapping_add(126 << 23))),
        )
    }

    #[inline(always)]
    fn prefetch(_address: *const f32) {}

    #[inline(always)]
    fn prefetch_far(_address: *const f32) {}
}
