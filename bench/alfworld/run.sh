#!/usr/bin/env bash
# Plays the same games and commands with the original Python engine and with ours, and prints the ratio.
# Usage: bench/alfworld/run.sh [DATA] [--games N] [--steps N]
# DATA is what `ALFWORLD_DATA` names: a folder with json_2.1.1, or one with valid_unseen.tar.zst.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
data=${ALFWORLD_DATA:-}
if [[ $# -gt 0 && $1 != --* ]]; then
  data=$1
  shift
fi
if [[ -z $data ]]; then
  echo "name ALFWorld's data: set ALFWORLD_DATA or give the folder as the first argument" >&2
  exit 2
fi
work=${BENCH_FOLDER:-$root/bench/.venv/alfworld-run}
venv=${BENCH_VENV:-$root/bench/.venv/alfworld}
mkdir -p "$work"

if ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --requirement "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/installed.txt"
fi

cargo build --quiet --release --manifest-path "$root/Cargo.toml" --package seed-alfworld --example steps_per_second
target=${CARGO_TARGET_DIR:-$root/target}
native="$target/release/examples/steps_per_second"

"$native" prepare "$data" "$work" "$@"
"$native" measure "$work" >"$work/native.json"
"$venv/bin/python" "$here/play_original.py" "$work" >"$work/original.json"
"$venv/bin/python" "$here/compare.py" "$work/original.json" "$work/native.json" "$work/result.json"
echo "written: $work/result.json"
