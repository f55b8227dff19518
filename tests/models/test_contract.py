"""Every estimator of ours, and of the papers, passes the contract that one from outside is held to.

The checks are those of :mod:`hushrec.testing`, run here on all configurations:
`test_every_configuration_is_a_case` fails if a setting changes the releases in a way that no case has.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from hushrec.cli import output_model
from hushrec.errors import InputError
from hushrec.kernels import threads
from hushrec.models import ESTIMATORS, Estimator, Model
from hushrec.privacy import Budget
from hushrec.testing import (
    DOMAIN,
    EDGES,
    Edge,
    PublicSide,
    check_edges,
    check_forged,
    check_plan,
    check_replay,
    check_sensitivity,
    check_sums,
    check_two_processes,
    check_weeks,
    wide_domain,
)
from tests.models.cases import CASES, Case

#: A warning that some rows raise and others do not is a message too.
pytestmark = pytest.mark.filterwarnings("error")
everywhere = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
OF_USERS = [case for case in CASES if case.unit == "user"]


def at_length(cases: list[Case]) -> pytest.MarkDecorator:
    """Twins are tried in long runs only."""
    params = [pytest.param(case, id=case.name, marks=[pytest.mark.full] * case.twin) for case in cases]
    return pytest.mark.parametrize("case", params)


RELATIONS = "add-remove", "replace"
#: Models with settings that follow from the number of users, with the settings for few and for many.
PLANNED = [
    (cls, n_users)
    for cls in dict.fromkeys(ESTIMATORS[case.estimator.name] for case in OF_USERS)
    if cls.uses_user_count
    for n_users in (50, 100_000)
]


@pytest.fixture(autouse=True)
def silence(capfd):
    """Nothing may be printed: it could reveal the rows."""
    yield
    assert capfd.readouterr() == ("", "")


@everywhere
def test_ledger_equals_plan(case: Case) -> None:
    for relation in RELATIONS:
        budget = case.budget(relation)
        check_plan(case.estimator, budget)
        plan = case.estimator.plan(budget, DOMAIN)
        whole = {release.mechanism.norm for release in plan.releases} == {"l2"}
        assert plan.mu == pytest.approx(budget.mu, rel=1e-9) or not whole, "part of the budget is not used"


def record(case: Case, worst: dict[str, float], record_property) -> None:
    tight = [move for label, move in worst.items() if not label.startswith(tuple(case.loose))]
    record_property("largest move", max(worst.values()))
    record_property("releases", len(worst))
    record_property("comparisons", 60 * len(worst))
    record_property("smallest attained", min(tight, default=1.0))
    record_property("attained", len(tight))
    record_property("loose", len(worst) - len(tight))


@at_length(CASES)
def test_sensitivity(case: Case, record_property) -> None:
    record(case, check_sensitivity(case.estimator, case.budget(), loose=case.least), record_property)


@at_length(CASES)
def test_sensitivity_to_long_rows(case: Case, record_property) -> None:
    """Of up to 5,000 ratings, by those who read the releases before theirs, too."""
    wide = wide_domain(case.estimator, case.budget())
    worst = check_sensitivity(case.estimator, case.budget(), domain=wide, pairs=1, loose=case.least)
    record(case, worst, record_property)


def test_each_release_is_moved_by_most_of_its_sensitivity_in_some_case() -> None:
    most = Counter[str]()
    for case in CASES:
        for release in case.estimator.plan(case.budget(), DOMAIN).releases:
            parts = [part for label, part in case.least.items() if release.label.startswith(label)]
            most[release.label] = max(most[release.label], min(parts, default=1))
    assert all(part > 0.6 or label.startswith("step") for label, part in most.items())


@pytest.mark.full
@everywhere
def test_sensitivity_at_length(case: Case) -> None:
    for relation in RELATIONS:
        check_sensitivity(case.estimator, case.budget(relation), pairs=2_000, seed=11, loose=case.least)


@at_length(CASES)
def test_the_model_is_a_function_of_the_releases(case: Case, record_property) -> None:
    """Planting ``center = ratings.matrix.data.mean()`` in PrivateALS fails every case of it."""
    for relation, pairs in zip(RELATIONS, (6, 2)):
        check_replay(case.estimator, case.budget(relation), pairs=pairs)
    record_property("pairs", 8)


@at_length(OF_USERS)
def test_sums_do_not_depend_on_order_parts_or_threads(case: Case, monkeypatch) -> None:
    """The attack on rounded sums (Casacuberta et al. 2022) has nothing to work with."""
    monkeypatch.setattr(threads, "ROWS_TOGETHER", 1)
    monkeypatch.setattr(threads, "SMALLEST_RANGE", 8.0)
    with threads.limit(3):
        check_sums(case.estimator, case.budget(), n_users=40)
        wide = wide_domain(case.estimator, case.budget())
        check_sums(case.estimator, case.budget(), domain=wide, n_users=5)


def test_without_fixed_point_rounding_moves_sums(plain_sums: None) -> None:
    """The control: in floating point, one user's contribution depends on the others."""
    failed = 0
    for case in OF_USERS[:10]:
        try:
            check_sums(case.estimator, case.budget(), n_users=40)
        except AssertionError:
            failed += 1
    assert failed > 5


