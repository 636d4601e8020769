"""The models' folders: random weights for S and M, the shipped ones for household-tiny, and these as GGUF; and a model
in the shape of M that can be trained by SEED.

Usage: models.py FOLDER MODEL...
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np
import scripted_model
import torch
from safetensors.numpy import load_file
from transformers import LlamaConfig, LlamaForCausalLM

ROOT = Path(__file__).resolve().parents[2]

SHAPES = {
    "S": dict(
        hidden_size=256, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4, intermediate_size=768,
        vocab_size=4096,
    ),
    "M": dict(
        hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3, intermediate_size=1536,
        vocab_size=49152,
    ),
}
SHIPPED = {"household-tiny": ROOT / "models" / "household-tiny"}
SCRIPTED = {"M-scripted": "M"}


def make(folder, name):
    """The folder of a model, made if it is not there; a stamp written last says that it is whole."""
    directory = folder / name
    if (directory / "made").exists():
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    if name in SCRIPTED:
        scripted_model.make(directory, configuration(SHAPES[SCRIPTED[name]], 0.02), SHIPPED["household-tiny"])
        (directory / "made").touch()
        return directory
    if name in SHIPPED:
        for file in ["config.json", "model.safetensors", *scripted_model.TOKENIZER_FILES]:
            (directory / file).write_bytes((SHIPPED[name] / file).read_bytes())
    else:
        random_model(directory, SHAPES[name])
    config = json.loads((directory / "config.json").read_text())
    tensors = load_file(directory / "model.safetensors")
    write_gguf(directory / "f32.gguf", config, tensors, gguf.GGMLQuantizationType.F32)
    write_gguf(directory / "q8_0.gguf", config, tensors, gguf.GGMLQuantizationType.Q8_0)
    (directory / "made").touch()
    return directory


def random_model(directory, shape):
    """Random weights. They are larger than those a training would start from: queries and keys of about unit size
    make attention far from uniform, so that contenders who compute different things cannot agree by chance."""
    torch.manual_seed(0)
    LlamaForCausalLM(configuration(shape, shape["hidden_size"] ** -0.5)).save_pretrained(directory)


def configuration(shape, initializer_range):
    return LlamaConfig(
        **shape, max_position_embeddings=2048, tie_word_embeddings=True, initializer_range=initializer_range,
        bos_token_id=None, eos_token_id=None, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )


def write_gguf(path, config, tensors, kind):
    """Writes a Llama model as GGUF, the matrices as `kind` and the norms in f32, without a tokenizer."""
    heads, key_value_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32 if kind.name == "F32" else gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config.get("rope_theta") or config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, values in tensors.items():
        if name.endswith("q_proj.weight"):
            values = interleave(values, heads)
        elif name.endswith("k_proj.weight"):
            values = interleave(values, key_value_heads)
        as_kind = kind if values.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(
            names.get_name(name, try_suffixes=(".weight",)), gguf.quantize(values.astype(np.float32), as_kind),
            raw_dtype=as_kind,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def interleave(weight, heads):
    """Rotary pairs are neighbours in llama.cpp's Llama and half a head apart in transformers': reorders the rows."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


if __name__ == "__main__":
    for model in sys.argv[2:]:
        make(Path(sys.argv[1]), model)
