"""The first training of private EigenRec: item weights, then rounds of power iteration."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hushrec.models.private_eigenrec.denoise import (
    NOTHING,
    UNMEASURED,
    Halves,
    Measured,
    Sums,
    Taste,
    project_out,
)
from hushrec.models.private_eigenrec.items import ItemStatistics, most_popular, served
from hushrec.models.private_eigenrec.pairs import train_pairs
from hushrec.models.private_eigenrec.users import LikingUsers
from hushrec.models.private_eigenrec.week import SeasonState
from hushrec.models.private_eigenrec.weighing import with_parts
from hushrec.privacy import Bounded
from hushrec.training.gate import Gate
from hushrec.training.posterior import item_weights, ratio
from hushrec.types import Array, ModelArrays

if TYPE_CHECKING:
    from hushrec.models.private_eigenrec.settings import PrivateEigenRec


#: Improves released item weights, given with their noise, by earlier releases; returns both again.
Better = Callable[[Array, float], tuple[Array, float]]


def train_first(
    model: PrivateEigenRec, users: LikingUsers, gate: Gate, seed: int, better: Better | None = None
) -> ModelArrays:
    n_users = model.known_users
    noisy, noise_sd = gate.release("item weights", users.item_weights()), gate.noise_sd("item weights")
    if better is not None:
        noisy, noise_sd = better(noisy, noise_sd)
    rank = model.rank_in(users.domain)
    items = ItemStatistics.of(model.tuning, n_users, noisy, noise_sd, rank)
    supported, taste, measured = items.learned, NOTHING, UNMEASURED
    if rank:
        users.scale(items.scale, items.first)
        if model.pairs:
            return with_parts(train_pairs(items, rank, users, gate), users, gate, model.public)
        start = np.random.default_rng(seed).standard_normal((int(items.learned.sum()), rank))
        taste, measured, noisy, noise_sd = _power_iteration(model, users, items, start, gate)
        supported = supported | most_popular(model.tuning, noisy, noise_sd, rank)
    state = SeasonState.first(items, (noisy, noise_sd), measured)
    arrays = ModelArrays(served(items, noisy, noise_sd, taste, supported), state.to_arrays())
    return with_parts(arrays, users, gate, model.public)


def _power_iteration(
    model: PrivateEigenRec, users: LikingUsers, items: ItemStatistics, start: Array, gate: Gate
) -> tuple[Taste, Measured, Array, float]:
    """Return the taste dimensions, and the item weights with their noise.

    While no taste shows and the heaviest items are uncertain, a round releases the weights again, with its
    sums or instead of them.
    """
    learned, n_users = items.learned, items.n_users
    first = items.first[learned]
    probe = project_out(start, first)
    vectors = np.zeros((len(learned), start.shape[1]))
    rounds: list[Sums] = []
    sums: Sums | None = None
    weights, weights_sd = items.noisy, items.noise_sd
    known = item_weights(weights, weights_sd).known

    def release(label: str, bounded: Bounded, part: float) -> tuple[Array, float]:
        """Release, combine the item weights with those before, and return the rest with its noise."""
        nonlocal weights, weights_sd, known
        noisy, noise_sd = gate.release(label, bounded), gate.noise_sd(label)
        if part > 0:
            again, noisy = np.split(noisy, [len(weights)])
            variance = noise_sd**2 / part
            total = weights_sd**2 + variance  # 0 without noise
            weights = weights + (again - weights) * ratio(weights_sd**2, total)
            weights_sd *= math.sqrt(ratio(variance, total))
            known = item_weights(weights, weights_sd).known
        return noisy, noise_sd / math.sqrt(1 - part) if part < 1 else 0.0

    for step in range(1, model.iterations + 1):
        part = model.weights_part(len(rounds), sums, known)
        vectors[learned] = probe
        noisy, noise_sd = release(f"item sums {step}", users.contributions(vectors, part), part)
        if part < 1:
            rounds.append(Sums(probe, project_out(noisy.reshape(probe.shape), first), noise_sd))
            sums = Sums.of_all(rounds, n_users)
            along, values = sums.directions()
            probe = along * (values / values[0]) ** -model.tuning.equalization
    vectors[learned] = along
    part = model.weights_part(len(rounds), sums, known)
    noisy, noise_sd = release("halves of likes", users.halves(vectors, part), part)
    if sums is None or part == 1:
        return NOTHING, UNMEASURED, weights, weights_sd
    measured = Measured(sums, along, noisy, noise_sd)
    taste = Halves.of(noisy, noise_sd).taste(along, values, np.eye(along.shape[1]), n_users)
    return taste, measured, weights, weights_sd
