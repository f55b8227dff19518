"""Two runs on neighbouring data, the second fed with the first one's noisy releases."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hushrec.algorithms import Billboard
from hushrec.data import Ratings
from hushrec.privacy import Accountant
from hushrec.privacy.testing import NoiseCall, RecordingNoise, ReplayNoise, SeededNoise
from hushrec.testing import exact_excess, moves
from tests.algorithms.cases import Case, hostile_data, ratings_of, rows_of

__all__ = ["exact_excess", "moves", "neighbours", "recorded_fit", "replayed_fit"]


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
