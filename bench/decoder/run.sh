#!/usr/bin/env bash
# Measures seed, PyTorch and llama.cpp in turn on the same weights and the same work; exit code 1 if a goal is missed.
# Usage: bench/decoder/run.sh [--rounds N] [--only NAME]... [--quick] [--compiled] [--save-baseline]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=${BENCH_FOLDER:-$root/bench/.venv/decoder-run}
venv=${BENCH_VENV:-$root/bench/.venv/decoder}
mkdir -p "$work/models"

if ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
  python3 -m venv "$venv"
  CMAKE_ARGS="-DGGML_NATIVE=ON" "$venv/bin/pip" install --quiet --requirement "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/installed.txt"
fi

cargo build --quiet --release --locked --manifest-path "$root/Cargo.toml" --package seed-bench --package seed
target=${CARGO_TARGET_DIR:-$root/target}

"$venv/bin/python" "$here/models.py" "$work/models" household-tiny S M M-scripted
"$venv/bin/python" "$here/compare.py" "$target/release" "$work" "$@"
