"""Two runs on neighbouring data, the second fed with the first one's noisy releases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

import numpy as np

from hushrec.algorithms import Billboard
from hushrec.data import Ratings
from hushrec.privacy import Accountant, Laplace, Release
from hushrec.privacy.testing import NoiseCall, RecordingNoise, ReplayNoise, SeededNoise
from tests.algorithms.cases import Case, hostile_data, ratings_of, rows_of


def recorded_fit(
    case: Case, ratings: Ratings, relation: str, seed: int
) -> tuple[Billboard, list[NoiseCall], Accountant]:
    """Train with seeded noise; every value that reached the gate is kept."""
    noise = RecordingNoise(SeededNoise(seed))
    accountant = Accountant(case.budget(relation), noise=noise)
    return case.estimator.fit(ratings, accountant, seed=1), noise.calls, accountant


def replayed_fit(
    case: Case, ratings: Ratings, relation: str, calls: list[NoiseCall]
) -> tuple[Billboard, list[NoiseCall]]:
    """Train on other data, the gate returning what it returned in the recorded run."""
    noise = RecordingNoise(ReplayNoise(calls))
    billboard = case.estimator.fit(ratings, Accountant(case.budget(relation), noise=noise), seed=1)
    return billboard, noise.calls


def neighbours(relation: str, pairs: int, seed: int) -> Iterator[tuple[Ratings, list[Ratings], int]]:
    """A data set and its neighbours: each of its users left out, or replaced by another row."""
    rng = np.random.default_rng(seed)
    done = 0
    while done < pairs:
        users = hostile_data(rng)
        others = []
        for name in users:
            changed = {key: rows for key, rows in users.items() if key != name}
            if relation == "replace":
                changed = users | {name: rows_of(name, rng, int(rng.integers(0, 5)))}
            others.append(ratings_of(changed))
        yield ratings_of(users), others, int(rng.integers(2**31))
        done += len(others)


def moves(
    first: Iterable[NoiseCall], second: Iterable[NoiseCall], releases: dict[str, Release]
) -> dict[str, float]:
    """How far each release moved, in units of its sensitivity (streamed blocks taken together)."""
    powers: dict[str, float] = {}
    for one, other in zip(first, second, strict=True):
        assert (one.kind, one.label) == (other.kind, other.label)
        change = np.abs(one.value.astype(np.float64) - other.value) * _weight(one, releases[one.label])
        powers[one.label] = powers.get(one.label, 0.0) + float((change ** _power(one)).sum())
    roots = {call.label: _power(call) for call in first}
    return {label: power ** (1 / roots[label]) for label, power in powers.items()}


def exact_excess(
    first: Iterable[NoiseCall], second: Iterable[NoiseCall], label: str, release: Release
) -> Fraction:
    """Norm of the move, to its power, less that of the sensitivity: in integers, without any rounding."""
    total = Fraction(0)
    for one, other in zip(first, second, strict=True):
        if one.label != label:
            continue
        power = _power(one)
        weight = np.broadcast_to(_weight(one, release) * release.sensitivity, one.value.shape)
        for before, after, factor in zip(one.value.flat, other.value.flat, weight.flat):
            if before != after:
                change = abs(Fraction(float(before)) - Fraction(float(after)))
                total += _simple(float(factor) ** power) * change**power
    return total - Fraction(release.sensitivity) ** (1 if isinstance(release.mechanism, Laplace) else 2)


def _power(call: NoiseCall) -> int:
    return 2 if call.kind == "gaussian" else 1


def _weight(call: NoiseCall, release: Release) -> np.ndarray:
    """What a move of an entry counts, in sensitivities: less where the entry gets more noise."""
    return release.mechanism.noise_multiplier / call.amount


def _simple(square: float) -> Fraction:
    """A factor as it is meant: 1, 2 (an entry off the diagonal), or what was declared."""
    near = Fraction(square).limit_denominator(64)
    return near if abs(float(near) - square) < 1e-12 * square else Fraction(square)
