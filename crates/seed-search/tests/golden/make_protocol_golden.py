"""Records what Python's `re`, `json` and `str` make of the search protocol's rules, on texts put together at random.

The rules are stated here once more, in Python, so that the library's own idea of regular expressions, white space, letter
case and JSON is checked against Python's. Run with Python 3.11: `python3 make_protocol_golden.py > protocol.json`.
"""

import json
import random
import re
import string

PIECES = [
    "<search>", "</search>", "<answer>", "</answer>", "<SEARCH>", "</Search>", "<Answer>", "</ANSWER>",
    "<\u017fearch>", "</an\u017fwer>", "<think>", "</think>", "<information>", "who wrote it", "Beijing", " ", "\n", "\t",
    "\u00a0", "\x1c", "\u3000", "K\u00f6ln", "\u0130", "<", ">", "<search", "answer>", "the",
]
WORDS = [
    "the", "The", "THE", "a", "an", "An", "A", "cat", "Cat's", "a-cat", "the_end", "U.S.A.", "an.", "'the'", "Th\u00e9", "\u03a3\u03a3",
    "\u0130stanbul", "na\u00efve", "a\u0301", "the\u0345", "\u24d0", "a\u00b2", "\u0661", "\u4e2d\u6587", "$5", "50%", "a\u2019s", "\u2014", "\u00ab a \u00bb",
    "\u1e9e", "a\u200bb", "the\u00adend", "\u00aa",
]
SPACES = [" ", "  ", "\n", "\t", "\u00a0", "\x1d", "\u2003", "\u200b", ""]
CONTENTS = [
    '"Evan Morris"\nlobbyist for Genentech', '  "A \\ B"\r\nx\ty  ', "no title", "", "\n", "\u00e9\u4e2d\U0001f600\x7f\x00\x0b\x0c\b/",
    '"T"\nline one\nline two\n', "<answer>trap</answer>", "\u2028\x1e",
]


def cut(text):
    for closing in ("</search>", "</answer>"):
        head, found, _ = text.partition(closing)
        if found:
            return head + found
    return text


def block_projection(text):
    flags = re.IGNORECASE | re.DOTALL
    rest = cut(text)
    action = ""
    for tag in ("search", "answer"):
        found = re.search(f"<{tag}>(.*?)</{tag}>", rest, flags)
        if found:
            action = f"<{tag}>{found.group(1).strip()}</{tag}>"
            break
    opened = [len(re.findall(f"<{tag}>", text, re.IGNORECASE)) for tag in ("search", "answer")]
    valid = action != "" and not all(opened) and max(opened) <= 1
    return [action, valid]


def growing_projection(text):
    rest = cut(text)
    found = re.search(r"<(search|answer)>(.*?)</\1>", rest, re.DOTALL)
    return [rest, found.group(1) if found else None, found.group(2).strip() if found else None]


def normalise(text):
    text = "".join(character for character in text.lower() if character not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def last_answer(text):
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found[-1].strip() if found else None


def step_block(contents):
    text = "".join(f"Doc {number}: {content.strip()}\n" for number, content in enumerate(contents, 1))
    return "<information>" + json.dumps({"result": text}) + "</information>"


def plain_block(contents):
    text = ""
    for number, content in enumerate(contents, 1):
        title, *rest = content.split("\n")
        text += f"Doc {number}(Title: {title}) " + "\n".join(rest) + "\n"
    return "<information>" + text.strip() + "</information>"


draw = random.Random(20260101)


def unit():
    if draw.random() < 0.4:
        return draw.choice(PIECES)
    tag = draw.choice(["search", "answer"])
    spelled = [draw.choice([tag, tag, tag, tag.upper(), tag.replace("s", "\u017f")]) for _ in range(2)]
    inner = "".join(draw.choices(PIECES, k=draw.choice([0, 1, 1, 1, 2, 3])))
    return f"<{spelled[0]}>{inner}</{spelled[1]}>"


responses = ["".join(unit() for _ in range(draw.randint(0, 4))) for _ in range(500)]
answers = ["".join(draw.choice(WORDS) + draw.choice(SPACES) for _ in range(draw.randint(0, 6))) for _ in range(300)]
results = [draw.choices(CONTENTS, k=draw.randint(1, 3)) for _ in range(60)]
print(json.dumps({
    "responses": [
        {"text": text, "block": block_projection(text), "growing": growing_projection(text), "answer": last_answer(text)}
        for text in responses
    ],
    "answers": [[text, normalise(text)] for text in answers],
    "results": [{"contents": group, "step": step_block(group), "plain": plain_block(group)} for group in results],
}))
