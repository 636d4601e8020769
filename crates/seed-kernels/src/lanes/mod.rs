//! Sixteen `f32` lanes: the one vector type that every kernel is written against.
//!
//! Each operation is defined per lane and rounds as IEEE 754 says, so the three implementations give the same bits.
//!
//! Not for: choosing an implementation (see [`crate::instruction_set`]).

use crate::InstructionSet;

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use portable::Portable;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

/// Number of lanes. Part of the numeric law: partial sums are keyed by index modulo this.
pub(crate) const LANES: usize = 16;

/// Sixteen `f32` values.
///
/// An implementation may be named only inside the function that [`crate::instruction_set::dispatched`] compiled for
/// it; that is what makes its instructions available.
pub(crate) trait Lanes: Copy {
    /// The instruction set that this is.
    const SET: InstructionSet;
    /// How many vectors of accumulators fit in the registers beside the operands of a matrix product.
    const ACCUMULATORS: usize;
    /// The most rows that a register tile of a matrix product spans; at most 14 and at most `ACCUMULATORS`.
    const TILE_ROWS: usize;

    /// All lanes equal to `value`.
    fn splat(value: f32) -> Self;
    /// Reads sixteen values.
    fn load(values: &[f32; LANES]) -> Self;
    /// Writes sixteen values.
    fn store(self, out: &mut [f32; LANES]);
    /// `self + other`.
    fn add(self, other: Self) -> Self;
    /// `self - other`.
    fn sub(self, other: Self) -> Self;
    /// `self * other`.
    fn mul(self, other: Self) -> Self;
    /// `self / other`.
    fn div(self, other: Self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// `self * factor + addend`, rounded once.
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// `self` where it is greater than `other`, else `other`: a NaN in either gives `other`.
    fn maximum(self, other: Self) -> Self;
    /// `then` where `self < bound`, else `otherwise` (also for NaN).
    fn select_less(self, bound: Self, then: Self, otherwise: Self) -> Self;
    /// `2^(n - 1)` for lanes holding `1.5 * 2^23 + n` with integer `n` in -125..=128; any value for other lanes.
    fn half_power_of_two(self) -> Self;

    /// Asks for the cache line at `address`, which need not be readable.
    fn prefetch(address: *const f32);

    /// As [`Lanes::prefetch`], into the second cache only.
    fn prefetch_far(address: *const f32);

    /// Reads sixteen values.
    ///
    /// # Safety
    ///
    /// `values` points to sixteen readable values.
    #[inline(always)]
    unsafe fn load_at(values: *const f32) -> Self {
        // SAFETY: the caller's promise; an array of f32 needs no more alignment than an f32.
        Self::load(unsafe { &*values.cast::<[f32; LANES]>() })
    }

    /// Writes sixteen values.
    ///
    /// # Safety
    ///
    /// `out` points to sixteen writable values that nothing else is accessing.
    #[inline(always)]
    unsafe fn store_at(self, out: *mut f32) {
        // SAFETY: the caller's promise; an array of f32 needs no more alignment than an f32.
        self.store(unsafe { &mut *out.cast::<[f32; LANES]>() });
    }

    /// Reads `values[start..]`, up to sixteen of them; lanes past the end are `fill`.
    #[inline(always)]
    fn read(values: &[f32], start: usize, fill: f32) -> Self {
        let rest = &values[start..];
        if let Some(all) = rest.first_chunk() {
            Self::load(all)
        } else {
            let mut all = [fill; LANES];
            all[..rest.len()].copy_from_slice(rest);
            Self::load(&all)
        }
    }

    /// Writes to `out[start..]`, up to sixteen values; lanes past the end are dropped.
    #[inline(always)]
    fn write(self, out: &mut [f32], start: usize) {
        let rest = &mut out[start..];
        if let Some(all) = rest.first_chunk_mut() {
            self.store(all);
        } else {
            let count = rest.len();
            rest.copy_from_slice(&self.to_array()[..count]);
        }
    }

    /// The first `count` lanes of `self`, then those of `rest`.
    #[inline(always)]
    fn first(self, count: usize, rest: Self) -> Self {
        const INDICES: [f32; LANES] = [
            0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
        ];
        Self::load(&INDICES).select_less(Self::splat(count as f32), self, rest)
    }

    /// The lanes as an array.
    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        let mut all = [0.0; LANES];
        self.store(&mut all);
        all
    }

    /// The sum of the lanes, by the fixed tree that pairs lane `i` with `i + 8`, then `i + 4`, `i + 2`, `i + 1`.
    #[inline(always)]
    fn sum(self) -> f32 {
        let mut all = self.to_array();
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                all[lane] += all[lane + width];
            }
            width /= 2;
        }
        all[0]
    }

    /// The greatest lane.
    #[inline(always)]
    fn greatest(self) -> f32 {
        self.to_array().into_iter().fold(
            f32::NEG_INFINITY,
            |greatest, value| if value > greatest { value } else { greatest },
        )
    }
}
