"""Reference values of every algorithm on one small batch, written to baselines.json beside this file.

Each method's loss is written down from its equation as a function of the fresh log-probs, with detached values taken at
the point; gradients are central differences of that function. Nothing is shared with the crate. Run: python3 baselines.py
"""

import json
import math
import pathlib

# Two responses of four tokens and one without skill scores. The last token of the first is not trained.
BATCH = [
    {
        "mask": [True, True, True, False],
        "advantage": 1.0,
        "spans": ["reasoning", "action", "action", "reasoning"],
        "old": [-1.0, -0.5, -2.0, -0.1],
        "skill": [-0.8, -0.9, -2.0, -3.0],
        "step_skill": [-1.0, -0.45, -1.5, -0.1],
        "student": [-0.95, -0.55, -1.7, -0.2],
    },
    {
        "mask": [True, True, True, True],
        "advantage": -0.75,
        "spans": ["reasoning", "reasoning", "action", "reasoning"],
        "old": [-0.7, -1.2, -0.3, -2.5],
        "skill": [-0.6, -1.9, -0.35, -0.5],
        "step_skill": [-0.7, -1.2, -0.3, -2.5],
        "student": [-0.72, -1.0, -0.31, -2.4],
    },
    {
        "mask": [True, True],
        "advantage": -0.25,
        "spans": ["action", "reasoning"],
        "old": [-1.1, -0.4],
        "skill": None,
        "step_skill": None,
        "student": [-1.0, -0.45],
    },
]
LOW, HIGH, DUAL = 0.2, 0.2, 3.0


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def policy_loss(s, o, a):
    ratio = math.exp(s - o)
    first = max(-a * ratio, -a * min(max(ratio, 1 - LOW), 1 + HIGH))
    return min(first, -a * DUAL) if a < 0 else first


def trained(batch):
    return [(i, t) for i, row in enumerate(batch) for t, on in enumerate(row["mask"]) if on]


def has_skill(row):
    return row["skill"] is not None


def linear(value, updates, update):
    return value * max(0.0, 1 - (update - 1) / updates)


def reweighted(row, t, lam, clip):
    a = row["advantage"]
    sign = (a > 0) - (a < 0)
    x = max(-20.0, min(20.0, sign * (row["skill"][t] - row["old"][t])))
    return a * ((1 - lam) + lam * min(max(math.exp(x), 1 - clip), 1 + clip))


def case(name, options, update, advantage, auxiliary, coefficient, outcome=True):
    """`advantage(row, t)`; `auxiliary(row, t, s, s0)` with detached values at s0, averaged over all trained tokens."""
    tokens = trained(BATCH)
    point = [list(row["student"]) for row in BATCH]

    def loss(student):
        total = 0.0
        for i, t in tokens:
            row = BATCH[i]
            if outcome:
                total += policy_loss(student[i][t], row["old"][t], advantage(row, t))
            if auxiliary and has_skill(row):
                total += coefficient * auxiliary(row, t, student[i][t], point[i][t])
        return total / len(tokens)

    gradients = []
    for i, row in enumerate(BATCH):
        gradients.append([])
        for t in range(len(row["mask"])):
            step = 1e-6
            up = [list(values) for values in point]
            down = [list(values) for values in point]
            up[i][t] += step
            down[i][t] -= step
            gradients[i].append((loss(up) - loss(down)) / (2 * step))
    auxiliary_loss = sum(
        auxiliary(BATCH[i], t, point[i][t], point[i][t]) for i, t in tokens if auxiliary and has_skill(BATCH[i])
    ) / len(tokens)
    return {
        "options": {"name": name, **options},
        "update": update,
        "advantages": [
            [advantage(row, t) if on else row["advantage"] for t, on in enumerate(row["mask"])] for row in BATCH
        ],
        "gradients": gradients,
        "auxiliary": auxiliary_loss,
    }


def plain(row, t):
    return row["advantage"]


def gated(slope):
    return lambda row, t, s, s0: sigmoid(slope * (row["skill"][t] - s0)) * (row["skill"][t] - s)


def weighted_k3(row, t, s, s0):
    ratio = math.exp(min(s - row["old"][t], 10))
    return ratio * (math.exp(min(row["skill"][t] - s, 20)) - 1 + (s - row["skill"][t]))


