#!/usr/bin/env bash
# Builds models/household-tiny from nothing: demonstrations, a tokenizer, random weights, fine-tuning in two parts.
# About an hour on two cores. The same bytes each time: afterwards git sees no change in models/.
set -euo pipefail
cd "$(dirname "$0")/../.."
seed() { cargo run --release --quiet -- "$@"; }
recipe=configs/household-tiny
rm -rf runs/household-tiny
for part in 1 2; do
  seed demonstrate "$recipe/demonstrations-$part.toml"
  seed sft "$recipe/sft-$part.toml"
done
for file in runs/household-tiny/sft-2/model/*; do
  install -m 644 "$file" models/household-tiny/
done
(cd models/household-tiny && sha256sum ./*)
