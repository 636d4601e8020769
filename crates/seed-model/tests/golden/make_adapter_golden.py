"""Makes the golden adapters: LoRA adapters of PEFT beside the golden decoders, with logits and gradients in float64.

    python make_adapter_golden.py            # rewrites the folders beside this script

Needs torch, transformers and peft (made with torch 2.15.0, transformers 5.24.0, peft 0.21.2; CPU, eager attention), and
the folders of make_decoder_golden.py.

Each folder `adapter-*` holds an adapter as PEFT's `save_pretrained` writes it and `golden.safetensors` with, for sequences
s = 0, 1:

    input_ids.{s}          token ids
    logits.{s}             [tokens, vocabulary], computed in float64
    single.logits.{s}      the same computed in float32
    base.logits.{s}        with the adapter off, in float64
    loss.nll               mean over tokens 1.. of both sequences of -log p
    gradient.{tensor}      of the loss, by the tensors of adapter_model.safetensors, in float64
    single.gradient.{tensor}   the same in float32
"""

import json
import shutil
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = Path(__file__).parent
LENGTHS = (13, 6)
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

ADAPTERS = {
    "adapter-llama": ("llama", dict(r=4, lora_alpha=8, target_modules=ALL)),
    "adapter-qwen2": ("qwen2", dict(r=3, lora_alpha=5, use_rslora=True, target_modules="all-linear")),
    "adapter-qwen3": ("qwen3", dict(r=1, lora_alpha=3, target_modules=["q_proj", "down_proj"])),
}


def adapted(base, options, seed, dtype):
    model = AutoModelForCausalLM.from_pretrained(HERE / base, dtype=torch.float32, attn_implementation="eager")
    model = get_peft_model(model, LoraConfig(**options, task_type="CAUSAL_LM", lora_dropout=0.0))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if "lora_" in name:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.to(dtype)


def results(model, inputs):
    tensors, nll, count = {}, 0.0, 0
    for s, ids in enumerate(inputs):
        logits = model(ids[None], use_cache=False).logits[0]
        tensors[f"logits.{s}"] = logits.detach()
        nll = nll - torch.log_softmax(logits[:-1], dim=-1).gather(1, ids[1:, None]).sum()
        count += len(ids) - 1
    (nll / count).backward()
    tensors["loss.nll"] = (nll / count).detach()[None]
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            tensors["gradient." + name.replace(".default.", ".")] = parameter.grad
    return tensors


def main():
    torch.set_num_threads(1)
    for seed, (name, (base, options)) in enumerate(ADAPTERS.items()):
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        model = adapted(base, options, seed, torch.float32)
        generator = torch.Generator().manual_seed(100 + seed)
        inputs = [torch.randint(0, model.config.vocab_size, (length,), generator=generator) for length in LENGTHS]
        model.save_pretrained(folder)
        (folder / "README.md").unlink()
        config = json.loads((folder / "adapter_config.json").read_text())
        # A place on no one's disk but the reader's.
        config["base_model_name_or_path"] = base
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
        single = results(model, inputs)
        model = adapted(base, options, seed, torch.float64)
        double = results(model, inputs)
        tensors = {f"input_ids.{s}": ids for s, ids in enumerate(inputs)}
        tensors |= {key: value.float() for key, value in double.items()}
        tensors |= {f"single.{key}": value.float() for key, value in single.items() if not key.startswith("loss")}
        with torch.no_grad(), model.disable_adapter():
            tensors |= {f"base.logits.{s}": model(ids[None]).logits[0].float() for s, ids in enumerate(inputs)}
        save_file({key: value.contiguous() for key, value in tensors.items()}, folder / "golden.safetensors")
        worst = max((single[f"logits.{s}"] - double[f"logits.{s}"]).abs().max().item() for s in range(2))
        print(f"{name}: float32 logits within {worst:.1e} of float64")


if __name__ == "__main__":
    main()
