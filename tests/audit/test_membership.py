"""B4: the leakage picture, with its control, and the commands of all audits."""

import json
import math

import numpy as np
import pytest

from hushrec.audit import membership as module
from hushrec.audit.membership import _random_tastes, fit_scores, membership
from hushrec.data import Domain, Ratings, realistic
from hushrec.errors import InputError
from tests.command_line import invoke


def check(ratings: Ratings, epsilons: list[float], draws: int, n_planted: int, record) -> None:
    result = membership(ratings, "private-als", epsilons, delta=1e-5, draws=draws, n_planted=n_planted)
    record("smallest control AUC", result.area(math.inf))
    for epsilon in epsilons:
        record(f"largest AUC at epsilon {epsilon}", result.area(epsilon))
    record("trainings", draws * (len(epsilons) + 1))
    assert result.area(math.inf) > 0.7
    # an area has this error at most where nothing leaks: more than 0.55 must be more than chance
    standard_error = math.sqrt(1 / (3 * n_planted * draws))
    assert result.area(1) < 0.55 + 3 * standard_error
    assert result.area(5) < result.area(math.inf)


def test_generated_ratings(record_property):
    check(realistic(1000, 800, 60_000, seed=2), [1, 5], 3, 800, record_property)


@pytest.mark.parametrize("name", ["ml-100k", pytest.param("ml-1m", marks=pytest.mark.full)])
def test_real_ratings(real_data, name, record_property):
    import pyarrow.parquet as pq

    path = real_data(f"{name}.parquet")
    items = tuple(sorted(set(pq.read_table(path, columns=["item"])["item"].to_pylist())))
    ratings = Ratings.read(path, Domain(items, rating_range=(1, 5)))
    check(ratings, [1, 5, 10, 20], 5, 800, record_property)


def test_bad_calls():
    ratings = realistic(50, 20, 300, seed=0)
    for epsilons in ([math.inf], [], [1, 0], [1, -2.0], [math.nan]):
        with pytest.raises(InputError, match="epsilons must be finite and greater than 0"):
            membership(ratings, "item-bias", epsilons, delta=1e-6)
    with pytest.raises(InputError, match="too large"):
        membership(ratings, "item-bias", [10**400], delta=1e-6)
    for wrong in ({"n_planted": 19}, {"draws": 0}):
        with pytest.raises(InputError, match="n_planted >= 20 and draws >= 1"):
            membership(ratings, "item-bias", [1], delta=1e-6, **wrong)


class Fitted:
    """Stands for a model that predicts what it is told."""

    def __init__(self, predicted):
        self.predicted = predicted

    def predict_pairs(self, histories, users):
        assert histories is users
        return self.predicted


def test_fit_scores_user_by_user():
    """Also of a user with one rating, and of one with none."""
    domain = Domain(("a", "b", "c"), rating_range=(1, 5))
    rows = [("u", "a", 1.0), ("u", "b", 5.0), ("u", "c", 2.0), ("v", "b", 4.0), ("w", "c", 3.0)]
    ratings = Ratings.from_any(tuple(list(column) for column in zip(*rows)), domain)
    users = ratings.for_users(["u", "nobody", "v"])
    scores = fit_scores(Fitted(np.array([3.0, 5.0, 1.0, 7.0])), users)
    np.testing.assert_allclose(scores, [-(4 + 0 + 1) / 3, 0.0, -9.0], rtol=1e-15)


@pytest.mark.parametrize(("n_items", "cap", "each"), [(100, 300, 40), (11, 300, 5), (2, 300, 1), (30, 3, 3)])
def test_planted_users_rate_at_the_ends(n_items, cap, each):
    domain = Domain(tuple(range(n_items)), rating_range=(2, 7), max_ratings_per_user=cap)
    planted = _random_tastes(domain, 25, np.random.default_rng(0))
    assert planted.n_users == 25 and set(np.diff(planted.matrix.indptr)) == {each}
    ends, counts = np.unique(planted.matrix.data, return_counts=True)
    assert list(ends) == [2.0, 7.0] and abs(counts[0] - counts[1]) <= 4 * math.sqrt(counts.sum())
    assert len(set(planted.matrix.indices)) > n_items / 2


