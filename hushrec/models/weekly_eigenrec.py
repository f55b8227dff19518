"""Private EigenRec from week to week: sums as of a round again, with the noise of a week's slice.

A week goes on from the last vectors. Those that users' rows are multiplied with stay the same over a season,
so that the sums of all weeks are measurements of one thing, which a Kalman filter puts together: new vectors
every few weeks would begin anew with what noise hides (docs/guides/seasons.md). Sensitivities are those of
the first training: docs/proofs/private-eigenrec.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.models.eigenrec_plan import PlannedEigenRec
from hushrec.models.likes_taste import NOTHING, Halves, Known, Measured, Sums, apart
from hushrec.models.liking_users import LikingUsers
from hushrec.privacy import counted, positive, signed
from hushrec.serving.modelfile import Expected
from hushrec.training.estimator import Round
from hushrec.training.gate import Gate
from hushrec.training.kalman import DRIFTS, SEEN, Tracked, counted_again, first_count, no_evidence
from hushrec.types import Array, ModelArrays

#: ModelArrays of a week's budget: number of users, item weights, sums, halves of likes. No study chose them.
_COUNT, _WEIGHTS, _SUMS, _HALVES = 0.01, 0.09, 0.85, 0.05

_BY_ITEM = Expected("f", ("items",), 0.0)
#: What the arrays of a model hold.
EXPECTED = ModelArrays(
    serve={
        "directions": Expected("iu", (), 0),
        "feature_columns": Expected("iu", (), 0),
        "history_weight": _BY_ITEM,
        "history_total": Expected("f", (), 0.0),
    },
    state=SEEN
    | Tracked.expected("item_weights", "items")
    | Tracked.expected("halves", "halves")
    | {
        "users": Expected("f", (2,), 0.0),
        "item_probe": Expected("f", ("items", "own rank")),
        "item_sums": Expected("f", ("items", "own rank")),
        "item_sums_variance": _BY_ITEM,
        "sums_drifts": Expected("f", (len(DRIFTS),)),
        "item_basis": Expected("f", ("items", "own rank")),
        "beside_weight": Expected("f", (), 0.0, 1.0),
        "item_components": Expected("f", ("items", "components")),
        "pairs": Expected("f", ("pairs",)),
        "pairs_precision": Expected("f", (), 0.0),
        "item_scale": _BY_ITEM,
        "item_first": _BY_ITEM,
    },
)


def weekly_rounds(rank: int, matrix: bool) -> list[Round]:
    """Return the releases of a week; where items may recommend items, most may be of their matrix."""
    weights, sums, halves = _labels(matrix)
    found = [Round("number of users", _COUNT, counted(1.0)), Round(weights, _WEIGHTS, positive(1.0))]
    return found + ([Round(sums, _SUMS, signed(1.0)), Round(halves, _HALVES, positive(1.0))] if rank else [])


def _labels(matrix: bool) -> list[str]:
    """Return the labels of the item weights, the sums and the halves, which say if they may be the matrix."""
    names = "item weights", "item sums", "halves of likes"
    return [name + (", or the item matrix again" if matrix else "") for name in names]


class Kept(NamedTuple):
    """The state that a week goes on from: all of it released, or computed from that.

    Attributes
    ----------
    users : ndarray of shape (2,)
        Number of users and its variance.
    weights : Tracked
        Item weights.
    item_probe : ndarray of shape (n_items, rank)
        Vectors that users' rows are multiplied with; 0 where an item is not learned.
    item_sums, item_sums_variance : ndarrays of shape (n_items, rank) and (n_items,)
    sums_drifts : ndarray
    item_basis : ndarray of shape (n_items, rank)
        Vectors that the halves of users' likes are multiplied with.
    halves : Tracked
        Products of the halves.
    """

    users: Array
    weights: Tracked
    item_probe: Array
    item_sums: Array
    item_sums_variance: Array
    sums_drifts: Array
    item_basis: Array
    halves: Tracked

    @classmethod
    def first(cls, known: Known, counted_sd: float, weights: tuple[Array, float], measured: Measured) -> Kept:
        """Return what is kept after week 0."""
        learned, sums = known.learned, measured.sums
        return cls(
            first_count(known.n_users, counted_sd),
            Tracked.first(weights[0], weights[1] ** 2),
            _everywhere(sums.probe, learned),
            _everywhere(sums.sums, learned),
            np.where(learned, sums.noise_sd**2, 0.0),
            no_evidence(),
            _everywhere(measured.basis, learned),
            Tracked.first(measured.halves, measured.halves_sd**2),
        )

    def to_arrays(self) -> dict[str, Array]:
        """Return the arrays of a model file."""
        tracked = {"weights": "item_weights", "halves": "halves"}
        own = {name: np.asarray(each) for name, each in self._asdict().items() if name not in tracked}
        own["item_seen"] = np.ones(len(self.item_probe))
        return own | self.weights.to_arrays("item_weights") | self.halves.to_arrays("halves")

    @classmethod
    def of(cls, state: Mapping[str, Array], rank: int) -> Kept:
        """Inverse of `to_arrays`, with that rank; new items are not known.

        A catalogue that shrank has room for fewer vectors, and one that grew beyond its rank begins anew.
        """
        own: dict[str, Any] = {
            name: state[name] for name in cls._fields if name in state and name != "halves"
        }
        weights = Tracked.of(state, "item_weights").with_new(state["item_seen"] > 0)
        halves, before = Tracked.of(state, "halves"), own["item_probe"].shape[1]
        if before < rank:
            start = np.random.default_rng(0).standard_normal((len(own["item_probe"]), rank))
            own |= {"item_probe": start, "item_sums": 0 * start, "item_basis": 0 * start}
            own["item_sums_variance"] = np.zeros(len(start))
            halves = Tracked.first(np.zeros(rank * (rank + 1)), 0.0)
        elif before > rank:
            for name in ("item_probe", "item_sums", "item_basis"):
                own[name] = own[name][:, :rank]
            rows = np.arange(rank * (rank + 1) // 2)  # a triangle begins with the smaller one's
            both = np.append(rows, rows + len(halves.mean) // 2)
            halves = Tracked(halves.mean[both], halves.variance[both], halves.evidence)
        return cls(**own, weights=weights, halves=halves)


def week(model: PlannedEigenRec, users: LikingUsers, gate: Gate, last: ModelArrays) -> ModelArrays:
    """The next week's model."""
    rank = min(model.rank, users.domain.n_items - 1)
    kept = Kept.of(last.state, rank)
    labels = _labels(model.tuning.matrix_share > 0)
    counts, weights = counted_again(users, gate, kept.users, kept.weights, labels[0])
    weights_sd = float(np.sqrt(weights.variance.mean()))
    known = model.known(max(float(counts[0]), 1.0), weights.mean, weights_sd, rank)
    learned, taste = known.learned, NOTHING
    kept = kept._replace(users=np.maximum(counts, 0.0), weights=weights)  # noise may say fewer than none
    if rank:
        users.scale(known.scale, known.first)
        first = known.first[learned]
        probe, before = _carried(kept, np.sqrt(last.serve["history_weight"]), known)
        released = gate.release(labels[1], users.item_sums(_everywhere(probe, learned), learned))
        sums = apart(released.reshape(probe.shape), first)
        now = _measured(before, sums, gate.noise_sd(labels[1]))
        found = Sums(probe, now.mean, float(np.sqrt(now.variance.mean())))
        vectors, values = found.directions()
        begun = bool(kept.item_basis.any())
        basis = kept.item_basis if begun else _everywhere(vectors, learned)
        released = gate.release(labels[2], users.halves(basis, learned, 0.0))
        halves = _measured(kept.halves if begun else None, released, gate.noise_sd(labels[2]))
        measured = Halves.of(halves.mean, float(np.sqrt(halves.variance.mean())))
        taste = measured.taste(vectors, values, basis[learned].T @ vectors, known.n_users)
        kept = kept._replace(
            item_probe=_everywhere(probe, learned),
            item_sums=_everywhere(now.mean, learned),
            item_sums_variance=_everywhere(now.variance.mean(axis=1), learned),
            sums_drifts=now.evidence,
            item_basis=basis,
            halves=halves,
        )
    return ModelArrays(model.served(known, weights.mean, weights_sd, taste, learned), kept.to_arrays())


