"""A1 and A2: no release moves by more than its sensitivity between neighbours, and each one can.

The two runs share all earlier noisy releases, so what is compared is the value of each release as a
function of the rows, given what the world has already seen: exactly what its sensitivity is declared for.
Planting ``clip_factor = lambda norms, bound: 1.0`` fails every case with a clip; dropping the factor 2 of
replace fails A1 of that relation; doubling a sensitivity fails A2.
"""

import pytest

from tests.algorithms.cases import CASES, Case
from tests.algorithms.neighbours import moved, neighbours, recorded_fit, replayed_fit

SLACK = 1e-13  # the rounding of this comparison: sums are exact


def worst_moves(
    case: Case, relation: str, pairs: int, seed: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Largest move of each release over many pairs, and what the plan allows, in units of the noise."""
    worst: dict[str, float] = {}
    allowed: dict[str, float] = {}
    for ratings, others, noise_seed in neighbours(relation, pairs, seed):
        _, calls, accountant = recorded_fit(case, ratings, relation, noise_seed)
        allowed = {
            release.label: release.mu if release.epsilon is None else release.epsilon
            for release in accountant.releases
        }
        for other in others:
            _, again = replayed_fit(case, other, relation, calls)
            for label, distance in moved(calls, again).items():
                worst[label] = max(worst.get(label, 0.0), distance)
    return worst, allowed


def check(case: Case, relation: str, pairs: int, seed: int) -> None:
    worst, allowed = worst_moves(case, relation, pairs, seed)
    assert set(worst) == set(allowed)
    for label, distance in worst.items():
        assert distance <= allowed[label] * (1 + SLACK), f"{label} moved by {distance / allowed[label]:.12f}"
        if relation == "add-remove" and not any(label.startswith(start) for start in case.loose):
            assert distance >= 0.999 * allowed[label], (
                f"{label} moved by {distance / allowed[label]:.9f} only"
            )


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sensitivity_of_every_release(case: Case, relation: str) -> None:
    check(case, relation, pairs=case.pairs, seed=7)


@pytest.mark.full
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sensitivity_of_every_release_at_length(case: Case, relation: str) -> None:
    check(case, relation, pairs=5000, seed=11)
