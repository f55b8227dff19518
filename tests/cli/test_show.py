"""What is printed, letter by letter, of values that are made up; figures against the law they come from."""

import math
from types import SimpleNamespace

import pytest
from scipy.stats import norm

from hushrec import Budget, Season
from hushrec.cli import season_show, show, show_model
from hushrec.privacy.statement import PUBLIC_DATA


def delta_of(epsilon, mu):
    """Of a Gaussian release (Balle and Wang 2018, theorem 8)."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


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
