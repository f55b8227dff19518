"""The privacy statement: complete, readable, and the same after JSON."""

import itertools
import json
import math
from statistics import NormalDist

import numpy as np
import pytest

from hushrec import notebook
from hushrec.errors import InputError
from hushrec.privacy import (
    Accountant,
    Bounded,
    Budget,
    Gaussian,
    Laplace,
    Ledger,
    PrivacyStatement,
    RepeatAndSelect,
    Season,
    counted,
    epsilon_of,
    statement as module,
)
from hushrec.privacy.testing import SeededNoise


def make(
    epsilon=1.0, unit="user", relation="add-remove", mechanisms=None, public=("the catalogue",), **options
):
    budget = Budget(epsilon, 1e-6, unit, relation)
    accountant = Accountant(budget, **options)
    shares = [budget.share(0.2)] * 5 if mechanisms is None else mechanisms
    for number, mechanism in enumerate(shares):
        bounded = Bounded(np.zeros(2), counted(2), unit=unit, norm=mechanism.norm)
        accountant.release(bounded, mechanism, f"item statistics {number}")
    return accountant.statement(public=public)


def statements(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_dataset("with budget", Budget(2.0, 1e-6))
    long_label = "x" * 200
    return [
        make(),
        make(unit="rating", relation="replace"),
        make(mechanisms=[Laplace(10.0), Laplace(20.0)]),
        make(mechanisms=[]),
        make(math.inf),
        make(noise=SeededNoise(1)),
        make(data_is_public=True),
        make(ledger=ledger, dataset="with budget"),
        make(ledger=ledger, dataset="a very long name of a data set " * 6),
        make(math.inf, ledger=ledger, dataset="exact"),
        make(public=[long_label, "and a fairly long sentence about what else is taken to be public " * 3]),
    ]


@pytest.mark.true("E4")
def test_one_line_says_whether_it_is_private():
    budget = Budget(1.0, 1e-6)
    accountant = Accountant(budget)
    accountant.release(Bounded(np.zeros(2), counted(1.0)), budget.share(0.25), "sums")
    spent = epsilon_of(budget.mu / 2, 1e-6)
    told = f"spent epsilon = {spent:.6g} of {budget}, 75.0% of its mu squared left"
    assert repr(accountant) == f"Accountant({told}; no ledger)"
    assert repr(accountant.statement()) == f"PrivacyStatement({told})"
    assert repr(make(data_is_public=True)) == f"PrivacyStatement(NOT PRIVATE, {repr(make())[17:]}"
    statement = make(public=["<b> & </b>"])
    assert str(statement) == statement.text() and "<b> & </b>" in statement.text()
    head, rows, told = "<h>", [["<r>"], ["<r>"]], ("<n>", "<o>")
    for text in (
        notebook.table(head, rows, *told),
        notebook.bars(head, rows[0], [(rows[1], 1.0)], *told),
        notebook.shares(head, {"<r>": 1.0}, *told),
    ):
        assert all(f"&lt;{letter}&gt;" in text and f"<{letter}>" not in text for letter in "hrno")
    assert "&lt;b&gt; &amp; &lt;/b&gt;" in statement._repr_html_() and "<b>" not in statement._repr_html_()


def delta_at(mu: float, epsilon: float) -> float:
    """The analytic Gaussian formula (Balle and Wang 2018)."""
    normal = NormalDist().cdf
    return normal(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal(-mu / 2 - epsilon / mu)


def said_after(text: str, word: str) -> float:
    """The number after a word of the statement."""
    return float(text.split(word, 1)[1].split()[0].rstrip(",.;"))


def test_every_figure_is_that_of_what_was_spent_and_not_of_the_promise():
    """Half of the budget, in releases of several sizes: by their multipliers, and the analytic formula."""
    statement = make(2.0, mechanisms=[Gaussian(10.0), Gaussian(5.0), Laplace(40.0)])
    pure = 2 * NormalDist().inv_cdf(math.exp(1 / 40) / (1 + math.exp(1 / 40)))
    mus, sds = [0.1, 0.2, pure], [20.0, 10.0, 80.0 * math.sqrt(2)]
    mu = math.sqrt(sum(each**2 for each in mus))
    entry = statement.to_dict()
    assert [each["mu"] for each in entry["releases"]] == pytest.approx(mus, rel=1e-9)
    assert [each["noise_sd"] for each in entry["releases"]] == pytest.approx(sds)
    assert [each["epsilon"] for each in entry["releases"]] == [None, None, pytest.approx(1 / 40)]
    assert [each["sensitivity"] for each in entry["releases"]] == [2.0] * 3
    charged = entry["charged"]
    assert charged["mu"] == pytest.approx(mu, rel=1e-9) and charged["pure_epsilon"] is None
    assert delta_at(mu, charged["epsilon"]) == pytest.approx(1e-6, rel=1e-4)
    assert (charged["delta"], charged["unit"], charged["relation"]) == (1e-6, "user", "add-remove")
    assert (entry["epsilon"], entry["mu"]) == (2.0, statement.budget.mu) and entry["failure"] == 0.0
    promise, spent = " ".join(statement.text().split()).split("Promise:")[1].split("Charged:")
    assert said_after(promise, "epsilon = ") == 2.0
    assert said_after(promise, "mu = ") == pytest.approx(statement.budget.mu, rel=1e-5)
    assert said_after(spent, "epsilon = ") == pytest.approx(charged["epsilon"], rel=1e-5)
    assert said_after(spent, "mu = ") == pytest.approx(mu, rel=1e-5)


def test_every_figure_of_a_choice(monkeypatch):
    """Return a run's budget, the mean number of runs, and the choice's cost next to others."""
    budget = Budget(3.0, 1e-6, failure=4e-7)
    accountant, one = Accountant(budget), RepeatAndSelect.within(budget, 7.5)
    inside = []
    accountant.select(one, "best", lambda inner: inside.append(inner) or (None, 0.0))
    statement = accountant.statement()
    text = " ".join(statement.text().split())
    choice = text.split("Choice:")[1]
    assert said_after(choice, "of a random number of runs, ") == 7.5
    assert said_after(choice, "keeps epsilon = ") == pytest.approx(one.run_epsilon, rel=1e-3)
    assert said_after(choice, "at delta = ") == 4e-7 == said_after(choice, "for a chance of ")
    counts = 2 * NormalDist().inv_cdf(1 / (1 + math.exp(-one.epsilon)))
    assert said_after(choice, "counts as mu = ") == pytest.approx(counts, rel=1e-3)
    assert "mu" not in text.split("Promise:")[1].split("Charged:")[0] and "Pure:" not in text
    assert statement.pure_epsilon is None and statement.to_dict()["failure"] == 4e-7
    (release,) = statement.to_dict()["releases"]
    assert (release["mean_runs"], release["delta"]) == (7.5, 4e-7)
    assert release["sensitivity"] == 1.0 and release["noise_sd"] == pytest.approx(1 / one.run_mu)
    assert {inner.data_is_public for inner in inside} == {False}
    public = Accountant(budget, data_is_public=True)
    public.select(one, "best", lambda inner: inside.append(inner) or (None, 0.0))
    assert inside[-1].data_is_public


def test_it_reads_the_same_after_json_fits_a_terminal_and_never_shows_a_bare_epsilon(tmp_path):
    for statement in statements(tmp_path):
        text = json.dumps(statement.to_dict(), allow_nan=False)
        again = PrivacyStatement.from_dict(json.loads(text))
        assert again == statement and again.text() == statement.text()
        assert json.dumps(again.to_dict()) == text
        assert max(map(len, statement.text().splitlines())) <= 80
        for after in " ".join(statement.text().split()).split("epsilon = ")[1:]:
            value, *rest = after.split(" ")
            float(value)
            assert rest[:2] == ["at", "delta"]
            assert " ".join(rest).split("(unit: ")[1].startswith(("user, relation: ", "rating, relation: "))
    entry = make(math.inf).to_dict()
    assert entry["epsilon"] == entry["mu"] == entry["charged"]["epsilon"] == "inf"


def test_it_says_everything():
    statement = make()
    whole, brief = (" ".join(statement.text(brief=each).split()) for each in (False, True))
    for part in (
        "Promise:", "epsilon = 1 at delta = 1e-06 (unit: user, relation: add-remove)", "Meaning:", "74%",
        "Ledger:",
    ):  # fmt: skip
        assert part in whole and part in brief
    for part in (
        "Released:", "item statistics (each of 5)", "Gaussian", "Public:", "the catalogue", "Noise:",
        "Joint differential privacy", "mu = 0.2367", "cryptographic", "Arithmetic:", "not exact",
        "noise: exact", "Version: hushrec",
    ):  # fmt: skip
        assert part in whole and part not in brief
    entry = statement.to_dict()
    said = [entry[word] for word in ("epsilon", "delta", "unit", "relation")]
    assert said == [1, 1e-6, "user", "add-remove"] and len(entry["releases"]) == 5
    assert [entry[word] for word in ("secure_noise", "exact_noise", "private")] == [True] * 3
    assert entry["exact_arithmetic"] is False and statement.spent_epsilon == pytest.approx(1.0, rel=1e-9)
    nothing = Accountant(Budget(1.0, 1e-6)).statement(notes=("One note.", "Another one."))
    text = " ".join(nothing.text().split())
    assert "Public: nothing is assumed to be public" in text and "Charged:" not in text
    assert "Note: One note. Note: Another one." in text and "Pure:" not in text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"epsilon": math.inf}, "infinite"),
        ({"noise": SeededNoise(1)}, "injected"),
        ({"data_is_public": True}, "public"),
    ],
)
def test_not_private(options, reason):
    """Killed: `private` computed from epsilon alone."""
    statement = make(**options)
    assert not statement.private and statement.to_dict()["private"] is False
    assert statement.text().splitlines()[0] == "PRIVACY STATEMENT: NOT PRIVATE"
    assert reason in statement.joint_dp and statement.joint_dp.startswith("NOT PRIVATE")
    said = module.warning_of_publishing(statement, "m.hush")
    warning = f"Warning: m.hush is NOT PRIVATE ({statement.reasons[0]})"
    assert said == "" if reason == "public" else said.startswith(warning)
    assert module.warning_of_publishing(make(), "m.hush") == ""


