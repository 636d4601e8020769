"""Prints the two engines' measurements side by side, and fails when they do not say the same.

Usage: compare.py ORIGINAL.json NATIVE.json RESULT.json
"""

import json
import sys
from pathlib import Path


def main(original_file, native_file, result_file):
    original = json.loads(Path(original_file).read_text())
    native = json.loads(Path(native_file).read_text())
    rows = [
        ("load a game, ms", "load_seconds", 1e3, False),
        ("reset, us", "reset_seconds", 1e6, False),
        ("steps per second", "steps_per_second", 1, True),
    ]
    ratios = {}
    print(f"{'one core, processor time':<26}{'original':>16}{'native':>16}{'ratio':>12}")
    for label, key, scale, higher_is_better in rows:
        ratio = native[key] / original[key] if higher_is_better else original[key] / native[key]
        ratios[key] = ratio
        print(f"{label:<26}{original[key] * scale:>16,.2f}{native[key] * scale:>16,.2f}{ratio:>11,.0f}x")
    through = native["environment_steps_per_second"]
    print(f"{'  with strings of its own':<26}{'':>16}{through:>16,.2f}{through / original['steps_per_second']:>11,.0f}x")

    names = original["digests"]
    different = sorted(name for name in names if native["digests"].get(name) != names[name])
    print(f"{len(names)} games played by both: {len(different)} told differently")
    for name in different:
        print(f"  {name}")
    result = {
        "original": {key: value for key, value in original.items() if key != "digests"},
        "native": {key: value for key, value in native.items() if key != "digests"},
        "ratios": ratios,
        "games": len(names),
        "games_told_differently": different,
    }
    Path(result_file).write_text(json.dumps(result, indent=2) + "\n")
    return 1 if different or set(names) != set(native["digests"]) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
