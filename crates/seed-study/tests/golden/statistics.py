"""Reference values of seed-study's statistics. Made with numpy 2 and scipy 1.17:

    python statistics.py > statistics.txt
"""

import itertools

import numpy as np
from scipy import stats


def show(name, values):
    print(name, *(repr(float(value)) for value in np.atleast_1d(values)))


random = np.random.default_rng(2607)

for number, count in [(1, 5), (2, 8), (3, 16), (4, 20)]:
    differences = random.normal(0.04, 0.06, count).round(4)
    result = stats.permutation_test(
        (differences,), lambda sample, axis: sample.mean(axis=axis), permutation_type="samples",
        n_resamples=2**20, alternative="two-sided", vectorized=True,
    )
    show(f"differences_{number}", differences)
    # scipy counts each tail and doubles the smaller one; for a symmetric null that is the two-sided count of means.
    show(f"permutation_p_{number}", result.pvalue)

# The exact distribution of the bootstrap: every resample within each stratum, all equally likely.
for number, sizes in [(1, [6]), (2, [5, 4])]:
    strata = [random.normal(0.05, 0.05, size).round(4) for size in sizes]
    sums = np.zeros(1)
    for base, stratum in enumerate(strata, 1):
        show(f"stratum_{number}_{base}", stratum)
        own = np.array([sum(draw) for draw in itertools.product(stratum, repeat=len(stratum))])
        sums = (sums[:, None] + own[None, :]).ravel()
    means = np.sort(sums / sum(sizes))
    show(f"interval_{number}", [np.concatenate(strata).mean(), *np.quantile(means, [0.025, 0.975])])

p_values = np.array([0.012, 0.2, 0.004, 0.04, 0.9, 0.04])
order = np.argsort(p_values, kind="stable")
adjusted = np.empty_like(p_values)
adjusted[order] = np.minimum(1, np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1)))
show("p_values", p_values)
show("holm", adjusted)
