"""What is measured, and the goals."""

import json
from dataclasses import dataclass, field

import numpy as np

# Contenders in the order in which they are shown, with what they are called there.
NAMES = {
    "seed": "seed",
    "torch": "PyTorch",
    "torch-compiled": "PyTorch, compiled",
    "llama-f32": "llama.cpp f32",
    "llama-q8": "llama.cpp Q8_0",
    "grpo": "seed, GRPO iteration",
}


@dataclass(frozen=True)
class Line:
    """One piece of work. `goals` maps a peer to the least ratio of its time to ours, `matrix peak` to the least share
    of it, and `memory` to the largest ratio of our memory to PyTorch's."""

    model: str
    work: str
    sequences: int
    length: int
    new_tokens: int = 0
    label: str = ""
    goals: dict = field(default_factory=dict)

    @property
    def name(self):
        return f"{self.model}/{self.label or self.work}"

    @property
    def contenders(self):
        return {
            "train": ["seed", "torch"],
            "score": ["seed", "torch", "llama-f32"],
            "prefill": ["seed", "torch", "llama-f32", "llama-q8"],
            "decode": ["seed", "torch", "llama-f32", "llama-q8"],
        }[self.work]

    def tokens(self, vocabulary):
        """Random token ids, `[sequences, length]`, the same for everybody."""
        generator = np.random.default_rng([self.sequences, self.length])
        return generator.integers(0, vocabulary, (self.sequences, self.length)).tolist()

    def request(self, vocabulary):
        """What a contender is asked for."""
        tokens = self.tokens(vocabulary)
        if self.work == "decode":
            return {"prompts": tokens, "new_tokens": self.new_tokens, "temperature": 0.0}
        return {"tokens": tokens}

    def counted_tokens(self):
        """Tokens by which speeds are given. The first token of a response belongs to reading the prompt."""
        return self.sequences * (self.new_tokens - 1 if self.work == "decode" else self.length)


FASTER = {"torch": 1.0}
GENERATION = {"torch": 3.0, "llama-f32": 1.0}

LINES = [
    Line("household-tiny", "score", 32, 400),
    Line("household-tiny", "prefill", 32, 400),
    Line("household-tiny", "decode", 32, 300, 32, goals=GENERATION),
    Line("household-tiny", "train", 32, 400, goals={"torch": 2.0}),
    Line("S", "score", 16, 256),
    Line("S", "prefill", 16, 256, goals={"matrix peak": 0.8}),
    Line("S", "decode", 64, 16, 64, goals=GENERATION),
    Line("S", "train", 16, 256, goals=FASTER | {"memory": 0.5}),
    Line("M", "score", 2, 256),
    Line("M", "prefill", 4, 256, goals={"matrix peak": 0.8}),
    Line("M", "decode", 8, 32, 32, label="decode-8", goals=GENERATION),
    Line("M", "decode", 32, 32, 32, label="decode-32", goals=GENERATION),
    Line("M", "train", 2, 256, goals=FASTER),
]


class Operations:
    """Floating-point operations of a decoder, two for each multiply-add; norms and the like are not counted."""

    def __init__(self, directory):
        config = json.loads((directory / "config.json").read_text())
        heads = config["num_attention_heads"]
        head_dim = config.get("head_dim") or config["hidden_size"] // heads
        key_value_width = config["num_key_value_heads"] * head_dim
        self.hidden, self.layers = config["hidden_size"], config["num_hidden_layers"]
        self.vocabulary, self.query_width = config["vocab_size"], heads * head_dim
        self.matrices = self.layers * self.hidden * (
            2 * self.query_width + 2 * key_value_width + 3 * config["intermediate_size"]
        )

    def of(self, line):
        """Of one line's work."""
        if line.work == "decode":
            rows, pairs = line.new_tokens - 1, sum(range(line.length + 1, line.length + line.new_tokens))
        elif line.work == "prefill":
            rows, pairs = line.length, line.length * (line.length + 1) // 2
        else:
            # Nothing follows the last token, so it is not read.
            rows, pairs = line.length - 1, (line.length - 1) * line.length // 2
        heads = 1 if line.work == "prefill" else rows
        forward = 2 * self.matrices * rows + 4 * self.layers * self.query_width * pairs
        forward += 2 * self.hidden * self.vocabulary * heads
        return line.sequences * forward * (3 if line.work == "train" else 1)