@at_length(OF_USERS)
def test_edges(case: Case) -> None:
    check_edges(case.estimator, case.budget())


@pytest.mark.true("A1")
@at_length(CASES)
def test_what_a_server_forges_moves_no_release_further(case: Case) -> None:
    check_forged(case.estimator, case.budget())


@pytest.mark.parametrize(("cls", "n_users"), PLANNED, ids=lambda each: getattr(each, "name", str(each)))
def test_edges_of_planned_settings(cls: type[Estimator], n_users: int) -> None:
    """Settings differ between few users and many, and between small and large catalogues."""
    for edge in (EDGES[0], EDGES[3], Edge((-10, 10), 40, 5)):
        budget = Budget(3.0, 1e-6)
        check_edges(cls.planned(budget, edge.domain, n_users), budget, edges=[edge])


@at_length([case for case in OF_USERS if case.estimator.supports_seasons and "parts" not in case.name])
def test_weeks(case: Case) -> None:
    """One range is wider than a sum of squares in float32; the other has numbers that float32 lacks."""
    check_weeks(case.estimator, case.budget(), loose=case.least)
    wide = wide_domain(case.estimator, case.budget())
    check_weeks(case.estimator, case.budget(), domain=wide, pairs=1, loose=case.least)
    for rating_range in ((0, 1e30), (16777216, 16777219)):
        domain = Edge(rating_range, 12, 0).domain
        check_weeks(case.estimator, case.budget(), domain=domain, pairs=3, loose={"": 0.0})


def say_all(model: Model, file: Path) -> None:
    """All that ``hushrec train`` prints of a model, and its JSON."""
    output_model.warn_of_the_number_of_users(model)
    for as_json in (False, True):
        output_model.trained(model, file, "Trained", as_json=as_json)


@pytest.fixture(scope="module")
def public():
    """One process for all configurations; it starts before there is any row. Both print as wide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        with PublicSide(say_all) as side:
            yield side


@at_length(CASES)
def test_the_public_side_needs_no_row(case: Case, public: PublicSide) -> None:
    """The proof by construction: planting any use of a row on the public side fails it."""
    check_two_processes(public, case.estimator, case.budget())


# ---------------------------------------------------------------------- nothing is left out


def options(estimator: Estimator) -> dict[str, list[Any]]:
    """Return values of its settings that may change the releases: words, booleans, none and numbers."""
    found = {}
    layers = {"": type(estimator), "tuning__": type(getattr(estimator, "tuning", estimator))}
    hints = {
        (layer, name): hint for layer, cls in layers.items() for name, hint in get_type_hints(cls).items()
    }
    for (layer, name), hint in hints.items():
        kinds = [kind for kind in (hint, *get_args(hint)) if kind is not type(None)]
        words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
        none = [None] * (type(None) in get_args(hint))
        numbers = [0, 1] if int in kinds else [0.0, 0.5] if float in kinds else []
        found[layer + name] = words or ([True, False] if hint is bool else [*none, *numbers])
    return {name: found[name] for name in estimator.get_params() if name in found}


def released(estimator: Estimator, budget: Budget) -> frozenset[tuple[str, str]] | None:
    """Return labels without numbers and norms of the planned releases; None if the plan is refused."""
    try:
        plan = estimator.plan(budget, DOMAIN)
    except InputError:
        return None
    return frozenset((re.sub(r"\d+", "#", each.label), each.mechanism.norm) for each in plan.releases)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_configuration_is_a_case(name: str, record_property) -> None:
    """Each unit, each word of a setting, each set of releases that one change of the first case leads to."""
    cls = ESTIMATORS[name]
    cases = [case for case in CASES if isinstance(case.estimator, cls) and case.estimator.name == name]
    if not cases:
        assert released(cls.planned(Budget(1, 1e-6), DOMAIN, 5), Budget(1, 1e-6)) is None, (
            "add a row to tests/models/cases.py"
        )
        return
    assert {case.unit for case in cases} == set(cls.units)
    had, first = {released(case.estimator, case.budget()) for case in cases}, cases[0]
    missing, planned = [], 0
    record_property("option grids", len(cases))
    for field, values in options(first.estimator).items():
        tried = {case.estimator.get_params()[field] for case in cases}
        for value in values:
            try:
                found = released(first.estimator.set_params(**{field: value}), first.budget())
            except InputError:
                continue
            planned += found is not None
            if found is not None and (found not in had or (isinstance(value, str) and value not in tried)):
                missing.append(f"{field}={value!r}")
    assert planned or not options(first.estimator), "no other setting could be planned"
    assert not missing, f"no case of {name} has {', '.join(missing)}"


def test_budgets_of_all_kinds_are_cases() -> None:
    """Some have so little epsilon that noise hides everything."""
    for unit, least in (("user", 0.05), ("rating", 2.0)):
        assert min(case.epsilon for case in CASES if case.unit == unit) <= least
