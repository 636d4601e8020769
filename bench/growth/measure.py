"""Runs the built program with growing settings and prints what an iteration costs; fails where a limit is passed.

Usage: measure.py CONFIG PROGRAMS WORK [PART ...]

CONFIG is a training configuration, PROGRAMS the folder with `seed` and `examples/soak`, WORK a folder for run
directories and results. The tokenizer of the soak's model is taken from models/household-tiny beside CONFIG's folder.
Needs nothing but Python.
"""

import json
import random
import shutil
import struct
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# Time per episode at the most episodes against the fewest; time per step, in windowed context, in the longest episodes
# against the second shortest.
LARGEST_RATIO = 1.2
# Megabytes of resident memory per hundred updates or iterations, by least squares over the later half of the samples.
LARGEST_SLOPE = 0.1

SAMPLES = 8
EPISODES = [32, 64, 128, 256, 512, 1024]
STEPS = [4, 8, 16, 32]
UPDATES = 10_000
ITERATIONS = 10_000
MEGABYTE = 1e6

PHASES = ["rollout", "analysis", "rescore", "update"]

# A learning rate too small to move any weight: every iteration meets the same policy, so that only size differs.
STILL = {
    "optimiser.learning_rate": "1e-30",
    "evaluation.every": 0,
    "evaluation.before_training": "false",
    "evaluation.tasks": 1,
    "checkpoint.every": 1000,
    "checkpoint.keep_best": "false",
    "rollout.samples_per_task": SAMPLES,
}


def train(config, seed, directory, settings):
    """The metrics of every iteration of a run with these settings."""
    shutil.rmtree(directory, ignore_errors=True)
    settings = {"run.directory": directory, **settings}
    overrides = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    subprocess.run([seed, "train", config, "--quiet", *overrides], check=True, stdout=subprocess.DEVNULL)
    iterations = {}
    for name in ("metrics.jsonl", "timings.jsonl"):
        for line in (directory / name).read_text().splitlines():
            record = json.loads(line)
            iterations.setdefault(record["step"], {}).update(record["metrics"])
    return [iterations[number] for number in sorted(iterations) if number > 0]


def measured(iterations):
    """One row from a run: sums over all iterations but the first, which also warms up."""
    kept = iterations[1:]

    def total(name):
        return sum(iteration.get(name, 0.0) for iteration in kept)

    episodes = total("episode/count")
    steps = sum(iteration["episode/count"] * iteration["episode/steps_mean"] for iteration in kept)
    tokens = iterations[-1]["response/tokens_total"] - iterations[0]["response/tokens_total"]
    seconds = total("timing/iteration_seconds")
    return {
        "episodes": int(kept[0]["episode/count"]),
        "iterations": len(kept),
        "steps_per_episode": steps / episodes,
        "tokens_per_episode": tokens / episodes,
        "seconds_per_iteration": seconds / len(kept),
        "milliseconds_per_episode": 1e3 * seconds / episodes,
        "milliseconds_per_step": 1e3 * seconds / steps,
        "phase_milliseconds_per_episode": {
            phase: 1e3 * total(f"timing/{phase}_seconds") / episodes for phase in PHASES
        },
        "peak_megabytes": max(iteration["memory/peak_bytes"] for iteration in iterations) / MEGABYTE,
    }


def print_table(first, rows):
    columns = ["steps", "tokens", "s/iteration", "ms/episode", "ms/step", *PHASES, "peak MB"]
    print(f"{first:<22}" + "".join(f"{column:>12}" for column in columns))
    for label, row in rows:
        cells = [
            row["steps_per_episode"],
            row["tokens_per_episode"],
            row["seconds_per_iteration"],
            row["milliseconds_per_episode"],
            row["milliseconds_per_step"],
            *row["phase_milliseconds_per_episode"].values(),
            row["peak_megabytes"],
        ]
        print(f"{label:<22}" + "".join(f"{cell:>12.2f}" for cell in cells), flush=True)


def check(failures, what, value, limit):
    passed = value <= limit
    print(f"{what}: {value:.3f} (at most {limit}){'' if passed else '  FAILED'}", flush=True)
    if not passed:
        failures.append(what)


