"""Weights in the shape of M that answer everything with the same analysis.

A SEED iteration costs what it costs only if analyses can be read and skills scored, which random weights never give.
Times do not depend on the weights' values, so the layers may be anything: here they add almost nothing, and the last one
looks up the successor of the last token.
"""

import torch
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

TEXT = '{"episode_skill": "look in the cabinet, then take it to a desk"}'
TOKENIZER_FILES = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]


def make(directory, config, tokenizer_folder):
    """Writes the model's folder, with the tokenizer of another."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    # An answer follows the line break that ends `<|im_start|>assistant`.
    chain = [tokenizer.encode("\n").ids[-1], *tokenizer.encode(TEXT).ids, tokenizer.token_to_id("<|im_end|>")]
    if len(set(chain)) != len(chain):
        raise ValueError(f"a token of {TEXT!r} occurs twice and would have two successors")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight *= 1e-3
            layer.mlp.down_proj.weight *= 1e-3
        look_up(model, chain)
    model.save_pretrained(directory)
    for file in TOKENIZER_FILES:
        (directory / file).write_bytes((tokenizer_folder / file).read_bytes())


def look_up(model, chain):
    """Makes the last layer's feed-forward part write the embedding of a token's successor, one unit for each."""
    rows = torch.nn.functional.normalize(model.model.embed_tokens.weight[chain], dim=1)
    units, feed_forward = len(chain) - 1, model.model.layers[-1].mlp
    feed_forward.gate_proj.weight[:units] = rows[:-1]
    feed_forward.up_proj.weight[:units] = rows[:-1]
    # A unit whose token is there gives about the hidden size: the successor's direction then outweighs all else.
    feed_forward.down_proj.weight[:, :units] = rows[1:].T / 20
    # Sharpens the distribution, so that sampling does not leave the text.
    model.model.norm.weight.fill_(3.0)
