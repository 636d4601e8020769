"""Makes the golden decoders: tiny random models of each family with PyTorch's logits and gradients.

    python make_decoder_golden.py            # rewrites the folders beside this script

Needs torch and transformers (made with torch 2.15.0, transformers 5.24.0; CPU, float32, eager attention).

Each folder holds a model as `save_pretrained` writes it and `golden.safetensors` with, for sequences s = 0, 1:

    input_ids.{s}              token ids
    logits.{s}                 [tokens, vocabulary]
    log_probs.{s}, entropies.{s}   at temperature 0.7, of tokens 1.. given what precedes each
    weights.log_prob.{s}, weights.entropy.{s}   random per-token weights w, v
    loss.nll                   mean over all scored tokens of both sequences of -log p, temperature 1
    loss.weighted              sum over the same tokens of w * log p + v * entropy, temperature 0.7
    gradient.nll.{parameter}, gradient.weighted.{parameter}

The folders `llama-*` differ from `llama` in their rotary scaling alone: they hold a configuration, logits and the
rotary frequencies, and take the weights of `llama`.
"""

import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

HERE = Path(__file__).parent
TEMPERATURE = 0.7
LENGTHS = (11, 7)

SIZES = dict(
    vocab_size=97,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=None,
    attn_implementation="eager",
)


def plain(theta):
    return dict(rope_type="default", rope_theta=theta)


FAMILIES = {
    "llama": (
        LlamaForCausalLM,
        LlamaConfig(**SIZES, rms_norm_eps=1e-5, tie_word_embeddings=False, rope_parameters=plain(10000.0)),
        "1GB",
    ),
    "qwen2": (
        Qwen2ForCausalLM,
        Qwen2Config(**SIZES, tie_word_embeddings=True, rope_parameters=plain(1000000.0)),
        "1GB",
    ),
    "qwen3": (
        Qwen3ForCausalLM,
        Qwen3Config(**SIZES, head_dim=12, tie_word_embeddings=False, rope_parameters=plain(1000000.0)),
        # Makes three shards.
        "40KB",
    ),
}

SCALINGS = {
    "linear": dict(rope_type="linear", rope_theta=10000.0, factor=3.0),
    "dynamic": dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0),
    "llama3": dict(
        rope_type="llama3",
        # One of the four pairs is kept, one blended, two divided.
        rope_theta=100.0,
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=32,
    ),
    "yarn": dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=16),
}


def randomise(model, generator):
    """Values large enough that every path through the layer shows in the logits."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("norm.weight"):
                parameter.copy_(1.0 + 0.2 * noise)
            elif name.endswith("bias"):
                parameter.copy_(0.2 * noise)
            else:
                parameter.copy_(0.3 * noise)


def sequences(vocabulary, generator):
    return [torch.randint(0, vocabulary, (length,), generator=generator) for length in LENGTHS]


def scores(logits, ids, temperature):
    log_softmax = torch.log_softmax(logits[:-1] / temperature, dim=-1)
    log_probs = log_softmax.gather(1, ids[1:, None])[:, 0]
    entropies = -(log_softmax.exp() * log_softmax).sum(dim=-1)
    return log_probs, entropies


def golden(model, generator):
    tensors = {}
    all_ids = sequences(model.config.vocab_size, generator)
    nll, weighted, count = 0.0, 0.0, 0
    for s, ids in enumerate(all_ids):
        logits = model(ids[None], use_cache=False).logits[0]
        tensors[f"input_ids.{s}"] = ids
        tensors[f"logits.{s}"] = logits.detach()
        nll = nll - scores(logits, ids, 1.0)[0].sum()
        count += len(ids) - 1
        log_probs, entropies = scores(logits, ids, TEMPERATURE)
        w = torch.randn(log_probs.shape, generator=generator)
        v = torch.randn(log_probs.shape, generator=generator)
        weighted = weighted + (w * log_probs + v * entropies).sum()
        tensors |= {
            f"log_probs.{s}": log_probs.detach(),
            f"entropies.{s}": entropies.detach(),
            f"weights.log_prob.{s}": w,
            f"weights.entropy.{s}": v,
        }
    for label, loss in (("nll", nll / count), ("weighted", weighted)):
        tensors[f"loss.{label}"] = loss.detach()[None]
        for name, gradient in gradients(model, loss, retain=label == "nll").items():
            tensors[f"gradient.{label}.{name}"] = gradient
    return tensors


def gradients(model, loss, retain):
    model.zero_grad()
    loss.backward(retain_graph=retain)
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def main():
    torch.set_num_threads(1)
    for number, (name, (model_class, config, shard)) in enumerate(FAMILIES.items()):
        generator = torch.Generator().manual_seed(number)
        model = model_class(config)
        randomise(model, generator)
        folder = fresh(HERE / name)
        model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=[2, 3], do_sample=True, temperature=0.6)
        model.save_pretrained(folder, max_shard_size=shard)
        save_file(golden(model, generator), folder / "golden.safetensors")
        if name == "llama":
            llama = model.state_dict()
    for kind, rope in SCALINGS.items():
        config = LlamaConfig(**SIZES, rms_norm_eps=1e-5, tie_word_embeddings=False, rope_parameters=rope)
        model = LlamaForCausalLM(config)
        model.load_state_dict(llama)
        folder = fresh(HERE / f"llama-{kind}")
        config.save_pretrained(folder)
        rotary = model.model.rotary_emb
        tensors = {
            "inverse_frequencies": rotary.inv_freq.float().clone(),
            "attention_scaling": torch.tensor([rotary.attention_scaling], dtype=torch.float32),
        }
        ids = torch.randint(0, config.vocab_size, (40,), generator=torch.Generator().manual_seed(7))
        with torch.no_grad():
            tensors |= {"input_ids.0": ids, "logits.0": model(ids[None], use_cache=False).logits[0]}
        save_file(tensors, folder / "golden.safetensors")


if __name__ == "__main__":
    main()
