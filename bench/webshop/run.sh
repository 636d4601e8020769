#!/usr/bin/env bash
# Measures the shop's steps a second on one core: on generated products, and on WebShop's own where DATA names them.
# Usage: bench/webshop/run.sh [DATA] [--seconds N]
# DATA is what `WEBSHOP_DATA` names: a folder with items_shuffle_1000.json and items_ins_v2_1000.json.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
data=${WEBSHOP_DATA:-}
if [[ $# -gt 0 && $1 != --* ]]; then
  data=$1
  shift
fi

cargo build --quiet --release --manifest-path "$root/Cargo.toml" --package seed
native="${CARGO_TARGET_DIR:-$root/target}/release/seed"

"$native" env bench shop --games 256 "$@"
if [[ -n $data ]]; then
  "$native" env bench webshop --data "$data" --games 256 "$@"
else
  echo "WebShop's own products: not measured, since neither WEBSHOP_DATA nor an argument names them" >&2
fi
