"""Tables and plots of several models over several epsilons."""

import importlib
import math
import xml.etree.ElementTree

import pyarrow.parquet as pq
import pytest
from scipy.stats import norm

from hushrec.data import k_folds, paired_likes, realistic, split_ratings
from hushrec.errors import BudgetError, InputError
from hushrec.evaluation import compare, cross_validate, evaluate
from hushrec.evaluation.compare import LIKES_ALS, NOT_PRIVATE, Comparison
from hushrec.evaluation.metrics import PRIVATE_FIGURE
from hushrec.evaluation.plots import privacy_utility_plot
from hushrec.evaluation.runs import train
from hushrec.privacy import Accountant, Budget, Ledger

ALS = {"als": {"rank": 2, "iterations": 2}}
compare_module = importlib.import_module(
    "hushrec.evaluation.compare"
)  # the package has a function of its name


@pytest.fixture(scope="module")
def parts():
    return split_ratings(realistic(150, 30, 1500, seed=0), (0.8, 0.2), seed=0)


@pytest.fixture(scope="module")
def public(parts):
    return compare(*parts, ["item-bias"], [1, 5], delta=1e-6, settings=ALS, data_is_public=True)


def test_baselines_and_reference_are_added(public):
    cells = [(row["model"], row["epsilon"]) for row in public.rows]
    assert cells == [
        ("item-bias", 1),
        ("item-bias", 5),
        ("global-mean", 1),
        ("global-mean", 5),
        ("als", math.inf),
    ]
    assert public.main_metric == "rmse" and public.total_epsilon == 0
    assert public.stamp.startswith("NOT PRIVATE")


def test_the_reference_is_the_model_evaluated(parts, public):
    model = train("als", parts[0], Accountant(Budget(math.inf, 1e-6)), settings=ALS["als"])
    assert public.rows[-1]["rmse"] == evaluate(model, *parts)["rmse"].value


