"""The later weeks of private EigenRec: the sums of a round again, with the noise of a week's slice.

The vectors that users' rows are multiplied with stay the same over a season. So the sums of all weeks measure
one thing, which a Kalman filter combines. Sensitivities: docs/proofs/private-eigenrec.md.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.models.private_eigenrec.denoise import NOTHING, Halves, Measured, Sums, project_out
from hushrec.models.private_eigenrec.items import ItemStatistics, served
from hushrec.models.private_eigenrec.pairs import train_next_week_of_pairs
from hushrec.models.private_eigenrec.stacking import WEIGHTS
from hushrec.models.private_eigenrec.users import LikingUsers
from hushrec.models.private_eigenrec.weighing import with_parts
from hushrec.privacy import counted, positive, signed
from hushrec.serving.modelfile import Expected, needed_if
from hushrec.training.gate import Gate
from hushrec.training.kalman import DRIFTS, SEEN, Tracked, counted_again, no_evidence
from hushrec.training.trainable import Round
from hushrec.types import Array, ModelArrays

if TYPE_CHECKING:
    from hushrec.models.private_eigenrec.settings import PrivateEigenRec

#: Fractions of a week's budget: number of users, item weights, sums, halves of likes. No study chose them.
_COUNT, _WEIGHTS, _SUMS, _HALVES = 0.01, 0.09, 0.85, 0.05

_BY_ITEM, _VECTORS = Expected("f", ("items",), 0.0), Expected("f", ("items", "own rank"))


def _of_pairs(names: Container[str]) -> bool:
    return "pair_items" in names


def _of_sums(names: Container[str]) -> bool:
    return "pair_items" not in names


EXPECTED = ModelArrays(
    serve={
        "directions": Expected("iu", (), 0),
        "history_weight": _BY_ITEM,
        "history_popularity": _BY_ITEM._replace(needed=False),
        "history_prior": Expected("f", (), 0.0, needed=lambda names: "history_popularity" in names),
    },
    state={
        "users": Expected("f", (1,), 0.0),
        "item_weights": Expected("f", ("items",)),
        "item_weights_variance": _BY_ITEM,
        "part_weights": Expected("f", ("parts",), needed=False),
        "part_precision": Expected("f", ("parts", "parts"), needed=lambda names: "part_weights" in names),
    }
    | needed_if(
        _of_sums,
        SEEN
        | Tracked.expected("halves", lambda sizes: sizes["own rank"] * (sizes["own rank"] + 1))
        | {
            "weights_drifts": Expected("f", (len(DRIFTS),)),
            "item_probe": _VECTORS,
            "item_sums": _VECTORS,
            "item_sums_variance": _BY_ITEM,
            "sums_drifts": Expected("f", (len(DRIFTS),)),
            "item_basis": _VECTORS,
        },
    )
    | needed_if(
        _of_pairs,
        {
            "pairs": Expected("f", (lambda sizes: sizes["pairs"] * (sizes["pairs"] + 1) // 2,)),
            "pairs_precision": Expected("f", (), 0.0),
            "item_scale": _BY_ITEM,
            "item_first": _BY_ITEM,
        },
    ),
)


def weekly_rounds(rank: int, pairs: bool, for_parts: float) -> list[Round]:
    weighing = [Round(WEIGHTS, for_parts / (1 - for_parts), signed(1.0))] if for_parts else []
    if rank and pairs:
        return [Round("item matrix", 1.0, positive(1.0)), *weighing]
    rounds = [Round("number of users", _COUNT, counted(1.0)), Round("item weights", _WEIGHTS, positive(1.0))]
    if rank:
        rounds += [Round("item sums", _SUMS, signed(1.0)), Round("halves of likes", _HALVES, positive(1.0))]
    whole = sum(round.share for round in rounds)
    return [*rounds, *(round._replace(share=round.share * whole) for round in weighing)]


class SeasonState(NamedTuple):
    """State of a season: released values, or functions of them.

    Attributes
    ----------
    users : ndarray of shape (1,)
        Number of users of the first week; the sums are in its units.
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
    def first(cls, items: ItemStatistics, weights: tuple[Array, float], measured: Measured) -> SeasonState:
        learned, sums = items.learned, measured.sums
        return cls(
            np.array([items.n_users]),
            Tracked.first(weights[0], weights[1] ** 2),
            _everywhere(sums.probe, learned),
            _everywhere(sums.sums, learned),
            np.where(learned, sums.noise_sd**2, 0.0),
            no_evidence(),
            _everywhere(measured.basis, learned),
            Tracked.first(measured.halves, measured.halves_sd**2),
        )

    def to_arrays(self) -> dict[str, Array]:
        tracked = {"weights": "item_weights", "halves": "halves"}
        arrays = {name: np.asarray(value) for name, value in self._asdict().items() if name not in tracked}
        arrays["item_seen"] = np.ones(len(self.item_probe))
        return arrays | self.weights.to_arrays("item_weights") | self.halves.to_arrays("halves")

    @classmethod
    def of(cls, state: Mapping[str, Array], rank: int) -> SeasonState:
        """Inverse of `to_arrays`, with that rank; new items are unknown.

        A catalogue that shrank has room for fewer vectors. One that grew beyond its rank starts again.
        """
        fields: dict[str, Any] = {
            name: state[name] for name in cls._fields if name in state and name != "halves"
        }
        weights = Tracked.of(state, "item_weights").with_new(state["item_seen"] > 0)
        halves, before = Tracked.of(state, "halves"), fields["item_probe"].shape[1]
        if before < rank:
            start = np.random.default_rng(0).standard_normal((len(fields["item_probe"]), rank))
            fields |= {"item_probe": start, "item_sums": 0 * start, "item_basis": 0 * start}
            fields["item_sums_variance"] = np.zeros(len(start))
            halves = Tracked.first(np.zeros(rank * (rank + 1)), 0.0)
        elif before > rank:
            for name in ("item_probe", "item_sums", "item_basis"):
                fields[name] = fields[name][:, :rank]
            rows = np.arange(rank * (rank + 1) // 2)  # a triangle begins with the smaller one's
            both = np.append(rows, rows + len(halves.mean) // 2)
            halves = Tracked(halves.mean[both], halves.variance[both], halves.evidence)
        return cls(**fields, weights=weights, halves=halves)


def train_next_week(model: PrivateEigenRec, users: LikingUsers, gate: Gate, last: ModelArrays) -> ModelArrays:
    """Return the next week's model."""
    pairs = "pair_items" in last.serve
    arrays = train_next_week_of_pairs(users, gate, last) if pairs else _next_week(model, users, gate, last)
    return with_parts(arrays, users, gate, model.public, last.state)


def _next_week(model: PrivateEigenRec, users: LikingUsers, gate: Gate, last: ModelArrays) -> ModelArrays:
    rank = model.rank_in(users.domain)
    state = SeasonState.of(last.state, rank)
    n_users = float(state.users[0])
    part, weights = counted_again(users, gate, n_users, state.weights)
    weights_sd = float(np.sqrt(weights.variance.mean()))
    items = ItemStatistics.of(model.tuning, n_users, weights.mean, weights_sd, rank)
    learned, taste = items.learned, NOTHING
    state = state._replace(weights=weights)
    if rank:
        users.scale(items.scale, items.first)
        first = items.first[learned]
        probe, before = _carried(state, np.sqrt(last.serve["history_weight"]), items)
        released = gate.release("item sums", users.item_sums(_everywhere(probe, learned)))
        sums = project_out(released.reshape(probe.shape), first)
        now = _measured(before, sums, gate.noise_sd("item sums"), part)
        vectors, values = Sums(probe, now.mean, float(np.sqrt(now.variance.mean()))).directions()
        begun = bool(state.item_basis.any())
        basis = state.item_basis if begun else _everywhere(vectors, learned)
        released = gate.release("halves of likes", users.halves(basis, 0.0))
        halves = _measured(state.halves if begun else None, released, gate.noise_sd("halves of likes"), part)
        measured = Halves.of(halves.mean, float(np.sqrt(halves.variance.mean())))
        taste = measured.taste(vectors, values, basis[learned].T @ vectors, n_users)
        state = state._replace(
            item_probe=_everywhere(probe, learned),
            item_sums=_everywhere(now.mean, learned),
            item_sums_variance=_everywhere(now.variance.mean(axis=1), learned),
            sums_drifts=now.evidence,
            item_basis=basis,
            halves=halves,
        )
    return ModelArrays(served(items, weights.mean, weights_sd, taste, learned), state.to_arrays())


def _measured(before: Tracked | None, released: Array, noise_sd: float, part: float) -> Tracked:
    if before is None:
        return Tracked.first(released / part, (noise_sd / part) ** 2)
    return before.measured(released, noise_sd**2, part)


def _carried(state: SeasonState, before: Array, items: ItemStatistics) -> tuple[Array, Tracked | None]:
    """The probe and what its sums are expected to be, over the items that are learned now, or None."""
    learned = items.learned
    seen = (before[learned] > 0) & (state.item_sums_variance[learned] > 0)
    first = items.first[learned]
    probe = project_out(state.item_probe[learned], first)
    if not seen.any():
        return probe, None
    ratio = np.divide(items.scale[learned], before[learned], out=np.zeros(int(learned.sum())), where=seen)
    sums = state.item_sums[learned] * ratio[:, None]
    variance = state.item_sums_variance[learned] * ratio**2
    variance = np.where(seen, variance, float((sums[seen] ** 2).mean()))
    spread = np.repeat(variance[:, None], probe.shape[1], axis=1)
    return probe, Tracked(project_out(sums, first), spread, state.sums_drifts)


def _everywhere(rows: Array, learned: NDArray[np.bool_]) -> Array:
    full = np.zeros((len(learned), *rows.shape[1:]))
    if rows.size:
        full[learned] = rows
    return full
