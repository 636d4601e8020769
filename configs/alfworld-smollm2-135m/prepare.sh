#!/usr/bin/env bash
# Makes the policy that configs/alfworld-smollm2-135m.toml begins from: fetch, import, demonstrate, fine-tune.
# Needs pip and ALFWorld's data (ALFWORLD_DATA). The fine-tuning took 45 minutes on one core with another job beside it.
set -euo pipefail
cd "$(dirname "$0")/../.."
seed() { cargo run --release --quiet -- "$@"; }
recipe=configs/alfworld-smollm2-135m
runs=runs/alfworld-smollm2-135m
mkdir -p "$runs"
eval "$(bash .ci/models "$runs/fetched")"
[ -d "$runs/base" ] || seed import "$SEED_SMOLLM2" "$runs/base"
[ -f "$runs/demonstrations.jsonl.zst" ] || seed demonstrate "$recipe/demonstrations.toml"
seed sft "$recipe/sft.toml"
