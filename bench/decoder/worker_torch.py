"""Contender: PyTorch eager with transformers' LlamaForCausalLM in f32.

Attention is `scaled_dot_product_attention`. AdamW is the faster of PyTorch's implementations: `choose_adamw` measures
them. Arguments: `--compile` runs the model of scoring and training through `torch.compile`; `--adamw VARIANT` sets
what was chosen by another process.
"""

import argparse
import time

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, GenerationConfig, StoppingCriteria, StoppingCriteriaList

from protocol import serve, timed

LEARNING_RATE = 1e-5


class FirstToken(StoppingCriteria):
    """Stops nothing; notes when the first token had been chosen, which is where reading the prompts ends."""

    def __init__(self):
        self.time = None

    def __call__(self, input_ids, scores, **kwargs):
        if self.time is None:
            self.time = time.perf_counter()
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


class Torch:
    def __init__(self, compiled, adamw):
        self.compiled = compiled
        self.adamw = adamw
        self.optimiser = None

    def load(self, directory, threads):
        torch.set_num_threads(threads)
        self.model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="sdpa")
        # Every contender generates as many tokens as it is told to, whatever the model would stop at.
        self.model.generation_config = GenerationConfig(pad_token_id=0)
        self.forward = torch.compile(self.model) if self.compiled else self.model
        return {}

    def peak(self, seconds):
        """The best rate of a large matrix product."""
        size, best, end = 2048, 0.0, time.perf_counter() + seconds
        a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
        while time.perf_counter() < end:
            start = time.perf_counter()
            torch.mm(a, b, out=out)
            best = max(best, 2 * size**3 / (time.perf_counter() - start))
        return {"flops_per_second": best}

    def losses(self, tokens):
        """Cross-entropies of all tokens but the first of each sequence; the last token is not read, since nothing
        follows it."""
        logits = self.forward(input_ids=tokens[:, :-1], use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none").view(len(tokens), -1)

    def score(self, tokens, repeats):
        tokens = torch.tensor(tokens)
        with torch.inference_mode():
            seconds, losses = timed(repeats, lambda: self.losses(tokens))
        return {"seconds": seconds, "log_probs": (-losses[0]).tolist()}

    def prefill(self, tokens, repeats):
        tokens = torch.tensor(tokens)

        def body():
            return self.model(input_ids=tokens, use_cache=True, logits_to_keep=1).logits.argmax(-1)

        with torch.inference_mode():
            seconds, _ = timed(repeats, body)
        return {"seconds": seconds}

    def decode(self, prompts, new_tokens, temperature):
        prompts = torch.tensor(prompts)
        first = FirstToken()
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
        with torch.inference_mode():
            start = time.perf_counter()
            output = self.model.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                max_new_tokens=new_tokens,
                stopping_criteria=StoppingCriteriaList([first]),
                **sampling,
            )
            end = time.perf_counter()
        return {
            "prefill_seconds": first.time - start,
            "decode_seconds": end - first.time,
            "token_ids": output[:, prompts.shape[1] :].tolist(),
        }

    def choose_adamw(self):
        """`fused` or `foreach`, whichever steps faster over tensors of the model's shapes."""
        times = {}
        for variant in ["fused", "foreach"]:
            copies = [torch.nn.Parameter(parameter.detach().clone()) for parameter in self.model.parameters()]
            for copy in copies:
                copy.grad = torch.ones_like(copy)
            optimiser = torch.optim.AdamW(copies, lr=LEARNING_RATE, **{variant: True})
            optimiser.step()
            times[variant] = min(timed(1, optimiser.step)[0] for _ in range(3))
        self.adamw = min(times, key=times.get)
        return {"adamw": self.adamw, "seconds": times}

    def train(self, tokens, repeats):
        if self.optimiser is None:
            self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE, **{self.adamw: True})
        tokens = torch.tensor(tokens)

        def step():
            self.optimiser.zero_grad(set_to_none=True)
            loss = self.losses(tokens).mean()
            loss.backward()
            start = time.perf_counter()
            self.optimiser.step()
            return loss.item(), time.perf_counter() - start

        seconds, (loss, optimiser_seconds) = timed(repeats, step)
        return {"seconds": seconds, "loss": loss, "optimiser_seconds": optimiser_seconds}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--adamw", default="fused")
    arguments = parser.parse_args()
    contender = Torch(arguments.compile, arguments.adamw)
    names = ["load", "peak", "score", "prefill", "decode", "choose_adamw", "train"]
    serve({name: getattr(contender, name) for name in names})
