"""Plays the stored walkthrough of every game below a folder in the original engine, admissible lists checked.

Usage: play_walkthroughs.py FOLDER [--traces FILE]

A game passes when every command is admissible, the last one wins and none before it does. With `--transcripts` one JSON
line a game is written in the form that `seed env verify` compares with the native engine. Ends with status 1 when a
game fails.
"""

import argparse
import json
import sys
from pathlib import Path

import textworld
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos


def play(path):
    """The transcript of one game, and what went wrong (`None` when it passes)."""
    infos = textworld.EnvInfos(won=True, admissible_commands=True, feedback=True)
    environment = textworld.start(str(path), infos, wrappers=[AlfredDemangler, AlfredInfos])
    state = environment.reset()
    transcript = {
        "game": "/".join(path.parts[-4:-1]),
        "kind": "walkthrough",
        "seed": 0,
        "reset": state["feedback"],
        "adm": sorted(state["admissible_commands"]),
        "steps": [],
    }
    commands = json.loads(path.read_text())["walkthrough"]
    problem = None if commands and not state["won"] else "won before the first command, or no walkthrough"
    for number, command in enumerate(commands):
        if command not in state["admissible_commands"]:
            problem = problem or f"`{command}` is not admissible"
        state, score, done = environment.step(command)
        transcript["steps"].append(
            {
                "cmd": command,
                "obs": state["feedback"],
                "adm": sorted(state["admissible_commands"]),
                "won": bool(state["won"]),
                "score": int(score),
                "done": bool(done),
            }
        )
        if state["won"] != (number + 1 == len(commands)):
            problem = problem or f"won is {state['won']} after `{command}` ({number + 1} of {len(commands)})"
    environment.close()
    return transcript, problem


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--transcripts", type=Path)
    arguments = parser.parse_args()
    games = sorted(arguments.folder.rglob("game.tw-pddl"))
    failed = 0
    transcripts = arguments.transcripts.open("w") if arguments.transcripts else None
    for number, path in enumerate(games):
        transcript, problem = play(path)
        failed += problem is not None
        name = path.parent.relative_to(arguments.folder)
        print(f"{number + 1}/{len(games)} {name}: {problem or 'won'}", flush=True)
        if transcripts:
            transcripts.write(json.dumps(transcript) + "\n")
    print(f"{len(games) - failed} passed, {failed} failed")
    return 1 if failed or not games else 0


if __name__ == "__main__":
    sys.exit(main())
