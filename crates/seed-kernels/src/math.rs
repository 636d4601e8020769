//! Exponential, logarithm, sine and cosine of our own.
//!
//! They use only IEEE 754 additions, multiplications, divisions, fused multiply-adds, comparisons and bit operations,
//! in a fixed order, so their results do not depend on the platform's mathematics library or instruction set.
//!
//! Not for: general use far outside a model's range (see each function's limits).

use crate::instruction_set::{InstructionSet, dispatched};
use crate::lanes::{LANES, Lanes, Portable};

/// Below this, `exp` is taken as zero: the exact value is under 2^-125.4, and a power of two of half its size would not
/// be a normal number.
const EXP_LOWEST: f32 = -86.98;
/// Above this, `exp` is infinite: ln of the greatest `f32`.
const EXP_HIGHEST: f32 = 88.722_83;
/// Adding this rounds to an integer held in the low bits.
const ROUND: f32 = 12_582_912.0;
/// ln 2 in two parts, the first with few enough bits that multiples up to 2^8 are exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// (e^r - 1 - r) / r^2 on |r| <= ln(2)/2, highest power first: Chebyshev fit with error 6.5e-8.
const EXP_COEFFICIENTS: [f32; 5] = [0.001_392_618_4, 0.008_363_179, 0.041_666_555, 0.166_665_77, 0.5];

/// `e^x` per lane: within 1.5 units in the last place, 0 below -86.98, infinite above 88.722_83, NaN for NaN.
#[inline(always)]
pub(crate) fn exp_lanes<V: Lanes>(x: V) -> V {
    let biased = x.mul_add(V::splat(std::f32::consts::LOG2_E), V::splat(ROUND));
    let n = biased.sub(V::splat(ROUND));
    let r = n.mul_add(V::splat(-LN_2_HIGH), x);
    let r = n.mul_add(V::splat(-LN_2_LOW), r);
    let mut polynomial = V::splat(EXP_COEFFICIENTS[0]);
    for coefficient in &EXP_COEFFICIENTS[1..] {
        polynomial = polynomial.mul_add(r, V::splat(*coefficient));
    }
    let mantissa = polynomial.mul_add(r.mul(r), r).add(V::splat(1.0));
    // Doubling first keeps n = 128 in range.
    let value = mantissa.add(mantissa).mul(biased.half_power_of_two());
    let value = x.select_less(V::splat(EXP_LOWEST), V::splat(0.0), value);
    V::splat(EXP_HIGHEST).select_less(x, V::splat(f32::INFINITY), value)
}

/// The logistic function `1 / (1 + e^-x)` per lane.
#[inline(always)]
pub(crate) fn sigmoid_lanes<V: Lanes>(x: V) -> V {
    let one = V::splat(1.0);
    one.div(one.add(exp_lanes(V::splat(0.0).sub(x))))
}

#[inline(always)]
fn exp_slice<V: Lanes>(values: &mut [f32]) {
    for start in (0..values.len()).step_by(LANES) {
        exp_lanes(V::read(values, start, 0.0)).write(values, start);
    }
}

dispatched! {
    fn exp_on(values: &mut [f32]) = exp_slice;
}

/// Replaces every value by its exponential (see [`exp`]).
pub fn exp_in_place(values: &mut [f32]) {
    exp_on(InstructionSet::current(), values);
}

/// `e^x`, the same bits as [`exp_in_place`] gives: within 1.5 units in the last place, 0 below -86.98, infinite above
/// 88.722_83.
pub fn exp(x: f32) -> f32 {
    exp_lanes(Portable::splat(x)).to_array()[0]
}

/// Natural logarithm in double precision for positive normal `x`, within a few units in the last place. Gives
/// negative infinity for 0, NaN for negative values and NaN, and infinity for infinity.
pub fn log(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x < f64::MIN_POSITIVE {
        return f64::NEG_INFINITY;
    }
    if x == f64::INFINITY {
        return x;
    }
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    // log m = 2 artanh s, with |s| <= 0.172.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut series = 0.0;
    for odd in (1..=23).rev().step_by(2) {
        series = series * square + 1.0 / f64::from(odd);
    }
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * s * series
}

/// Sine and cosine of `x` radians in double precision, within 1e-15 for |x| up to 10^6.
pub fn sin_cos(x: f64) -> (f64, f64) {
    // pi/2 in three parts: multiples of the first two by integers under 2^20 are exact.
    const PARTS: [f64; 3] = [
        f64::from_bits(0x3FF9_21FB_5440_0000),
        f64::from_bits(0x3DD0_B461_1A60_0000),
        f64::from_bits(0x3BA3_198A_2E03_7073),
    ];
    let quarter = (x * std::f64::consts::FRAC_2_PI).round();
    let r = ((x - quarter * PARTS[0]) - quarter * PARTS[1]) - quarter * PARTS[2];
    let square = r * r;
    // Taylor series, 1 - x^2/(2·3)·(1 - x^2/(4·5)·(…)): the terms after these are under 1e-17 for |r| <= pi/4.
    let (mut sine, mut cosine) = (1.0, 1.0);
    for k in (1..=9).rev() {
        let k = f64::from(k);
        sine = 1.0 - square / (2.0 * k * (2.0 * k + 1.0)) * sine;
        cosine = 1.0 - square / ((2.0 * k - 1.0) * (2.0 * k)) * cosine;
    }
    let sine = r * sine;
    match (quarter as i64).rem_euclid(4) {
        0 => (sine, cosine),
        1 => (cosine, -sine),
        2 => (-sine, -cosine),
        _ => (-cosine, sine),
    }
}
