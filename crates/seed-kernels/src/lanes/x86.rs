//! Lanes in AVX2 and AVX-512 registers.
//!
//! Not for: being called from code that was not compiled for these instructions (see [`super::Lanes`]).

use core::arch::x86_64::{
    __m256, __m512, _CMP_LT_OQ, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch, _mm256_add_epi32, _mm256_add_ps,
    _mm256_blendv_ps, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cmp_ps, _mm256_div_ps,
    _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_max_ps, _mm256_mul_ps, _mm256_set1_epi32, _mm256_set1_ps,
    _mm256_slli_epi32, _mm256_sqrt_ps, _mm256_storeu_ps, _mm256_sub_ps, _mm512_add_epi32, _mm512_add_ps,
    _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_div_ps, _mm512_fmadd_ps,
    _mm512_loadu_ps, _mm512_mask_blend_ps, _mm512_mask_loadu_ps, _mm512_mask_storeu_ps, _mm512_max_ps,
    _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_slli_epi32, _mm512_sqrt_ps, _mm512_storeu_ps,
    _mm512_sub_ps,
};

use super::{LANES, Lanes};
use crate::InstructionSet;

/// Sixteen values in one AVX-512 register.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512);

/// Runs intrinsics of the instruction set that the surrounding type stands for.
macro_rules! intrinsics {
    ($body:expr) => {
        // SAFETY: the type is named only in functions compiled for its instructions, which run only after detection;
        // loads and stores go through references to whole arrays and need no alignment.
        unsafe { $body }
    };
}

/// The mask of the lanes under `count`.
#[inline(always)]
fn first_of_sixteen(count: usize) -> u16 {
    if count >= LANES {
        u16::MAX
    } else {
        (1 << count) - 1
    }
}