def test_pure_releases_give_the_smaller_figure():
    statement = make(mechanisms=[Laplace(10.0), Laplace(5.0)])
    assert statement.pure_epsilon == pytest.approx(0.3) == statement.spent_epsilon
    assert "at delta = 0 " in " ".join(statement.text().split())
    many = make(2.0, mechanisms=[Laplace(100.0)] * 200)
    assert many.pure_epsilon == pytest.approx(2.0)
    assert many.spent_epsilon == epsilon_of(many.spent_mu, 1e-6) < 1.0
    assert make(mechanisms=[Laplace(10.0), Gaussian(10.0)]).pure_epsilon is None


def test_runs_compose_under_a_ledger(tmp_path):
    """Killed: the ledger's figure of this run only; the run's own delta in the place of the declared one."""
    ledger, at = Ledger(tmp_path / "ledger.sqlite"), "so delta is that of this run"
    ledger.open_dataset("with budget", Budget(5.0, 1e-5))
    for dataset, delta in (("ratings", 1e-6), ("with budget", 1e-5)):
        for runs in (1, 2, 3):
            statement = make(ledger=ledger, dataset=dataset)
            assert (statement.ledger.runs, statement.ledger.delta) == (runs, delta)
            mu = math.sqrt(runs) * statement.spent_mu
            assert statement.ledger.epsilon == pytest.approx(epsilon_of(mu, delta))
        text = " ".join(statement.text().split())
        assert f'3 runs on data set "{dataset}"' in text and (at in text) == (delta == 1e-6)


