"""Every method of the comparison: how it is set up for a budget and a data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.frontier.data import DATASETS, Split, size
from hushrec.data import Domain, Ratings
from hushrec.evaluation.compare import LIKES_ALS
from hushrec.models import (
    ALS,
    EASE,
    Both,
    Estimator,
    Gate,
    GlobalMean,
    ItemBias,
    Popular,
    PrivateALS,
    PrivateEigenRec,
    UserState,
)
from hushrec.papers.dpals import DPALS
from hushrec.papers.frank_wolfe import (
    FrankWolfe,
    PrivateFrankWolfe,
    PrivateProjectedGradient,
    PrivateSVD,
    ProjectedGradient,
)
from hushrec.papers.mcsherry_mironov import CleansedSVD
from hushrec.privacy import Budget, Plan
from hushrec.training.users import Users, user_means

#: Largest catalogue for which the item x item matrix is decomposed at every step.
LARGEST_COVARIANCE = 2_000

#: Settings by name, as the tuning found them.
Settings = Mapping[str, Any]
#: Sets a method up: budget, name of the data set, its split, settings that override the choice.
Make = Callable[[Budget, str, Split, Settings], Estimator]


@dataclass(frozen=True)
class UserMean(Estimator):
    """Predict a user's own mean rating: free, since nothing is released."""

    name: ClassVar[str] = "user-mean"

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return Plan(budget, ())

    def train(self, users: Users, gate: Gate, seed: int) -> dict[str, Any]:
        n_items = users.domain.n_items
        return {
            "center": np.float64(users.domain.midpoint),
            "item_bias": np.zeros(n_items),
            "item_factors": np.zeros((n_items, 0)),
        }

    def fold_in(self, arrays: Mapping[str, NDArray[Any]], history: Ratings) -> UserState:
        offset = np.where(
            np.diff(history.matrix.indptr) > 0, user_means(history) - float(arrays["center"]), 0
        )
        return UserState(offset, np.zeros((history.n_users, 0)))


@dataclass(frozen=True, kw_only=True)
class ItemMean(ItemBias):
    """Level and item biases, the same for all users."""

    name: ClassVar[str] = "item-mean"

    def fold_in(self, arrays: Mapping[str, NDArray[Any]], history: Ratings) -> UserState:
        return UserState(np.zeros(history.n_users), np.zeros((history.n_users, 0)))


@dataclass(frozen=True)
class Method:
    """A row of the tables.

    Attributes
    ----------
    label : str
        In tables and figures.
    make : callable
        Sets it up.
    settings : str
        Where its hyper-parameters come from, for the footnote.
    role : {"ours", "tuned", "rival", "baseline", "reference"}
        A reference has no privacy and is run at epsilon inf only; a tuned method needs chosen settings.
    short : bool
        Quick enough for the sample that is trained again.
    largest : int
        Items up to which it is run.
    """

    label: str
    make: Make
    settings: str
    role: str = "rival"
    short: bool = True
    largest: int = 10**9


def _solver(parts: Split) -> dict[str, Any]:
    """Products instead of the item x item matrix for large catalogues (docs/papers/frank-wolfe.md)."""
    large = parts.train.n_items > LARGEST_COVARIANCE
    return {"eigenvector": "power", "inner_steps": 3} if large else {}


def _published(budget: Budget, name: str, parts: Split, settings: Settings) -> Estimator:
    heuristics = {} if DATASETS[name].low_rank else {"sampling": "tail", "center": "user"}  # section 5
    return DPALS.of(**{**heuristics, **settings})


def _frank_wolfe(budget: Budget, name: str, parts: Split, settings: Settings) -> Estimator:
    return PrivateFrankWolfe.of(
        nuclear_norm=size(parts), iterations=5, max_ratings_per_user=_cap(name), **_solver(parts)
    )


def _cap(name: str) -> int:
    return DATASETS[name].cap


def _planned(cls: Any, **changes: Any) -> Make:
    def make(budget: Budget, name: str, parts: Split, settings: Settings) -> Estimator:
        domain = parts.train.domain
        return cls.planned(budget, domain, parts.train.n_users, **{**changes, **settings})

    return make


def _planned_walk(cls: Any, **changes: Any) -> Make:
    def make(budget: Budget, name: str, parts: Split, settings: Settings) -> Estimator:
        given = {"max_ratings_per_user": _cap(name), **_solver(parts), **changes}
        return cls.planned(budget, parts.train.domain, parts.train.n_users, **given)

    return make


