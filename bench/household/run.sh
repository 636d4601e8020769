#!/usr/bin/env bash
# Writes household games as files of the original engine, plays their walkthroughs in it, and checks that our engine
# says the same.
# Usage: bench/household/run.sh GAME [COUNT]
# GAME is any game.tw-pddl of ALFWorld (domain and grammar are taken from it); COUNT games of each size, default 30.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
game=${1:?name a game.tw-pddl of ALFWorld}
count=${2:-30}
work=${BENCH_FOLDER:-$root/bench/.venv/household-run}
venv=${BENCH_VENV:-$root/bench/.venv/alfworld}
requirements=$here/../alfworld/requirements.txt

if [[ ! -x $venv/bin/python ]]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --requirement "$requirements"
  cp "$requirements" "$venv/installed.txt"
fi

cargo build --quiet --release --manifest-path "$root/Cargo.toml" --package seed-alfworld --example generate_households
target=${CARGO_TARGET_DIR:-$root/target}
generate=$target/release/examples/generate_households
rm -rf "$work"
mkdir -p "$work"
"$generate" "$game" "$work" studio unseen "$count"
"$generate" "$game" "$work" full unseen "$count"
"$venv/bin/python" "$here/play_walkthroughs.py" "$work" --transcripts "$work/transcripts.jsonl"
cargo run --quiet --release --manifest-path "$root/Cargo.toml" --package seed -- \
  env verify "$work/transcripts.jsonl" --data "$work"
