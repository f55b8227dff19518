"""The baselines against slow twins that are given the noise of the run."""

import math

import numpy as np
import pytest

from hushrec.models import GlobalMean, ItemBias, Popular
from hushrec.privacy import Accountant
from hushrec.privacy.testing import RecordingNoise, SeededNoise
from tests.models.twins import BUDGET, run, small

RATINGS = small()
ROWS = [row[row > 0] for row in RATINGS.matrix.toarray().astype(np.float64)]
SEEN = [np.flatnonzero(row) for row in RATINGS.matrix.toarray()]
MU_SQUARED = BUDGET.mu**2


def level_of(noise):
    """Middle of the range and the mean of the users' means about it, both released."""
    deviations = sum(row.mean() - 3.0 for row in ROWS) + noise[0]
    return 3.0 + deviations / (len(ROWS) + noise[1])


def test_global_mean():
    model, noise, noise_sd = run(GlobalMean(), RATINGS)
    assert noise_sd == {"level": pytest.approx(math.sqrt(2 / MU_SQUARED), rel=1e-9)}
    assert model.arrays["center"] == pytest.approx(level_of(noise["level"]), rel=1e-9)
    assert not model.item_bias.any()


@pytest.mark.parametrize("clip, prior_sd", [(0.45, 0.25), (0.2, 1.0), (9.0, 0.25)])
def test_item_bias(clip, prior_sd):
    """The clips are exceeded by all rows, some rows or none; half the range is 2."""
    model, noise, noise_sd = run(ItemBias(clip=clip, prior_sd=prior_sd), RATINGS)
    added = noise["item biases"]
    sums, weights = added[:12].copy(), added[12:24].copy()
    beyond = 0
    for row, seen in zip(ROWS, SEEN):
        deviations = (row - row.mean()) / math.sqrt(len(row))
        shrink = min(1.0, 2 * clip / np.linalg.norm(deviations))
        beyond += shrink < 1
        sums[seen] += shrink * deviations
        weights[seen] += shrink / math.sqrt(len(row))
    assert {0.2: beyond == 60, 0.45: 20 < beyond < 60, 9.0: beyond == 0}[clip]
    weights = np.maximum(weights, 0.0)
    sensitivity = math.sqrt(1 + 0.7**2 + 2 * 0.1**2)
    assert noise_sd == {"item biases": pytest.approx(sensitivity / math.sqrt(MU_SQUARED), rel=1e-9)}
    in_sums = (noise_sd["item biases"] * 2 * clip) ** 2
    expected = sums * weights / (weights**2 + in_sums / (2 * prior_sd) ** 2)
    np.testing.assert_allclose(model.item_bias, expected, rtol=1e-5, atol=1e-6)
    assert model.arrays["center"] == pytest.approx(level_of(added[24:]), rel=1e-9)


def test_noise_of_the_parts_of_item_bias_is_in_their_units():
    """Sums of deviations by half the range and the clip, weights by 1 / 0.7, the level by 10."""
    noise = np.array([run_of(seed) for seed in range(60)])
    unit = noise.std(axis=0) / math.sqrt((1 + 0.7**2 + 2 * 0.1**2) / MU_SQUARED)
    parts = [unit[:12] / (2 * 0.45), unit[12:24] * 0.7, unit[24:25] / 2 * 0.1, unit[25:] * 0.1]
    for part in parts:
        assert math.sqrt(np.mean(part**2)) == pytest.approx(1.0, rel=0.3)


def run_of(seed):
    source = RecordingNoise(SeededNoise(seed))
    ItemBias().fit(RATINGS, Accountant(BUDGET, noise=source))
    [call] = source.calls
    return call.output - call.value


def test_popular():
    model, noise, noise_sd = run(Popular(), RATINGS)
    assert noise_sd == {"item weights": pytest.approx(1 / math.sqrt(MU_SQUARED), rel=1e-9)}
    expected = noise["item weights"].copy()
    for seen in SEEN:
        expected[seen] += 1 / math.sqrt(len(seen))
    np.testing.assert_allclose(model.item_bias, expected, rtol=1e-5, atol=1e-6)
    assert model.arrays["center"] == 0