def rlsd(lam, clip=0.2, spans=("action", "reasoning")):
    def advantage(row, t):
        if not has_skill(row) or row["spans"][t] not in spans:
            return row["advantage"]
        return reweighted(row, t, lam, clip)

    return advantage


def opid(lam):
    def advantage(row, t):
        if not has_skill(row):
            return row["advantage"]
        gap = row["skill"][t] - row["old"][t] + row["step_skill"][t] - row["old"][t]
        return row["advantage"] + lam * gap

    return advantage


def constant(value):
    return {"coefficient": {"value": value}}


CASES = [
    case("grpo", {}, 1, plain, None, 0.0),
    case("gigpo", {}, 1, plain, None, 0.0),
    case("sdar", {}, 1, plain, gated(5.0), 0.01),
    case("sdar", {**constant(0.4), "gate_slope": 2.0}, 1, plain, gated(2.0), 0.4),
    case("opsd", {}, 7, plain, gated(5.0), 0.01, outcome=False),
    case("grpo_opsd", {}, 1, plain, gated(0.0), 0.01),
    case("skill_sd", {}, 1, plain, weighted_k3, 0.001),
    case("skill_sd", constant(0.7), 1, plain, weighted_k3, 0.7),
    case("rlsd", {}, 1, rlsd(0.5), None, 0.0),
    case("rlsd", {}, 26, rlsd(linear(0.5, 100, 26)), None, 0.0),
    case("serl", {}, 11, rlsd(linear(0.5, 50, 11), spans=("action",)), None, 0.0),
    case("serl", {}, 51, plain, None, 0.0),
    case("opid", {}, 1, opid(0.001), None, 0.0),
    case("opid", constant(0.3), 1, opid(0.3), None, 0.0),
]

# Four trajectories of one group and one of another, as (trajectory, step, anchor, reward, valid).
STEPS = [
    (0, 0, "hall", 0.0, True),
    (0, 1, "kitchen", 0.0, True),
    (0, 2, "desk", 10.0, True),
    (1, 0, "hall", 0.0, False),
    (1, 1, "hall", 0.0, True),
    (2, 0, "hall", 0.0, True),
    (2, 1, "kitchen", 10.0, True),
    (3, 0, "hall", 0.0, True),
    (3, 1, "kitchen", 0.0, True),
    (3, 2, "shelf", 0.0, True),
    (4, 0, "hall", 10.0, True),
    (5, 0, "hall", 0.0, True),
]
GROUP = {0: 0, 1: 0, 2: 0, 3: 0, 4: 1, 5: 1}


def gigpo(discount, penalty, deviation):
    returns = {}
    for trajectory in GROUP:
        following = 0.0
        for step in sorted((s for s in STEPS if s[0] == trajectory), key=lambda s: -s[1]):
            reward = step[3] - (0.0 if step[4] else penalty)
            following = reward + discount * following
            returns[step[:2]] = following
    values = []
    for step in STEPS:
        alike = [
            returns[other[:2]] for other in STEPS if GROUP[other[0]] == GROUP[step[0]] and other[2] == step[2]
        ]
        mean = sum(alike) / len(alike)
        value = returns[step[:2]] - mean
        if deviation and len(alike) > 1:
            spread = math.sqrt(sum((x - mean) ** 2 for x in alike) / (len(alike) - 1))
            value /= spread + 1e-6
        values.append(value)
    return values


GIGPO = [
    {
        "discount": discount,
        "penalty": penalty,
        "deviation": deviation,
        "advantages": gigpo(discount, penalty, deviation),
    }
    for discount, penalty, deviation in [(0.95, 0.1, False), (0.95, 0.1, True), (1.0, 0.0, False)]
]

steps = [
    {"group": GROUP[t], "trajectory": t, "step": s, "anchor": a, "reward": r, "valid": v} for t, s, a, r, v in STEPS
]
out = pathlib.Path(__file__).with_suffix(".json")
out.write_text(json.dumps({"batch": BATCH, "cases": CASES, "steps": steps, "gigpo": GIGPO}, indent=1) + "\n")
