//! Measures the kernels' throughput on this machine: best of several short tries, since others may use the cores.
//!
//! `cargo run --release -p seed-kernels --example throughput [filter]`

use std::time::{Duration, Instant};

use seed_kernels::attention::{AttentionShape, KeyValueCache, attention, attention_backward};
use seed_kernels::head::{HeadPass, token_log_probs, token_log_probs_backward};
use seed_kernels::matmul::{PackedMatrix, accumulate_outer, matmul};
use seed_kernels::norm::rms_norm;
use seed_kernels::peak::multiply_add_peak;
use seed_kernels::swiglu::swiglu;

/// The shortest of several runs, in seconds.
fn best(mut body: impl FnMut()) -> f64 {
    body();
    let deadline = Instant::now() + Duration::from_millis(150);
    let mut shortest = f64::INFINITY;
    while Instant::now() < deadline {
        let start = Instant::now();
        body();
        shortest = shortest.min(start.elapsed().as_secs_f64());
    }
    shortest
}

fn noise(count: usize) -> Vec<f32> {
    (0..count)
        .map(|i| (i as u32).wrapping_mul(2_654_435_769) as f32 / 4_294_967_296.0 - 0.5)
        .collect()
}

struct Report {
    filter: String,
}

#[expect(clippy::print_stdout, reason = "the example's output")]
impl Report {
    /// What products are compared with.
    fn measure_peak(&self, threads: usize) {
        let name = format!("peak t{threads}");
        if name.contains(&self.filter) {
            let rate = multiply_add_peak(Duration::from_millis(150));
            println!("{name:44} {:13} {:8.1} GFLOP/s", "", rate / 1e9);
        }
    }

    fn measure(&self, name: &str, operations: usize, bytes: usize, body: impl FnMut()) {
        if name.contains(&self.filter) {
            let seconds = best(body);
            println!(
                "{name:44} {:10.1} us {:8.1} GFLOP/s {:8.1} GB/s",
                seconds * 1e6,
                operations as f64 / seconds / 1e9,
                bytes as f64 / seconds / 1e9
            );
        }
    }
}

fn main() {
    let report = Report {
        filter: std::env::args().nth(1).unwrap_or_default(),
    };
    for threads in [1, 2] {
        let Ok(pool) = rayon::ThreadPoolBuilder::new().num_threads(threads).build() else {
            return;
        };
        pool.install(|| {
            report.measure_peak(threads);
            measure_all(&report, threads);
        });
    }
}

fn measure_all(report: &Report, threads: usize) {
    for (depth, columns) in [(256, 768), (1024, 1024), (256, 256)] {
        let w = noise(depth * columns);
        let packed = PackedMatrix::from_transposed(&w, columns, depth);
        for rows in [1, 4, 8, 16, 64, 256, 1024] {
            let a = noise(rows * depth);
            let mut out = vec![0.0; rows * columns];
            let name = format!("matmul {rows}x{depth}x{columns} t{threads}");
            report.measure(&name, 2 * rows * depth * columns, 4 * depth * columns, || {
                matmul(&a, rows, &packed, &mut out, false);
            });
        }
        let (rows, mut dw) = (1024, vec![0.0; columns * depth]);
        let (dy, x) = (noise(rows * columns), noise(rows * depth));
        let name = format!("outer {rows}x{depth}x{columns} t{threads}");
        report.measure(&name, 2 * rows * depth * columns, 0, || {
            accumulate_outer(&dy, &x, rows, columns, depth, &mut dw);
        });
        let mut packed = packed;
        report.measure(
            &format!("repack transposed {depth}x{columns} t{threads}"),
            0,
            8 * depth * columns,
            || {
                packed.repack_transposed(&w);
            },
        );
    }
    for (query_heads, key_value_heads, head_dim, rows) in
        [(4, 2, 64, 256), (4, 4, 64, 1024), (8, 2, 64, 1024)]
    {
        let shape = AttentionShape {
            query_heads,
            key_value_heads,
            head_dim,
            scale: 0.125,
        };
        let (wide, narrow) = (rows * shape.query_width(), rows * shape.key_value_width());
        let (q, k, v) = (noise(wide), noise(narrow), noise(narrow));
        let mut cache = KeyValueCache::new(&shape, rows);
        cache.append(&k, &v, rows);
        let mut out = vec![0.0; wide];
        let mut log_sum_exp = vec![0.0; rows * query_heads];
        let pairs = rows * (rows + 1) / 2 * shape.query_width();
        let name = format!("{query_heads}/{key_value_heads} heads of {head_dim}, {rows} rows t{threads}");
        report.measure(&format!("attention {name}"), 4 * pairs, 0, || {
            attention(&q, rows, &cache, 0, &shape, &mut out, Some(&mut log_sum_exp));
        });
        let mut one = vec![0.0; shape.query_width()];
        report.measure(
            &format!("decode {name}"),
            4 * rows * shape.query_width(),
            8 * narrow,
            || {
                attention(
                    &q[..shape.query_width()],
                    1,
                    &cache,
                    rows - 1,
                    &shape,
                    &mut one,
                    None,
                );
            },
        );
        let (mut dq, mut dk, mut dv) = (vec![0.0; wide], vec![0.0; narrow], vec![0.0; narrow]);
        report.measure(&format!("attention backward {name}"), 10 * pairs, 0, || {
            attention_backward(
                &q,
                rows,
                &cache,
                &out,
                &log_sum_exp,
                &q,
                &shape,
                &mut dq,
                &mut dk,
                &mut dv,
            );
        });
    }
    for (rows, dim, vocabulary) in [(512, 256, 2048), (128, 512, 32_000)] {
        let (hidden, weight) = (noise(rows * dim), noise(vocabulary * dim));
        let head = PackedMatrix::from_transposed(&weight, vocabulary, dim);
        let head_plain = PackedMatrix::from_plain(&weight, vocabulary, dim);
        let targets: Vec<u32> = (0..rows as u32).collect();
        let (mut log_probs, mut entropies) = (vec![0.0; rows], vec![0.0; rows]);
        let mut pass = HeadPass::default();
        let name = format!("{rows}x{dim}x{vocabulary} t{threads}");
        report.measure(&format!("head {name}"), 2 * rows * dim * vocabulary, 0, || {
            token_log_probs(
                &hidden,
                rows,
                &head,
                &targets,
                1.0,
                &mut log_probs,
                &mut entropies,
                Some(&mut pass),
            );
        });
        let (mut dhidden, mut dhead) = (vec![0.0; rows * dim], vec![0.0; vocabulary * dim]);
        report.measure(
            &format!("head backward {name}"),
            4 * rows * dim * vocabulary,
            0,
            || {
                token_log_probs_backward(
                    &hidden,
                    rows,
                    &head,
                    &head_plain,
                    &targets,
                    1.0,
                    &log_probs,
                    &entropies,
                    &mut pass,
                    &mut dhidden,
                    Some(&mut dhead),
                );
            },
        );
    }
    let (rows, dim) = (1024, 256);
    let (x, weight, mut out) = (noise(rows * dim), noise(dim), vec![0.0; rows * dim]);
    report.measure(
        &format!("rms_norm {rows}x{dim} t{threads}"),
        0,
        8 * rows * dim,
        || {
            rms_norm(&x, rows, &weight, 1e-5, &mut out);
        },
    );
    let up = noise(rows * dim);
    report.measure(
        &format!("swiglu {rows}x{dim} t{threads}"),
        0,
        12 * rows * dim,
        || swiglu(&x, &up, &mut out),
    );
}
