"""Parts, samples and row numbers depend on one user's rows and change for no other user.

Ported from attacks that succeeded: they took two files that differ in one user, brought both to training as
the demo, the command line or a caller would, and found more than the charged mu between what met the noise.
"""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import benchmarks.demo
from hushrec.audit.distinguish import distance
from hushrec.data import Domain, Ratings, realistic, split_ratings, strong_generalization
from hushrec.errors import InputError
from hushrec.evaluation import compare
from hushrec.evaluation.tuning import tune
from hushrec.models import GlobalMean, ItemBias, Popular, PrivateALS
from hushrec.papers.dpals import DPALS
from hushrec.papers.frank_wolfe import PrivateProjectedGradient, PrivateSVD
from hushrec.papers.mcsherry_mironov import CleansedSVD
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import RecordingNoise, SeededNoise
from hushrec.testing import replay, transcript
from hushrec.training.named import train
from hushrec.training.run import release_user_count
from tests.command_line import invoke

BUDGET = Budget(1, 1e-6)
ROWS = "number of rows (user ids are row numbers, and a user is left out by emptying their row)"
RATINGS = realistic(500, 80, 20_000, seed=1)
DOMAIN = RATINGS.domain
WITHOUT = RATINGS.rows(np.arange(500) != 7, keyed=True)
SMALL = Ratings.from_any((["a", "a", "b"], [1, 2, 1], [5, 3, 1]), Domain([1, 2], rating_range=(1, 5)))


def assert_within_the_claim(estimator, first, second):
    """Two data sets that differ in one user send values to the noise that are as near as is charged."""
    plan = estimator.plan(BUDGET, first.domain)
    calls = transcript(estimator, plan, first, 0, SeededNoise(1))
    assert distance(calls, replay(estimator, plan, second, 0, calls)) <= plan.mu * (1 + 1e-9)


def part_of_the_demo(ratings, folder, monkeypatch):
    monkeypatch.setattr(benchmarks.demo, "OUTPUT", folder)
    benchmarks.demo.write_data(ratings)
    return Ratings.from_any(folder / "train.parquet", DOMAIN)


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
    monkeypatch.setenv("HUSHREC_LEDGER", str(tmp_path / "ledger.sqlite"))

    def catch(train, test, *_, **__):
        seen.append(train)
        raise InputError("seen")

    monkeypatch.setattr("hushrec.evaluation.compare", catch)
    for ratings in (RATINGS, WITHOUT):
        part_of_the_demo(ratings, tmp_path, monkeypatch)
        words = ["compare", tmp_path / "ratings.parquet", "--epsilons", "1", "--delta", "1e-6"]
        words += ["--rating-range", "1", "5", "--catalogue", tmp_path / "items.txt", "--out-dir", tmp_path]
        assert invoke(*words).output == "Error: seen.\n"
    assert_within_the_claim(ItemBias(), *seen)


def test_held_out_users():
    """Killed: the n smallest hashes: one more user replaces another."""
    parts = strong_generalization(RATINGS, 0.1, seed=0)
    held = set(parts.fold_in.users)
    assert 20 < len(held) < 100
    for gone in parts.fold_in.users[:3]:
        fewer = RATINGS.rows(RATINGS.users != gone, keyed=True)
        assert set(strong_generalization(fewer, 0.1, seed=0).fold_in.users) == held - {gone}


