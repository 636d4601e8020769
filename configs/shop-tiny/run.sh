#!/usr/bin/env bash
# A small policy for the world `shop` from nothing: scripted play, a decoder from random weights, then SEED and, from the same weights, GRPO.
# Writes runs/shop-tiny; the curves are runs/shop-tiny/curves.svg. The same bytes each time, on any number of threads.
set -euo pipefail
cd "$(dirname "$0")/../.."
seed() { cargo run --release --quiet -- "$@"; }
recipe=configs/shop-tiny
rm -rf runs/shop-tiny
for part in 1 2; do
  seed demonstrate "$recipe/demonstrations-$part.toml"
  seed sft "$recipe/sft-$part.toml"
done
seed train "$recipe/seed.toml"
seed train "$recipe/seed.toml" --set run.name=shop-tiny-grpo --set run.directory=runs/shop-tiny/grpo --set algorithm.name=grpo
seed compare runs/shop-tiny/grpo runs/shop-tiny/seed --picture runs/shop-tiny/curves.svg
