"""Choice of settings: freely on generated or public ratings, or privately on the private ones.

The private choice (Papernot and Steinke 2022) makes a random number of runs, each with random settings and a
private score, and releases the best model alone. The whole cost is charged before the first run
(:class:`hushrec.privacy.RepeatAndSelect`).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from hushrec.data.splits import leave_k_out
from hushrec.errors import InputError
from hushrec.evaluation.metrics import user_errors
from hushrec.kernels.fixed_point import spacing, truncated
from hushrec.privacy import Accountant, Bounded, Budget, RepeatAndSelect, counted
from hushrec.progress import progress_bar
from hushrec.training.named import check_run, train
from hushrec.training.run import check

if TYPE_CHECKING:
    from hushrec.data import Ratings
    from hushrec.models import Model

#: Ratings of each user that are set aside for the score. No study chose it.
_HELD_OUT = 3
#: Part of a run's budget (of mu squared) for its score. No study chose it.
_SCORE_SHARE = 0.1
_LABEL = "best of a random number of runs"

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Trial:
    settings: Settings
    rmse: float


def grid(choices: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


def try_all(
    ratings: Ratings,
    model: str,
    candidates: Sequence[Settings],
    budget: Budget,
    *,
    draws: int = 3,
    seed: int = 0,
    progress: bool = False,
) -> list[Trial]:
    """Try every candidate on generated or public ratings, best first; costs no privacy.

    ``budget`` is that of the later run. Squared errors are averaged over ``draws`` runs of each candidate.
    """
    _check_candidates(ratings, model, candidates, Accountant(budget, data_is_public=True))
    history, held_out = leave_k_out(ratings, _HELD_OUT, seed=seed)
    trials = []
    with progress_bar(progress, len(candidates) * draws, "trying", "runs") as advance:
        for settings in candidates:
            squared = []
            for draw in range(draws):
                accountant = Accountant(budget, data_is_public=True)
                trained = train(model, history, accountant, settings=settings, seed=seed + draw)
                errors = trained.predict_pairs(history, held_out) - held_out.matrix.data
                squared.append(float(np.nanmean(errors**2)))  # NaN: a purchase without a rating
                advance(1)
            trials.append(Trial(settings, math.sqrt(np.mean(squared))))
    return sorted(trials, key=lambda trial: trial.rmse)


def tune(
    ratings: Ratings,
    model: str,
    candidates: Sequence[Settings],
    accountant: Accountant,
    *,
    mean_runs: float = 10.0,
    seed: int = 0,
) -> Model:
    """Try a random number of candidates on private ratings and release the best model; spends the budget.

    Parameters
    ----------
    ratings : Ratings
        The private rows; the last model is trained on all but three of each user's ratings.
    model : str
        A key of ``hushrec.models.ESTIMATORS`` that predicts ratings.
    candidates : sequence of mappings
        Settings by name, public, from which each run draws one with equal chances.
    accountant : Accountant
        The choice spends the whole budget, which is for users and reserves some failure probability: all of
        delta if no other release is made, as ``Budget(5, 1e-6, failure=1e-6)``.
    mean_runs : float
        Expected number of runs, greater than 1.
    seed : int
        Seeds initialisation and the split.

    Privacy
    -------
    Unit: user. Relation: the budget's. Each run is a composition of Gaussian releases: those of the model,
    and a score of two numbers with sensitivity sqrt(2) under both relations. These are the sum over users of
    their mean squared error, clipped to 1 in units of half the rating range squared, and the number of users
    with held-out ratings. The number of runs and the settings come from the operating system's generator.
    Charged: `RepeatAndSelect` (docs/proofs/selection.md).

    Examples
    --------
    >>> ratings = hushrec.realistic(100, 20, 1500, seed=0)
    >>> budget = hushrec.Budget(epsilon=8, delta=1e-6, failure=1e-6)
    >>> candidates = [{"clip": 0.3}, {"clip": 0.6}]
    >>> model = hushrec.tune(ratings, "dpals", candidates, hushrec.Accountant(budget), mean_runs=2)
    >>> model.privacy.private
    True
    """
    budget = accountant.budget
    accountant.part()  # refuse an accountant that is used up
    mechanism = RepeatAndSelect.within(budget, mean_runs)
    part = Budget(mechanism.run_epsilon, mechanism.delta, budget.unit, budget.relation)
    one_run = Accountant(part, data_is_public=accountant.data_is_public)
    _check_candidates(ratings, model, candidates, one_run)
    history, held_out = leave_k_out(ratings, _HELD_OUT, seed=seed)

    def run(inner: Accountant) -> tuple[Model, float]:
        settings = candidates[secrets.randbelow(len(candidates))]
        share = (1 - _SCORE_SHARE) if inner.budget.private else 1.0
        trained = train(model, history, inner, settings=settings, seed=seed, budget_fraction=share)
        return trained, _score(trained, history, held_out, inner)

    best = accountant.select(mechanism, _LABEL, run)
    public = (*best.privacy.public, "the settings to choose from")
    statement = accountant.statement(
        public, best.privacy.notes, exact_arithmetic=best.privacy.exact_arithmetic
    )
    return replace(best, privacy=statement)


def score_aggregate(trained: Model, history: Ratings, held_out: Ratings) -> np.ndarray:
    """Local: (sum over users of their clipped mean squared error, number of users), shape (2,).

    In units of half the rating range squared; a user moves each by at most 1.
    """
    predicted = trained.predict_pairs(history, held_out)
    errors = user_errors(predicted, held_out.matrix.data, held_out.matrix.indptr)
    counts = errors["rated"]
    means = errors["squared"][counts > 0] / counts[counts > 0] / held_out.domain.half_width**2
    return np.array([truncated(np.minimum(means, 1.0), spacing(1.0)).sum(), float((counts > 0).sum())])


def _score(trained: Model, history: Ratings, held_out: Ratings, inner: Accountant) -> float:
    budget = inner.budget
    exact = Bounded(score_aggregate(trained, history, held_out), counted(math.sqrt(2.0)))
    squared, users = inner.release(exact, budget.share(inner.part()), "score")
    return float(squared / max(users, 1.0))


def _check_candidates(
    ratings: Ratings, model: str, candidates: Sequence[Settings], accountant: Accountant
) -> None:
    """Refuse what a run could refuse, for every candidate."""
    if not candidates:
        raise InputError("There is nothing to choose from; pass settings to try, for example rank=4,8.")
    if accountant.budget.unit != "user":
        raise InputError("The score counts users", parameter="unit", value="user")
    for settings in candidates:
        estimator = check_run(model, accountant.budget, ratings.domain, None, settings).estimators[0]
        check(estimator, ratings, accountant)
        if estimator.scores != "ratings":
            raise InputError(
                f"{model} predicts no ratings, and the score needs them; pass a model of ratings."
            )
