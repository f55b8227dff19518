"""Every estimator, in the configurations that the shared suite runs: one entry a release pattern.

An entry's clips are small enough that the hostile users of :mod:`hushrec.testing` reach them; the contract
then also demands that every declared sensitivity is attained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from hushrec.data import Domain, Ratings
from hushrec.models import (
    Both,
    Estimator,
    Gate,
    GlobalMean,
    ItemBias,
    Popular,
    PrivateALS,
    PrivateEigenRec,
    UserLevelOneBit,
)
from hushrec.models.private_als import features
from hushrec.models.private_als.users import FittedUsers
from hushrec.models.private_eigenrec.denoise import Sums
from hushrec.models.private_eigenrec.public_likes import PublicLikes
from hushrec.models.private_eigenrec.users import LikingUsers
from hushrec.papers.dpals import DPALS
from hushrec.papers.frank_wolfe import (
    PrivateFrankWolfe,
    PrivateProjectedGradient,
    PrivateSVD,
)
from hushrec.papers.mcsherry_mironov import CleansedSVD
from hushrec.papers.one_bit import OneBitCompletion
from hushrec.privacy import Budget, Plan
from hushrec.testing import DOMAIN
from hushrec.types import ModelArrays


@dataclass(frozen=True)
class Case:
    """One configuration; how far hostile users move the releases that they move by less than 0.9, and why.

    The long checks of a ``twin`` share the users' side of other cases and run with ``FULL=1``.
    """

    name: str
    estimator: Estimator
    epsilon: float = 3.0
    delta: float = 1e-5
    unit: str = "user"
    loose: dict[str, tuple[float, str]] = field(default_factory=dict)
    twin: bool = False

    @property
    def least(self) -> dict[str, float]:
        return {label: part for label, (part, _) in self.loose.items()}

    def budget(self, relation: str = "add-remove") -> Budget:
        relation = relation if self.unit == "user" else "replace"
        return Budget(self.epsilon, self.delta, unit=self.unit, relation=relation)


def _informed(domain: Domain) -> Domain:
    if domain.n_items == 1:  # nothing varies
        return domain
    numbers = np.arange(domain.n_items)
    table = {"item": list(domain.items), "price": numbers**2.0, "kind": [f"kind {n % 3}" for n in numbers]}
    return replace(domain, item_features=table)


@dataclass(frozen=True, kw_only=True)
class InformedALS(PrivateALS):
    """Private ALS with item features that always count."""

    def users(self, ratings: Ratings) -> FittedUsers:
        return super().users(replace(ratings, domain=_informed(ratings.domain)))

    def train(self, users: FittedUsers, gate: Gate, seed: int) -> dict[str, Any]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(features, "_EVIDENCE", -math.inf)
            return super().train(users, gate, seed)


@dataclass(frozen=True, kw_only=True)
class InformedEigenRec(PrivateEigenRec):
    """Private EigenRec with a table of articles: lists of several parts."""

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return super().releases(budget, _informed(domain), fraction)

    def weekly_releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return super().weekly_releases(budget, _informed(domain), fraction)

    def check_week(self, domain: Domain, last: ModelArrays) -> None:
        super().check_week(_informed(domain), last)

    def users(self, ratings: Ratings) -> LikingUsers:
        return super().users(replace(ratings, domain=_informed(ratings.domain)))


def _published(domain: Domain) -> PublicLikes:
    """Rows of users who like three items in turn, the first one or two in a small catalogue."""
    rows = sp.csr_array((np.arange(domain.n_items) - 2 * np.arange(9)[:, None]) % domain.n_items < 3)
    return PublicLikes(rows.astype(float), rows[:2].astype(float))


@dataclass(frozen=True, kw_only=True)
class DonatedEigenRec(PrivateEigenRec):
    """Private EigenRec with public likes over any catalogue."""

    def train(self, users: LikingUsers, gate: Gate, seed: int) -> ModelArrays:
        return PrivateEigenRec.train(replace(self, public=_published(users.domain)), users, gate, seed)

    def week(self, users: LikingUsers, gate: Gate, last: ModelArrays) -> ModelArrays:
        return PrivateEigenRec.week(replace(self, public=_published(users.domain)), users, gate, last)


@dataclass(frozen=True, kw_only=True)
class DividedEigenRec(PrivateEigenRec):
    """Private EigenRec with rounds that always release item weights next to their sums."""

    def weights_part(self, rounds: int, sums: Sums | None, known: float) -> float:
        return 0.4


#: Of private ALS, with clips that users of 1 to 5,000 ratings reach: many more users declared than there are
#: make the released variances small, and bounds with them; a small prior variance makes all factors unsure.
SHARED = {"rank": 4, "iterations": 2, "bias_rounds": 2, "bias_clip": 0.1, "user_variance": 1e-7,
          "user_norm": 1e-12}  # fmt: skip
#: Their joint clip that always binds, and the one that never does.
NARROW, WIDE = {**SHARED, "factor_clip": 1e-19}, {**SHARED, "factor_clip": 1e-12}
#: A prior variance at which the ridge turns users' factors.
TURNS = {**SHARED, "user_variance": 6.0, "factor_clip": 0.001, "user_norm": 0.5}
ITEMWISE = {"rank": 2, "iterations": 2, "max_ratings_per_user": 2, "regularization": 0.1}

BINDS = {"gramian": (0.7, "the joint clip binds")}
HIDDEN = BINDS | {"residual variance": (0.0, "the noise of six users widens the bound")}
COUNTED = dict.fromkeys(["gramian", "item", "residual"], (0.0, "a noisy count of six widens units"))
CASES = [
    Case("global-mean", GlobalMean()),
    Case("item-bias", ItemBias(clip=1.0)),
    Case("popular", Popular()),
    Case("private-als", PrivateALS.of(**NARROW, n_users=1_000), loose=BINDS),
    Case("private-als, wide joint clip", PrivateALS.of(**WIDE, n_users=1_000),
         loose={"item sums": (0.0, "the joint clip never binds")}),
    Case("private-als, users counted", PrivateALS.of(**NARROW), loose=COUNTED),
    Case("private-als, a ridge that turns", PrivateALS.of(**TURNS, n_users=1_000),
         loose=HIDDEN | {"gramian": (0.15, "the joint clip binds")}),
    Case("private-als, no free factors", PrivateALS.of(**NARROW, n_users=1_000, features=False),
         loose=BINDS | {"item sums": (0.0, "noise hides the factors of one round")}),
    Case("private-als, item features", InformedALS.of(**NARROW, n_users=1_000), loose=BINDS),
    Case("dpals", DPALS.of(**ITEMWISE, user_norm=0.05, clip=0.01)),
    Case("dpals, heuristics", DPALS.of(**ITEMWISE, user_norm=0.05, clip=0.01, sampling="tail",
         item_fraction=0.5, center="user", orthonormalize=True, weights_share=0.26)),
    Case("dpals, joint clip", DPALS.of(**ITEMWISE, user_norm=0.05, clip=0.005, clipping="user",
         sampling="weights", center="level", gramian_share=0.4),
         loose={"item statistics": (0.75, "the joint clip of the right-hand sides shrinks the Gramians")}),
    Case("dpals, likes", DPALS.of(**ITEMWISE, user_norm=0.01, clip=0.1, unobserved_weight=0.1)),
]  # fmt: skip

CASES += [
    Case("private-als, tiny epsilon", PrivateALS.of(**NARROW, n_users=1_000), 0.02,
         loose=HIDDEN | {"item biases": (0.0, "noise is most of the residual variance of a later week")}),
    Case("private-als, biases alone", PrivateALS.of(features=False, bias_rounds=1, bias_clip=0.1,
         n_users=1_000), twin=True),
    Case("dpals, uniform sampling", DPALS.of(**ITEMWISE, user_norm=0.05, clip=0.01, item_fraction=0.5,
         center="middle")),
    Case("dpals, joint clip, long factors", DPALS.of(**ITEMWISE, user_norm=2.0, clip=0.02, clipping="user"),
         loose={"item statistics": (0.02, "the joint clip of the right-hand sides shrinks the Gramians")}),
    Case("dpals, from the level", DPALS.of(**ITEMWISE, user_norm=0.05, clip=0.01, center="level"), twin=True),
]  # fmt: skip

STEPS = {"step": (0.1, "no user's row lies along the vector"),
         "step 1, product 1": (0.02, "the first vector is drawn")}  # fmt: skip
CASES += [
    Case("private-frank-wolfe, residual clip", PrivateFrankWolfe.of(nuclear_norm=30.0, iterations=3,
         residual_clip=0.2, max_ratings_per_user=4)),
    Case("private-frank-wolfe, Algorithm 1", PrivateFrankWolfe(nuclear_norm=1000.0, iterations=2,
         row_clip=0.2, max_ratings_per_user=4, center="middle"),
         loose={"step": (0.24, "a residual of norm 2L needs an iterate that overshoots")}),
    Case("private-frank-wolfe, oja", PrivateFrankWolfe.of(nuclear_norm=30.0, iterations=2, residual_clip=0.2,
         residual_clip_decay=0.5, eigenvector="oja", inner_steps=2, max_ratings_per_user=5_000),
         loose=STEPS),
    Case("private-frank-wolfe, power, biases", PrivateFrankWolfe.of(nuclear_norm=30.0, iterations=2,
         residual_clip=0.2, eigenvector="power", inner_steps=2, block=2, center="biases", bias_clip=0.1,
         max_ratings_per_user=5_000), loose=STEPS),
    Case("private-svd", PrivateSVD(rank=2, row_clip=0.2)),
    Case("private-projected-gradient", PrivateProjectedGradient(nuclear_norm=30.0, iterations=3,
         row_clip=0.1, center="middle")),
    Case("cleansed-svd", CleansedSVD(rank=2, residual_clamp=0.02, max_ratings_per_user=4)),
    Case("cleansed-svd, neighbours", CleansedSVD.of(rank=None, prediction="neighbours", residual_clamp=0.02,
         user_shrinkage=1.0), twin=True),
]  # fmt: skip

FRANK_WOLFE = {"nuclear_norm": 30.0, "iterations": 2, "residual_clip": 0.2}
CASES += [
    Case("private-frank-wolfe, power", PrivateFrankWolfe.of(**FRANK_WOLFE, eigenvector="power",
         max_ratings_per_user=5_000), loose=STEPS, twin=True),
    Case("private-frank-wolfe, biases", PrivateFrankWolfe.of(**FRANK_WOLFE, center="biases", bias_clip=0.1),
         twin=True),
    Case("private-svd, biases", PrivateSVD(rank=2, row_clip=0.2, center="biases", bias_clip=0.1),
         twin=True),
    Case("private-svd, local scale", PrivateSVD(rank=2, row_clip=0.2, scale="local", center="middle"),
         twin=True),
    Case("private-projected-gradient, user", PrivateProjectedGradient(nuclear_norm=30.0, iterations=2,
         row_clip=0.1, center="user"), twin=True),
    Case("private-projected-gradient, biases", PrivateProjectedGradient(nuclear_norm=30.0, iterations=2,
         row_clip=0.1, center="biases", bias_clip=0.1), twin=True),
]  # fmt: skip

ROOM = {"item matrix": (0.65, "what rounding may add has its room")}
HALVES = {"halves": (0.7, "the halves of hostile users differ")}
LONG = {"weights of the parts": (0.09, "hostile users of thousands of likes tell little; short ones all")}
CASES += [
    Case("private-eigenrec", PrivateEigenRec(rank=2, iterations=2), loose=HALVES),
    Case("private-eigenrec, weights again", PrivateEigenRec(rank=2, iterations=3), loose=HALVES,
         twin=True),
    Case("private-eigenrec, sums and weights", DividedEigenRec(rank=2, iterations=3), loose=HALVES),
    Case("private-eigenrec, users declared", PrivateEigenRec(rank=3, iterations=1, n_users=6),
         loose=HALVES, twin=True),
    Case("private-eigenrec, pairs", PrivateEigenRec(rank=2, pairs=True),
         loose={"item matrix": (0.5, "long rows have many small entries")}),
    Case("private-eigenrec, popularity", PrivateEigenRec(rank=0), twin=True),
    Case("private-eigenrec, parts", InformedEigenRec(rank=2, iterations=2, n_users=6),
         loose=HALVES | LONG),
    Case("private-eigenrec, parts without taste", InformedEigenRec.of(rank=0, parts_share=0.3), loose=LONG,
         twin=True),
    Case("private-eigenrec, parts and pairs", InformedEigenRec(rank=2, pairs=True), loose=ROOM, twin=True),
    Case("private-eigenrec, parts of public likes", DonatedEigenRec(rank=2, iterations=2, n_users=6,
         public=_published(DOMAIN)),
         loose=HALVES | {label: (0.05, why) for label, (_, why) in LONG.items()}),
    Case("private-eigenrec, likes from 4", PrivateEigenRec(rank=2, iterations=1, like_threshold=4.0),
         loose=HALVES),
    Case("both", Both(ratings=PrivateALS.of(**NARROW, n_users=1_000),
         lists=PrivateEigenRec(rank=2, iterations=2, n_users=6), like_threshold=3.0),
         loose={f"ratings: {label}": why for label, why in BINDS.items()}
         | {f"lists: {label}": why for label, why in HALVES.items()}),
    Case("one-bit-user", UserLevelOneBit.of(threshold=3.5, **NARROW, n_users=1_000), loose=BINDS),
    Case("one-bit-user, users counted", UserLevelOneBit.of(threshold=3.5, **NARROW), loose=COUNTED,
         twin=True),
    Case("one-bit-user, a ridge that turns", UserLevelOneBit.of(threshold=3.5, **TURNS, n_users=1_000),
         loose=HIDDEN | {"gramian": (0.15, "the joint clip binds")}, twin=True),
    Case("one-bit-user, biases alone", UserLevelOneBit.of(threshold=3.5, rank=0, features=False,
         bias_clip=0.1, n_users=1_000), twin=True),
]  # fmt: skip

LABELS: dict[str, Any] = {"threshold": 3.5, "rank": 2, "iterations": 3}
CASES += [
    Case(f"one-bit, {name}", OneBitCompletion.of(**LABELS, **settings), 2.0, unit="rating", loose=loose)
    for name, settings, loose in (
        ("input", {}, {}),
        ("input, flips", {"flips": (0.45, 0.3), "offsets": False, "solver": "dense"}, {}),
        ("objective", {"mechanism": "objective"}, {}),
        ("gradient", {"mechanism": "gradient", "gradient_steps": 2, "clamp": 0.1}, {}),
        ("gradient, probit", {"mechanism": "gradient", "link": "probit", "clamp": 0.2}, {}),
        ("output", {"mechanism": "output", "output_steps": 4}, {}),
    )
]
