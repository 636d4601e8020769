#!/usr/bin/env bash
# Measures how time and memory of an iteration grow with episodes and with their length, and whether long runs stay flat.
# Usage: bench/growth/run.sh [PART ...]
# PART is one of episodes, length, updates, iterations; without any, all four are measured.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=${BENCH_FOLDER:-$root/bench/.venv/growth-run}
target=${CARGO_TARGET_DIR:-$root/target}

cargo build --quiet --release --manifest-path "$root/Cargo.toml" --package seed
cargo build --quiet --release --manifest-path "$root/Cargo.toml" --package seed-train --example soak
mkdir -p "$work"
python3 "$here/measure.py" "$root/configs/quickstart.toml" "$target/release" "$work" "$@"