def grow_episodes(config, programs, work, failures):
    rows = []
    for episodes in EPISODES:
        settings = {
            **STILL,
            "rollout.tasks_per_iteration": episodes // SAMPLES,
            "world.max_steps": 4,
            "algorithm.iterations": 1 + max(1, 256 // episodes),
        }
        rows.append(measured(train(config, programs / "seed", work / f"episodes-{episodes}", settings)))
    print_table("episodes", [(str(row["episodes"]), row) for row in rows])
    per_episode = [row["milliseconds_per_episode"] for row in rows]
    check(failures, "time per episode, most against fewest", per_episode[-1] / per_episode[0], LARGEST_RATIO)
    return rows


def grow_length(config, programs, work, failures):
    results = {}
    for context, prompt in (("windowed", 1024), ("transcript", 1900)):
        rows = []
        for steps in STEPS:
            settings = {
                **STILL,
                "world.context": context,
                "rollout.max_prompt_tokens": prompt,
                "seed.extra_prompt_tokens": 64,
                "world.max_steps": steps,
                "rollout.tasks_per_iteration": 6,
                "algorithm.iterations": 2,
            }
            rows.append(measured(train(config, programs / "seed", work / f"{context}-{steps}", settings)))
        print_table(f"{context}, at most", [(f"{steps} steps", row) for steps, row in zip(STEPS, rows)])
        results[context] = rows
    per_step = [row["milliseconds_per_step"] for row in results["windowed"]]
    # The prompts of the shortest episodes have not reached their full history yet.
    check(failures, "windowed, time per step, longest against second shortest", per_step[-1] / per_step[1], LARGEST_RATIO)
    return results


def slope(numbers, values):
    """Least squares: by how much `values` grow with `numbers`."""
    number_mean = sum(numbers) / len(numbers)
    value_mean = sum(values) / len(values)
    deviations = [(number - number_mean, value - value_mean) for number, value in zip(numbers, values)]
    return sum(x * y for x, y in deviations) / sum(x * x for x, _ in deviations)


def flat(what, samples, failures):
    """Checks the memory over the later half of (number, bytes) samples."""
    later = samples[len(samples) // 2 :]
    per_hundred = 100 * slope([number for number, _ in later], [value / MEGABYTE for _, value in later])
    for number, value in samples[:: max(1, len(samples) // 10)]:
        print(f"{what} {number:>8}{value / MEGABYTE:>10.2f} MB")
    check(failures, f"MB per 100 {what}", per_hundred, LARGEST_SLOPE)
    return {
        "samples": samples,
        "first_megabytes": samples[0][1] / MEGABYTE,
        "last_megabytes": samples[-1][1] / MEGABYTE,
        "megabytes_per_hundred": per_hundred,
    }


def soak_updates(_config, programs, _work, failures):
    command = [programs / "examples" / "soak", str(UPDATES)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    records = [json.loads(line) for line in output.splitlines()]
    return flat("updates", [(record["updates"], record["resident_bytes"]) for record in records], failures)


def tiny_model(built_in, folder):
    """A model of random weights with the built-in one's tokenizer, so small that an iteration takes milliseconds."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(built_in, folder)
    config = json.loads((folder / "config.json").read_text())
    width, head, inner, vocabulary = 16, 8, 32, config["vocab_size"]
    config.update(
        hidden_size=width,
        head_dim=head,
        intermediate_size=inner,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    (folder / "config.json").write_text(json.dumps(config))
    layer = "model.layers.0"
    shapes = {
        "model.embed_tokens.weight": [vocabulary, width],
        "model.norm.weight": [width],
        f"{layer}.input_layernorm.weight": [width],
        f"{layer}.post_attention_layernorm.weight": [width],
        **{f"{layer}.self_attn.{name}_proj.weight": [2 * head, width] for name in "qkv"},
        f"{layer}.self_attn.o_proj.weight": [width, 2 * head],
        f"{layer}.mlp.gate_proj.weight": [inner, width],
        f"{layer}.mlp.up_proj.weight": [inner, width],
        f"{layer}.mlp.down_proj.weight": [width, inner],
    }
    draw = random.Random(1)
    header, data = {}, b""
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0 if len(shape) == 1 else draw.gauss(0.0, 0.1) for _ in range(count)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *values)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


class Analyst(BaseHTTPRequestHandler):
    """Answers every analysis with the same skill."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        skill = json.dumps({"episode_skill": "Look at the desk before anything else."})
        message = {"role": "assistant", "content": skill}
        body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        pass


def soak_iterations(config, programs, work, failures):
    model = work / "tiny-model"
    tiny_model(Path(config).parent.parent / "models" / "household-tiny", model)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Analyst)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = {
        **STILL,
        "model.path": model,
        "optimiser.learning_rate": "1e-4",
        "algorithm.micro_batch_tokens": 512,
        "algorithm.iterations": ITERATIONS,
        "rollout.tasks_per_iteration": 1,
        "rollout.samples_per_task": 4,
        "rollout.max_response_tokens": 16,
        "world.max_steps": 3,
        # Fewer than the world's cache of games holds, or it would be that which grows.
        "world.train_tasks": 64,
        "seed.analyser": "endpoint",
        "seed.grounding_filter": "false",
        "endpoint.base_url": f"http://127.0.0.1:{server.server_port}/v1",
        "endpoint.model": "analyst",
        "checkpoint.every": 50,
    }
    results = {}
    for algorithm in ("grpo", "seed"):
        directory = work / f"iterations-{algorithm}"
        iterations = train(config, programs / "seed", directory, {**settings, "algorithm.name": algorithm})
        rows = sum(iteration.get("seed/row_share", 0.0) for iteration in iterations) / len(iterations)
        print(f"{algorithm}: share of rows under a skill {rows:.2f}")
        samples = [(number + 1, iteration["memory/resident_bytes"]) for number, iteration in enumerate(iterations)]
        results[algorithm] = flat("iterations", samples, failures)
    server.shutdown()
    return results


PARTS = {
    "episodes": grow_episodes,
    "length": grow_length,
    "updates": soak_updates,
    "iterations": soak_iterations,
}


def main(config, programs, work, *parts):
    unknown = set(parts) - set(PARTS)
    if unknown:
        sys.exit(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    work = Path(work)
    failures = []
    for part in parts or PARTS:
        result = PARTS[part](config, Path(programs), work, failures)
        (work / f"{part}.json").write_text(json.dumps(result, indent=2) + "\n")
        print(f"written: {work / part}.json\n", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