def test_what_is_trained_and_what_is_scored(monkeypatch):
    """Models, budgets, seeds and members of every draw; areas by counting pairs."""
    ratings, checked, trained = realistic(30, 24, 200, seed=0), [], []
    monkeypatch.setattr(module, "check_run", lambda *run: checked.append(run))

    def train(name, mixed, accountant, *, settings, seed):
        trained.append((name, mixed, accountant, settings, seed))
        generator = np.random.default_rng(len(trained))
        return Fitted(generator.normal(3, 2, 21 * 12))

    monkeypatch.setattr(module, "train", train)
    found = membership(
        ratings, "popular", [0.5, 3], delta=1e-4, relation="replace", n_planted=21, draws=2, seed=7,
        settings={"some": "setting"}, data_is_public=True,
    )  # fmt: skip
    runs = [("popular", 0.5), ("popular", 3.0), ("als", math.inf)]
    settings = [{"some": "setting"}, {"some": "setting"}, {"regularization": 1.0}]
    assert [(name, budget.epsilon) for name, budget, *_ in checked] == runs
    assert [run[4] for run in checked] == settings and {run[3] for run in checked} == {None}
    assert [(run[0], run[2].budget.epsilon) for run in trained] == runs * 2
    assert [run[3] for run in trained] == settings * 2 and [run[4] for run in trained] == [7] * 3 + [8] * 3
    areas = [[], [], []]
    for number, (_, mixed, accountant, _, seed) in enumerate(trained):
        budget = accountant.budget
        assert (budget.delta, budget.unit, budget.relation) == (1e-4, "user", "replace")
        assert accountant.data_is_public
        planted = _random_tastes(ratings.domain, 21, np.random.default_rng((7, seed - 7))).matrix.toarray()
        assert np.array_equal(mixed.matrix[:30].toarray(), ratings.matrix.toarray())
        rows = [row.tobytes() for row in mixed.matrix[30:].toarray()]
        member = np.array([row.tobytes() in rows for row in planted])
        assert len(rows) == member.sum() == 10
        predicted = np.random.default_rng(number + 1).normal(3, 2, 21 * 12).reshape(21, 12)
        own = planted[planted > 0].reshape(21, 12)
        scores = -((predicted - own) ** 2).mean(axis=1)
        wins = [a > b for a in scores[member] for b in scores[~member]]
        areas[number % 3].append(sum(wins) / 110)
    assert [(name, epsilon) for name, epsilon, _ in found.curves] == runs
    for (_, _, drawn), expected in zip(found.curves, areas):
        assert drawn == pytest.approx(expected, abs=1e-12)
    assert (found.delta, found.relation, found.n_planted) == (1e-4, "replace", 21)
    assert found.note == "The ratings are public or generated"


def test_private_figures_say_so():
    ratings = realistic(100, 60, 1500, seed=0)
    mine = membership(ratings, "item-bias", [1], delta=1e-6, n_planted=40)
    assert "private figure of the curator" in mine.text() and "private figure" in mine.to_dict()["note"]
    public = membership(ratings, "item-bias", [1], delta=1e-6, n_planted=40, data_is_public=True)
    assert "private figure" not in public.text()


@pytest.mark.parametrize(
    "arguments",
    [
        ["distinguish", "--model", "item-bias", "--epsilon", "5", "--delta", "1e-6", "--runs", "200"],
        ["canaries", "--model", "popular", "--epsilon", "5", "--delta", "1e-6", "--canaries", "200"],
        ["membership", "--model", "item-bias", "--epsilons", "5", "--delta", "1e-6", "--planted", "40"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands(arguments, tmp_path):
    plot = tmp_path / "plot.png"
    done = invoke("audit", *arguments, "--json", "--plot", str(plot))
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["audit"] == arguments[0]
    assert plot.read_bytes().startswith(b"\x89PNG")
    text = invoke("audit", *arguments)
    assert "delta = 1e-06" in text.stdout and "relation: add-remove" in text.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["distinguish", "--model", "als", "--epsilon", "5", "--delta", "1e-6"],
        ["distinguish", "--model", "item-bias", "--epsilon", "inf", "--delta", "1e-6"],
        ["distinguish", "--model", "item-bias", "--delta", "1e-6"],
        ["canaries", "--model", "global-mean", "--epsilon", "5", "--delta", "1e-6"],
        ["membership", "--epsilons", "a,b", "--delta", "1e-6"],
        ["membership", "nowhere.csv", "--epsilons", "1", "--delta", "1e-6"],
    ],
)
def test_commands_refuse_in_one_line(arguments):
    done = invoke("audit", *arguments)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("Error: ")
