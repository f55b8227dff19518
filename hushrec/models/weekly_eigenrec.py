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
from hushrec.models.likes_taste import NOTHING, Known, Sums, Taste, apart, relative_weights
from hushrec.models.liking_users import LikingUsers
from hushrec.privacy import counted, positive, signed
from hushrec.serving.modelfile import Expected
from hushrec.training.estimator import Round
from hushrec.training.gate import Gate
from hushrec.training.kalman import DRIFTS, SEEN, Tracked, counted_again, first_count, no_evidence
from hushrec.types import Array, ModelArrays

#: Parts of a week's budget: number of users, item weights, sums. No study chose them.
_COUNT, _WEIGHTS, _SUMS = 0.01, 0.09, 0.9

_BY_ITEM = Expected("f", ("items",), 0.0)
#: What the arrays of a model hold.
EXPECTED = ModelArrays(
    serve={
        "directions": Expected("iu", (), 0),
        "next_direction": Expected("f", (), 0.0),
        "history_weight": _BY_ITEM,
        "history_power": Expected("f", (), 0.0, 1.0),
    },
    state=SEEN
    | Tracked.expected("item_weights", "items")
    | {
        "users": Expected("f", (2,), 0.0),
        "item_probe": Expected("f", ("items", "rank")),
        "item_sums": Expected("f", ("items", "rank")),
        "item_sums_variance": _BY_ITEM,
        "sums_drifts": Expected("f", (len(DRIFTS),)),
        "beside_weight": Expected("f", (), 0.0, 1.0),
        "item_components": Expected("f", ("items", "components")),
        "pairs": Expected("f", ("pairs",)),
        "pairs_precision": Expected("f", (), 0.0),
        "item_scale": _BY_ITEM,
        "item_first": _BY_ITEM,
    },
)


def weekly_rounds(rank: int) -> list[Round]:
    """Return the releases of a week; where items recommend items, the last one is their matrix."""
    found = [Round("number of users", _COUNT, counted(1.0)), Round("item weights", _WEIGHTS, positive(1.0))]
    return found + ([Round("item sums, or the item matrix", _SUMS, signed(1.0))] if rank else [])


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
    """

    users: Array
    weights: Tracked
    item_probe: Array
    item_sums: Array
    item_sums_variance: Array
    sums_drifts: Array

    @classmethod
    def first(cls, known: Known, counted_sd: float, noisy: Array, noise_sd: float, taste: Taste) -> Kept:
        """Return what is kept after week 0."""
        users, weights = first_count(known.n_users, counted_sd), Tracked.first(noisy, noise_sd**2)
        measured = taste.measured
        probe, sums = (_everywhere(each, known.learned) for each in (measured.probe, measured.sums))
        variance = np.where(known.learned, measured.noise_sd**2, 0.0)
        return cls(users, weights, probe, sums, variance, no_evidence())

    def to_arrays(self) -> dict[str, Array]:
        """Return the arrays of a model file."""
        own = {name: np.asarray(each) for name, each in self._asdict().items() if name != "weights"}
        own["item_seen"] = np.ones(len(self.item_probe))
        return own | self.weights.to_arrays("item_weights")

    @classmethod
    def of(cls, state: Mapping[str, Array]) -> Kept:
        """Inverse of `to_arrays`; new items are not known."""
        own: dict[str, Any] = {name: state[name] for name in cls._fields if name != "weights"}
        weights = Tracked.of(state, "item_weights").with_new(state["item_seen"] > 0)
        return cls(**own, weights=weights)


def week(model: PlannedEigenRec, users: LikingUsers, gate: Gate, last: ModelArrays) -> ModelArrays:
    """The next week's model."""
    kept = Kept.of(last.state)
    rank = min(kept.item_probe.shape[1], users.domain.n_items - 1)  # the catalogue may have shrunk
    kept = kept._replace(item_probe=kept.item_probe[:, :rank], item_sums=kept.item_sums[:, :rank])
    counts, weights = counted_again(users, gate, kept.users, kept.weights)
    weights_sd = float(np.sqrt(weights.variance.mean()))
    known = model.known(max(float(counts[0]), 1.0), weights.mean, weights_sd, rank)
    learned, taste = known.learned, NOTHING
    kept = kept._replace(users=np.maximum(counts, 0.0), weights=weights)  # noise may say fewer than none
    if rank:
        users.scale(known.scale, known.first)
        first = known.first[learned]
        probe, before = _carried(kept, np.sqrt(last.serve["history_weight"]), known)
        released = gate.release(
            "item sums, or the item matrix", users.item_sums(_everywhere(probe, learned), learned)
        )
        sums = apart(released.reshape(probe.shape), first)
        variance = gate.noise_sd("item sums, or the item matrix") ** 2
        now = before.measured(sums, variance, grows=True)
        taste = known.taste(Sums(probe, now.mean, float(np.sqrt(now.variance.mean()))))
        kept = kept._replace(
            item_probe=_everywhere(probe, learned),
            item_sums=_everywhere(now.mean, learned),
            item_sums_variance=_everywhere(now.variance.mean(axis=1), learned),
            sums_drifts=now.evidence,
        )
    return ModelArrays(model.served(known, weights.mean, weights_sd, taste, learned), kept.to_arrays())


def week_of_pairs(model: PlannedEigenRec, users: LikingUsers, gate: Gate, last: ModelArrays) -> ModelArrays:
    """The next week's model where items recommend items; what was learned of them stays the same items."""
    n_items = users.domain.n_items
    learned = np.zeros(n_items, dtype=bool)
    learned[last.serve["learned_items"]] = True
    noisy = last.state["item_weights"]
    count = gate.release("number of users", users.count())
    gate.release("item weights", users.item_weights())
    scale, first = last.state["item_scale"], last.state["item_first"]
    users.scale(scale, first)
    label = "item sums, or the item matrix"
    again = gate.release(label, users.item_matrix(learned, signed(1.0)))
    before, own = float(last.state["pairs_precision"]), gate.noise_sd(label) ** -2.0 if gate.private else 0.0
    matrix = (before * last.state["pairs"] + own * again) / (before + own) if own else again
    n_users = float(last.state["users"][0])
    n_users += (float(count[0]) - n_users) / (1 + (gate.noise_sd("number of users") / (0.05 * n_users)) ** 2)
    known = Known(max(n_users, 1.0), noisy, 0.0, learned, relative_weights(noisy, 0.0), scale, first)
    return model.served_pairs(known, matrix, before + own, len(last.serve["learned_items"]) - 1)


def _carried(kept: Kept, before: Array, known: Known) -> tuple[Array, Tracked]:
    """The probe and what its sums are expected to be, over the items that are learned now."""
    learned = known.learned
    seen = (before[learned] > 0) & (kept.item_sums_variance[learned] > 0)
    ratio = np.divide(known.scale[learned], before[learned], out=np.zeros(int(learned.sum())), where=seen)
    sums = kept.item_sums[learned] * ratio[:, None]
    variance = kept.item_sums_variance[learned] * ratio**2
    usual = float((sums[seen] ** 2).mean()) if seen.any() else 1.0
    variance = np.where(seen, variance, usual)
    first = known.first[learned]
    probe = apart(kept.item_probe[learned], first)
    spread = np.repeat(variance[:, None], probe.shape[1], axis=1)
    return probe, Tracked(apart(sums, first), spread, kept.sums_drifts)


def _everywhere(rows: Array, learned: NDArray[np.bool_]) -> Array:
    """Rows of the learned items, and zeros for all others."""
    found = np.zeros((len(learned), *rows.shape[1:]))
    if rows.size:
        found[learned] = rows
    return found
