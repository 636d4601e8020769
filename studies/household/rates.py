#!/usr/bin/env python3
"""Both methods at the study's learning rate and at half of it, on the seeds that were run at both: docs/results.md.

Usage: studies/household/rates.py     (after unpacking results.tar.zst and slower-results.tar.zst into runs)
"""
from pathlib import Path

from cells import BASES, estimate, lines, mean, mean_height

RATES = {"5e-4": Path("runs/household-study/cells"), "2.5e-4": Path("runs/household-slower/cells")}
ARMS = ("GRPO", "SEED")
FINALS = [("seen", 1.0), ("unseen", 1.0), ("seen", 0.4), ("unseen", 0.4)]


def measures(cell):
    """Area of the seen panel over episodes, then success at the end, all in percent; None if the cell is not complete."""
    if not ((cell / "summary.json").exists() and (cell / "panels.jsonl").exists()):
        return None
    curve = [(row["episodes"], row["evaluation"]["success"]["value"]) for row in lines(cell / "evaluations.jsonl") if row["split"] == "seen"]
    area = mean_height(curve, curve[-1][0])
    finals = {
        (row["split"], row["temperature"]): row["evaluation"]["success"]["value"]
        for row in lines(cell / "panels.jsonl")
        if row["panel"] == "final" and row["weights"] == "final" and row["prompt"] == "plain"
    }
    if any(key not in finals for key in FINALS):
        return None
    return [100 * value for value in [area, *(finals[key] for key in FINALS)]]


def main():
    differences = {rate: {} for rate in RATES}
    for base in BASES:
        found = {}
        for seed in range(1, 9):
            cells = {(rate, arm): measures(root / base / arm / f"seed-{seed}") for rate, root in RATES.items() for arm in ARMS}
            if None not in cells.values():
                found[seed] = cells
        for rate in RATES:
            for arm in ARMS:
                columns = zip(*(cells[rate, arm] for cells in found.values()))
                print(f"| `{base}` | {rate} | {arm} | " + " | ".join(f"{mean(column):.1f}" for column in columns) + " |")
            differences[rate][base] = [
                [seed_value - grpo_value for grpo_value, seed_value in zip(cells[rate, "GRPO"], cells[rate, "SEED"])]
                for cells in found.values()
            ]
    for rate, of_bases in differences.items():
        texts = [
            estimate([[row[measure] for row in rows] for rows in of_bases.values()], seed=7) for measure in range(1 + len(FINALS))
        ]
        print(f"| {rate} | " + " | ".join(texts) + " |")


if __name__ == "__main__":
    main()
