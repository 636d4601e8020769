"""Whether the contenders compute the same model: checked before anything is timed."""

import numpy as np

# Largest difference of a log-prob among those who compute in f32.
TOLERANCE = 1e-3
# And of one whose weights are rounded to eight bits: coarse, but a model laid out wrongly is far outside.
ROUNDED_TOLERANCE = 0.5
ROUNDED = ["llama-q8"]
LENGTH, NEW_TOKENS = 48, 16


def check(contenders, vocabulary):
    """Compares log-probs of one text and greedy tokens after it with ours; a sentence on it.

    Raises where they differ.
    """
    tokens = np.random.default_rng(48).integers(0, vocabulary, (1, LENGTH)).tolist()
    log_probs, chosen = {}, {}
    for name, contender in contenders.items():
        log_probs[name] = np.array(contender.ask("score", tokens=tokens, repeats=1)["log_probs"])
        chosen[name] = contender.ask("decode", prompts=tokens, new_tokens=NEW_TOKENS, temperature=0.0)["token_ids"]
    parts = []
    for name in contenders:
        if name == "seed":
            continue
        difference = np.abs(log_probs[name] - log_probs["seed"]).max()
        allowed = ROUNDED_TOLERANCE if name in ROUNDED else TOLERANCE
        if not difference <= allowed:
            raise RuntimeError(f"{name}: a log-prob differs from ours by {difference}, at most {allowed} is allowed")
        if name not in ROUNDED and chosen[name] != chosen["seed"]:
            raise RuntimeError(f"{name}: greedy tokens {chosen[name]} instead of {chosen['seed']}")
        parts.append(f"{name} {difference:.1e}")
    return f"the same model to all; log-probs differ from ours by at most: {', '.join(parts)}"
