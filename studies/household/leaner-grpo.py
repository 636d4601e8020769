#!/usr/bin/env python3
"""What the comparison at equal processor time would be, had GRPO's updates skipped the rows that have no gradient.

The study's cells were run by a build that took the episodes of tied groups back through the layers although their
gradient is 0. A later build leaves them out, with the same bytes. Of one GRPO cell that was run again by both (base a,
seed 1), the part of an update's time that goes per tied share is SAVED. Estimates only: the cells were not run again.

Usage: studies/household/leaner-grpo.py [CELLS]      (default: runs/household-study/cells, unpacked from results.tar.zst)
"""
import sys
from pathlib import Path

from cells import BASES, estimate, lines, mean, mean_height

SAVED = 0.59
SEEDS = range(1, 9)


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


def main():
    cells = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/household-study/cells")
    for saved in (0.0, SAVED):
        pairs, cost = {}, []
        for base in BASES:
            for seed in SEEDS:
                grpo, grpo_seconds = curve(cells / base / "GRPO" / f"seed-{seed}", saved)
                own, own_seconds = curve(cells / base / "SEED" / f"seed-{seed}", 0.0)
                end = min(grpo_seconds, own_seconds)
                pairs.setdefault(base, []).append(100 * (mean_height(own, end) - mean_height(grpo, end)))
                cost.append((grpo_seconds, own_seconds))
        seconds = [mean(of_arm) for of_arm in zip(*cost)]
        print(
            f"saved {saved:.2f}: SEED less GRPO {estimate(list(pairs.values()), seed=1)} points at equal CPU;"
            f" CPU-seconds a cell {seconds[0]:.0f} (GRPO), {seconds[1]:.0f} (SEED)"
        )


if __name__ == "__main__":
    main()
