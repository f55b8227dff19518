"""A1 and A2: no release moves by more than its sensitivity between neighbours, and each one can.

The two runs share all earlier noisy releases, so what is compared is the value of each release as a
function of the rows, given what the world has already seen: exactly what its sensitivity is declared for.
Sums are exact, so nothing is allowed for rounding: a move that float64 cannot tell from the sensitivity is
compared in integers. Planting ``clip_factor = lambda norms, bound: 1.0`` fails every case with a clip;
dropping the factor 2 of replace fails A1 of that relation; doubling a sensitivity fails A2.
"""

import math

import pytest

from hushrec.kernels.threads import one_blas_thread
from hushrec.privacy.testing import SeededNoise
from hushrec.testing import replay, transcript
from tests.algorithms.cases import CASES, DOMAIN, Case
from tests.algorithms.neighbours import exact_excess, moves, neighbours

TELLS = 1e-12  # float64 tells from the sensitivity what is further from it than this


def check(case: Case, relation: str, pairs: int, seed: int, record) -> None:
    plan = case.estimator.plan(case.budget(relation), DOMAIN)
    releases = {release.label: release for release in plan.releases}
    worst = dict.fromkeys(releases, 0.0)
    with one_blas_thread():
        for ratings, others, noise_seed in neighbours(relation, pairs, seed):
            calls = transcript(case.estimator, plan, ratings, 1, SeededNoise(noise_seed))
            for other in others:
                again = replay(case.estimator, plan, other, 1, calls)
                moved = moves(calls, again, releases)
                assert moved.keys() == releases.keys()
                for label, distance in moved.items():
                    assert math.isfinite(distance), f"{label} holds what is no number"
                    if distance > 1 - TELLS:
                        excess = exact_excess(calls, again, label, releases[label])
                        assert excess <= 0, f"{label} moved by {distance} of its sensitivity"
                    worst[label] = max(worst[label], distance)
    tight = [label for label in worst if not label.startswith(tuple(case.loose))]
    record("largest move", max(worst.values()))
    record("releases", len(worst))
    record("comparisons", pairs * len(worst))
    if relation == "add-remove":
        for label in tight:
            assert worst[label] >= 0.999, f"{label} moved by {worst[label]:.9f} of its sensitivity only"
        record("smallest attained", min((worst[label] for label in tight), default=1.0))
        record("attained", len(tight))
        record("loose", len(worst) - len(tight))


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sensitivity_of_every_release(case: Case, relation: str, record_property) -> None:
    check(case, relation, case.pairs, 7, record_property)


@pytest.mark.full
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sensitivity_of_every_release_at_length(case: Case, relation: str, record_property) -> None:
    check(case, relation, 25 * case.pairs, 11, record_property)
