"""Membership inference against the published model: was this user in the training data?

Users with random tastes are planted, half of them in the training data. The attacker scores users by the
model's fit of their ratings. This is one attack, and no test of the claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from hushrec.audit.bounds import area_under_curve
from hushrec.checks import check_numbers
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.models import Model
from hushrec.privacy import Accountant, Budget
from hushrec.training.named import train
from hushrec.types import Array

#: Ratings of a planted user.
_RATINGS_EACH = 40
#: A model without privacy, with a small ridge, because a large one hides members.
CONTROL: tuple[str, Mapping[str, Any]] = ("als", {"regularization": 1.0})


def membership(
    ratings: Ratings,
    model: str,
    budget: Budget,
    *,
    n_planted: int = 400,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> float:
    """Return the probability that the attacker ranks a member above another user.

    Parameters
    ----------
    ratings : Ratings
        Generated or public ratings of the other users.
    model : str
        A key of ``hushrec.registry.ESTIMATORS``.
    budget : Budget
        Its epsilon may be infinite.
    n_planted : int
        Planted users, >= 20.
    settings : mapping, optional
        They override the model's choice.
    seed : int
        Seeds the planted users and the training.

    Returns
    -------
    float
        0.5 is guessing, 1 is always right.

    Examples
    --------
    >>> from hushrec.audit.membership import membership
    >>> public = hushrec.realistic(200, 30, 3000, seed=0)
    >>> 0 <= membership(public, "item-bias", hushrec.Budget(1, 1e-6), n_planted=20) <= 1
    True
    """
    check_numbers(n_planted=(n_planted, int, "[20, inf)"))
    domain, generator = ratings.domain, np.random.default_rng(seed)
    planted = _random_tastes(domain, n_planted, generator)
    inside = generator.permutation(n_planted) < n_planted // 2
    matrix = sp.vstack([ratings.matrix, planted.rows(inside).matrix], format="csr")
    mixed = Ratings.from_any(sp.csr_array(matrix), domain)
    trained = train(model, mixed, Accountant(budget, data_is_public=True), settings=settings, seed=seed)
    scores = fit_scores(trained, planted)
    return area_under_curve(scores[inside], scores[~inside])


def control(ratings: Ratings, delta: float, *, n_planted: int = 400, seed: int = 0) -> float:
    """Return :func:`membership` of a model without privacy."""
    name, settings = CONTROL
    budget = Budget(math.inf, delta)
    return membership(ratings, name, budget, n_planted=n_planted, settings=settings, seed=seed)


def fit_scores(model: Model, users: Ratings) -> Array:
    """Return minus the mean squared error of each user's fit."""
    users = users.starred()
    errors = (model.predict_pairs(users, users) - users.matrix.data) ** 2
    counts = np.diff(users.matrix.indptr)
    rows = np.repeat(np.arange(users.n_users), counts)
    return -np.bincount(rows, weights=errors, minlength=users.n_users) / np.maximum(counts, 1)


def _random_tastes(domain: Domain, n_users: int, generator: np.random.Generator) -> Ratings:
    count = min(_RATINGS_EACH, domain.n_items // 2, domain.max_ratings_per_user)
    if count < 1:
        raise InputError("Membership inference needs a catalogue of at least 2 items.")
    items = np.concatenate([generator.choice(domain.n_items, count, replace=False) for _ in range(n_users)])
    ends = generator.choice([domain.low, domain.high], n_users * count)
    matrix = sp.coo_array((ends, (np.repeat(np.arange(n_users), count), items)), (n_users, domain.n_items))
    return Ratings.from_any(sp.csr_array(matrix), domain)
