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

import iterations
import machine
import report
from contender import HERE, Contender, command
from iterations import ITERATION_LINES
from sameness import check
from workloads import LINES, Operations

# A measurement repeats its work for about this long, so that the clock and the scheduler matter little.
LEAST_SECONDS = 0.3
PEAK_SECONDS = 0.5
# A measurement during which other programs used more of the machine is made again, so many times at most.
DISTURBED = 0.05
TRIES = 4


class Bench:
    def __init__(self, options):
        self.options = options
        self.folder = options.folder
        self.threads = len(os.sched_getaffinity(0))
        self.adamw = "fused"
        self.peaks = {"multiply_add": 0.0, "matrix": 0.0}
        self.disturbance = 0.0
        self.kind = None

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

    def measure_peak(self, contender, matrix):
        """Operations per second: multiply-adds in registers by our worker, or PyTorch's matrix product."""
        rate = self.measure_once(contender, "peak", {"seconds": PEAK_SECONDS})["flops_per_second"]
        peak = "matrix" if matrix else "multiply_add"
        self.peaks[peak] = max(self.peaks[peak], rate)
        return rate

    def measure_once(self, contender, what, request):
        """The least disturbed of a few tries."""
        best = None
        for _ in range(TRIES):
            answer, disturbance = contender.measure(what, **request)
            if best is None or disturbance < best[1]:
                best = answer, disturbance
            if disturbance <= DISTURBED:
                break
        self.disturbance = max(self.disturbance, best[1])
        return best[0]

    def measure(self, line, contenders):
        """What every contender takes, round by round: a list of answers each, and the rates of the matrix product
        in the same rounds where the line is compared with it."""
        request = line.request(self.operations.vocabulary)
        answers = {name: [] for name in contenders}
        repeats, rates = {}, []
        order = list(contenders)
        for name in order:
            # The first time warms up.
            answer = contenders[name].ask(line.work, **request, **({} if line.work == "decode" else {"repeats": 1}))
            if line.work != "decode":
                repeats[name] = {"repeats": max(1, math.ceil(LEAST_SECONDS / answer["seconds"]))}
        for _ in range(self.options.rounds):
            for name in order:
                asked = request | repeats.get(name, {})
                answers[name].append(self.measure_once(contenders[name], line.work, asked))
            if "matrix peak" in line.goals:
                rates.append(self.measure_peak(contenders["torch"], matrix=True))
            # Whoever comes first may find another machine than whoever comes last.
            order = order[1:] + order[:1]
        return answers, rates

    def measure_memory(self, line, name, directory):
        """Growth of a fresh process by the model and the work, at its highest, in bytes."""
        with self.start(name, "memory") as contender:
            before = contender.memory("VmRSS")
            contender.load(directory)
            contender.forget_highest_memory()
            extra = {} if line.work == "decode" else {"repeats": 2}
            contender.ask(line.work, **line.request(self.operations.vocabulary), **extra)
            return contender.memory("VmHWM") - before

    def run_line(self, line, contenders, directory):
        """Everything about one line."""
        self.operations, self.disturbance = Operations(directory), 0.0
        chosen = {name: contenders[name] for name in line.contenders}
        if "torch-compiled" in contenders and line.work in ["train", "score"]:
            chosen["torch-compiled"] = contenders["torch-compiled"]
        answers, rates = self.measure(line, chosen)
        needs_memory = not self.options.quick or "memory" in line.goals
        numbers = {}
        for name in chosen:
            memory = self.measure_memory(line, name, directory) if needs_memory else None
            numbers[name] = report.summary(line, answers[name], self.operations.of(line), self.peaks, memory)
        goals = report.judge(line, numbers, rates)
        return {"contenders": numbers, "goals": goals, "matrix_rates": rates, "disturbance": self.disturbance}


    def introduce(self, contenders):
        """Measures the peaks and prints where this runs."""
        self.machine = machine.describe(self.answers["seed"]["instruction_set"])
        self.kind = machine.kind(self.machine)
        for _ in range(3):
            self.measure_peak(contenders["seed"], matrix=False)
            self.measure_peak(contenders["torch"], matrix=True)
        registers, matrix = (f"{rate / 1e9:.0f} GFLOP/s" for rate in self.peaks.values())
        print(f"{self.kind}, {self.threads} threads")
        print(f"f32 peak: {registers} in registers, {matrix} in PyTorch's product of 2048 x 2048 matrices")

    def run_model(self, model, lines):
        """Pairs of a line's name and its result, for all lines of a model."""
        directory = self.folder / "models" / model
        names = {name for line in lines for name in line.contenders} | {"seed", "torch"}
        names |= {"torch-compiled"} if self.options.compiled else set()
        with ExitStack() as stack:
            contenders = self.start_all(stack, sorted(names), directory)
            if self.kind is None:
                self.introduce(contenders)
            if lines:
                print(f"\n{model}: {check(contenders, Operations(directory).vocabulary)}")
            for line in lines:
                yield line.name, self.run_line(line, contenders, directory)

    def run_all(self, lines, iteration_lines):
        """Pairs of a line's name and its result."""
        for model in dict.fromkeys(line.model for line in lines) or ["household-tiny"]:
            yield from self.run_model(model, [line for line in lines if line.model == model])
        for line in iteration_lines:
            rounds = 1 if self.options.quick else 2
            yield line.name, iterations.run(line, self.options.programs, self.folder, rounds)


def main(options):
    def wanted(line):
        return not options.only or any(part in line.name for part in options.only)

    lines, iteration_lines = list(filter(wanted, LINES)), list(filter(wanted, ITERATION_LINES))
    if not lines and not iteration_lines:
        known = ", ".join(line.name for line in [*LINES, *ITERATION_LINES])
        print(f"no line has {options.only} in its name; there are: {known}")
        return 2
    bench = Bench(options)
    results, missed, baseline = {}, [], None
    result_file = bench.folder / "result.json"
    for name, result in bench.run_all(lines, iteration_lines):
        if baseline is None:
            baseline_file = HERE / "baselines" / f"{bench.kind}.json"
            baseline = json.loads(baseline_file.read_text()) if baseline_file.exists() else {"lines": {}}
        results[name] = result
        missed += [f"{name}: {report.describe(goal)}" for goal in result["goals"] if not goal["met"]]
        report.print_line(name, result, baseline["lines"].get(name))
        sys.stdout.flush()
        whole = {
            "machine": bench.machine, "versions": versions(), "peaks": bench.peaks, "rounds": options.rounds,
            "lines": results,
        }
        # After every line: a contender that fails in a later one takes nothing measured with it.
        result_file.write_text(json.dumps(whole, indent=2) + "\n")
    print(f"\nwritten: {result_file}")
    if options.save_baseline:
        baseline_file.parent.mkdir(exist_ok=True)
        kept = whole | {"lines": baseline["lines"] | {name: report.for_baseline(results[name]) for name in results}}
        baseline_file.write_text(json.dumps(kept, indent=2) + "\n")
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
