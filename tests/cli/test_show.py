"""What is printed, letter by letter, of values that are made up; figures against the law they come from."""

import json
import math
from types import SimpleNamespace

import pytest
from scipy.stats import norm

from hushrec import Budget, Domain, Season
from hushrec.cli import ledger_show, season_show, show, show_model, show_plan, similar
from hushrec.privacy.statement import PUBLIC_DATA


def delta_of(epsilon, mu):
    """Of a Gaussian release (Balle and Wang 2018, theorem 8)."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def test_a_table_has_columns_of_their_own_widths():
    rows = [("rank", "item", "score"), ("1", "a long name", "3.5"), ("10", "b", "12.25")]
    assert show.table(rows, left={1}).split("\n") == [
        "rank  item         score",
        "   1  a long name    3.5",
        "  10  b            12.25",
    ]
    assert show.table(rows, left={0, 2}).split("\n") == [
        "rank         item  score",
        "1     a long name  3.5",
        "10              b  12.25",
    ]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("likes", [True, False])
def test_a_list_for_one_user(known, likes, monkeypatch, capsys):
    taste = SimpleNamespace(text=lambda: "Something of taste.", to_dict=lambda: {"directions": 2})
    monkeypatch.setattr(show_model, "taste_of", lambda billboard: taste)
    board = SimpleNamespace(domain=Domain(["a", "b"], likes=True) if likes else Domain(["a", "b"], (1, 5)))
    rows = [{"user": "ann", "rank": n + 1, "item": item, "score": 4.0 - n / 3} for n, item in enumerate("ab")]
    rows = rows if likes else [row | {"rating": 2.5} for row in rows]
    show_model.recommendations("ann", known, rows, board, as_json=False)
    what = "likes" if likes else "ratings from 1 to 5"
    newcomer = f", who has no {what} of items in the catalogue in the history: the list for newcomers"
    assert capsys.readouterr().out.split("\n") == [
        "For user ann alone" + ("" if known else newcomer),
        "rank  item  score" + ("" if likes else "  rating"),
        "   1  a     4.000" + ("" if likes else "   2.500"),
        "   2  b     3.667" + ("" if likes else "   2.500"),
        "The higher the score, the better the match"
        + ("" if likes else "; rating is what the model predicts")
        + ". The list is computed from this user's own ratings.",
        "",
        "Something of taste.",
        "",
    ]
    show_model.recommendations("ann", known, rows, board, as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "user": "ann",
        "known": known,
        "items": [{key: row[key] for key in row if key != "user"} for row in rows],
        "taste": {"directions": 2},
    }


def test_what_a_model_is_in_the_words_of_its_class():
    class Model:
        """The ``fast`` one of
        :class:`~hushrec.ALS` and :func:`best`, in two lines.

        More of it.
        """

    assert show_model.summary(Model()) == "The fast one of ALS and best, in two lines."
    Model.__doc__ = None
    assert show_model.summary(Model()) == ""


def test_items_that_the_same_people_like(monkeypatch, capsys):
    taste = SimpleNamespace(text=lambda: "Something of taste.", to_dict=lambda: {"directions": 2})
    monkeypatch.setattr(show_model, "taste_of", lambda billboard: taste)
    found = [("a", 0.75), (7, 0.125)]
    board = SimpleNamespace(similar_items=lambda item, n: found[:n] if item == "tea" else [])
    monkeypatch.setattr(similar, "load", {"m.hush": board}.__getitem__)
    similar.similar("m.hush", "tea")
    assert capsys.readouterr().out.split("\n") == [
        "Liked by the same people as tea",
        "rank  item  score",
        "   1  a     0.750",
        "   2  7     0.125",
        "",
        "Something of taste.",
        "",
    ]
    similar.similar("m.hush", "tea", n=1, as_json=True)
    items = [{"rank": 1, "item": "a", "score": 0.75}]
    assert json.loads(capsys.readouterr().out) == {"item": "tea", "items": items, "taste": {"directions": 2}}


def test_what_runs_cost_so_far():
    assert ledger_show.growth([]) == ""
    runs = [
        SimpleNamespace(time="2026-01-05 08:00", charges=3, mu=0.25, epsilon=1.0),
        SimpleNamespace(time="2026-01-12 08:00", charges=12, mu=0.353553, epsilon=1.4625),
    ]
    assert ledger_show.growth(runs).split("\n") == [
        "",
        "",
        " run  time (UTC)        charges  mu so far  epsilon so far",
        "   1  2026-01-05 08:00        3       0.25               1",
        "   2  2026-01-12 08:00       12     0.3536          1.4625",
    ]


def test_each_season_and_each_kind_of_week_has_its_line():
    """Parts of mu squared add up to all of it; the weeks after the first share what it leaves."""
    lines = season_show.planned(Season(Budget(5, 1e-6), 11, 0.25))
    mu = Budget(5, 1e-6).mu
    rows = [line.split() for line in lines[2:4]]
    assert lines[0] == "" and lines[1].split() == ["part", "of", "mu^2", "mu", "noise", "alone"]
    for row, part in zip(rows, (0.25, 0.075)):
        at = row.index(f"{part:.3%}")
        wanted = [f"{mu * math.sqrt(part):.4g}", f"{1 / (mu * math.sqrt(part)):.4g}"]
        assert row[at + 1 : at + 3] == wanted
        epsilon = float(row[-1])
        assert delta_of(epsilon, mu * math.sqrt(part)) == pytest.approx(1e-6, rel=0.2)
    assert lines[4] == "" and lines[5].startswith("noise: standard deviation of a week's noise")


def test_seasons_together_cost_more_than_one():
    """Oracle: the squares of mu add up, and the Gaussian law."""
    budgets = [Budget(2, 1e-6), Budget(3, 1e-5)]
    seasons = [SimpleNamespace(season=Season(budget, 4)) for budget in budgets]
    assert season_show.seasons_together([]) == (None, []) and season_show.seasons_together(seasons[:1]) == (
        None,
        [],
    )
    found, lines = season_show.seasons_together(seasons)
    mu = math.hypot(*(budget.mu for budget in budgets))
    assert found["delta"] == 1e-5
    assert delta_of(found["epsilon"], mu) <= 1e-5 * (1 + 1e-6) < delta_of(0.999 * found["epsilon"], mu)
    assert lines[0] == "" and "All 2 seasons together" in lines[1]
    assert f"epsilon = {found['epsilon']:.3g}"[:12] in lines[1]


@pytest.mark.parametrize(
    ("declared", "released", "delta", "warned"),
    [
        (None, None, 0.1, []),
        (999, None, 1e-3, []),
        (1000, None, 1e-3, ["delta = 0.001 is not below one"]),
        (None, 1000, 1e-3, ["delta = 0.001 is not below one"]),
        (None, 40, 1e-6, ["number of users, 40, cannot be told from 0"]),
        (None, 41, 1e-6, []),
        (1, 40, 1e-6, []),
        (None, 4, 0.5, ["number of users, 4, cannot be told from 0", "delta = 0.5 is not below one"]),
    ],
)
@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_what_the_number_of_users_warns_of(declared, released, delta, warned, private, whole, capsys):
    """A released number has a noise of sd 10 here: up to 40 it may be that of nobody."""
    releases = [SimpleNamespace(label="item biases", noise_sd=1e9)]
    if released is not None:
        releases.append(SimpleNamespace(label="number of users", noise_sd=10.0))
    estimator = SimpleNamespace(n_users=declared if released is None else released)
    if declared is None and released is None:
        estimator = SimpleNamespace()
    board = SimpleNamespace(
        estimator=estimator if whole else SimpleNamespace(ratings=estimator, n_users=10**9),
        privacy=SimpleNamespace(releases=releases, private=private, budget=Budget(1, delta)),
    )
    show_model.warn_of_the_number_of_users(board, declared)
    lines = capsys.readouterr().err.splitlines()
    wanted = [words for words in warned if private or "delta" not in words]
    assert len(lines) == len(wanted) and all(words in line for words, line in zip(wanted, lines))


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("reasons", [(PUBLIC_DATA,), ("epsilon is infinite", "noise was injected")])
def test_who_publishes_what_nothing_protects_is_warned(private, reasons, capsys):
    board = SimpleNamespace(privacy=SimpleNamespace(private=private, reasons=reasons))
    show.warn_of_publishing(board, "films.hush")
    said = capsys.readouterr().err
    assert bool(said) == (not private and len(reasons) == 2)
    assert not said or "films.hush is NOT PRIVATE (epsilon is infinite; noise was injected)" in said


@pytest.mark.parametrize("spread_unknown", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_what_an_expected_error_does_not_know(spread_unknown, inside):
    lines = show_plan._limits(spread_unknown, inside)
    assert len(lines) == spread_unknown + (not inside)
    assert any("--spread" in line for line in lines) == spread_unknown
    assert any("Nothing of this size was simulated" in line for line in lines) == (not inside)


def test_numbers_for_people():
    numbers = [show_plan._count(number) for number in (None, 900, 1000, 1001, 250_000)]
    few = "no more than 1,000"
    assert numbers == ["more than 1,000,000", few, few, "about 1,001", "about 250,000"]
    assert [show.short(number) for number in (None, 0.123456, 12345.6)] == ["-", "0.1235", "1.235e+04"]
    assert show.paragraph("") == [] and show.paragraph("words") == ["", "words"]
    folded = show.paragraph("word " * 40)
    assert folded[0] == "" and len(folded) == 3 and max(map(len, folded)) <= 100
