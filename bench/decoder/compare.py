"""Measures seed and its peers in turn on the same weights and the same work.

Usage: compare.py PROGRAMS FOLDER [--rounds N] [--only NAME]... [--quick] [--compiled] [--save-baseline]
PROGRAMS holds our built programs, FOLDER the models, and takes the results. The exit code is 1 if a goal is missed.
"""

import argparse
import importlib.metadata
import json
import math
import os
import sys
from contextlib import ExitStack
from pathlib import Path

import machine
import report
from contender import HERE, Contender, command
from sameness import check
from workloads import LINES, Operations

# A measurement repeats its work for about this long, so that the clock and the scheduler matter little.
LEAST_SECONDS = 0.3
PEAK_SECONDS = 0.5


class Bench:
    def __init__(self, options):
        self.options = options
        self.folder = options.folder
        self.threads = len(os.sched_getaffinity(0))
        self.adamw = "fused"

    def start(self, name, purpose):
        log = self.folder / f"{name}-{purpose}.log"
        return Contender(name, command(name, self.options.programs, self.adamw), self.threads, log)

    def start_all(self, stack, names, directory):
        """Starts contenders one after the other, and loads the model."""
        started = {name: stack.enter_context(self.start(name, "timed")) for name in names}
        self.answers = {name: contender.load(directory) for name, contender in started.items()}
        if "torch" in started:
            self.adamw = started["torch"].ask("choose_adamw")["adamw"]
        return started

    def measure_peaks(self, contenders):
        """Multiply-adds in registers, and PyTorch's matrix product, in turn: the best of each in operations per
        second."""
        peaks = {"multiply_add": 0.0, "matrix": 0.0}
        for _ in range(3):
            for name, key in [("seed", "multiply_add"), ("torch", "matrix")]:
                rate = contenders[name].ask("peak", seconds=PEAK_SECONDS)["flops_per_second"]
                peaks[key] = max(peaks[key], rate)
        return peaks

    def measure(self, line, contenders, request):
        """Seconds of every contender, round by round, and those of reading prompts where a line has both."""
        seconds = {name: [] for name in contenders}
        prompts = {name: [] for name in contenders}
        repeats = {}
        for round_index in range(-1, self.options.rounds):
            # Whoever comes first may find another machine than whoever comes last.
            order = list(contenders)
            turn = round_index % len(order)
            for name in order[turn:] + order[:turn]:
                contender = contenders[name]
                if line.work == "decode":
                    answer = contender.ask("decode", **request)
                    taken = answer["decode_seconds"]
                else:
                    answer = contender.ask(line.work, repeats=repeats.get(name, 1), **request)
                    taken = answer["seconds"]
                if round_index < 0:
                    # The first round warms up.
                    repeats[name] = max(1, math.ceil(LEAST_SECONDS / taken))
                    continue
                seconds[name].append(taken)
                if line.work == "decode":
                    prompts[name].append(answer["prefill_seconds"])
        return seconds, prompts if line.work == "decode" else None

    def measure_memory(self, line, name, directory, request):
        """Growth of a fresh process by the model and the work, at its highest, in bytes."""
        with self.start(name, "memory") as contender:
            before = contender.memory("VmRSS")
            contender.load(directory)
            contender.forget_highest_memory()
            extra = {} if line.work == "decode" else {"repeats": 2}
            contender.ask(line.work, **request, **extra)
            return contender.memory("VmHWM") - before

    def run_line(self, line, contenders, directory, peaks):
        operations = Operations(directory)
        request = line.request(operations.vocabulary)
        chosen = {name: contenders[name] for name in line.contenders}
        if "torch-compiled" in contenders and line.work in ["train", "score"]:
            chosen["torch-compiled"] = contenders["torch-compiled"]
        seconds, prompts = self.measure(line, chosen, request)
        needs_memory = not self.options.quick or "memory" in line.goals
        numbers = {}
        for name in chosen:
            memory = self.measure_memory(line, name, directory, request) if needs_memory else None
            numbers[name] = report.summary(
                seconds[name], line.counted_tokens(), operations.of(line), peaks["multiply_add"], memory
            )
            if prompts:
                numbers[name]["prompt_seconds"] = prompts[name]
        return {"contenders": numbers, "goals": report.judge(line, numbers, peaks["matrix"])}


def main(options):
    selected = [line for line in LINES if not options.only or any(part in line.name for part in options.only)]
    if not selected:
        print(f"no line has {options.only} in its name; there are: {', '.join(line.name for line in LINES)}")
        return 2
    bench = Bench(options)
    results, peaks, missed = {}, None, []
    for model in dict.fromkeys(line.model for line in selected):
        directory = bench.folder / "models" / model
        lines = [line for line in selected if line.model == model]
        names = {name for line in lines for name in line.contenders} | {"seed", "torch"}
        names |= {"torch-compiled"} if options.compiled else set()
        with ExitStack() as stack:
            contenders = bench.start_all(stack, sorted(names), directory)
            if peaks is None:
                here = machine.describe(bench.answers["seed"]["instruction_set"])
                kind = machine.kind(here)
                baseline_file = HERE / "baselines" / f"{kind}.json"
                baseline = json.loads(baseline_file.read_text()) if baseline_file.exists() else {"lines": {}}
                peaks = bench.measure_peaks(contenders)
                print(f"{kind}, {bench.threads} threads")
                print(
                    f"f32 peak: {peaks['multiply_add'] / 1e9:.0f} GFLOP/s in registers, "
                    f"{peaks['matrix'] / 1e9:.0f} in PyTorch's product of 2048 x 2048 matrices"
                )
            print(f"\n{model}: {check(contenders, Operations(directory).vocabulary)}")
            for line in lines:
                result = bench.run_line(line, contenders, directory, peaks)
                results[line.name] = result
                missed += [f"{line.name}: {report.describe(goal)}" for goal in result["goals"] if not goal["met"]]
                report.print_line(line.name, result, baseline["lines"].get(line.name))
                sys.stdout.flush()
    whole = {"machine": here, "versions": versions(), "peaks": peaks, "rounds": options.rounds, "lines": results}
    result_file = bench.folder / "result.json"
    result_file.write_text(json.dumps(whole, indent=2) + "\n")
    print(f"\nwritten: {result_file}")
    if options.save_baseline:
        baseline_file.parent.mkdir(exist_ok=True)
        merged = whole | {"lines": baseline["lines"] | results}
        baseline_file.write_text(json.dumps(merged, indent=2) + "\n")
        print(f"written: {baseline_file}")
    for text in missed:
        print(f"missed: {text}")
    return 1 if missed else 0


def versions():
    return {name: importlib.metadata.version(name) for name in ["torch", "transformers", "llama-cpp-python"]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", action="append", metavar="NAME", help="lines with this in their name")
    parser.add_argument("--quick", action="store_true", help="two rounds, memory only where it has a goal")
    parser.add_argument("--compiled", action="store_true", help="PyTorch's compiled model as a further contender")
    parser.add_argument("--save-baseline", action="store_true", help="keep the result for this kind of machine")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 5)
    sys.exit(main(arguments))
