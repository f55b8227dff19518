"""Join the parts of a list, with weights that all users learn in one release."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hushrec.models.private_eigenrec.parts import Parts
from hushrec.models.private_eigenrec.public_likes import PublicLikes
from hushrec.models.private_eigenrec.stacking import WEIGHTS, Learned, asked_part, learned, prior
from hushrec.training.gate import Gate
from hushrec.types import Array, ModelArrays

if TYPE_CHECKING:
    from hushrec.models.private_eigenrec.users import LikingUsers


def with_parts(
    arrays: ModelArrays,
    users: LikingUsers,
    gate: Gate,
    public: PublicLikes | None,
    last: Mapping[str, Array] = {},
) -> ModelArrays:
    """Return the sum of a training's parts, if the plan has a release of their weights.

    ``last`` is the state of the season's last week, whose weights are the prior.
    """
    if not gate.planned(WEIGHTS):
        return arrays
    state, domain = arrays.state, users.domain
    n_users = max(float(state["users"][0]), 1.0)
    noise_sd = math.sqrt(float(np.mean(state["item_weights_variance"])))
    parts = Parts.of(arrays.serve, (state["item_weights"], noise_sd), n_users, domain, public)
    before = _known(last, len(parts.names))
    asked = users.part_weights(parts, before.weights, asked_part(n_users, domain.n_items))
    now = learned(gate.release(WEIGHTS, asked), gate.noise_sd(WEIGHTS), before)
    kept = {name: arrays.serve[name] for name in ("directions",) if name in arrays.serve}
    tracked = {"part_weights": now.weights, "part_precision": now.precision}
    return replace(
        arrays,
        serve={**parts.served(now.weights), **kept},
        state={**state, **tracked},
        parts=parts.described(now.weights),
    )


def _known(last: Mapping[str, Array], n_parts: int) -> Learned:
    """Return the last week's weights, or the prior if the season had other parts."""
    if len(last.get("part_weights", ())) != n_parts:
        return prior(n_parts)
    return Learned(last["part_weights"], last["part_precision"])
