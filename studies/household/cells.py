"""Reading the cells of a study, for the scripts beside it. What a study itself can say is in its report."""
import json
import random

BASES, DRAWS = "ab", 10_000


def lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def mean(values):
    return sum(values) / len(values)


def mean_height(points, end):
    """Of a curve through the points, from 0 to `end`."""
    area = 0.0
    for (left, low), (right, high) in zip(points, points[1:]):
        if left >= end:
            break
        if right > end:
            high = low + (high - low) * (end - left) / (right - left)
            right = end
        area += (right - left) * (low + high) / 2
    return area / end


def estimate(groups, seed):
    """Mean of the pairs of all groups with its 95 % bootstrap interval, drawn within groups, as text."""
    generator = random.Random(seed)
    means = sorted(mean([generator.choice(group) for group in groups for _ in group]) for _ in range(DRAWS))
    low, high = means[DRAWS // 40], means[-DRAWS // 40]
    return f"{mean([value for group in groups for value in group]):+.1f} [{low:+.1f}, {high:+.1f}]"
