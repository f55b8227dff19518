"""Weigh a public model of ratings by its benefit to donors, from released values and public ratings alone.

Five folds over donors train the public model, and five over each donor's ratings judge it. The weight is the
mean of the best weight over bootstrap samples of the donors. It shrinks as if one more donor had found no
benefit, and with the agreement of donors and released values. It is rather too small: donors are in the
private training too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from hushrec.data import Ratings
from hushrec.data.splits import k_folds
from hushrec.evaluation.intervals import RESAMPLES, Estimate, Metric, estimates
from hushrec.public.ratings_model import ratings_model
from hushrec.serving.judged import Judged as Judged
from hushrec.serving.recommend import PublicPart, Recommender
from hushrec.serving.score_mixing import mixed
from hushrec.serving.scoring import scores_at
from hushrec.types import Array

#: Candidate weights.
GRID = np.linspace(0.0, 1.0, 11)
#: Folds over donors and over each donor's ratings; largest number of judges, chosen by a hash of their ids.
_FOLDS, _MOST_JUDGES = 5, 300
_TINY = float(np.finfo(np.float64).tiny)
#: Weight of ratings of another population that agree fully with the released biases, without judges.
_UNJUDGED = 0.8


class _Votes(NamedTuple):
    """Each judge's votes on each weight.

    Attributes
    ----------
    errors : ndarray of shape (n_judges, n_weights)
        Sums of squared errors.
    number : ndarray of shape (n_judges,)
        Number of summed ratings.
    """

    errors: Array
    number: Array

    @classmethod
    def none(cls, n_judges: int) -> _Votes:
        return cls(np.zeros((n_judges, len(GRID))), np.zeros(n_judges))


def judge(
    private: Recommender, donors: Ratings, external: Ratings | None, state: Mapping[str, Array]
) -> tuple[PublicPart | None, Judged]:
    """Return the public model with its weight, or None if that is 0, and the donors' verdict.

    Parameters
    ----------
    private : Recommender
    donors, external : Ratings
        All public ratings of the same, and of another population.
    state : mapping of str to ndarray
        State of the private training.
    """
    donors = replace(donors.starred().rated(), splits=())  # they are split anew here
    judges = donors.rows(np.sort(np.argsort(donors.user_keys, kind="stable")[:_MOST_JUDGES]), keyed=True)
    fit = partial(ratings_model, private=private, state=state)
    ways = [partial(fit, external=None)]
    if external is not None:
        ways.append(partial(fit, external=external.starred().rated()))
    votes = [_votes(private, donors, judges, way, number > 0) for number, way in enumerate(ways)]
    chosen = int(np.argmin([vote.errors.sum(axis=0).min() for vote in votes]))
    agreement = _agreement(private, donors)
    doubt = judges.n_users / (judges.n_users + 1)  # as if one more judge had found no benefit
    weight = _rounded(bagged(votes[chosen].errors) * doubt * agreement**2)
    part = PublicPart(ways[chosen](donors), weight) if weight else None
    return part, _judged(votes[chosen], weight, donors, chosen > 0, agreement)


def unjudged(
    private: Recommender, external: Ratings, state: Mapping[str, Array]
) -> tuple[PublicPart | None, Judged]:
    """Return the public model of ratings of another population, without donors to judge it.

    Its weight grows with its agreement with the released item biases. It stays below 1: they show no tastes.
    """
    external = replace(external.rated(), splits=())
    agreement, nobody = _agreement(private, external), external.rows([])
    weight = _rounded(_UNJUDGED * agreement**2)
    model = ratings_model(nobody, external, private, state)
    judged = _judged(_Votes.none(0), weight, nobody, True, agreement)
    return PublicPart(model, weight) if weight else None, judged


def _rounded(weight: float) -> float:
    steps = len(GRID) - 1
    return round(weight * steps) / steps


def bagged(errors: Array) -> float:
    """Return the mean of the best weight over bootstrap samples of the judges, given each weight's errors."""
    judges = len(errors)
    if judges < 2:
        return 0.0
    drawn = np.random.default_rng(0).multinomial(judges, np.full(judges, 1 / judges), size=RESAMPLES)
    return float(GRID[np.argmin(drawn @ errors, axis=1)].mean())


