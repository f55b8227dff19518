"""A gate releases planned values with the planned bounds, and nothing else."""

import math

import numpy as np
import pytest

from hushrec.errors import InputError
from hushrec.privacy import (
    Accountant,
    Bound,
    Bounded,
    Budget,
    Gaussian,
    Plan,
    RandomizedResponse,
    Release,
    counted,
    positive,
)
from hushrec.privacy.testing import SeededNoise
from hushrec.training.gate import LabelledGate, LocalGate

BUDGET = Budget(5, 1e-6)


def gate_of(budget: Budget = BUDGET, **changes) -> tuple[LocalGate, Accountant]:
    """Return a gate with one planned release: "sum", of sensitivity 2, of users."""
    settings = {"mechanism": budget.share(1.0), "sensitivity": 2.0, "unit": budget.unit} | changes
    release = Release("sum", relation=budget.relation, **settings)
    accountant = Accountant(budget, noise=SeededNoise(1))
    return LocalGate(accountant, Plan(budget, [release])), accountant


def sum_of(**changes) -> Bounded:
    return Bounded([1.0, 2.0], **{"bound": counted(2.0)} | changes)


def test_what_is_as_planned_is_released_and_charged_as_planned() -> None:
    gate, accountant = gate_of()
    assert gate.release("sum", sum_of()).shape == (2,)
    assert accountant.releases == Plan(BUDGET, [accountant.releases[0]]).releases
    assert accountant.releases[0].sensitivity == 2.0 and accountant.spent_mu == pytest.approx(BUDGET.mu)
    # rounding of bound times scale, and no more
    gate, accountant = gate_of()
    gate.release("sum", sum_of(bound=counted(2.0 * (1 + 0.7e-9))))
    assert accountant.releases[0].sensitivity == 2.0


@pytest.mark.parametrize(
    "bounded",
    [
        sum_of(bound=counted(2.0 * (1 + 1.5e-9))),
        sum_of(bound=counted(2.0 * (1 - 1e-7))),  # less too: what is planned is what is clipped
        sum_of(scale=2.0),
        sum_of(unit="rating"),
        sum_of(norm="l1"),
        sum_of(norm="labels"),
        Bounded([1.0, 2.0], positive(2.0), norm="l1"),
    ],
)
def test_what_is_not_as_planned_is_refused_and_costs_nothing(bounded: Bounded) -> None:
    gate, accountant = gate_of()
    with pytest.raises(InputError, match="was planned with sensitivity 2 "):
        gate.release("sum", bounded)
    assert not accountant.releases


def test_what_is_not_planned_or_says_no_bound_is_refused() -> None:
    gate, accountant = gate_of()
    for value in (sum_of(), np.full(2, 7.25), 7.25):  # whatever it is, it is not shown
        with pytest.raises(InputError, match="'other' is not planned; list it in the .*releases`[.]$"):
            gate.release("other", value)
    for value in (np.ones(2), 7.25, None):
        with pytest.raises(InputError, match="'sum' is not a Bounded; pass") as refused:
            gate.release("sum", value)
        assert "7.25" not in str(refused.value)
    assert (
        gate.planned("sum").sensitivity == 2.0 and gate.planned("other") is None and not accountant.releases
    )


def test_without_privacy_any_bound_will_do_but_not_another_unit() -> None:
    gate, _ = gate_of(Budget(math.inf, 1e-6))
    assert not gate.private and gate_of()[0].private
    assert gate.release("sum", sum_of(bound=Bound(math.inf, math.inf))).tolist() == [1.0, 2.0]
    with pytest.raises(InputError, match="unit: rating"):
        gate_of(Budget(math.inf, 1e-6))[0].release("sum", sum_of(unit="rating"))


def test_a_part_has_labels_of_its_own() -> None:
    label = "lists: {}, week 2"
    releases = [
        Release(label.format("sum"), Gaussian(2.0), 3.0, "user", "replace"),
        Release(label.format("flips"), RandomizedResponse(0.5), 2.0, "user", "replace"),
    ]
    accountant = Accountant(Budget(5, 1e-6, relation="replace"), noise=SeededNoise(1))
    whole = LocalGate(accountant, Plan(accountant.budget, releases))
    part = LabelledGate(LabelledGate(whole, "lists: "), suffix=", week 2")
    assert part.planned("flips") == releases[1] and part.planned("lists: sum, week 2") is None
    assert part.private is True and part.noise_sd("sum") == 6.0
    part.release("sum", sum_of(bound=Bound(1.0, 3.0)))
    part.release("flips", Bounded(np.ones(2), counted(2.0), norm="labels"))
    assert [each.label for each in accountant.releases] == [each.label for each in releases]
