"""The privacy statement: complete, readable, and the same after JSON."""

import itertools
import json
import logging
import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from hushrec.errors import InputError
from hushrec.privacy import (
    Accountant,
    Bounded,
    Budget,
    Gaussian,
    Laplace,
    Ledger,
    PrivacyStatement,
    Release,
    RepeatAndSelect,
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


def test_all_runs_are_told_at_the_delta_that_was_declared_for_them(tmp_path):
    """Not at the run's own, under which they would come to another epsilon."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_dataset("shop", Budget(3.0, 1e-5))
    found = make(ledger=ledger, dataset="shop").ledger
    mu = Budget(1.0, 1e-6).mu
    assert found.delta == 1e-5 and found.epsilon == pytest.approx(epsilon_of(mu, 1e-5))
    assert make(ledger=ledger, dataset="other").ledger.delta == 1e-6


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


def test_json_round_trip(tmp_path):
    for statement in statements(tmp_path):
        text = json.dumps(statement.to_dict(), allow_nan=False)
        again = PrivacyStatement.from_dict(json.loads(text))
        assert again == statement
        assert again.text() == statement.text()
        assert json.dumps(again.to_dict()) == text


def test_text_fits_a_terminal_and_never_shows_a_bare_epsilon(tmp_path):
    for statement in statements(tmp_path):
        text = statement.text()
        assert max(map(len, text.splitlines())) <= 80
        words = " ".join(text.split())
        for after in words.split("epsilon = ")[1:]:
            value, *rest = after.split(" ")
            float(value)
            assert rest[:2] == ["at", "delta"]
            assert " ".join(rest).split("(unit: ")[1].startswith(("user, relation: ", "rating, relation: "))


def test_lines_are_filled_and_begin_below_each_other(tmp_path):
    for statement in statements(tmp_path):
        lines = statement.text().splitlines()
        for line, following in itertools.pairwise(lines):
            if following.startswith(" " * 12):
                assert following[12] != " " and len(line) + 1 + len(following.split()[0]) > 80
        assert not any(word.endswith("-") for word in statement.text().split())


def test_a_paragraph_is_not_indented_and_no_word_is_broken():
    assert module._wrapped("x " * 38 + "add-remove " + "y " * 20) == [
        " ".join("x" * 38), "add-remove " + " ".join("y" * 20)
    ]  # fmt: skip


def test_what_is_not_said_is_not_taken_for_granted():
    statement = Accountant(Budget(1.0, 1e-6)).statement(notes=("One note.", "Another one."))
    text = " ".join(statement.text().split())
    assert "Public: nothing is assumed to be public" in text and "Charged:" not in text
    assert "Note: One note. Note: Another one." in text and "Pure:" not in text
    bare = PrivacyStatement(statement.budget, (), (), (), True, None, "1")
    assert not bare.exact_arithmetic and not bare.exact_noise and bare.notes == ()


def test_it_says_everything():
    statement = make()
    text = " ".join(statement.text().split())
    for part in (
        "Joint differential privacy", "added or removed", "epsilon = 1 at delta = 1e-06", "mu = 0.2367",
        "item statistics (each of 5)", "Gaussian", "the catalogue", "cryptographic", "not exact",
        "noise: exact", "hushrec",
    ):  # fmt: skip
        assert part in text
    entry = statement.to_dict()
    assert (entry["epsilon"], entry["delta"], entry["unit"], entry["relation"]) == (
        1,
        1e-6,
        "user",
        "add-remove",
    )
    assert len(entry["releases"]) == 5
    assert entry["releases"][0]["noise_sd"] == pytest.approx(2 * entry["releases"][0]["noise_multiplier"])
    assert entry["secure_noise"] is True
    assert entry["exact_arithmetic"] is False
    assert entry["exact_noise"] is True
    assert entry["private"] is True
    assert statement.spent_epsilon == pytest.approx(1.0, rel=1e-9)


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
    assert not statement.private
    assert statement.text().splitlines()[0] == "PRIVACY STATEMENT: NOT PRIVATE"
    assert reason in statement.joint_dp
    assert statement.joint_dp.startswith("NOT PRIVATE")
    assert statement.to_dict()["private"] is False


def test_infinity_is_a_word_in_json():
    entry = make(math.inf).to_dict()
    assert entry["epsilon"] == entry["mu"] == entry["charged"]["epsilon"] == "inf"


def test_pure_releases_give_the_smaller_figure():
    statement = make(mechanisms=[Laplace(10.0), Laplace(5.0)])
    assert statement.pure_epsilon == pytest.approx(0.3)
    assert statement.spent_epsilon == pytest.approx(0.3)
    assert "at delta = 0 " in " ".join(statement.text().split())
    many = make(2.0, mechanisms=[Laplace(100.0)] * 200)
    assert many.pure_epsilon == pytest.approx(2.0)
    assert many.spent_epsilon == epsilon_of(many.spent_mu, 1e-6) < 1.0
    assert make(mechanisms=[Laplace(10.0), Gaussian(10.0)]).pure_epsilon is None


def test_runs_compose_under_a_ledger(tmp_path):
    """Killed: the ledger's figure of this run only."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    for runs in (1, 2, 3):
        statement = make(ledger=ledger, dataset="ratings")
        assert statement.ledger.runs == runs
        assert statement.ledger.epsilon == pytest.approx(
            epsilon_of(math.sqrt(runs) * statement.spent_mu, 1e-6)
        )
    assert '3 runs on data set "ratings"' in " ".join(statement.text().split())
    statement = make(ledger=ledger, dataset="other")
    assert statement.ledger.runs == 1


@pytest.mark.parametrize(
    "spoil", ["releases", "epsilon", "delta", "unit", "public", "secure_noise", "version"]
)
def test_a_damaged_statement_is_an_input_error(spoil):
    entry = make().to_dict()
    for value in (None, 1, "user2", [1], {"a": 1}, [{"mechanism": "Gaussian"}], float("nan")):
        if spoil in ("epsilon",) and value == 1:
            continue
        with pytest.raises(InputError):
            PrivacyStatement.from_dict({**entry, spoil: value} if value != "user2" else {"a": 1})
    with pytest.raises(InputError):
        PrivacyStatement.from_dict([])


@pytest.mark.parametrize("field", ["public", "notes", "not_private_because"])
def test_texts_are_lists_of_texts(field):
    entry = make().to_dict()
    for wrong in ("abc", ("abc",), ["abc", 1], {"abc": "abc"}):
        with pytest.raises(InputError, match="not a privacy statement"):
            PrivacyStatement.from_dict(entry | {field: wrong})


@pytest.mark.parametrize("field", ["secure_noise", "exact_arithmetic", "exact_noise"])
def test_truths_are_booleans(field):
    entry = make().to_dict()
    for wrong in (0, 1, "true", None):
        with pytest.raises(InputError, match="not a privacy statement"):
            PrivacyStatement.from_dict(entry | {field: wrong})
    older = {name: value for name, value in entry.items() if name not in ("exact_noise", "failure", "season")}
    assert PrivacyStatement.from_dict(older) == replace(make(), exact_noise=False)


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
    assert "&lt;b&gt; &amp; &lt;/b&gt;" in statement._repr_html_() and "<b>" not in statement._repr_html_()


def test_a_brief_statement_leaves_out_details_and_no_promise():
    statement = make(public=("the catalogue",))
    whole, brief = (" ".join(statement.text(brief=each).split()) for each in (False, True))
    for word in ("Public:", "Released:", "Noise:", "Arithmetic:", "Version:"):
        assert word in whole and word not in brief
    for word in ("Joint differential privacy", "Promise:", "Charged:", "Ledger:"):
        assert word in whole and word in brief


def test_who_may_not_have_the_file_of_a_model_is_told():
    assert module.warning_of_publishing(make(), "m.hush") == ""
    assert module.warning_of_publishing(make(data_is_public=True), "m.hush") == ""
    for statement in (make(noise=SeededNoise(1)), make(math.inf)):
        said = module.warning_of_publishing(statement, "m.hush")
        assert said.startswith(f"Warning: m.hush is NOT PRIVATE ({statement.reasons[0]})")


def test_a_table_has_a_line_for_runs_of_the_same_release():
    """Long labels go on below, and none of two releases that differ is hidden by the other."""
    long = "sums of what users rated 2020 21"
    names = ["counts 1", "counts 2", "counts 3", "7", long, "counts 4"]
    laws = [Gaussian(4.0)] * 5 + [Gaussian(8.0)]
    releases = [Release(name, law, 1.0, "user", "add-remove") for name, law in zip(names, laws)]
    head, *lines = module._table(releases)
    assert head.split() == ["Released:", "noise", "sensitivity", "noise", "sd", "mu"]
    assert [line.split("  ")[1] for line in lines] == [
        "counts (each of 3)", "7", "sums of what users rated", "counts"
    ]  # fmt: skip
    longer = Release("a" * 30 + " " + "b" * 30, Gaussian(4.0), 1.0, "user", "add-remove")
    _, first, second = module._table([longer])
    assert first.split()[0] == "a" * 30 and second == "    " + "b" * 30
    assert len(first) == len(head) and first.split()[1:] == ["Gaussian", "1", "4", "0.25"]
    assert " ".join(module._table([])).split() == ["Released:", "nothing"]


def test_the_figures_of_a_release_stand_apart():
    """They ran together: noise 112.9 and mu 0.00614 were printed as "112.90.00614"."""
    statement = make(mechanisms=[Gaussian(162.9), Gaussian(12345.6), Laplace(3.14159e6)], epsilon=9.0)
    lines = [line.split() for line in statement.text().splitlines() if " statistics " in line]
    wanted = [[each.sensitivity, each.noise_sd, each.mu] for each in statement.releases]
    assert [[float(word) for word in line[-3:]] for line in lines] == [
        pytest.approx(row, rel=0.005) for row in wanted
    ]


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
    """What a run is allowed, how many there are in the mean, and what the choice counts as beside others."""
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
    assert (release["mean_runs"], release["delta"], release["shape"]) == (7.5, 4e-7, 1.0)
    assert release["sensitivity"] == 1.0 and release["noise_sd"] == pytest.approx(1 / one.run_mu)
    assert {inner.data_is_public for inner in inside} == {False}
    public = Accountant(budget, data_is_public=True)
    public.select(one, "best", lambda inner: inside.append(inner) or (None, 0.0))
    assert inside[-1].data_is_public


def test_a_record_says_what_was_charged(caplog):
    with caplog.at_level(logging.INFO, logger="hushrec"):
        make(mechanisms=[Gaussian(8.0)])
    said = "charged for 'item statistics 0': mu = 0.125 (unit: user, relation: add-remove)"
    assert said in [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(("sensitivity", "fits"), [(1.5e-290, True), (0.9e-291, False), (1e308, False)])
def test_noise_that_no_float_can_hold_is_refused(sensitivity, fits):
    """And a release without noise is what it says."""
    if fits:
        Release("sums", Gaussian(1.0), sensitivity, "user", "add-remove")
    else:
        with pytest.raises(InputError, match="which a float cannot draw"):
            Release("sums", Gaussian(10.0), sensitivity, "user", "add-remove")
    assert Release("sums", Gaussian(0.0), sensitivity, "user", "add-remove").noise_sd == 0.0


def test_what_a_ledger_without_a_budget_says_is_at_the_delta_of_this_run(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_dataset("with budget", Budget(2.0, 1e-6))
    at = "so this is at the delta of this run"
    assert at in " ".join(make(ledger=ledger, dataset="without").text().split())
    assert at not in " ".join(make(ledger=ledger, dataset="with budget").text().split())
