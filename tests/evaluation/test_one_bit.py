"""Measures of likes and dislikes against definitions by loops."""

import math

import numpy as np
import pytest
from scipy.special import expit, ndtr

from hushrec.data import Domain, Ratings, realistic, split_ratings
from hushrec.evaluation import evaluate
from hushrec.evaluation.one_bit import auc, log_loss, sign_accuracy
from hushrec.models import Model
from hushrec.papers.one_bit import OneBitCompletion, completion_scores
from hushrec.privacy import Accountant, Budget

RNG = np.random.default_rng(0)
SCORES = np.round(RNG.standard_normal(60), 1)  # with ties
LIKED = RNG.random(60) < expit(2 * SCORES)


def test_auc_counts_pairs():
    pairs = [
        1.0 if good > bad else 0.5 if good == bad else 0.0 for good in SCORES[LIKED] for bad in SCORES[~LIKED]
    ]
    assert auc(SCORES, LIKED) == pytest.approx(np.mean(pairs))
    weights = RNG.integers(0, 3, 60).astype(float)
    copies = np.repeat(np.arange(60), weights.astype(int))
    assert auc(SCORES, LIKED, weights) == pytest.approx(auc(SCORES[copies], LIKED[copies]))
    assert math.isnan(auc(SCORES, np.ones(60)))


@pytest.mark.parametrize(("link", "chance"), [("logistic", expit), ("probit", ndtr)])
def test_log_loss(link, chance):
    wanted = -np.mean(np.where(LIKED, np.log(chance(SCORES)), np.log(1 - chance(SCORES))))
    assert log_loss(SCORES, LIKED, link) == pytest.approx(wanted)


def test_evaluation_of_a_model_and_of_its_matrix():
    train, test = split_ratings(realistic(150, 40, 3000, seed=0), (0.8, 0.2), seed=0)
    fit = OneBitCompletion.of(mechanism="none", threshold=3.5, rank=4)
    budget = Budget(math.inf, 1e-6, unit="rating", relation="replace")
    result = evaluate(fit.fit(train, Accountant(budget)), train, test, resamples=20)
    assert result["accuracy"].value > 0.6 and result["auc"].value > 0.6
    assert math.isnan(result["rmse"].value)  # log-odds are no ratings
    scores = completion_scores(fit.complete(train, Accountant(budget)), train, test)
    assert sign_accuracy(scores, test.matrix.data > 3.5) == pytest.approx(result["accuracy"].value, abs=0.05)


def test_an_evaluation_uses_the_threshold_and_link_of_the_model_and_no_purchase() -> None:
    """A user without a history is scored by the items' probits alone."""
    domain, probits = Domain(["a", "b", "c"], rating_range=(1, 5)), np.array([0.7, -0.4, 1.2])
    arrays = {"center": np.float64(0), "item_bias": probits, "item_factors": np.zeros((3, 0))}
    statement = Accountant(Budget(math.inf, 1e-6)).statement()
    model = Model(OneBitCompletion.of(link="probit", threshold=1.5), domain, arrays, statement)
    table = {
        "user": ["u"] * 4,
        "item": ["a", "b", "c", "a"],
        "rating": [2.0, 1.0, None, None],
        "pieces": [1] * 4,
    }
    targets = Ratings.from_any(table, domain, columns={"quantity": "pieces"})
    result = evaluate(model, targets.where(np.zeros(3, dtype=bool)), targets, resamples=0)
    assert result["log_loss"].value == pytest.approx(-math.log(ndtr(0.7) * ndtr(0.4)) / 2)
    assert result["accuracy"].value == result["auc"].value == 1