def test_runs_are_charged_and_added_up(parts, tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    result = compare(*parts, ["item-bias"], [1, 2], delta=1e-6, draws=2, ledger=ledger)
    assert len(result.rows) == 8
    assert ledger.summary("default", 1e-6).epsilon == pytest.approx(result.total_epsilon)
    assert f"epsilon = {result.total_epsilon:g} at delta = 1e-06" in result.stamp
    assert "(unit: user, relation: add-remove)" in result.stamp
    summary = result.summary("rmse")
    assert [cell["draws"] for cell in summary] == [2] * 4
    for cell in summary:
        values = [
            r["rmse"] for r in result.rows if (r["model"], r["epsilon"]) == (cell["model"], cell["epsilon"])
        ]
        assert (cell["low"], cell["high"]) == (min(values), max(values))
        assert cell["value"] == pytest.approx(sum(values) / 2)


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
    return split_ratings(paired_likes(300, 60, 4000, seed=0), (0.8, 0.2), seed=0)


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
    axes = privacy_utility_plot(result).axes[0]
    assert "Recall@5" in axes.get_ylabel()
    labels = [text.get_text() for text in axes.texts]
    assert sorted(labels) == ["als, no privacy", "ease, no privacy", "popular (baseline)", "private-eigenrec"]
    assert len({str(line.get_linestyle()) for line in axes.lines}) >= 2


def test_models_of_likes_are_compared_by_lists_on_ratings_too(parts):
    result = compare(*parts, ["popular"], [1], delta=1e-6, k=5, settings=LIKES, data_is_public=True)
    assert [row["model"] for row in result.rows] == ["popular", "als", "ease"]
    assert result.main_metric == "recall@5" and "rmse" not in result.markdown()


def test_models_of_ratings_are_refused_on_likes(liked):
    with pytest.raises(InputError, match="private-als predicts ratings, and likes have none; compare models"):
        compare(*liked, ["popular", "private-als"], [1], delta=1e-6, on_run=pytest.fail)


@pytest.mark.parametrize(
    ("models", "epsilons", "more"),
    [
        ([], [1], {}),
        (["als"], [1], {}),
        (["item-bias"], [math.inf], {}),
        (["item-bias"], [math.nan], {}),
        (["item-bias"], [1], {"draws": 0}),
        (["item-bias"], [1], {"settings": {"private-als": {"rank": 3}}}),
        (["item-bias"], [1], {"settings": {"item-bias": {"rank": 3}}}),
        (["item-bias"], [1], {"settings": {"ease": {"regularization": 3.0}}}),
        (["ease"], [1], {}),
    ],
)
def test_wrong_grids_are_refused_before_the_first_run(parts, models, epsilons, more):
    with pytest.raises(InputError):
        compare(*parts, models, epsilons, delta=1e-6, on_run=pytest.fail, **more)


def test_files(public, tmp_path):
    paths = public.write(tmp_path)
    table = pq.read_table(paths["parquet"])
    assert table.num_rows == 5 and b"NOT PRIVATE" in table.schema.metadata[b"hushrec"]
    assert {"model", "epsilon", "delta", "unit", "relation", "draw", "rmse", "rmse_low"} <= set(
        table.column_names
    )
    markdown = paths["md"].read_text(encoding="utf-8")
    assert markdown.count("\n| ") == 6 and "NOT PRIVATE" in markdown and "relation: add-remove" in markdown
    assert paths["png"].read_bytes().startswith(b"\x89PNG")
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


def test_plot_shows_every_model_once(public):
    axes = privacy_utility_plot(public).axes[0]
    assert axes.get_xscale() == "log"
    labels = [text.get_text() for text in axes.texts]
    assert sorted(labels) == ["als, no privacy", "global-mean (baseline)", "item-bias (baseline)"]
    heights = sorted(text.xyann[1] for text in axes.texts)
    low, high = axes.get_ylim()
    assert all(b - a > 0.05 * (high - low) for a, b in zip(heights, heights[1:], strict=False))
    drawn = {
        tuple(line.get_xdata()): list(line.get_ydata()) for line in axes.lines if len(line.get_xdata()) == 2
    }
    assert (1.0, 5.0) in drawn


def test_a_model_of_both_jobs_is_judged_by_both_with_a_panel_each(parts):
    result = compare(*parts, ["both"], [5], delta=1e-6, settings=ALS, data_is_public=True)
    assert [row["model"] for row in result.rows] == [
        "both", "global-mean", "item-bias", "popular", "als", "ease"
    ]  # fmt: skip
    assert result.main_metrics == ("rmse", "recall@20") and result.relevant_from == 4
    assert "a list is to find: ratings from 4 up" in result.markdown()
    figure = privacy_utility_plot(result)
    errors, lists = figure.axes
    of_errors, of_lists = ([text.get_text() for text in axes.texts] for axes in (errors, lists))
    assert sorted(of_errors) == ["als, no privacy", "both", "global-mean (baseline)", "item-bias (baseline)"]
    assert sorted(of_lists) == sorted([*of_errors, "ease, no privacy", "popular (baseline)"])
    told = " ".join(figure.get_supxlabel().split())
    assert "No line of popular and ease for rmse: they rank and predict no ratings." in told


def test_labels_keep_apart_about_their_lines_and_points_of_one_epsilon_too(parts):
    result = compare(*parts, ["item-bias"], [1], delta=1e-6, settings=ALS, data_is_public=True)
    for value, row in zip((1.0, 1.001, 1.002), result.rows):
        row |= {"rmse": value, "rmse_low": value, "rmse_high": value}
    figure = privacy_utility_plot(result)
    (axes,) = figure.axes
    heights = sorted(text.xyann[1] for text in axes.texts)
    assert sum(heights) / 3 == pytest.approx(1.001)
    assert min(b - a for a, b in zip(heights, heights[1:])) > 0.05 * (axes.get_ylim()[1] - axes.get_ylim()[0])
    places = [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 1]
    assert len(set(places)) == 2 and "Shaded" not in figure.get_supxlabel()


def test_folds_test_every_rating_once_and_are_averaged():
    ratings = realistic(60, 20, 600, seed=2)
    parts = list(k_folds(ratings, 3, seed=1))
    assert all(train.n_ratings + test.n_ratings == ratings.n_ratings for train, test in parts)
    assert sum(test.n_ratings for _, test in parts) == ratings.n_ratings
    options = {"delta": 1e-6, "settings": {"als": {"rank": 2, "iterations": 1}}, "seed": 1}
    result = cross_validate(ratings, ["item-bias"], [math.inf, 1e6], folds=3, **options)
    assert result.data_is_public and result.folds == 3 and result.stamp.startswith("NOT PRIVATE")
    (als,) = [cell for cell in result.summary("rmse") if cell["model"] == "als"]
    runs = [row["rmse"] for row in result.rows if row["model"] == "als"]
    one = compare(*parts[0], ["item-bias"], [math.inf, 1e6], data_is_public=True, **options)
    assert (
        als["draws"] == 3 and als["value"] == pytest.approx(sum(runs) / 3) and runs[0] == one.rows[-1]["rmse"]
    )
    assert "smallest and largest of 3 folds" in result.markdown()
    with pytest.raises(InputError, match="2 or more"):
        cross_validate(ratings, ["item-bias"], [1], folds=1, **options)
    with pytest.raises(InputError, match="Cross-validation is for public ratings"):
        cross_validate(ratings, ["item-bias"], [1], data_is_public=False, **options)


def made_up(**changes) -> Comparison:
    """Three cells: one with two draws, one whose lists have no figure, one without privacy."""
    rows = []
    for model, epsilon, draw, directions, value in [
        ("both", 1.0, 0, 2, 0.5),
        ("both", 1.0, 1, 0, 0.75),
        ("popular", 2.5, 0, None, math.nan),
        ("als", math.inf, 0, 3, 0.25),
    ]:
        row = {"model": model, "epsilon": epsilon, "draw": draw, "directions": directions}
        for place, name in enumerate(
            ("rmse", "mae", "recall@7", "ndcg@7", "coverage@7", "different-lists@7", "commonest-first")
        ):
            figure = value / 2**place
            row |= {name: figure, f"{name}_low": figure - 0.125, f"{name}_high": figure + 0.125}
        rows.append(row)
    given = {
        "delta": 1e-5,
        "unit": "user",
        "relation": "replace",
        "k": 7,
        "main_metrics": ("rmse", "recall@7"),
        "data_is_public": False,
        "total_epsilon": 3.25,
        "relevant_from": 4.0,
    }
    return Comparison(rows=tuple(rows), **given | changes)


def test_the_table_for_people_letter_by_letter():
    found = made_up()
    both = "0.6250 (0.5000–0.7500) | 0.3125 (0.2500–0.3750) | 0.1562 (0.1250–0.1875)"
    both += " | 0.0781 (0.0625–0.0938) | 0.0391 (0.0312–0.0469) | 0 (0–0) | 0.0098 (0.0078–0.0117)"
    als = "0.2500 (0.1250–0.3750) | 0.1250 (0.0000–0.2500) | 0.0625 (-0.0625–0.1875)"
    als += " | 0.0312 (-0.0938–0.1562) | 0.0156 (-0.1094–0.1406) | 0 (-0–0) | 0.0039 (-0.1211–0.1289)"
    assert found.markdown().split("\n") == [
        "Unit: user, relation: replace, delta = 1e-05. Of a user's held-out items a list is to find:"
        " ratings from 4 up.",
        "",
        "| model | epsilon | rmse | mae | recall@7 | ndcg@7 | coverage@7 | different-lists@7"
        " | commonest-first | ways of taste |",
        "|---|" + "---:|" * 9,
        f"| both | 1 | {both} | 0–2 |",
        "| popular | 2.5 |" + " – |" * 7 + " not known |",
        f"| als | inf | {als} | 3 |",
        "",
        "In brackets: smallest and largest of 2 noise draws, whose mean is shown.",
        "Ways of taste: in how many ways lists follow users' own taste; with 0 all get nearly the same."
        " different-lists: how many there are; commonest-first: the share of users with the commonest first"
        " item; both before items of their history are left out.",
        "",
        found.stamp,
        "",
    ]
    assert found.stamp.startswith("All runs together: epsilon = 3.25 at delta = 1e-05 (unit: user, relation:")
    assert PRIVATE_FIGURE in found.stamp
    assert made_up(total_epsilon=math.inf).stamp.startswith("NOT PRIVATE. All runs together: epsilon = inf")
    assert made_up(data_is_public=True).stamp == f"{NOT_PRIVATE}."
    lists = made_up(main_metrics=("recall@7",), relevant_from=None)
    assert "| model | epsilon | recall@7 | ndcg@7 | coverage@7 | different" in lists.markdown()
    assert "a list is to find: all of them." in lists.markdown() and lists.main_metric == "recall@7"
    one = made_up().rows[:1]
    assert Comparison(**vars(found) | {"rows": one}).interval == "95% bootstrap interval over users"
    folded = tuple(row | {"fold": fold} for row in found.rows for fold in range(3))
    several = Comparison(**vars(found) | {"rows": folded, "folds": 3})
    assert several.interval == "smallest and largest of 2 noise draws x 3 folds, whose mean is shown"
    once = tuple(row for row in folded if row["draw"] == 0)
    several = Comparison(**vars(found) | {"rows": once, "folds": 3})
    assert several.interval == "smallest and largest of 3 folds, whose mean is shown"


def test_the_tables_for_programs():
    found = made_up()
    table = found.table()
    assert table.schema.metadata[b"hushrec"].decode() == found.stamp
    declared = {"delta": 1e-5, "unit": "user", "relation": "replace", "data_is_public": False}
    for row, wanted in zip(table.to_pylist(), found.rows, strict=True):
        assert str(row) == str({**wanted, **declared})  # NaN is there too
    plain = found.to_dict()
    assert plain.pop("runs") == list(found.rows) and plain == {
        "unit": "user",
        "relation": "replace",
        "delta": 1e-5,
        "k": 7,
        "main_metric": "rmse",
        "main_metrics": ["rmse", "recall@7"],
        "relevant_from": 4.0,
        "folds": 1,
        "data_is_public": False,
        "total_epsilon": 3.25,
        "note": found.stamp,
    }


def test_every_run_gets_what_was_asked_for(parts, tmp_path, monkeypatch):
    """The rows, settings, seed and budget of each training and of each measurement, in order."""
    trained, measured, told = [], [], []
    train, evaluate = compare_module.train, compare_module.evaluate

    def training(name, rows, accountant, **given):
        trained.append((name, rows is parts[0], accountant.budget, accountant.dataset, given))
        return train(name, rows, accountant, **given)

    def measuring(model, *rows, **given):
        measured.append(([each is part for each, part in zip(rows, parts)], given))
        return evaluate(model, *rows, **given)

    monkeypatch.setattr(compare_module, "train", training)
    monkeypatch.setattr(compare_module, "evaluate", measuring)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    found = compare(
        *parts,
        ["item-bias"],
        [3, 1, 3],
        delta=1e-5,
        relation="replace",
        n_users=77,
        settings={"item-bias": {"clip": 0.3}},
        draws=2,
        k=7,
        relevant_from=3.5,
        ledger=ledger,
        dataset="shop",
        seed=9,
        on_run=lambda *run: told.append(run),
    )
    wanted = [(model, epsilon, draw) for model in ("item-bias", "global-mean") for epsilon in (3, 1)
              for draw in (0, 1)]  # fmt: skip
    assert told == wanted == [(row["model"], row["epsilon"], row["draw"]) for row in found.rows]
    budgets = [Budget(epsilon, 1e-5, relation="replace") for _, epsilon, _ in wanted]
    assert trained == [
        (
            name,
            True,
            budget,
            "shop",
            {"n_users": 77, "settings": {"clip": 0.3} if name == "item-bias" else None, "seed": 9},
        )
        for (name, _, _), budget in zip(wanted, budgets)
    ]
    assert measured == [([True, True], {"k": 7, "relevant_from": 3.5, "seed": 9})] * 8
    together = math.sqrt(sum(budget.mu**2 for budget in budgets))
    assert found.total_epsilon == pytest.approx(ledger.summary("shop", 1e-5).epsilon)
    epsilon = found.total_epsilon  # the Gaussian law (Balle and Wang 2018, theorem 8)
    lost = norm.cdf(together / 2 - epsilon / together)
    lost -= math.exp(epsilon) * norm.cdf(-together / 2 - epsilon / together)
    assert lost == pytest.approx(1e-5, rel=1e-3)
    assert (found.delta, found.unit, found.relation, found.k) == (1e-5, "user", "replace", 7)
    assert found.relevant_from == 3.5 and not found.data_is_public and found.main_metrics == ("rmse",)


def test_folds_are_five_and_private_ratings_have_none(parts, monkeypatch):
    seen = []

    def one(train_part, test_part, models, epsilons, **given):
        seen.append((train_part.n_ratings + test_part.n_ratings, models, epsilons, given))
        return made_up()

    monkeypatch.setattr(compare_module, "compare", one)
    found = compare_module.cross_validate(parts[0], ["both"], [1.0], seed=3, delta=1e-5)
    assert (
        seen
        == [(parts[0].n_ratings, ["both"], [1.0], {"seed": 3, "data_is_public": True, "delta": 1e-5})] * 5
    )
    assert found.folds == 5 and len(found.rows) == 20
    cells = [(row["model"], row["fold"], row["draw"]) for row in found.rows]
    assert cells[:10] == [("both", fold, draw) for fold in range(5) for draw in range(2)]
    assert cells[10:] == [(model, fold, 0) for model in ("popular", "als") for fold in range(5)]
    with pytest.raises(InputError, match="public ratings"):
        compare_module.cross_validate(parts[0], ["both"], [1.0], delta=1e-5, data_is_public=False)


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


def test_a_run_without_privacy_is_made_once(parts):
    given = {"delta": 1e-6, "settings": ALS, "draws": 2, "data_is_public": True}
    found = compare(*parts, ["item-bias"], [5], **given)
    cells = [(row["model"], row["draw"]) for row in found.rows]
    assert cells == [("item-bias", 0), ("item-bias", 1), ("global-mean", 0), ("global-mean", 1), ("als", 0)]


def test_without_privacy_references_alone_are_trained(parts):
    """An infinite epsilon is for them; all that was charged together is then infinite, and said to be."""
    found = compare(*parts, ["item-bias"], [1, math.inf], delta=1e-6, settings=ALS)
    cells = [(row["model"], row["epsilon"]) for row in found.rows]
    assert cells == [("item-bias", 1), ("global-mean", 1), ("als", math.inf)]
    assert math.isinf(found.total_epsilon) and found.stamp.startswith("NOT PRIVATE. All runs together")
    assert found.relevant_from is None and found.main_metrics == ("rmse",) and found.folds == 1


@pytest.mark.parametrize("settings", [{"als": {"depth": 3}}, {"als": {"rank": -1}}])
def test_settings_of_a_reference_are_checked_before_the_first_run(parts, settings):
    with pytest.raises(InputError):
        compare(*parts, ["item-bias"], [1, math.inf], delta=1e-6, settings=settings, on_run=pytest.fail)


def test_a_run_without_privacy_fits_into_no_budget(parts, tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_dataset("default", Budget(60.0, 1e-6))
    with pytest.raises(BudgetError):
        compare(*parts, ["item-bias"], [1, math.inf], delta=1e-6, settings=ALS, ledger=ledger)
    assert ledger.summary("default").charges == 0


@pytest.mark.parametrize("relevant_from", [None, 2.0])
def test_ratings_from_the_domains_own_level_up_are_relevant_unless_told_otherwise(parts, relevant_from):
    given = {"delta": 1e-6, "data_is_public": True, "settings": LIKES, "relevant_from": relevant_from}
    found = compare(*parts, ["popular"], [1], **given)
    assert found.relevant_from == (relevant_from or parts[0].domain.like_from == 4.0 and 4.0)
    model = train("als", parts[0], Accountant(Budget(math.inf, 1e-6)), settings={**LIKES_ALS, **LIKES["als"]})
    wanted = evaluate(model, *parts, relevant_from=found.relevant_from)["recall@20"].value
    assert [row["recall@20"] for row in found.rows if row["model"] == "als"] == [wanted]


def test_what_is_no_list_or_no_ratings_is_refused(parts):
    for given in ((parts[0], 3, ["item-bias"], [1]), (3, parts[1], ["item-bias"], [1]),
                  (*parts, "item-bias", [1]), (*parts, ["item-bias"], 1)):  # fmt: skip
        with pytest.raises(InputError, match="load them|is no list"):
            compare(*given, delta=1e-6, on_run=pytest.fail)


def test_without_a_library_for_plots_no_file_is_written(public, tmp_path, monkeypatch):
    def missing():
        raise InputError("no plots")

    monkeypatch.setattr(compare_module, "needs_matplotlib", missing)
    with pytest.raises(InputError, match="no plots"):
        public.write(tmp_path)
    assert list(tmp_path.iterdir()) == []
