"""Weigh a public model by its benefit to donors, from released values and public ratings alone.

Each donor's likes or ratings are split into five parts; each in turn is held out and the others are folded
in. The public model is trained in five folds over donors. The weight is the mean of the best weight over
bootstrap samples of the donors. It shrinks towards 0 as if one more donor had found no benefit, and with the
agreement of donors and released values.

Donors are in the private training too, which favours the private model. A private model of likes is therefore
judged approximately as if the judging donors had not been trained on. A private model of ratings is not, so
its public weight is rather too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from hushrec.data import Ratings
from hushrec.data.splits import k_folds
from hushrec.evaluation.intervals import Estimate, Metric, estimates
from hushrec.public.likes import Released
from hushrec.public.ratings_model import ratings_model
from hushrec.serving.judged import Judged as Judged
from hushrec.serving.recommend import PublicPart, Recommender
from hushrec.serving.score_mixing import LISTED, lowered, mixed, ranks, standard, worth
from hushrec.serving.scoring import UserState, own_scores, scores_at
from hushrec.types import Array

#: Candidate weights.
GRID = np.linspace(0.0, 1.0, 11)
#: Folds over donors and over each donor's ratings; largest number of judges, chosen by a hash of their ids.
_FOLDS, _MOST_JUDGES = 5, 300
#: Bootstrap samples of the donors.
_RESAMPLES = 1000
#: Scores held in memory at once.
_SCORES_AT_ONCE = 1 << 22
_TINY = float(np.finfo(np.float64).tiny)
#: Weight of ratings of another population that agree fully with the released biases, without judges.
_UNJUDGED = 0.8
#: Sufficient agreement, in standard deviations of chance, if the noise is unknown.
_SURE = 3.0


class _Votes(NamedTuple):
    """Each judge's votes on each weight.

    Attributes
    ----------
    good : ndarray of shape (n_judges, n_weights)
        Benefit; higher is better.
    figure : ndarray of shape (n_judges, n_weights)
        Sums of squared errors, or of hits.
    number : ndarray of shape (n_judges,)
        Number of summed ratings or likes.
    """

    good: Array
    figure: Array
    number: Array

    @classmethod
    def none(cls, n_judges: int) -> _Votes:
        return cls(np.zeros((n_judges, len(GRID))), np.zeros((n_judges, len(GRID))), np.zeros(n_judges))

    @property
    def best(self) -> float:
        return float(self.good.sum(axis=0).max())


def judge(
    private: Recommender,
    donors: Ratings,
    external: Ratings | None,
    state: Mapping[str, Array],
    trained: Ratings | None = None,
) -> tuple[PublicPart | None, Judged]:
    """Return the public model with its weight, or None if that is 0, and the donors' verdict.

    Parameters
    ----------
    private : Recommender
    donors, external : Ratings
        All public ratings of the same, and of another population.
    state : mapping of str to ndarray
        State of the private training.
    trained : Ratings, optional
        The public users who are among the private ones; by default none.
    """

    def own_part(rows: Ratings) -> Ratings:
        likes = private.scores == "likes"
        return (
            rows.liked(getattr(private.estimator, "like_threshold", None)) if likes else rows.starred()
        ).rated()

    trained = donors.rows([]) if trained is None else trained
    released = Released(private, donors, trained, state)
    donors = replace(own_part(donors), splits=())  # they are split anew here
    external = None if external is None else own_part(external)
    judges = donors.rows(np.sort(np.argsort(donors.user_keys, kind="stable")[:_MOST_JUDGES]), keyed=True)
    others = [None] if external is None else [None, external]
    with_features = [False] if donors.domain.item_features is None else [False, True]
    if private.scores == "ratings":
        fit = partial(ratings_model, private=private, state=state)
        ways = [
            _Way(other, with_features[-1], partial(fit, external=other), lambda gone: private)
            for other in others
        ]
    else:
        ways = [
            _Way(other, has, partial(released.model, external=other, features=has), released.without)
            for other in others
            for has in with_features
        ]
    votes = [_votes(private.scores, donors, judges, way) for way in ways]
    chosen = int(np.argmax([vote.best for vote in votes]))
    agreement = _agreement(private, donors, released.weights)
    doubt = judges.n_users / (judges.n_users + 1)  # as if one more judge had found no benefit
    weight = _rounded(bagged(votes[chosen].good) * doubt * agreement**2)
    part = PublicPart(ways[chosen].model(donors), weight) if weight else None
    used = ways[chosen].external is not None, ways[chosen].features
    return part, _judged(private.scores, votes[chosen], weight, donors.n_users, used, agreement)


def unjudged(
    private: Recommender, external: Ratings, state: Mapping[str, Array]
) -> tuple[PublicPart | None, Judged]:
    """Return the public model of ratings of another population, without donors to judge it.

    Its weight grows with its agreement with the released item biases. These show nothing of users' tastes, so
    it stays below 1.
    """
    external = replace(external.rated(), splits=())
    agreement = _agreement(private, external)
    weight = _rounded(_UNJUDGED * agreement**2)
    model = ratings_model(external.rows([]), external, private, state)
    used = True, external.domain.item_features is not None
    judged = _judged("ratings", _Votes.none(0), weight, 0, used, agreement)
    return PublicPart(model, weight) if weight else None, judged


class _Way(NamedTuple):
    """A public model that donors may choose, fitted to ``external`` ratings, and to item features or not.

    ``without`` returns the private model as if some donors had not been trained on.
    """

    external: Ratings | None
    features: bool
    model: Callable[[Ratings], Recommender]
    without: Callable[[Ratings], Recommender]


def _rounded(weight: float) -> float:
    steps = len(GRID) - 1
    return round(weight * steps) / steps


def bagged(good: Array) -> float:
    """Return the mean of the best weight over bootstrap samples of the judges, given each weight's
    benefit."""
    judges = len(good)
    if judges < 2:
        return 0.0
    drawn = np.random.default_rng(0).multinomial(judges, np.full(judges, 1 / judges), size=_RESAMPLES)
    return float(GRID[np.argmax(drawn @ good, axis=1)].mean())


def _judged(
    scores: str, votes: _Votes, weight: float, donors: int, used: tuple[bool, bool], agreement: float
) -> Judged:
    columns = [0, len(GRID) - 1, round(weight * (len(GRID) - 1))]

    def mean(weights: Array, figures: Array) -> float:
        count = float(weights @ votes.number)
        found = float(weights @ figures) / count if count else math.nan
        return math.sqrt(found) if scores == "ratings" else found

    metrics = [
        Metric(
            name, partial(mean, figures=votes.figure[:, column]), high=math.inf if scores == "ratings" else 1
        )
        for name, column in zip(("private", "public", "together"), columns, strict=True)
    ]
    resamples = _RESAMPLES if votes.number.any() else 0
    intervals = estimates(metrics, lambda weights: weights, len(votes.number), resamples, 0)
    return Judged(
        job="ratings" if scores == "ratings" else "lists",
        donors=donors,
        external=used[0],
        features=used[1],
        agreement=agreement,
        weight=weight,
        metric="rmse" if scores == "ratings" else f"recall@{LISTED}",
        **{name: _plain(interval) for name, interval in intervals.items()},
    )


def _plain(estimate: Estimate) -> dict[str, float | None]:
    figures = asdict(estimate).items()
    return {name: None if math.isnan(value) else value for name, value in figures}


# ---------------------------------------------------------------------- the votes of each judge


def _votes(scores: str, donors: Ratings, judges: Ratings, way: _Way) -> _Votes:
    """Judge both models on donors that the public one was not fitted to."""
    fold = np.arange(donors.n_users) % _FOLDS
    place = donors.user_index(judges)
    votes = _Votes.none(judges.n_users)
    for number in range(min(_FOLDS, donors.n_users)):
        known, gone = (donors.rows(which, keyed=True) for which in (fold != number, fold == number))
        (chosen,) = np.nonzero(fold[place] == number)
        enough = known.n_users or (scores == "ratings" and way.external is not None)
        if not (len(chosen) and enough):
            continue
        private, public = way.without(gone), way.model(known)
        held_judges = judges.rows(chosen, keyed=True)
        for history, held in k_folds(held_judges, _FOLDS, seed=0):
            ask = _ratings_votes if scores == "ratings" else _lists_votes
            history, held = history.aligned_to(held_judges), held.aligned_to(held_judges)
            for totals, added in zip(votes, ask(private, public, history, held), strict=True):
                totals[chosen] += added
    if scores == "ratings":
        return votes
    means = np.maximum(votes.number, 1)[:, None]  # every judge counts the same
    return _Votes(votes.good / means, votes.figure / means, (votes.number > 0).astype(np.float64))


def _ratings_votes(private: Recommender, public: Recommender, history: Ratings, held: Ratings) -> _Votes:
    rows = np.repeat(np.arange(held.n_users), np.diff(held.matrix.indptr))
    low, high = private.domain.low, private.domain.high
    one, other = (
        scores_at(model.arrays, model.fold_in(history), rows, held.matrix.indices)
        for model in (private, public)
    )
    errors = np.stack([np.clip(mixed(one, other, w), low, high) - held.matrix.data for w in GRID], axis=1)
    squared = np.stack([np.bincount(rows, column, held.n_users) for column in (errors**2).T], axis=1)
    return _Votes(-squared, squared, np.diff(held.matrix.indptr).astype(np.float64))


def _lists_votes(private: Recommender, public: Recommender, history: Ratings, held: Ratings) -> _Votes:
    shape = held.n_users, len(GRID)
    good, hits, step = np.zeros(shape), np.zeros(shape), max(1, _SCORES_AT_ONCE // held.n_items)
    states = private.fold_in(history), public.fold_in(history)
    for start in range(0, held.n_users, step):
        users = slice(start, start + step)
        scores = _standard(private.arrays, states[0].at(users)), _standard(public.arrays, states[1].at(users))
        for row, (one, other) in enumerate(zip(*scores, strict=True), start):
            liked = _row(held, row)
            for at, weight in enumerate(GRID):
                rank = ranks(mixed(one, other, weight), _row(history, row), liked)
                good[row, at] = worth(rank).sum()
                hits[row, at] = (rank < LISTED).sum()
    return _Votes(good, hits, np.diff(held.matrix.indptr).astype(np.float64))


def _row(ratings: Ratings, row: int) -> Array:
    matrix = ratings.matrix
    return matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]


def _standard(arrays: Any, state: UserState) -> Array:
    supported = None if "pair_items" in arrays else arrays.get("supported")
    return standard(lowered(own_scores(arrays, state), supported))[0]


def stacked(donors: Ratings, external: Ratings | None) -> Ratings:
    """Return the rows of both with numbers as ids: ids of another population name no user here."""
    if external is None:
        return donors
    rows = sp.csr_array(sp.vstack([donors.matrix, external.matrix], format="csr"))
    rows.indices, rows.indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
    ids = pa.array(map(str, range(rows.shape[0])), pa.large_string())
    return Ratings(donors.domain, rows, ids, ids)


# ---------------------------------------------------------------------- whether donors are like the users


def _agreement(
    private: Recommender, donors: Ratings, released: tuple[float, Array, float] | None = None
) -> float:
    """Return the agreement of donors with the private users, in [0, 1]; 1 if noise hides it.

    The ratio of the measured agreement to the one expected of the same population, both in standard
    deviations over random orders of the items, with one deviation in the donors' favour.
    """
    if private.scores == "ratings":
        measured, expected = _of_ratings(np.asarray(private.arrays["item_bias"]), donors)
    else:
        measured, expected = _of_likes(np.asarray(private.arrays["item_bias"]), donors, released)
    agreement = measured + 1
    return float(np.clip(agreement, 0.0, expected) / expected) if expected > 0 else float(agreement > 0)


def _of_likes(
    popularity: Array, donors: Ratings, released: tuple[float, Array, float] | None
) -> tuple[float, float]:
    """Return the measured and the expected correlation of released popularity with the donors'."""
    n_users, popularity, noise_sd = (0.0, popularity, 0.0) if released is None else released
    if not donors.n_users:
        return 0.0, _SURE
    matrix = donors.matrix
    lengths = np.repeat(np.diff(matrix.indptr), np.diff(matrix.indptr))
    sums, n_items = np.bincount(matrix.indices, 1 / np.sqrt(lengths), donors.n_items), donors.n_items
    squares = np.bincount(matrix.indices, 1 / lengths, n_items)
    shares, count = sums / donors.n_users, donors.n_users
    spread = float(shares.var())
    if not (spread > 0 and float(np.var(popularity)) > 0):
        return 0.0, 0.0
    measured = float(np.corrcoef(popularity, shares)[0, 1]) * np.sqrt(n_items)
    if released is None:
        return measured, _SURE
    chance = float((squares / count - shares**2).mean()) / max(count - 1, 1)
    true = max(spread - chance, 0.0)
    signal = n_users**2 * true
    return measured, np.sqrt(n_items * signal / (signal + noise_sd**2) * true / spread)


def _of_ratings(biases: Array, donors: Ratings) -> tuple[float, float]:
    """Return the measured and the expected agreement of released biases with the donors' ratings."""
    matrix, counts = donors.matrix, np.diff(donors.matrix.indptr)
    rows = np.repeat(np.arange(donors.n_users), counts)

    def deviations(values: Array) -> Array:
        return values - (np.bincount(rows, values, donors.n_users) / np.maximum(counts, 1))[rows]

    rated, known = deviations(matrix.data.astype(np.float64)), deviations(biases[matrix.indices])
    sums = np.bincount(matrix.indices, rated, donors.n_items)
    # variance of sums @ biases over all permutations of the biases (Hoeffding 1951, theorem 2)
    variance = float(sums.var() * biases.var()) * donors.n_items**2 / max(donors.n_items - 1, 1)
    chance = max(math.sqrt(variance), _TINY)
    return float(known @ rated) / chance, float(known @ known) / chance
