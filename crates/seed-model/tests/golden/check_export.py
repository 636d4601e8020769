"""Loads a directory that this crate has written with transformers and compares what it computes.

    python check_export.py DIRECTORY CASES.json

CASES.json holds what this crate computes for the same directory:

    sequences       token ids and the logits after each of them, [tokens, vocabulary]
    tolerance       largest difference of a logit
    texts           text and its ids, control tokens read as text
    conversations   messages and their ids, with a generation prompt
    end_tokens      the stop set
    total_bytes     bytes of all tensors
    tied            whether the head is the embedding

Prints one line and exits 0 where everything agrees, else says what differs and exits 1. Needs torch and transformers.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig


def check(holds, message):
    if not holds:
        sys.exit(f"check_export: {message}")


def check_weights(directory, cases):
    files = sorted(directory.glob("*.safetensors"))
    names = {}
    size = 0
    for file in files:
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():
                check(name not in names, f"{name} is in {file.name} and {names.get(name)}")
                names[name] = file.name
                tensor = tensors.get_tensor(name)
                size += tensor.numel() * tensor.element_size()
    check(size == cases["total_bytes"], f"tensors have {size} bytes, not {cases['total_bytes']}")
    check(("lm_head.weight" in names) != cases["tied"], "a head is stored if and only if it is not tied")
    index = directory / "model.safetensors.index.json"
    check(index.exists() == (len(files) > 1), "there is an index if and only if there are shards")
    if index.exists():
        index = json.loads(index.read_text())
        check(index["weight_map"] == names, "the index does not match the files")
        check(index["metadata"]["total_size"] == size, "total_size of the index is wrong")


def main():
    directory, cases = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    torch.set_num_threads(1)
    check_weights(directory, cases)
    model, report = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        check(not report[key], f"{key}: {report[key]}")
    worst = 0.0
    for case in cases["sequences"]:
        with torch.no_grad():
            logits = model(torch.tensor([case["ids"]]), use_cache=False).logits[0]
        expected = torch.tensor(case["logits"]).reshape(logits.shape)
        worst = max(worst, (logits - expected).abs().max().item())
    check(worst <= cases["tolerance"], f"logits differ by {worst}")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    for case in cases["texts"]:
        ids = tokenizer.encode(case["text"], add_special_tokens=False, split_special_tokens=True)
        check(ids == case["ids"], f"{case['text']!r} is {ids}, not {case['ids']}")
        check(tokenizer.decode(ids) == case["text"], f"{case['text']!r} decodes to {tokenizer.decode(ids)!r}")
    for case in cases["conversations"]:
        ids = tokenizer.apply_chat_template(
            case["messages"], add_generation_prompt=True, sanitize_control_tokens=True, return_dict=False
        )
        check(ids == case["ids"], f"{case['messages']} is {ids}, not {case['ids']}")
    ends = GenerationConfig.from_pretrained(directory).eos_token_id
    check(ends == cases["end_tokens"], f"generation_config.json ends with {ends}, not {cases['end_tokens']}")
    print(f"agrees: {type(model).__name__}, logits within {worst:.1e}")


if __name__ == "__main__":
    main()
