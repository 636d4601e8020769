#!/usr/bin/env bash
# A small policy for the world `knowledge` from nothing: scripted play, a decoder from random weights, then SEED and, from the same weights, GRPO.
# Writes runs/knowledge-tiny; the curves are runs/knowledge-tiny/curves.svg. The same bytes each time, on any number of threads.
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
seed train "$recipe/seed.toml" --set run.name=knowledge-tiny-grpo --set run.directory=runs/knowledge-tiny/grpo --set algorithm.name=grpo
seed compare runs/knowledge-tiny/grpo runs/knowledge-tiny/seed --picture runs/knowledge-tiny/curves.svg