@pytest.mark.parametrize("opened", [True, False])
def test_the_meaning_counts_the_weeks_that_a_season_still_promises(tmp_path, opened):
    """Oracle: the mu of a run and of a whole season, added up in squares."""
    ledger, season, belief = Ledger(tmp_path / "ledger.sqlite"), Budget(3.0, 1e-6), 74
    if opened:
        ledger.open_season("default", Season(season))
        both = epsilon_of(math.hypot(Budget(1.0, 1e-6).mu, season.mu), 1e-6)
        belief = math.ceil(100 / (1 + math.exp(-both)))
    text = " ".join(make(ledger=ledger, allow_composition=True).text().split())
    assert f"can become {belief}%" in text
    assert ("(all models of the data set together)" in text) == opened


def test_a_damaged_statement_is_an_input_error():
    entry = make().to_dict()
    texts, truths = ["abc", ["abc", 1], {"abc": "abc"}, 1], [0, 1, "true", None]
    numbers = [None, "user2", [1], float("nan"), {"a": 1}]
    for fields, wrong in (
        (("public", "notes", "not_private_because"), texts), (("version",), [None, 1]),
        (("secure_noise", "exact_arithmetic", "exact_noise"), truths), (("ledger",), [1, {"a": 1}]),
        (("epsilon", "delta", "unit"), numbers), (("releases",), [1, [1], [{"mechanism": "Gaussian"}]]),
    ):  # fmt: skip
        for field, value in itertools.product(fields, wrong):
            with pytest.raises(InputError, match="not a privacy statement"):
                PrivacyStatement.from_dict(entry | {field: value})
    for wrong in ([], {"a": 1}, None):
        with pytest.raises(InputError):
            PrivacyStatement.from_dict(wrong)


