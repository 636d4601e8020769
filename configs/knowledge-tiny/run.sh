#!/usr/bin/env bash
# A small policy for the world `knowledge` from nothing: scripted play, a decoder from random weights, then SEED.
# Writes runs/knowledge-tiny; the curve is runs/knowledge-tiny/seed/evaluations.jsonl. The same bytes each time, on any number of threads.
set -euo pipefail
cd "$(dirname "$0")/../.."
seed() { cargo run --release --quiet -- "$@"; }
recipe=configs/knowledge-tiny
rm -rf runs/knowledge-tiny
for part in 1 2; do
  seed demonstrate "$recipe/demonstrations-$part.toml"
  seed sft "$recipe/sft-$part.toml"
done
seed train "$recipe/seed.toml"
seed compare runs/knowledge-tiny/seed