def _judged(votes: _Votes, weight: float, donors: Ratings, external: bool, agreement: float) -> Judged:
    columns = [0, len(GRID) - 1, round(weight * (len(GRID) - 1))]

    def rmse(weights: Array, errors: Array) -> float:
        count = float(weights @ votes.number)
        return math.sqrt(float(weights @ errors) / count) if count else math.nan

    metrics = [
        Metric(name, partial(rmse, errors=votes.errors[:, column]), high=math.inf)
        for name, column in zip(("private", "public", "together"), columns, strict=True)
    ]
    resamples = RESAMPLES if votes.number.any() else 0
    intervals = estimates(metrics, lambda weights: weights, len(votes.number), resamples, 0)
    return Judged(
        donors=donors.n_users,
        external=external,
        features=donors.domain.item_features is not None,
        agreement=agreement,
        weight=weight,
        **{name: _plain(interval) for name, interval in intervals.items()},
    )


def _plain(estimate: Estimate) -> dict[str, float | None]:
    figures = asdict(estimate).items()
    return {name: None if math.isnan(value) else value for name, value in figures}


def _votes(
    private: Recommender,
    donors: Ratings,
    judges: Ratings,
    fit: Callable[[Ratings], Recommender],
    external: bool,
) -> _Votes:
    """Judge both models on donors that the public one was not fitted to."""
    fold, place = np.arange(donors.n_users) % _FOLDS, donors.user_index(judges)
    votes = _Votes.none(judges.n_users)
    for number in range(min(_FOLDS, donors.n_users)):
        known = donors.rows(fold != number, keyed=True)
        (chosen,) = np.nonzero(fold[place] == number)
        if not (len(chosen) and (known.n_users or external)):
            continue
        public, held_judges = fit(known), judges.rows(chosen, keyed=True)
        for history, held in k_folds(held_judges, _FOLDS, seed=0):
            history, held = history.aligned_to(held_judges), held.aligned_to(held_judges)
            votes.errors[chosen] += _errors(private, public, history, held)
            votes.number[chosen] += np.diff(held.matrix.indptr)
    return votes


def _errors(private: Recommender, public: Recommender, history: Ratings, held: Ratings) -> Array:
    """Return sums of squared errors, shape (n_users, n_weights)."""
    rows = np.repeat(np.arange(held.n_users), np.diff(held.matrix.indptr))
    low, high = private.domain.low, private.domain.high
    one, other = (
        scores_at(model.arrays, model.fold_in(history), rows, held.matrix.indices)
        for model in (private, public)
    )
    errors = [np.clip(mixed(one, other, w), low, high) - held.matrix.data for w in GRID]
    return np.stack([np.bincount(rows, each**2, held.n_users) for each in errors], axis=1)


def stacked(donors: Ratings, external: Ratings | None) -> Ratings:
    """Return the rows of both with numbers as ids: ids of another population name no user here."""
    if external is None:
        return donors
    rows = sp.csr_array(sp.vstack([donors.matrix, external.matrix], format="csr"))
    rows.indices, rows.indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
    ids = pa.array(map(str, range(rows.shape[0])), pa.large_string())
    return Ratings(donors.domain, rows, ids, ids)


def _agreement(private: Recommender, donors: Ratings) -> float:
    """Return the agreement of donors with the private users, in [0, 1]; 1 if noise hides it.

    The ratio of the measured agreement to the one expected of the same population, both in standard
    deviations over random orders of the items, with one deviation in the donors' favour.
    """
    biases = np.asarray(private.arrays["item_bias"])
    matrix, counts = donors.matrix, np.diff(donors.matrix.indptr)
    rows = np.repeat(np.arange(donors.n_users), counts)

    def deviations(values: Array) -> Array:
        return values - (np.bincount(rows, values, donors.n_users) / np.maximum(counts, 1))[rows]

    rated, known = deviations(matrix.data.astype(np.float64)), deviations(biases[matrix.indices])
    sums = np.bincount(matrix.indices, rated, donors.n_items)
    # variance of sums @ biases over all permutations of the biases (Hoeffding 1951, theorem 2)
    variance = float(sums.var() * biases.var()) * donors.n_items**2 / max(donors.n_items - 1, 1)
    chance = max(math.sqrt(variance), _TINY)
    measured, expected = float(known @ rated) / chance + 1, float(known @ known) / chance
    return float(np.clip(measured, 0.0, expected) / expected) if expected > 0 else float(measured > 0)