CHOICES = {
    "where": lambda ratings: ratings.where(np.arange(ratings.n_ratings) % 2 == 0),
    "rows": lambda ratings: ratings.rows([0]),
    "a slice": lambda ratings: ratings.rows(slice(1)),
    "for_users": lambda ratings: ratings.for_users(["a"]),
    "carried by rows": lambda ratings: ratings.rows([0]).rows([0], keyed=True),
    "carried by where": lambda ratings: ratings.rows([0]).where([True, True], keyed=True),
    "carried by a split": lambda ratings: split_ratings(ratings.rows([0]), (1,), seed=0)[0],
    "carried by a union": lambda ratings: ratings.union(ratings.rows([0])),
    "carried by a union, the first": lambda ratings: ratings.rows([0]).union(ratings),
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
        lambda: train("private-als", chosen, accountant),
        lambda: tune(chosen, "item-bias", [{}], Accountant(replace(BUDGET, failure=1e-7))),
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
        with pytest.raises(InputError, match="occurs twice"):
            SMALL.rows(selection)
    with pytest.raises(InputError, match="unique"):
        SMALL.for_users(["a", "a", "b"])


@pytest.mark.parametrize("public", [False, True])
def test_users_who_are_not_all_different_are_refused(public):
    """Killed: rows of one user under one id, made by hand."""
    twice = replace(SMALL, user_texts=SMALL.user_texts.take([0, 0]))
    accountant = Accountant(BUDGET, data_is_public=public)
    for fit in (ItemBias().fit, release_user_count, lambda *both: train("private-als", *both)):
        with pytest.raises(InputError, match="one row for each user") as refused:
            fit(twice, accountant)
        assert "'a'" not in str(refused.value)
    assert not accountant.releases


JOKES = Domain(range(1, 101), rating_range=(-10, 10), max_ratings_per_user=60)
TASTES = np.random.default_rng(0).uniform(-10, 10, (300, 100)).round(2)


def from_a_matrix(rows):
    return Ratings.from_any(sp.csr_array(rows.astype(np.float32)), JOKES)


SAMPLED = [
    DPALS(sampling="uniform", max_ratings_per_user=50, iterations=1),
    PrivateSVD(rank=2),
    CleansedSVD(rank=2),
    PrivateProjectedGradient(nuclear_norm=100.0, iterations=2),
    Popular(),
]


@pytest.mark.parametrize("estimator", SAMPLED, ids=lambda estimator: estimator.name)
def test_an_emptied_row_leaves_all_others_where_they_are(estimator):
    """Killed: rows renumbered after one was removed, which changes all samples."""
    emptied = TASTES.copy()
    emptied[0] = 0
    first, second = from_a_matrix(TASTES), from_a_matrix(emptied)
    assert (first.n_users, second.n_users) == (300, 299)
    assert first.user_texts[1:].equals(second.user_texts)
    assert_within_the_claim(estimator, first, second)


def test_the_statement_says_that_rows_are_counted():
    """Killed: row numbers for ids, and not a word of it."""
    ratings = from_a_matrix(TASTES)
    named = Ratings.from_any(([f"u{n}" for n in range(300)], ratings.matrix), JOKES)
    assert ratings.by_position and not named.by_position
    for made in (
        ratings,
        split_ratings(ratings, (0.5, 0.5), seed=0)[1],
        ratings.union(named),
        named.union(ratings),
        named.aligned_to(ratings),
    ):
        assert made.by_position
        assert ROWS in ItemBias().fit(made, Accountant(BUDGET)).privacy.public
    assert ROWS not in ItemBias().fit(named, Accountant(BUDGET)).privacy.public


def test_a_table_keeps_that_its_rows_were_chosen(tmp_path):
    pq.write_table(SMALL.rows([0]).to_arrow(), tmp_path / "chosen.parquet")
    read = Ratings.from_any(tmp_path / "chosen.parquet", SMALL.domain)
    assert read.hand_picked and Ratings.from_any(SMALL.rows([0]).to_arrow(), SMALL.domain).hand_picked
    with pytest.raises(InputError, match="split_ratings"):
        ItemBias().fit(read, Accountant(BUDGET))


@pytest.mark.parametrize("estimator", [Popular(), GlobalMean(), ItemBias(), PrivateSVD(rank=1)])
def test_a_row_without_ratings_is_no_user(estimator):
    """Killed: an empty row that is counted: a user would move a count by more than they contribute."""
    more = replace(SMALL.for_users(["a", "b", "nobody"]), hand_picked=False)
    seen = []
    for ratings in (SMALL, more):
        noise = RecordingNoise(SeededNoise(0))
        accountant = Accountant(BUDGET, noise=noise)
        release_user_count(ratings, accountant)
        estimator.fit(ratings, accountant)
        seen.append([call.value.tobytes() for call in noise.calls])
    assert seen[0] == seen[1]


def test_an_item_stored_many_times_in_a_matrix_counts_once():
    """Killed: SciPy's note that all is in order, made before the arrays were changed."""
    domain = Domain(range(50), rating_range=(1, 5))
    matrix = sp.csr_array(np.full((3, 50), 5, np.float32))
    matrix.has_canonical_format = True
    matrix.indices[:50] = 7
    ratings = Ratings.from_any((["a", "b", "c"], matrix), domain)
    assert_within_the_claim(ItemBias(), ratings, ratings.rows([False, True, True], keyed=True))
    assert np.diff(ratings.matrix.indptr).tolist() == [1, 50, 50]
