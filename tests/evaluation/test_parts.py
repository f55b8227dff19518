"""What is trained on is each user's own: parts, samples and row numbers leave every neighbour where she is.

Ported from attacks that succeeded: they took two files that differ in one user, brought both to training as
the demo, the command line or a caller would, and found more than the charged mu between what met the noise.
"""

from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import benchmarks.demo
from hushrec.algorithms import GlobalMean, ItemBias, Popular, PrivateALS
from hushrec.algorithms.baselines import release_user_count
from hushrec.audit.distinguish import distance, replay, transcript
from hushrec.cli import cli
from hushrec.data import Domain, Ratings, realistic, split_ratings, strong_generalization
from hushrec.errors import InputError
from hushrec.evaluation import compare, runs
from hushrec.evaluation.tuning import tune
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import SeededNoise

BUDGET = Budget(1, 1e-6)
RATINGS = realistic(500, 80, 20_000, seed=1)
DOMAIN = RATINGS.domain
WITHOUT = RATINGS.select_users(np.arange(500) != 7, keyed=True)
SMALL = Ratings.from_triples(["a", "a", "b"], [1, 2, 1], [5, 3, 1], Domain([1, 2], rating_range=(1, 5)))


def assert_within_the_claim(estimator, first, second):
    """Two data sets that differ in one user send values to the noise that are as near as is charged."""
    plan = estimator.plan(BUDGET, first.domain)
    calls = transcript(estimator, plan, first, 0, SeededNoise(1))
    assert distance(calls, replay(estimator, plan, second, 0, calls)) <= plan.mu * (1 + 1e-9)


def part_of_the_demo(ratings, folder, monkeypatch):
    monkeypatch.setattr(benchmarks.demo, "OUTPUT", folder)
    benchmarks.demo.write_data(ratings)
    return Ratings.read(folder / "train.parquet", DOMAIN)


@pytest.mark.parametrize("estimator", [ItemBias(), PrivateALS.planned(BUDGET, DOMAIN, 500)])
def test_the_part_that_the_demo_trains_on(estimator, tmp_path, monkeypatch):
    parts = [part_of_the_demo(ratings, tmp_path, monkeypatch) for ratings in (RATINGS, WITHOUT)]
    assert_within_the_claim(estimator, *parts)


@pytest.mark.parametrize("estimator", [ItemBias(), Popular(), GlobalMean()])
def test_a_part_of_a_split(estimator):
    assert_within_the_claim(
        estimator, *(split_ratings(ratings, (0.8, 0.2), seed=0)[0] for ratings in (RATINGS, WITHOUT))
    )


def test_what_the_command_line_compares_on(tmp_path, monkeypatch):
    seen = []

    def catch(train, test, *_, **__):
        seen.append(train)
        raise InputError("seen")

    monkeypatch.setattr("hushrec.evaluation.compare", catch)
    for ratings in (RATINGS, WITHOUT):
        part_of_the_demo(ratings, tmp_path, monkeypatch)
        words = ["compare", tmp_path / "ratings.parquet", "--epsilons", "1", "--delta", "1e-6"]
        words += ["--rating-range", "1", "5", "--catalogue", tmp_path / "items.txt", "--out-dir", tmp_path]
        assert CliRunner().invoke(cli, list(map(str, words))).output == "Error: seen.\n"
    assert_within_the_claim(ItemBias(), *seen)


def test_held_out_users():
    """Killed: the n smallest hashes, among which one user more pushes another out."""
    parts = strong_generalization(RATINGS, 0.1, seed=0)
    held = set(parts.fold_in.users)
    assert 20 < len(held) < 100
    for gone in parts.fold_in.users[:3]:
        fewer = RATINGS.select_users(RATINGS.users != gone, keyed=True)
        assert set(strong_generalization(fewer, 0.1, seed=0).fold_in.users) == held - {gone}


CHOICES = {
    "where": lambda ratings: ratings.where(np.arange(ratings.n_ratings) % 2 == 0),
    "rows": lambda ratings: ratings.rows([0]),
    "a slice": lambda ratings: ratings.rows(slice(1)),
    "select_users": lambda ratings: ratings.select_users([True, False]),
    "for_users": lambda ratings: ratings.for_users(["a"]),
    "carried by rows": lambda ratings: ratings.rows([0]).rows([0], keyed=True),
    "carried by where": lambda ratings: ratings.rows([0]).where([True, True], keyed=True),
    "carried by a split": lambda ratings: split_ratings(ratings.rows([0]), (1,), seed=0)[0],
    "carried by a union": lambda ratings: ratings.history(ratings.rows([0])),
    "carried by a union, the first": lambda ratings: ratings.rows([0]).history(ratings),
    "carried by aligned_to": lambda ratings: ratings.aligned_to(ratings.rows([0])),
    "carried by from_any": lambda ratings: Ratings.from_any(ratings.rows([0]), Domain([1, 2], (1, 5))),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_a_choice_of_the_callers_is_refused_in_a_private_run(choice):
    """Killed: rows chosen by who knows what rule, charged as if they were each user's own."""
    chosen = CHOICES[choice](SMALL)
    assert chosen.hand_picked and not SMALL.hand_picked
    accountant = Accountant(BUDGET)
    for private in (
        lambda: ItemBias().fit(chosen, accountant),
        lambda: release_user_count(chosen, accountant),
        lambda: runs.train("private-als", chosen, accountant),
        lambda: tune(chosen, "item-bias", [{}], accountant),
        lambda: compare(chosen, chosen, ["item-bias"], [1.0], delta=1e-6),
    ):
        with pytest.raises(InputError, match="split_ratings.*data_is_public=True"):
            private()
    assert not accountant.releases
    ItemBias().fit(chosen, Accountant(BUDGET, data_is_public=True))
    ItemBias().fit(chosen, Accountant(Budget(float("inf"), 1e-6)))
    ItemBias().fit(SMALL.where([True, False, True], keyed=True), accountant)


def test_a_row_taken_twice_is_refused():
    """Killed: a bootstrap sample, in which a user counts many times and is charged once."""
    for selection in ([0, 0, 1], [1, 0, 1]):
        with pytest.raises(InputError, match="more than once"):
            SMALL.rows(selection)
    with pytest.raises(InputError, match="once each"):
        SMALL.for_users(["a", "a", "b"])


@pytest.mark.parametrize("public", [False, True])
def test_users_who_are_not_all_different_are_refused(public):
    """Killed: rows of one user under one id, made by hand."""
    twice = replace(SMALL, user_texts=SMALL.user_texts.take([0, 0]))
    accountant = Accountant(BUDGET, data_is_public=public)
    for fit in (ItemBias().fit, release_user_count, lambda *both: runs.train("private-als", *both)):
        with pytest.raises(InputError, match="one row for each user") as refused:
            fit(twice, accountant)
        assert "'a'" not in str(refused.value)
    assert not accountant.releases
