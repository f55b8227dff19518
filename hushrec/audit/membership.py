"""Membership inference against the published model: was this user in the training data?

Users with random tastes are planted among the real or generated ones, half of them in the training data. The
attacker has their ratings and the model file, nothing else, and scores a user by how well the model fits
their ratings. The probability that a member scores above a non-member (AUC) is 1/2 without a leak. The
control is a model without privacy and with little regularisation: it shows what the attack can do. A picture
of the leakage, not a test of the claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from hushrec.audit.bounds import area_under_curve
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.evaluation.metrics import PRIVATE_FIGURE
from hushrec.models import Billboard
from hushrec.privacy import Accountant, Budget
from hushrec.training.named import check_run, train
from hushrec.types import Array

#: Ratings of a planted user: enough to fit their taste in the control. No study chose it.
_RATINGS_EACH = 40
_CONTROL = "als"
_CONTROL_RIDGE = 1.0  # the one chosen for accuracy hides members among ten million ratings


@dataclass(frozen=True)
class Membership:
    """Outcome of the attack.

    Attributes
    ----------
    curves : tuple of (model, epsilon, areas)
        Area under the attacker's curve of each draw; the control has epsilon infinity.
    delta : float
    relation : str
    n_planted : int
    note : str
        Whether these figures are private.
    """

    curves: tuple[tuple[str, float, tuple[float, ...]], ...]
    delta: float
    relation: str
    n_planted: int
    note: str

    def area(self, epsilon: float) -> float:
        """Mean area under the curve at an epsilon."""
        return float(np.mean(next(areas for _, at, areas in self.curves if at == epsilon)))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description (infinity stays a float)."""
        return {
            "audit": "membership",
            "planted": self.n_planted,
            "delta": self.delta,
            "unit": "user",
            "relation": self.relation,
            "note": self.note,
            "results": [
                {"model": model, "epsilon": epsilon, "auc": float(np.mean(areas)), "draws": list(areas)}
                for model, epsilon, areas in self.curves
            ],
        }

    def text(self) -> str:
        """Return a small text table."""
        width = max(len(model) for model, _, _ in self.curves) + len(", no privacy")
        lines = [
            f"Membership inference on {self.n_planted:,} planted users, half of them in the training data",
            f"{'':{width}}  epsilon    AUC   (0.5: the attacker guesses, 1: always right)",
        ]
        for model, epsilon, areas in self.curves:
            name = model if math.isfinite(epsilon) else f"{model}, no privacy"
            lines.append(f"{name:{width}}  {epsilon:>7g}  {np.mean(areas):.3f}")
        lines.append(f"Claims: unit: user, relation: {self.relation}, delta = {self.delta:g}. {self.note}.")
        return "\n".join(lines)


def membership(
    ratings: Ratings,
    model: str,
    epsilons: Sequence[float],
    *,
    delta: float,
    relation: str = "add-remove",
    n_planted: int = 400,
    draws: int = 1,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    data_is_public: bool = False,
) -> Membership:
    """Attack a model at several epsilons, and the control without privacy.

    Parameters
    ----------
    ratings : Ratings
        Among whom the users are planted; explicit ratings.
    model : str
        A key of ``hushrec.models.ESTIMATORS``.
    epsilons : sequence of float
        Finite.
    delta, relation
        Of the budgets.
    n_planted : int
        >= 20.
    draws : int
        Times that users are planted and models trained, >= 1.
    settings : mapping, optional
        Hyper-parameters that override the model's own choice.
    seed : int
    data_is_public : bool
        Whether the ratings are public, so the figures are too.

    Examples
    --------
    >>> from hushrec.audit.membership import membership
    >>> public = hushrec.realistic(200, 30, 3000, seed=0)
    >>> found = membership(public, "item-bias", [1], delta=1e-6, n_planted=20, data_is_public=True)
    >>> 0 <= found.area(1) <= 1                                   # 0.5 is guessing
    True
    """
    if not epsilons or not all(0 < epsilon < math.inf for epsilon in epsilons):
        raise InputError(
            "epsilons must be finite and greater than 0; the control without privacy is added.",
            parameter="epsilons",
        )
    if n_planted < 20 or draws < 1:
        raise InputError("Pass n_planted >= 20 and draws >= 1.")
    domain = ratings.domain
    runs = [(model, Budget(epsilon, delta, relation=relation), settings) for epsilon in epsilons]
    control = {"regularization": _CONTROL_RIDGE}
    runs.append((_CONTROL, Budget(math.inf, delta, relation=relation), control))
    for name, budget, chosen in runs:
        check_run(name, budget, domain, None, chosen)
    areas: list[list[float]] = [[] for _ in runs]
    for draw in range(draws):
        generator = np.random.default_rng((seed, draw))
        planted = _random_tastes(domain, n_planted, generator)
        inside = generator.permutation(n_planted) < n_planted // 2
        matrix = sp.vstack([ratings.matrix, planted.rows(inside).matrix], format="csr")
        mixed = Ratings.from_any(sp.csr_array(matrix), domain)
        for (name, budget, chosen), found in zip(runs, areas):
            accountant = Accountant(budget, data_is_public=data_is_public)
            billboard = train(name, mixed, accountant, settings=chosen, seed=seed + draw)
            scores = fit_scores(billboard, planted)
            found.append(area_under_curve(scores[inside], scores[~inside]))
    curves = tuple(
        (name, budget.epsilon, tuple(found)) for (name, budget, _), found in zip(runs, areas, strict=True)
    )
    note = "The ratings are public or generated" if data_is_public else f"This is a {PRIVATE_FIGURE}"
    return Membership(curves, delta, relation, n_planted, note)


def fit_scores(billboard: Billboard, users: Ratings) -> Array:
    """Minus the mean squared error with which the model, folded in, fits each user's own ratings."""
    users = users.starred()
    errors = (billboard.predict_pairs(users, users) - users.matrix.data) ** 2
    counts = np.diff(users.matrix.indptr)
    rows = np.repeat(np.arange(users.n_users), counts)
    return -np.bincount(rows, weights=errors, minlength=users.n_users) / np.maximum(counts, 1)


def _random_tastes(domain: Domain, n_users: int, generator: np.random.Generator) -> Ratings:
    """Users who rate random items at random ends of the range."""
    each = min(_RATINGS_EACH, domain.n_items // 2, domain.max_ratings_per_user)
    if each < 1:
        raise InputError("Membership inference needs a catalogue of at least 2 items.")
    items = np.concatenate([generator.choice(domain.n_items, each, replace=False) for _ in range(n_users)])
    ends = generator.choice([domain.low, domain.high], n_users * each)
    matrix = sp.coo_array((ends, (np.repeat(np.arange(n_users), each), items)), (n_users, domain.n_items))
    return Ratings.from_any(sp.csr_array(matrix), domain)