def _measured(before: Tracked | None, released: Array, noise_sd: float) -> Tracked:
    """Return a statistic after another release of it, or after the first one."""
    if before is None:
        return Tracked.first(released, noise_sd**2)
    return before.measured(released, noise_sd**2, grows=True)


def week_of_pairs(model: PlannedEigenRec, users: LikingUsers, gate: Gate, last: ModelArrays) -> ModelArrays:
    """The next week's model where items recommend items; what was learned of them stays the same items."""
    n_items = users.domain.n_items
    learned = np.zeros(n_items, dtype=bool)
    learned[last.serve["learned_items"]] = True
    noisy = last.state["item_weights"]
    count = gate.release("number of users", users.count())
    scale, first = last.state["item_scale"], last.state["item_first"]
    users.scale(scale, first)
    precision = float(last.state["pairs_precision"])
    total = precision * last.state["pairs"]
    for label, bound in zip(_labels(True), (positive(1.0), signed(1.0), positive(1.0)), strict=True):
        again = gate.release(label, users.item_matrix(learned, bound))
        own = gate.noise_sd(label) ** -2.0 if gate.private else 1.0
        precision, total = precision + own, total + own * again
    n_users = float(last.state["users"][0])
    n_users += (float(count[0]) - n_users) / (1 + (gate.noise_sd("number of users") / (0.05 * n_users)) ** 2)
    noise_sd = float(np.sqrt(last.state["item_weights_variance"].mean()))
    known = Known(max(n_users, 1.0), noisy, noise_sd, learned, model.popularity(noisy, 0.0), scale, first)
    rank = len(last.serve["learned_items"]) - 1
    return model.served_pairs(known, total / precision, precision if gate.private else 0.0, rank)


def _carried(kept: Kept, before: Array, known: Known) -> tuple[Array, Tracked | None]:
    """The probe and what its sums are expected to be, over the items that are learned now; None: unknown."""
    learned = known.learned
    seen = (before[learned] > 0) & (kept.item_sums_variance[learned] > 0)
    first = known.first[learned]
    probe = apart(kept.item_probe[learned], first)
    if not seen.any():
        return probe, None
    ratio = np.divide(known.scale[learned], before[learned], out=np.zeros(int(learned.sum())), where=seen)
    sums = kept.item_sums[learned] * ratio[:, None]
    variance = kept.item_sums_variance[learned] * ratio**2
    variance = np.where(seen, variance, float((sums[seen] ** 2).mean()))
    spread = np.repeat(variance[:, None], probe.shape[1], axis=1)
    return probe, Tracked(apart(sums, first), spread, kept.sums_drifts)


def _everywhere(rows: Array, learned: NDArray[np.bool_]) -> Array:
    """Rows of the learned items, and zeros for all others."""
    found = np.zeros((len(learned), *rows.shape[1:]))
    if rows.size:
        found[learned] = rows
    return found