#: Source of settings that were chosen on validation ratings.
VALIDATION = "best of a grid on the validation part, at each epsilon, without charge"
_RULE = "its planning rule, from epsilon, catalogue, range and number of users"
_FIXED = "the settings of [frank-wolfe](frank-wolfe.md), the same for all data sets"

RATINGS: dict[str, Method] = {
    "private-als": Method("private ALS", _planned(PrivateALS), _RULE, "ours"),
    "private-als-tuned": Method("private ALS, tuned", _planned(PrivateALS), VALIDATION, "tuned", short=False),
    "both": Method("both (ratings and lists)", _planned(Both), _RULE, "rival"),
    "dpals": Method("DPALS (Algorithm 1)", _published, VALIDATION, "rival"),
    "frank-wolfe-biases": Method(
        "Frank-Wolfe, biases first", _planned_walk(PrivateFrankWolfe), _RULE, short=False
    ),
    "frank-wolfe": Method("Frank-Wolfe (Algorithm 1)", _frank_wolfe, _FIXED),
    "oja": Method(
        "Frank-Wolfe, Oja",
        _planned_walk(PrivateFrankWolfe, eigenvector="oja", inner_steps=4),
        _RULE,
        short=False,
    ),
    "private-svd": Method(
        "private SVD",
        lambda budget, name, parts, settings: PrivateSVD(
            rank=3,
            row_clip=3.0,
            center="biases",
            n_users=parts.train.n_users,
            max_ratings_per_user=_cap(name),
        ),
        _FIXED,
        short=False,
    ),
    "projected-gradient": Method(
        "projected gradient",
        lambda budget, name, parts, settings: PrivateProjectedGradient.of(
            nuclear_norm=size(parts),
            row_clip=2.0,
            iterations=5,
            step_size=1.0,
            step_decay=0.5,
            center="biases",
            n_users=parts.train.n_users,
            max_ratings_per_user=_cap(name),
        ),
        _FIXED,
        short=False,
        largest=LARGEST_COVARIANCE,
    ),
    "cleansed-svd": Method(
        "cleansed SVD",
        lambda budget, name, parts, settings: CleansedSVD(max_ratings_per_user=_cap(name)),
        "the class's defaults",
        short=False,
    ),
    "item-bias": Method(
        "user mean + item bias",
        lambda budget, name, parts, settings: ItemBias(),
        "the class's defaults",
        "baseline",
    ),
    "item-mean": Method(
        "item mean", lambda budget, name, parts, settings: ItemMean(), "as the item biases", "baseline"
    ),
    "user-mean": Method(
        "user mean", lambda budget, name, parts, settings: UserMean(), "none; nothing is released", "baseline"
    ),
    "global-mean": Method(
        "global level", lambda budget, name, parts, settings: GlobalMean(), "none", "baseline"
    ),
    "als": Method(
        "ALS, no privacy", lambda budget, name, parts, settings: ALS(), "the class's defaults", "reference"
    ),
    "plain-frank-wolfe": Method(
        "Frank-Wolfe, no privacy",
        lambda budget, name, parts, settings: FrankWolfe(
            nuclear_norm=0.6 * size(parts), iterations=100, line_search=True
        ),
        _FIXED,
        "reference",
        short=False,
    ),
    "plain-projected-gradient": Method(
        "projected gradient, no privacy",
        lambda budget, name, parts, settings: ProjectedGradient.of(
            nuclear_norm=0.6 * size(parts), iterations=20, step_size=1.0
        ),
        _FIXED,
        "reference",
        short=False,
        largest=LARGEST_COVARIANCE,
    ),
}

ITEMS: dict[str, Method] = {
    "private-eigenrec": Method("private EigenRec", _planned(PrivateEigenRec), _RULE, "ours"),
    "dpals": Method(
        "DPALS (Algorithm 1)",
        lambda budget, name, parts, settings: DPALS.of(
            **{
                "clip": 2.0,
                "user_norm": 0.5,
                "unobserved_weight": 0.1,
                "sampling": "tail",
                "weights_share": 0.1,
                **settings,
            }
        ),
        VALIDATION,
    ),
    "popular": Method("most popular", lambda budget, name, parts, settings: Popular(), "none", "baseline"),
    "als": Method(
        "ALS, no privacy",
        lambda budget, name, parts, settings: ALS(**LIKES_ALS),
        "those of `compare`",
        "reference",
    ),
    "ease": Method(
        "EASE, no privacy",
        lambda budget, name, parts, settings: EASE(),
        "the class's defaults",
        "reference",
    ),
}


def methods(name: str) -> dict[str, Method]:
    """The methods of a data set."""
    return RATINGS if DATASETS[name].kind == "ratings" else ITEMS
