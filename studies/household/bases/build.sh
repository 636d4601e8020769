#!/usr/bin/env bash
# Builds the starting weights of the study: for each base a foundation that can play, and from it two policies that have
# seen the same further play: `plain`, and `analyst`, which has also read finished episodes and written their skills.
# Usage: studies/household/bases/build.sh [BASE ...]      (default: a b). SEED_BINARY names a built program to use.
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
  seed demonstrate $recipe/acting.toml --set run.seed="${n}01" --set demonstrations.out="$out/acting.jsonl.zst"
  seed sft $recipe/foundation.toml --set run.seed="$n" --set run.directory="$out/foundation" \
    --set "sft.data=[\"$out/acting.jsonl.zst\"]"
  seed demonstrate $recipe/acting.toml --set run.seed="${n}02" --set demonstrations.examples=8000 \
    --set demonstrations.out="$out/more-acting.jsonl.zst"
  seed demonstrate $recipe/analysing.toml --set run.seed="${n}03" --set demonstrations.out="$out/analysing.jsonl.zst"
  for weights in plain analyst; do
    data="\"$out/more-acting.jsonl.zst\""
    [ $weights = plain ] || data="$data, \"$out/analysing.jsonl.zst\""
    seed sft $recipe/finish.toml --set run.seed="$n" --set run.directory="$out/$weights" \
      --set model.path="$out/foundation/model" --set "sft.data=[$data]"
  done
done