def test_a_table_has_a_line_for_runs_of_the_same_release():
    """Long labels continue below, figures are separate, and no release hides a different one.

    They ran together: noise 112.9 and mu 0.00614 were printed as "112.90.00614".
    """
    budget, long = Budget(9.0, 1e-6), "sums of what users rated 2020 21"
    accountant = Accountant(budget)
    names = ["counts 1", "counts 2", "counts 3", "7", long, "counts 4"]
    for name, size in zip(names, [162.9] * 5 + [12345.6]):
        accountant.release(Bounded(np.zeros(2), counted(2)), Gaussian(size), name)
    lines = accountant.statement().text().split("Released:")[1].split("Public:")[0].splitlines()
    assert [line.split("  ")[1] for line in lines[1:]] == [
        "counts (each of 3)", "7", "sums of what users rated", "counts"
    ]  # fmt: skip
    figures = [[float(word) for word in line.split()[-3:]] for line in lines[1:]]
    wanted = [[2.0, 2 * size, 1 / size] for size in (162.9, 162.9, 162.9, 12345.6)]
    assert figures == [pytest.approx(row, rel=0.005) for row in wanted]


@pytest.mark.true("D7")
def test_no_key_may_be_missing_or_added_at_any_depth(tmp_path):
    def dictionaries(part):
        if isinstance(part, dict):
            yield part
        for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            yield from dictionaries(each)

    for statement in statements(tmp_path):
        entry = json.loads(json.dumps(statement.to_dict()))
        for part in dictionaries(entry):
            for key in list(part):
                value = part.pop(key)
                with pytest.raises(InputError, match="not a privacy statement"):
                    PrivacyStatement.from_dict(entry)
                part[key] = value
            part["more"] = False
            with pytest.raises(InputError, match="not a privacy statement"):
                PrivacyStatement.from_dict(entry)
            del part["more"]
        assert PrivacyStatement.from_dict(entry) == statement
