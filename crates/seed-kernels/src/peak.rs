//! The processor's own limit: how many multiply-adds it does where nothing waits for memory.
//!
//! Speeds of kernels are given as a share of it. Not for: results of any kind.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::instruction_set::{InstructionSet, dispatched};
use crate::lanes::{LANES, Lanes};

/// Steps of every chain in one try, some milliseconds.
const STEPS: usize = 500_000;

/// Chains that hide the latency of two 512-bit units.
const MANY: usize = 20;

/// Chains which, as pairs of 256-bit registers, still fit the sixteen that AVX2 has.
const FEW: usize = 6;

/// Floating-point operations per second, two for each fused multiply-add, that all threads of rayon's current pool
/// reach together on `f32`: the best of many short tries over about this time.
pub fn multiply_add_peak(time: Duration) -> f64 {
    let set = InstructionSet::current();
    let deadline = Instant::now() + time;
    let mut best = 0.0_f64;
    loop {
        for (count, chains) in [
            (MANY, many_chains as fn(InstructionSet, usize) -> f32),
            (FEW, few_chains),
        ] {
            let start = Instant::now();
            let sums = rayon::broadcast(|_| chains(set, STEPS));
            let operations = 2 * count * LANES * STEPS * sums.len();
            black_box(sums);
            best = best.max(operations as f64 / start.elapsed().as_secs_f64());
        }
        if Instant::now() >= deadline {
            return best;
        }
    }
}

dispatched! {
    fn many_chains(steps: usize) -> f32 = many_chains_body;
}

dispatched! {
    fn few_chains(steps: usize) -> f32 = few_chains_body;
}

#[inline(always)]
fn many_chains_body<V: Lanes>(steps: usize) -> f32 {
    run::<V, MANY>(steps)
}

#[inline(always)]
fn few_chains_body<V: Lanes>(steps: usize) -> f32 {
    run::<V, FEW>(steps)
}

/// Independent chains of fused multiply-adds that stay in registers.
#[inline(always)]
fn run<V: Lanes, const CHAINS: usize>(steps: usize) -> f32 {
    // Hidden from the compiler, which could otherwise compute the chains beforehand.
    let factor = V::splat(black_box(0.999));
    let mut sums = [V::splat(black_box(1.0)); CHAINS];
    for _ in 0..steps {
        for sum in &mut sums {
            *sum = sum.mul_add(factor, factor);
        }
    }
    sums.into_iter().map(V::sum).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_converge_to_their_fixed_point() {
        // x = 0.999 x + 0.999 has the solution 999.
        for set in InstructionSet::available() {
            for (count, sum) in [(MANY, many_chains(set, 20_000)), (FEW, few_chains(set, 20_000))] {
                let expected = (999 * count * LANES) as f32;
                assert!((sum / expected - 1.0).abs() < 1e-3, "{set:?}: {sum}");
            }
        }
    }
}
