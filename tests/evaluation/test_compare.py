"""Tables and plots of several models over several epsilons."""

import math
import xml.etree.ElementTree

import pyarrow.parquet as pq
import pytest

import hushrec
from hushrec.data import Domain, Ratings, k_folds, realistic, split_ratings
from hushrec.errors import BudgetError, InputError
from hushrec.evaluation import compare, cross_validate, evaluate
from hushrec.evaluation.compare import LIKES_ALS, Comparison
from hushrec.privacy import Accountant, Budget, Ledger
from hushrec.training.named import train

ALS = {"als": {"rank": 2, "iterations": 2}}


@pytest.fixture(scope="module")
def parts():
    return split_ratings(realistic(150, 30, 1500, seed=0), (0.8, 0.2), seed=0)


@pytest.fixture(scope="module")
def public(parts):
    return compare(*parts, ["item-bias"], [1, 5], delta=1e-6, settings=ALS, data_is_public=True)


def test_nothing_is_spent_where_not_all_runs_fit(parts, tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_dataset("default", Budget(2.0, 1e-6))
    for epsilons in ([1, 2], [1, math.inf]):
        with pytest.raises(BudgetError):
            compare(*parts, ["item-bias"], epsilons, delta=1e-6, settings=ALS, ledger=ledger)
    assert ledger.summary("default").charges == 0


def test_public_data_are_not_charged(parts, tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    compare(*parts, ["item-bias"], [1], delta=1e-6, settings=ALS, ledger=ledger, data_is_public=True)
    with pytest.raises(InputError):  # the data set is not even known
        ledger.summary("default", 1e-6)


@pytest.fixture(scope="module")
def liked():
    rows = realistic(300, 60, 4000, seed=0)
    likes = Ratings.from_any(rows.to_arrow(), Domain(rows.domain.items, likes=True))
    return split_ratings(likes, (0.8, 0.2), seed=0)


LIKES = {"als": {"rank": 8}, "ease": {"regularization": 50.0}}


def test_likes_are_judged_by_lists_against_references_of_likes(liked):
    result = compare(
        *liked, ["private-eigenrec"], [1, 5], delta=1e-6, k=5, settings=LIKES, data_is_public=True
    )
    cells = [(row["model"], row["epsilon"]) for row in result.rows]
    assert cells == [
        ("private-eigenrec", 1),
        ("private-eigenrec", 5),
        ("popular", 1),
        ("popular", 5),
        ("als", math.inf),
        ("ease", math.inf),
    ]
    assert result.main_metric == "recall@5" and result.metrics[0] == "recall@5"
    assert not any(name.startswith(("rmse", "mae")) for row in result.rows for name in row)
    assert "rmse" not in result.markdown() and " – " not in result.markdown()
    for name, row in zip(("als", "ease"), result.rows[-2:]):
        settings = {**(LIKES_ALS if name == "als" else {}), **LIKES[name]}
        model = train(name, liked[0], Accountant(Budget(math.inf, 1e-6)), settings=settings)
        assert row["recall@5"] == evaluate(model, *liked, k=5)["recall@5"].value
    axes = result.plot().axes[0]
    assert "Recall@5" in axes.get_ylabel()
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert sorted(labels) == ["als, no privacy", "ease, no privacy", "popular (baseline)", "private-eigenrec"]
    assert len({str(line.get_linestyle()) for line in axes.lines}) >= 2


def test_files(public, tmp_path):
    paths = public.write(tmp_path)
    table = pq.read_table(paths["parquet"])
    assert table.num_rows == 5 and b"NOT PRIVATE" in table.schema.metadata[b"hushrec"]
    assert {"model", "epsilon", "delta", "unit", "relation", "draw", "rmse", "rmse_low"} <= set(
        table.column_names
    )
    markdown = paths["md"].read_text(encoding="utf-8")
    assert markdown.count("\n| ") == 6 and "NOT PRIVATE" in markdown and "relation: add-remove" in markdown
    for picture in (paths["png"].read_bytes(), public.plot()._repr_png_()):  # a notebook's needs no magic
        assert picture.startswith(b"\x89PNG")
    words = "".join(xml.etree.ElementTree.parse(paths["svg"]).getroot().itertext())
    for word in (
        "item-bias",
        "global-mean",
        "als, no privacy",
        "epsilon per user",
        "add-remove",
        "delta = 1e-06",
    ):
        assert word in words


def test_a_model_of_both_jobs_is_judged_by_both_with_a_panel_each(parts):
    result = compare(*parts, ["both"], [5], delta=1e-6, settings=ALS, data_is_public=True)
    assert [row["model"] for row in result.rows] == [
        "both", "global-mean", "item-bias", "popular", "als", "ease"
    ]  # fmt: skip
    assert result.main_metrics == ("rmse", "recall@20") and result.relevant_from == 4
    assert "a list is to find: ratings from 4 up" in result.markdown()
    figure = result.plot()
    errors, lists = figure.axes
    of_errors, of_lists = (
        [text.get_text() for text in axes.get_legend().get_texts()] for axes in (errors, lists)
    )
    assert sorted(of_errors) == ["als, no privacy", "both", "global-mean (baseline)", "item-bias (baseline)"]
    assert sorted(of_lists) == sorted([*of_errors, "ease, no privacy", "popular (baseline)"])
    told = " ".join(figure.get_supxlabel().split())
    assert "No line of popular and ease for rmse: they rank and predict no ratings." in told


def test_folds_test_every_rating_once_and_are_averaged():
    ratings = realistic(60, 20, 600, seed=2)
    parts = list(k_folds(ratings, 3, seed=1))
    assert all(train.n_ratings + test.n_ratings == ratings.n_ratings for train, test in parts)
    assert sum(test.n_ratings for _, test in parts) == ratings.n_ratings
    options = {
        "delta": 1e-6,
        "settings": {"als": {"rank": 2, "iterations": 1}},
        "seed": 1,
        "data_is_public": True,
    }
    result = cross_validate(ratings, ["item-bias"], [math.inf, 1e6], folds=3, **options)
    assert result.data_is_public and result.folds == 3 and result.stamp.startswith("NOT PRIVATE")
    (als,) = [cell for cell in result.summary("rmse") if cell["model"] == "als"]
    runs = [row["rmse"] for row in result.rows if row["model"] == "als"]
    one = compare(*parts[0], ["item-bias"], [math.inf, 1e6], **options)
    assert (
        als["draws"] == 3 and als["value"] == pytest.approx(sum(runs) / 3) and runs[0] == one.rows[-1]["rmse"]
    )
    assert "smallest and largest of 3 folds" in result.markdown()
    with pytest.raises(InputError, match="2 or more"):
        cross_validate(ratings, ["item-bias"], [1], folds=1, **options)
    with pytest.raises(InputError, match="Cross-validation is for public ratings"):
        cross_validate(ratings, ["item-bias"], [1], delta=1e-6)


def test_what_is_asked_of_the_ledger_is_the_whole_of_every_run(parts, tmp_path):
    """A budget that holds all runs but a tenth of one is not begun; one that holds them all is used up."""
    epsilons = [1, 2]
    mus = [Budget(epsilon, 1e-6).mu for epsilon in epsilons for _ in ("item-bias", "global-mean")]
    together = math.sqrt(sum(mu**2 for mu in mus))
    for share, fits in ((0.98, False), (1.02, True)):
        ledger, low, high = Ledger(tmp_path / f"{share}.sqlite"), 0.0, 50.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if Budget(middle, 1e-6).mu < share * together else (low, middle)
        ledger.open_dataset("default", Budget(high, 1e-6))
        if fits:
            assert len(compare(*parts, ["item-bias"], epsilons, delta=1e-6, ledger=ledger).rows) == 4
        else:
            with pytest.raises(BudgetError):
                compare(*parts, ["item-bias"], epsilons, delta=1e-6, ledger=ledger)
            assert ledger.summary("default").charges == 0


def test_without_privacy_references_alone_are_trained(parts):
    """An infinite epsilon is for them; the total charge is then infinite, and is reported as infinite."""
    found = compare(*parts, ["item-bias"], [1, math.inf], delta=1e-6, settings=ALS)
    cells = [(row["model"], row["epsilon"]) for row in found.rows]
    assert cells == [("item-bias", 1), ("global-mean", 1), ("als", math.inf)]
    assert math.isinf(found.total_epsilon) and found.stamp.startswith("NOT PRIVATE. All runs together")
    assert found.relevant_from is None and found.main_metrics == ("rmse",) and found.folds == 1


def test_estimators_are_compared_as_they_are_one_s_own_too() -> None:
    class Mine(hushrec.Popular):
        name = "mine"

    ratings = hushrec.realistic(100, 30, 1500, seed=0)
    train, _, test = hushrec.split_ratings(ratings, seed=0)
    two = [hushrec.PrivateALS(rank=rank, iterations=1, n_users=90) for rank in (2, 3)]
    found = hushrec.compare(train, test, [*two, Mine(), "popular"], [1], delta=1e-6, data_is_public=True)
    private = [row["model"] for row in found.rows if row["epsilon"] == 1]
    assert private[:4] == ["private-als", "private-als 2", "mine", "popular"]
    with pytest.raises(InputError, match=r"'mine' is not known; .*hushrec\.registry\.register"):
        hushrec.compare(train, test, ["mine"], [1], delta=1e-6, data_is_public=True)
    with pytest.raises(InputError, match="pass names or estimators"):
        hushrec.compare(train, test, [Mine], [1], delta=1e-6, data_is_public=True)
    model = Mine().fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6), data_is_public=True))
    with pytest.raises(hushrec.ModelFileError, match=r"of 'mine', which is not among the models here"):
        hushrec.Model.from_bytes(model.to_bytes())


def test_draws_are_summarised_for_each_model_and_epsilon() -> None:
    cells = [(1.0, 0, 0.5, 3), (1.0, 1, 0.9, 1), (2.0, 0, 0.4, 7)]
    names = ("epsilon", "draw", "rmse", "directions")
    rows = [{"model": "a", **dict(zip(names, cell)), "rmse_low": 0.1, "rmse_high": 1.0} for cell in cells]
    found = Comparison(tuple(rows), 1e-6, "user", "add-remove", 20, ("rmse",), True, 0.0)
    figures = [
        tuple(cell[name] for name in ("draws", "value", "low", "high")) for cell in found.summary("rmse")
    ]
    assert figures == [(2, pytest.approx(0.7), 0.5, 0.9), (1, 0.4, 0.1, 1.0)]
    assert [row[-1] for row in found.brief()[1:]] == ["1–3", "7"]
