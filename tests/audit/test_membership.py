"""B4: the leakage picture, with its control, and the commands of all audits."""

import json
import math

import pytest

from hushrec.audit.membership import membership
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


@pytest.mark.full
def test_the_shape_of_movielens_10m(record_property):
    check(realistic(69_878, 10_677, 10_000_054, seed=1), [1, 5, 10, 20], 5, 800, record_property)


def test_bad_calls():
    ratings = realistic(50, 20, 300, seed=0)
    for wrong in ({"epsilons": [math.inf]}, {"epsilons": []}, {"epsilons": [1], "n_planted": 3}):
        with pytest.raises(InputError):
            membership(ratings, "item-bias", delta=1e-6, **wrong)


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
