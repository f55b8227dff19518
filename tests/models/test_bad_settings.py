"""D4: settings that are no numbers in range, no words of the list or no booleans: refused in one sentence."""

import math
from dataclasses import MISSING, Field, fields
from typing import Any

import numpy as np
import pytest

from hushrec import checks
from hushrec.data import Domain
from hushrec.errors import InputError
from hushrec.models import ESTIMATORS, ItemBias, PrivateALS
from hushrec.papers.dpals import DPALS
from hushrec.papers.frank_wolfe import PrivateFrankWolfe, PrivateProjectedGradient, PrivateSVD
from hushrec.privacy import Budget
from tests.models.cases import CASES

NOT_NUMBERS = [math.nan, math.inf, -math.inf, -1e308, "1", True, 1j, [1.0], {}, 10**400, np.array([1.0, 2.0])]
NOT_WORDS = ["nonsense", "", None, 1, True, math.nan, ["random"]]
NOT_TRUTHS = ["yes", 1, 0.0, None, math.nan, [True]]


def bad_values(field) -> list:
    if field.name in ("threshold", "like_threshold"):  # any number will do
        return [value for value in NOT_NUMBERS if value is not NOT_NUMBERS[3]]
    if "bool" in field.type:
        return NOT_TRUTHS
    if field.type.startswith(("str", "Literal", "Mechanism")):
        return NOT_WORDS
    return NOT_NUMBERS if "None" in field.type else [*NOT_NUMBERS, None]


def settings_in(cls: Any) -> list[Field]:
    """The fields of a model, and those of its tuning."""
    return [field for layer in (cls, getattr(cls, "tuning", None)) if layer for field in fields(layer)]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_estimator_takes_them(name: str, record_property) -> None:
    estimator_class, accepted = ESTIMATORS[name], []
    needed = {field.name: 30.0 for field in fields(estimator_class) if field.default is MISSING}
    for field in settings_in(estimator_class):
        for value in bad_values(field):
            try:
                estimator_class.of(needed | {field.name: value})
            except InputError as error:
                assert "\n" not in str(error) and len(str(error)) < 600
            except Exception as error:
                accepted.append((field.name, repr(value)[:30], repr(error)[:80]))
            else:
                accepted.append((field.name, repr(value)[:30]))
            record_property("refused", 1)
    assert not accepted, "\n".join(map(str, accepted))


CLIPPED = {
    ItemBias: "clip",
    DPALS: "clip",
    PrivateALS: "bias_clip",
    PrivateFrankWolfe: "residual_clip",
    PrivateSVD: "row_clip",
    PrivateProjectedGradient: "row_clip",
}


@pytest.mark.parametrize("bound", [1.79e308, 1e31, 1e-31])
@pytest.mark.parametrize("estimator_class", CLIPPED)
def test_a_clip_whose_square_overflows_is_not_taken_for_none(estimator_class, bound) -> None:
    """Taken for no clip, it had no noise scale: at epsilon 1, mu of a step was 80."""
    needed = {field.name: 30.0 for field in fields(estimator_class) if field.default is MISSING}
    with pytest.raises(InputError, match=CLIPPED[estimator_class]):
        estimator_class.of(needed | {CLIPPED[estimator_class]: bound})


@pytest.mark.parametrize("bound", [1e30, 1e-30])
@pytest.mark.parametrize("estimator_class", CLIPPED)
@pytest.mark.parametrize("rating_range", [(-1e30, 1e30), (0.0, 1e-38)])
def test_the_widest_clips_and_ranges_have_finite_sensitivities(estimator_class, bound, rating_range) -> None:
    needed = {field.name: 30.0 for field in fields(estimator_class) if field.default is MISSING}
    estimator = estimator_class.of(needed | {CLIPPED[estimator_class]: bound})
    domain = Domain(range(5), rating_range)
    for relation in ("add-remove", "replace"):
        for release in estimator.plan(Budget(1.0, 1e-6, relation=relation), domain).releases:
            assert 0 < release.sensitivity < math.inf and 0 < release.noise_sd < math.inf


@pytest.mark.parametrize("name", sorted({case.estimator.name for case in CASES if case.unit == "user"}))
def test_the_ends_of_a_range_can_be_planned(name: str) -> None:
    """A setting at an end of its range gives a plan with finite noise, or is refused in a sentence."""
    estimator_class = ESTIMATORS[name]
    needed = {field.name: 30.0 for field in fields(estimator_class) if field.default is MISSING}
    needed = {key: value for key, value in needed.items() if key not in ("ratings", "lists")}
    tuning = type(getattr(estimator_class, "tuning", None))
    planned = tried = 0
    rules = checks._rules(estimator_class) | (checks._rules(tuning) if tuning is not type(None) else {})
    for field, rule in rules.items():
        if rule.words or rule.kind not in (int, float) or rule.interval == checks._ANY:
            continue
        low, high = (float(end) for end in rule.interval[1:-1].split(","))
        ends = [low] * (rule.interval[0] == "[") + [high] * (rule.interval[-1] == "]")
        for end in ends:
            tried += 1
            try:
                estimator = estimator_class.of(needed | {field: rule.kind(end)})
                releases = estimator.plan(Budget(1.0, 1e-6), Domain(range(5), (1, 5))).releases
            except InputError:
                continue
            planned += 1
            for release in releases:
                assert 0 < release.noise_sd < math.inf, (field, end, release.label)
    assert planned or not tried, "no end of a range could be planned"
