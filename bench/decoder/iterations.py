"""Times of whole iterations of `seed train`: GRPO and SEED in turn, on the same episodes."""

import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from statistics import median

import machine
from contender import HERE

ALGORITHMS = ["grpo", "seed"]
# The first iteration of a run also warms up.
ITERATIONS = 3
PARTS = ["rollout", "analysis", "rescore", "self_check", "update"]


@dataclass(frozen=True)
class Iteration:
    """A line: a model's folder, how it sees episodes, other settings, and the largest ratio of SEED to GRPO."""

    model: str
    context: str
    goal: float
    settings: dict = field(default_factory=dict)

    @property
    def name(self):
        return f"{self.model}/iteration-{self.context}"


# As large as a few minutes allow. The model's answers are about as long as the limit of a response.
SMALL = {
    "rollout.tasks_per_iteration": 2,
    "rollout.samples_per_task": 2,
    "world.max_steps": 6,
    "rollout.max_response_tokens": 24,
}
ITERATION_LINES = [
    Iteration("household-tiny", "transcript", 1.25),
    Iteration("household-tiny", "windowed", 1.35),
    Iteration("M-scripted", "transcript", 1.25, SMALL),
    Iteration("M-scripted", "windowed", 1.35, SMALL),
]


def run(line, programs, folder, rounds):
    """Both algorithms in turn. A line's result in the form of the others', with seconds per iteration."""
    timings = {algorithm: [] for algorithm in ALGORITHMS}
    memory = dict.fromkeys(ALGORITHMS, 0)
    disturbance = 0.0
    metrics = {}
    for _ in range(rounds):
        for algorithm in ALGORITHMS:
            directory = folder / "runs" / f"{line.name.replace('/', '-')}-{algorithm}"
            used, disturbed = train(line, algorithm, programs, folder, directory)
            lines = (directory / "timings.jsonl").read_text().splitlines()[1:]
            timings[algorithm] += [json.loads(text)["metrics"] for text in lines]
            metrics[algorithm] = json.loads((directory / "metrics.jsonl").read_text().splitlines()[-1])["metrics"]
            memory[algorithm] = max(memory[algorithm], used)
            disturbance = max(disturbance, disturbed)
    contenders = {algorithm: summary(timings[algorithm], memory[algorithm]) for algorithm in ALGORITHMS}
    reached = contenders["seed"]["median"] / contenders["grpo"]["median"]
    goal = {"against": "grpo", "goal": line.goal, "reached": reached, "met": reached <= line.goal}
    return {"contenders": contenders, "goals": [goal], "disturbance": disturbance, "metrics": metrics}


def train(line, algorithm, programs, folder, directory):
    """One run; its highest memory in bytes and the share of the machine that others used meanwhile."""
    shutil.rmtree(directory, ignore_errors=True)
    settings = line.settings | {
        "algorithm.name": algorithm,
        "algorithm.iterations": ITERATIONS,
        "world.context": line.context,
        "model.path": folder / "models" / line.model,
        "run.directory": directory,
    }
    arguments = [programs / "seed", "--quiet", "train", HERE / "iteration.toml"]
    for key, value in settings.items():
        arguments += ["--set", f"{key}={value}"]
    start, busy = time.perf_counter(), machine.busy_seconds()
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{line.name} with {algorithm}: {errors}")
    others = machine.busy_seconds() - busy - usage.ru_utime - usage.ru_stime
    share = max(0.0, others) / (time.perf_counter() - start) / len(os.sched_getaffinity(0))
    return usage.ru_maxrss * 1024, share


def summary(timings, memory):
    """Medians over iterations of the whole, in which evaluation does not count, and of its parts."""
    seconds = [timing["timing/iteration_seconds"] for timing in timings]
    # GRPO has no analysis.
    parts = {part: median(timing.get(f"timing/{part}_seconds", 0.0) for timing in timings) for part in PARTS}
    return {
        "seconds": seconds,
        "median": median(seconds),
        "minimum": min(seconds),
        "parts": parts,
        "memory_bytes": memory,
    }
