"""Learn the weights of a list's parts from all users: private stacked generalisation.

Wolpert (1992) and Breiman (1996) learn the weights of models from held-out data. Here every user holds out a
quarter of their likes, and the parts score all items from the rest. With weights ``w``, the user's held-out
likes have the probabilities ``exp(w x_i) / sum_j exp(w x_j)`` among the competing items j, the best ones of
every part (a conditional logit). The gradient g and the negative Hessian H of the log-likelihood at the prior
weights are summed over users and released once. One step from the prior is the answer:
``w = (1 / tau^2 + H R H)^-1 (w_0 / tau^2 + H R (H w_0 + g))`` with ``R = (noise + H)^-1``, the posterior mean
of a linear Gaussian model. Weights are not negative: only the best items of a part compete, so nothing is
known of its worst ones. Sensitivity: docs/proofs/stacking.md.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from hushrec.data.keys import cell_keys
from hushrec.kernels import topk
from hushrec.kernels.fixed_point import CLIP_MARGIN, spacing, truncated
from hushrec.kernels.packed import frobenius_scale, unpacked
from hushrec.models.private_eigenrec.parts import Parts
from hushrec.models.private_eigenrec.public_likes import row_key
from hushrec.privacy import Bounded, signed
from hushrec.types import Array

#: Label of the release.
WEIGHTS = "weights of the parts"
#: Prior weight of every part in its unit, except popularity, which has 1; deviation of all. From 0, good
#: tables of few users lose up to .02 of Recall at epsilon 1, and useless ones cost .01 less.
_PRIOR, _PRIOR_SD = 0.5, 1.0
#: Items of each part that compete.
_COMPETING = 100
#: Fraction of a user's likes that is held out, and the fewest likes of a user who contributes.
_HELD, _FEWEST = 0.25, 3
#: Norm to which a user's gradient and Hessian are clipped together. It binds for most users.
_CLIP = 0.05
#: Most users who contribute, and their scores: limits of time.
_MOST_USERS, _MOST_SCORES = 10_000, 200_000_000
#: Scores held in memory at once.
_AT_ONCE = 1 << 21

# The prior, the number of competing items and the held-out part were chosen on MovieLens-100K, MovieLens
# small, 600 users of MovieLens-1M, FilmTrust and Yahoo! R3; the clip, and the budget fraction, on 300 and 600
# users of MovieLens-1M, MovieLens small, and RetailRocket with donors.


class Learned(NamedTuple):
    """Weights of the parts, and the precision (inverse covariance) of their estimate."""

    weights: Array
    precision: Array


def prior(n_parts: int) -> Learned:
    """Return what is known of the weights before any release."""
    weights = np.full(n_parts, _PRIOR)
    weights[0] = 1.0
    return Learned(weights, np.eye(n_parts) / _PRIOR_SD**2)


def size(n_parts: int) -> int:
    """Return the number of released numbers."""
    return n_parts + n_parts * (n_parts + 1) // 2


def asked_part(n_users: float, n_items: int) -> float:
    """Return the part of the users who contribute, from released or declared numbers."""
    return min(1.0, _MOST_USERS / max(n_users, 1.0), _MOST_SCORES / (max(n_users, 1.0) * n_items))


# ---------------------------------------------------------------------- users' side


def contributions(likes: sp.csr_array, parts: Parts, weights: Array, part: float) -> Bounded:
    """Return the sum over users of gradient and Hessian, at norm 1 a user.

    ``part`` of the users contribute, chosen by a hash of their own likes. So is what a user holds out. A user
    whose likes are those of a public row adds nothing: that part was fitted to the row.
    """
    weight = np.concatenate([np.ones(len(weights)), frobenius_scale(len(weights))])
    total, step = np.zeros(size(len(weights))), spacing(1.0)
    chosen, known, held = _split(likes, part, parts.public[1] if parts.public else ())
    block = max(1, _AT_ONCE // (likes.shape[1] * len(weights)))
    for start in range(0, len(chosen), block):
        rows = known[start : start + block]
        for number, scores in enumerate(parts.scores(rows), start):
            seen = rows.indices[slice(*rows.indptr[number - start : number - start + 2])]
            mine = np.concatenate(_of_user(scores, seen, held[number], weights))
            length = float(np.linalg.norm(mine * weight))
            if 0 < length < math.inf:
                total += truncated(mine * (CLIP_MARGIN / max(_CLIP, length)), step)
    return Bounded(total, signed(1.0), weight=weight, step=step)


def _split(
    likes: sp.csr_array, part: float, public: Array | tuple[()] = ()
) -> tuple[Array, sp.csr_array, list[Array]]:
    """Return the users who contribute, their known likes and their held-out items.

    Users with likes of a key in ``public`` do not contribute.
    """
    chosen, kept, held = [], [], []
    for user, (start, stop) in enumerate(itertools.pairwise(likes.indptr)):
        items = likes.indices[start:stop]
        if len(items) < _FEWEST:
            continue
        base = row_key(items)
        if float(base[0]) >= part * 2.0**64 or base[0] in public:
            continue
        order = items[np.argsort(cell_keys(base, items), kind="stable")]
        count = max(1, round(_HELD * len(items)))
        chosen.append(user)
        held.append(order[:count])
        kept.append(np.sort(order[count:]))
    starts = np.concatenate([[0], np.cumsum([len(items) for items in kept])]).astype(np.int64)
    items = np.concatenate([np.zeros(0, likes.indices.dtype), *kept])
    rows = sp.csr_array((np.ones(len(items), np.float32), items, starts), (len(kept), likes.shape[1]))
    return np.array(chosen, np.int64), rows, held


def _of_user(scores: Array, seen: Array, held: Array, weights: Array) -> tuple[Array, Array]:
    """Return one user's gradient and packed Hessian."""
    open_scores = scores.T.copy()
    open_scores[:, seen] = -math.inf  # which is never among the best
    best = np.unique(topk.top_k(open_scores, _COMPETING)[0])
    competing = best[best >= 0]
    values, wanted = scores[competing], np.isin(competing, held)
    utility = values @ weights
    chance = np.exp(utility - utility.max())
    chance /= chance.sum()
    mean, found = chance @ values, float(wanted.sum()) / len(held)
    gradient = wanted @ values / len(held) - found * mean
    hessian = found * ((values * chance[:, None]).T @ values - np.outer(mean, mean))
    return gradient, hessian[np.tril_indices(len(weights))]


# ---------------------------------------------------------------------- server's side


def learned(released: Array, noise_sd: float, before: Learned) -> Learned:
    """Return the likeliest weights >= 0 after a release of :func:`contributions` at the weights before.

    The measurement is ``H w + noise`` with the covariance of the noise and of the users' choices.
    """
    from scipy.optimize import nnls  # takes long to load

    count = len(before.weights)
    gradient, hessian = _CLIP * released[:count], _CLIP * unpacked(released[count:])
    values, axes = np.linalg.eigh(hessian)
    values = np.maximum(values, 0.0)
    spread = (_CLIP * noise_sd) ** 2 + values
    gain = np.divide(values, spread, out=np.zeros(count), where=spread > 0)
    precision = before.precision + (axes * (gain * values)) @ axes.T
    moved = (axes * gain) @ (axes.T @ gradient)  # from the weights before, where both measurements agree
    root = np.linalg.cholesky(precision).T
    best = root @ before.weights + np.linalg.solve(root.T, moved)
    return Learned(nnls(root, best)[0], precision)