impl Lanes for Avx512 {
    const SET: InstructionSet = InstructionSet::Avx512;
    // Of 32 registers: 28 accumulators, two vectors of the right operand, one broadcast of the left.
    const ACCUMULATORS: usize = 28;
    const TILE_ROWS: usize = 14;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        Self(intrinsics!(_mm512_set1_ps(value)))
    }

    #[inline(always)]
    fn load(values: &[f32; LANES]) -> Self {
        Self(intrinsics!(_mm512_loadu_ps(values.as_ptr())))
    }

    #[inline(always)]
    fn store(self, out: &mut [f32; LANES]) {
        intrinsics!(_mm512_storeu_ps(out.as_mut_ptr(), self.0));
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(intrinsics!(_mm512_add_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self(intrinsics!(_mm512_sub_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Self(intrinsics!(_mm512_mul_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        Self(intrinsics!(_mm512_div_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(intrinsics!(_mm512_sqrt_ps(self.0)))
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        Self(intrinsics!(_mm512_fmadd_ps(self.0, factor.0, addend.0)))
    }

    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        Self(intrinsics!(_mm512_max_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn select_less(self, bound: Self, then: Self, otherwise: Self) -> Self {
        Self(intrinsics!(_mm512_mask_blend_ps(
            _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, bound.0),
            otherwise.0,
            then.0
        )))
    }

    #[inline(always)]
    fn half_power_of_two(self) -> Self {
        Self(intrinsics!(_mm512_castsi512_ps(_mm512_add_epi32(
            _mm512_slli_epi32::<23>(_mm512_castps_si512(self.0)),
            _mm512_set1_epi32(126 << 23)
        ))))
    }

    #[inline(always)]
    fn prefetch(address: *const f32) {
        intrinsics!(_mm_prefetch::<_MM_HINT_T0>(address.cast()));
    }

    #[inline(always)]
    fn prefetch_far(address: *const f32) {
        intrinsics!(_mm_prefetch::<_MM_HINT_T1>(address.cast()));
    }

    #[inline(always)]
    fn read(values: &[f32], start: usize, fill: f32) -> Self {
        let rest = &values[start..];
        let mask = first_of_sixteen(rest.len());
        // Lanes that the mask leaves out are not accessed.
        Self(intrinsics!(_mm512_mask_loadu_ps(
            _mm512_set1_ps(fill),
            mask,
            rest.as_ptr()
        )))
    }

    #[inline(always)]
    fn write(self, out: &mut [f32], start: usize) {
        let rest = &mut out[start..];
        let mask = first_of_sixteen(rest.len());
        intrinsics!(_mm512_mask_storeu_ps(rest.as_mut_ptr(), mask, self.0));
    }
}

/// Sixteen values in two AVX registers.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256, __m256);

impl Lanes for Avx2 {
    const SET: InstructionSet = InstructionSet::Avx2;
    // Of 16 registers: 12 accumulators (two to a vector), one vector of the right operand, one broadcast of the left.
    const ACCUMULATORS: usize = 6;
    const TILE_ROWS: usize = 6;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        let half = intrinsics!(_mm256_set1_ps(value));
        Self(half, half)
    }

    #[inline(always)]
    fn load(values: &[f32; LANES]) -> Self {
        Self(
            intrinsics!(_mm256_loadu_ps(values.as_ptr())),
            intrinsics!(_mm256_loadu_ps(values.as_ptr().add(LANES / 2))),
        )
    }

    #[inline(always)]
    fn store(self, out: &mut [f32; LANES]) {
        intrinsics!({
            _mm256_storeu_ps(out.as_mut_ptr(), self.0);
            _mm256_storeu_ps(out.as_mut_ptr().add(LANES / 2), self.1);
        });
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(
            intrinsics!(_mm256_add_ps(self.0, other.0)),
            intrinsics!(_mm256_add_ps(self.1, other.1)),
        )
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self(
            intrinsics!(_mm256_sub_ps(self.0, other.0)),
            intrinsics!(_mm256_sub_ps(self.1, other.1)),
        )
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Self(
            intrinsics!(_mm256_mul_ps(self.0, other.0)),
            intrinsics!(_mm256_mul_ps(self.1, other.1)),
        )
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        Self(
            intrinsics!(_mm256_div_ps(self.0, other.0)),
            intrinsics!(_mm256_div_ps(self.1, other.1)),
        )
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(
            intrinsics!(_mm256_sqrt_ps(self.0)),
            intrinsics!(_mm256_sqrt_ps(self.1)),
        )
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        Self(
            intrinsics!(_mm256_fmadd_ps(self.0, factor.0, addend.0)),
            intrinsics!(_mm256_fmadd_ps(self.1, factor.1, addend.1)),
        )
    }

    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        Self(
            intrinsics!(_mm256_max_ps(self.0, other.0)),
            intrinsics!(_mm256_max_ps(self.1, other.1)),
        )
    }

    #[inline(always)]
    fn select_less(self, bound: Self, then: Self, otherwise: Self) -> Self {
        intrinsics!({
            let low = _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, bound.0);
            let high = _mm256_cmp_ps::<_CMP_LT_OQ>(self.1, bound.1);
            Self(
                _mm256_blendv_ps(otherwise.0, then.0, low),
                _mm256_blendv_ps(otherwise.1, then.1, high),
            )
        })
    }

    #[inline(always)]
    fn half_power_of_two(self) -> Self {
        intrinsics!({
            let bias = _mm256_set1_epi32(126 << 23);
            let low = _mm256_add_epi32(_mm256_slli_epi32::<23>(_mm256_castps_si256(self.0)), bias);
            let high = _mm256_add_epi32(_mm256_slli_epi32::<23>(_mm256_castps_si256(self.1)), bias);
            Self(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high))
        })
    }

    #[inline(always)]
    fn prefetch(address: *const f32) {
        intrinsics!(_mm_prefetch::<_MM_HINT_T0>(address.cast()));
    }

    #[inline(always)]
    fn prefetch_far(address: *const f32) {
        intrinsics!(_mm_prefetch::<_MM_HINT_T1>(address.cast()));
    }
}
