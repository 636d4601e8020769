#!/usr/bin/env bash
# Builds the starting weights of the study: for each base a foundation that can play, and from it two policies that have
# seen the same further play: `plain`, and `analyst`, which has also read finished episodes and written their skills.
# Usage: studies/household/bases/build.sh [BASE ...]      (default: a b; `large` is another shape, for larger.toml).
# SEED_BINARY names a built program to use.
set -euo pipefail
cd "$(dirname "$0")/../../.."
program=${SEED_BINARY:-}
seed() { if [ -n "$program" ]; then "$program" "$@"; else cargo run --release --quiet -- "$@"; fi; }
recipe=studies/household/bases
number() { printf '%d' "$(($(printf '%d' "'$1") - 96))"; } # a is 1, b is 2, …
[ $# -gt 0 ] || set -- a b
for base in "$@"; do
  n=$(number "$base")
  out=runs/study-bases/$base
  # `large` has three times the parameters and half the examples: a larger decoder learns from fewer.
  shape=() foundation=32000 play=8000 analyses=24000
  if [ "$base" = large ]; then
    shape=(--set initialise.hidden_size=192 --set initialise.intermediate_size=576 --set initialise.layers=6
      --set initialise.query_heads=6 --set initialise.key_value_heads=3)
    foundation=16000 play=4000 analyses=12000
  fi
  seed demonstrate $recipe/acting.toml --set run.seed="${n}01" --set demonstrations.examples=$foundation \
    --set demonstrations.out="$out/acting.jsonl.zst"
  seed sft $recipe/foundation.toml --set run.seed="$n" --set run.directory="$out/foundation" \
    --set "sft.data=[\"$out/acting.jsonl.zst\"]" "${shape[@]}"
  seed demonstrate $recipe/acting.toml --set run.seed="${n}02" --set demonstrations.examples=$play \
    --set demonstrations.out="$out/more-acting.jsonl.zst"
  seed demonstrate $recipe/analysing.toml --set run.seed="${n}03" --set demonstrations.examples=$analyses \
    --set demonstrations.out="$out/analysing.jsonl.zst"
  for weights in plain analyst; do
    data="\"$out/more-acting.jsonl.zst\""
    [ $weights = plain ] || data="$data, \"$out/analysing.jsonl.zst\""
    seed sft $recipe/finish.toml --set run.seed="$n" --set run.directory="$out/$weights" \
      --set model.path="$out/foundation/model" --set "sft.data=[$data]"
  done
done
