#!/usr/bin/env bash
# Packs what a report of a study is made of: its directory without unfinished cells, weights, trajectories, event files and
# locks. The same bytes each time.
# Usage: studies/household/pack.sh DIRECTORY ARCHIVE     (such as runs/household-study studies/household/results.tar.zst)
# To look at it again, or to go on: mkdir -p runs && tar --zstd -xf ARCHIVE -C runs
set -euo pipefail
directory=$(realpath "${1:?which directory?}")
archive=$(realpath -m "${2:?which archive?}")
unfinished=()
for cell in "$directory"/cells/*/*/seed-*; do
  # Without its checkpoints a cell that was only begun could not be resumed.
  [ -f "$cell/summary.json" ] || unfinished+=("--exclude=$(realpath --relative-to="$(dirname "$directory")" "$cell")")
done
tar --directory="$(dirname "$directory")" --create --sort=name --format=posix \
  --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime --mtime='2026-01-01 00:00Z' \
  --owner=0 --group=0 --numeric-owner --mode='u+rwX,go+rX,go-w' \
  --exclude=checkpoints --exclude=tensorboard --exclude='*.lock' --exclude='*.tmp-*' --exclude=report --exclude=trajectories \
  "${unfinished[@]}" \
  "$(basename "$directory")" | zstd --quiet --force -19 -T1 -o "$archive"
echo "$archive: $(du -h "$archive" | cut -f1)"
