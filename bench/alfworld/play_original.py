"""Plays a prepared workload with the original Python engine and prints what it took and said.

Usage: play_original.py FOLDER

FOLDER is what `steps_per_second prepare` wrote. Times are processor time of this process, so that other programs on
the machine do not count. Per game, the digest is the one `seed_alfworld::Workload::digest` documents.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import textworld
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos


def said(digest, state):
    digest.update(state["feedback"].encode() + b"\0")
    for command in sorted(state["admissible_commands"]):
        digest.update(command.encode() + b"\1")
    digest.update(b"\2" + (b"1" if state["won"] else b"0"))


def main(folder):
    infos = textworld.EnvInfos(won=True, admissible_commands=True, feedback=True)
    entries = json.loads((folder / "workload.json").read_text())
    seconds = {"load": [], "reset": [], "step": []}
    digests = {}
    for number, entry in enumerate(entries):
        start = time.process_time()
        file = str(folder / entry["name"] / "game.tw-pddl")
        environment = textworld.start(file, infos, wrappers=[AlfredDemangler, AlfredInfos])
        loaded = time.process_time()
        state = environment.reset()
        ready = time.process_time()
        seconds["load"].append(loaded - start)
        seconds["reset"].append(ready - loaded)
        digest = hashlib.sha256()
        said(digest, state)
        for command in entry["commands"]:
            before = time.process_time()
            state, _, _ = environment.step(command)
            seconds["step"].append(time.process_time() - before)
            said(digest, state)
        digests[entry["name"]] = digest.hexdigest()
        environment.close()
        print(f"{number + 1}/{len(entries)} {entry['name']}", file=sys.stderr, flush=True)
    mean = {name: sum(values) / len(values) for name, values in seconds.items()}
    print(
        json.dumps(
            {
                "engine": f"alfworld on textworld {textworld.__version__}, Python {sys.version.split()[0]}",
                "load_seconds": mean["load"],
                "reset_seconds": mean["reset"],
                "steps_per_second": 1 / mean["step"],
                "steps_measured": len(seconds["step"]),
                "processors": os.cpu_count(),
                "digests": digests,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
