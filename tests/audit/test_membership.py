"""B4: the leakage picture, with its control, and the commands of all audits."""

import json
import math

import numpy as np
import pytest

from hushrec.audit.membership import control, membership
from hushrec.data import Domain, Ratings, realistic
from hushrec.privacy import Budget
from tests.command_line import invoke


def check(ratings: Ratings, epsilons: list[float], draws: int, n_planted: int, record) -> None:
    def mean(one) -> float:
        return float(np.mean([one(seed) for seed in range(draws)]))

    def area(epsilon: float) -> float:
        budget = Budget(epsilon, 1e-5)
        return mean(lambda seed: membership(ratings, "private-als", budget, n_planted=n_planted, seed=seed))

    leaking = mean(lambda seed: control(ratings, 1e-5, n_planted=n_planted, seed=seed))
    areas = {epsilon: area(epsilon) for epsilon in epsilons}
    record("smallest control AUC", leaking)
    for epsilon in epsilons:
        record(f"largest AUC at epsilon {epsilon}", areas[epsilon])
    record("trainings", draws * (len(epsilons) + 1))
    assert leaking > 0.7
    # an area has this error at most where nothing leaks: more than 0.55 must be more than chance
    standard_error = math.sqrt(1 / (3 * n_planted * draws))
    assert areas[1] < 0.55 + 3 * standard_error
    assert areas[5] < leaking


def test_generated_ratings(record_property):
    check(realistic(1000, 800, 60_000, seed=2), [1, 5], 3, 800, record_property)


@pytest.mark.parametrize("name", ["ml-100k", pytest.param("ml-1m", marks=pytest.mark.full)])
def test_real_ratings(real_data, name, record_property):
    import pyarrow.parquet as pq

    path = real_data(f"{name}.parquet")
    items = tuple(sorted(set(pq.read_table(path, columns=["item"])["item"].to_pylist())))
    ratings = Ratings.from_any(path, Domain(items, rating_range=(1, 5)))
    check(ratings, [1, 5, 10, 20], 5, 800, record_property)


@pytest.mark.parametrize(
    "arguments",
    [
        ["distinguish", "--model", "item-bias", "--epsilon", "5", "--delta", "1e-6", "--runs", "200"],
        ["canaries", "--model", "popular", "--epsilon", "5", "--delta", "1e-6", "--canaries", "200"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands(arguments):
    done = invoke("audit", *arguments, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["audit"] == arguments[0]
    text = invoke("audit", *arguments)
    assert "delta = 1e-06" in text.stdout and "relation: add-remove" in text.stdout
