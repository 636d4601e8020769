#!/usr/bin/env python3
"""What the comparison at equal processor time would be, had GRPO's updates skipped the rows that have no gradient.

The study's cells were run by a build that took the episodes of tied groups back through the layers although their
gradient is 0. A later build leaves them out, with the same bytes. Of one GRPO cell that was run again by both (base a,
seed 1), the part of an update's time that goes per tied share is SAVED. Estimates only: the cells were not run again.

Usage: studies/household/leaner-grpo.py [CELLS]      (default: runs/household-study/cells, unpacked from results.tar.zst)
"""
import json
import random
import sys
from pathlib import Path

SAVED = 0.59
BASES, SEEDS, DRAWS = "ab", range(1, 9), 10_000


def lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def curve(cell, saved):
    """Success of the seen panel over processor seconds, and the seconds in all."""
    tied = {row["step"]: row["metrics"].get("group/tied_share") or 0.0 for row in lines(cell / "metrics.jsonl")}
    seconds, at = 0.0, {0: 0.0}
    for row in lines(cell / "timings.jsonl"):
        spent = row["metrics"].get("timing/cpu_seconds")
        if spent is not None:
            seconds += spent - saved * tied.get(row["step"], 0.0) * row["metrics"]["timing/update_seconds"]
            at[row["step"]] = seconds
    points = [
        (at[row["iteration"]], row["evaluation"]["success"]["value"])
        for row in lines(cell / "evaluations.jsonl")
        if row["split"] == "seen"
    ]
    return points, seconds


def mean_height(points, end):
    area = 0.0
    for (left, low), (right, high) in zip(points, points[1:]):
        if left >= end:
            break
        if right > end:
            high = low + (high - low) * (end - left) / (right - left)
            right = end
        area += (right - left) * (low + high) / 2
    return area / end


def main():
    cells = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/household-study/cells")
    for saved in (0.0, SAVED):
        pairs, cost = {}, []
        for base in BASES:
            for seed in SEEDS:
                grpo, grpo_seconds = curve(cells / base / "GRPO" / f"seed-{seed}", saved)
                own, own_seconds = curve(cells / base / "SEED" / f"seed-{seed}", 0.0)
                end = min(grpo_seconds, own_seconds)
                pairs.setdefault(base, []).append(mean_height(own, end) - mean_height(grpo, end))
                cost.append((grpo_seconds, own_seconds))
        generator = random.Random(1)
        means = []
        for _ in range(DRAWS):
            drawn = [generator.choice(of_base) for of_base in pairs.values() for _ in of_base]
            means.append(sum(drawn) / len(drawn))
        means.sort()
        count = len(cost)
        mean = sum(sum(of_base) for of_base in pairs.values()) / count
        low, high = means[DRAWS // 40], means[-DRAWS // 40]
        seconds = [sum(of_arm) / count for of_arm in zip(*cost)]
        print(
            f"saved {saved:.2f}: SEED less GRPO {mean * 100:+.1f} [{low * 100:+.1f}, {high * 100:+.1f}] points at equal CPU;"
            f" CPU-seconds a cell {seconds[0]:.0f} (GRPO), {seconds[1]:.0f} (SEED)"
        )


if __name__ == "__main__":
    main()
