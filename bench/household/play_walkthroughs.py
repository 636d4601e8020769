"""Plays the stored walkthrough of every game below a folder in the original engine, admissible lists checked.

Usage: play_walkthroughs.py FOLDER [--traces FILE]

A game passes when every command is admissible, the last one wins and none before it does. With `--traces` one JSON line
per game is written (path, reset text, and per command its observation and admissible list), for comparison with the
native engine. Ends with status 1 when a game fails.
"""

import argparse
import json
import sys
from pathlib import Path

import textworld
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos


def play(path):
    """The trace of one game, and what went wrong (`None` when it passes)."""
    infos = textworld.EnvInfos(won=True, admissible_commands=True, feedback=True)
    environment = textworld.start(str(path), infos, wrappers=[AlfredDemangler, AlfredInfos])
    state = environment.reset()
    trace = {"reset": state["feedback"], "admissible": sorted(state["admissible_commands"]), "steps": []}
    commands = json.loads(path.read_text())["walkthrough"]
    problem = None if commands and not state["won"] else "won before the first command, or no walkthrough"
    for number, command in enumerate(commands):
        if command not in state["admissible_commands"]:
            problem = problem or f"`{command}` is not admissible"
        state, _, _ = environment.step(command)
        trace["steps"].append(
            {
                "command": command,
                "observation": state["feedback"],
                "admissible": sorted(state["admissible_commands"]),
                "won": bool(state["won"]),
            }
        )
        if state["won"] != (number + 1 == len(commands)):
            problem = problem or f"won is {state['won']} after `{command}` ({number + 1} of {len(commands)})"
    environment.close()
    return trace, problem


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--traces", type=Path)
    arguments = parser.parse_args()
    games = sorted(arguments.folder.rglob("game.tw-pddl"))
    failed = 0
    traces = arguments.traces.open("w") if arguments.traces else None
    for number, path in enumerate(games):
        trace, problem = play(path)
        failed += problem is not None
        name = path.parent.relative_to(arguments.folder)
        print(f"{number + 1}/{len(games)} {name}: {problem or 'won'}", flush=True)
        if traces:
            traces.write(json.dumps({"game": str(name), **trace}) + "\n")
            traces.flush()
    print(f"{len(games) - failed} passed, {failed} failed")
    return 1 if failed or not games else 0


if __name__ == "__main__":
    sys.exit(main())
