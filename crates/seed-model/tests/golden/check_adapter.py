"""Loads an adapter that this crate has written with PEFT, compares what it computes, and writes one of PEFT's own.

    python check_adapter.py BASE ADAPTER CASES.json OUTPUT

CASES.json holds what this crate computes with the adapter on the base: `sequences`, each with `ids` and the `logits` after
each of them, [tokens, vocabulary]. OUTPUT becomes a directory with `adapter`, a fresh adapter of other values saved by
PEFT, `merged`, what its `merge_and_unload` makes of the base, and `logits.json` with its logits for the same sequences.

Prints one line and exits 0 where everything agrees, else says what differs and exits 1. Needs torch, transformers and
peft.
"""

import json
import sys
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

TOLERANCE = 1e-4


def check(holds, message):
    if not holds:
        sys.exit(f"check_adapter: {message}")


def load(base):
    return AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")


def logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0]


def main():
    base, adapter, cases, output = sys.argv[1], sys.argv[2], json.loads(Path(sys.argv[3]).read_text()), Path(sys.argv[4])
    torch.set_num_threads(1)
    model = PeftModel.from_pretrained(load(base), adapter)
    config = model.peft_config["default"]
    for key in ("r", "lora_alpha", "use_rslora"):
        check(getattr(config, key) == cases[key], f"{key} is {getattr(config, key)}, not {cases[key]}")
    check(set(config.target_modules) == set(cases["targets"]), f"targets are {config.target_modules}")
    with model.disable_adapter():
        plain = logits(model, cases["sequences"][0]["ids"])
    worst = 0.0
    for case in cases["sequences"]:
        found = logits(model, case["ids"])
        worst = max(worst, (found - torch.tensor(case["logits"]).reshape(found.shape)).abs().max().item())
    check(worst <= TOLERANCE, f"logits differ by {worst}")
    change = (logits(model, cases["sequences"][0]["ids"]) - plain).abs().max().item()
    check(change > 1e-2, f"the adapter changes logits by no more than {change}")

    options = LoraConfig(
        r=3, lora_alpha=7, use_rslora=True, lora_dropout=0.1, target_modules=["v_proj", "o_proj", "up_proj"],
        task_type="CAUSAL_LM",
    )
    theirs = get_peft_model(load(base), options).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    theirs.save_pretrained(output / "adapter")
    answers = [logits(theirs, case["ids"]).flatten().tolist() for case in cases["sequences"]]
    (output / "logits.json").write_text(json.dumps(answers))
    theirs.merge_and_unload().save_pretrained(output / "merged")
    print(f"agrees: logits within {worst:.1e}, the adapter changes them by {change:.2f}")


if __name__ == "__main__":
    main()
