"""Whether draws follow a law: alarms at p < 1e-9, which is six sigma."""

import math

import numpy as np
from scipy import stats

ALARM = 1e-9
LAGS = (1, 2, 3, 32, 33, 64, 1 << 15)


def p_values(draws, law):
    """Kolmogorov-Smirnov, chi-square over 1,000 equal cells, mean, variance and autocorrelation."""
    places, count = law.cdf(draws), len(draws)
    cells = np.bincount((places * 1000).astype(int).clip(0, 999), minlength=1000)
    variance, kurtosis = float(law.var()), float(law.stats(moments="k")) + 3
    sigmas = {
        "mean": np.mean(draws) / math.sqrt(variance / count),
        "variance": (np.mean(draws**2) - variance) / (variance * math.sqrt((kurtosis - 1) / count)),
    }
    for lag in LAGS:
        if lag < count:
            sigmas[f"lag {lag}"] = np.mean(draws[lag:] * draws[:-lag]) / variance * math.sqrt(count - lag)
    return {
        "Kolmogorov-Smirnov": stats.kstest(places, "uniform").pvalue,
        "chi-square": stats.chisquare(cells).pvalue,
        **{name: 2 * stats.norm.sf(abs(sigma)) for name, sigma in sigmas.items()},
    }


def check_law(draws, law, record=lambda *_: None):
    """Fail if any test of the law does; the recorded figures are printed by ``make trust``."""
    found = p_values(draws, law)
    worst = min(found, key=found.get)
    record("draws", len(draws))
    record("smallest p-value", float(found[worst]))
    assert found[worst] > ALARM, worst
