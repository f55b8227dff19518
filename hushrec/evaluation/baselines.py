"""Baselines of a model without privacy cost, computed from its own released values.

Users' own means compare with predictions, item popularity with lists. The result of `popular` with the
whole budget is simulated, and private like all of an evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hushrec.data import Ratings, Store
from hushrec.evaluation.metrics import Evaluation, evaluate
from hushrec.evaluation.user_metrics import METRICS
from hushrec.models.baselines import ItemBias, Popular
from hushrec.serving.recommend import Recommender
from hushrec.training.trainable import ITEM_WEIGHTS

if TYPE_CHECKING:
    from hushrec.privacy import Release
    from hushrec.serving.model import Model


def baselines(model: Recommender) -> dict[str, Recommender]:
    """Return the models that follow from a model's own released values.

    Returns
    -------
    dict of str to Recommender
        ``"user means"`` of a model that predicts ratings: every user's own mean, drawn to the released level.
        ``"popularity"`` of a model for lists that released how much each item is liked.

    Privacy
    -------
    No cost: functions of released values.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> model = hushrec.Popular().fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> list(hushrec.evaluation.baselines(model))
    ['popularity']
    """
    models: dict[str, Recommender] = {}
    lister: Any = model.lists or model
    if model.scores == "ratings":
        level = {"center": model.arrays["center"], "item_bias": np.zeros(model.domain.n_items)}
        models["user means"] = _simple(ItemBias(), model, level)
    if lister.scores == "likes" and np.ptp(lister.item_bias) > 0:
        popularity: dict[str, Any] = {"center": np.float64(0), "item_bias": np.asarray(lister.item_bias)}
        if "supported" in lister.arrays:
            popularity["supported"] = lister.arrays["supported"]
        models["popularity"] = _simple(Popular(), model, popularity)
    return models


def measured(
    model: Model,
    history: Ratings | Store,
    targets: Ratings | Store,
    *,
    metrics: Sequence[str],
    seed: int = 0,
    engine: Any = None,
    **lists: Any,
) -> dict[str, Evaluation | None]:
    """Measure the baselines of a model as `evaluate` measures the model; a private figure.

    Keys are ``"user means"``, ``"popularity"`` and ``"popular"``; a value that was not released is None. On a
    cluster `popular` is None: it needs the rows of `history`, which are on the workers.
    """
    models: dict[str, Recommender | None] = {
        **dict.fromkeys(("user means", "popularity")),
        **baselines(model),
    }
    models["popular"] = popular_by_plan(model, history, seed) if engine is None else None
    results: dict[str, Evaluation | None] = {}
    for name, baseline in models.items():
        job = "ratings" if name == "user means" else "lists"
        chosen = [metric for metric in metrics if METRICS[metric].job == job]
        options: dict[str, Any] = {**lists, "metrics": chosen, "resamples": 0, "seed": seed, "engine": engine}
        results[name] = evaluate(baseline, history, targets, **options) if baseline and chosen else None
    return results


def popular_by_plan(model: Model, history: Ratings | Store, seed: int = 0) -> Recommender | None:
    """Return what `popular` might have been with the model's whole budget, if its plan is known.

    ``history`` and the result are for the curator only: noise from a seed protects no user.
    """
    noise = planned_noise(model)
    if noise is None:
        return None
    weights = np.zeros(model.domain.n_items)
    parts = [history] if isinstance(history, Ratings) else [part.ratings() for part in history.partitions()]
    for rows in parts:
        counts = np.diff(rows.matrix.indptr)
        weight = np.repeat(1 / np.sqrt(np.maximum(counts, 1)), counts)
        weights += np.bincount(rows.matrix.indices, weight, minlength=len(weights))
    weights += noise * np.random.default_rng(seed).standard_normal(len(weights))
    return _simple(Popular(), model, {"center": np.float64(0), "item_bias": weights})


def planned_noise(model: Model) -> float | None:
    """Return the noise sd of `popular` with the model's whole budget."""
    budget = model.privacy.budget
    if not budget.private or budget.unit != "user" or budget.failure:
        return None
    return float(Popular().plan(budget, model.domain).releases[0].noise_sd)


def released(model: Model, label: str) -> Release | None:
    """Return a model's release with a label."""
    return next((release for release in model.privacy.releases if release.label == label), None)


def released_weights(model: Model) -> Release | None:
    """Return the release that popularity follows from: that of the lists, or else the model's own."""
    return released(model, f"lists: {ITEM_WEIGHTS}") or released(model, ITEM_WEIGHTS)


def _simple(estimator: Any, model: Recommender, arrays: Mapping[str, Any]) -> Recommender:
    return Recommender(
        estimator, model.domain, {**arrays, "item_factors": np.zeros((model.domain.n_items, 0))}
    )
