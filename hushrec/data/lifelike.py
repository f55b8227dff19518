"""Generated ratings of users who choose by taste, as in real tables. They are not private."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Literal

import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from hushrec.checks import check_count
from hushrec.data.columns import Columns
from hushrec.data.domain import Domain
from hushrec.data.generators import names
from hushrec.data.ids import Encoded
from hushrec.data.keys import cell_keys, check_seed, mix, slices, stream_base
from hushrec.data.ratings import Ratings
from hushrec.data.ratings_builder import build
from hushrec.errors import InputError
from hushrec.types import Array

_CELLS = 1 << 22  # cells drawn at a time
_SERIES = 3  # items of a series
_APART = 0.05  # standard deviation of their places in the order of popularity, as a part of it
_LIKE_THEIR_SERIES = 0.5  # part of an item's taste that it has in common with its series


#: Constants of a setting, chosen by hand so summary figures are near those of real tables.
#: Choice: popularity falls by ``tail`` and, at its head, as 1 / (place + ``head``), all of it ``steep``;
#: ``taste`` (in ``directions``, each weaker by the power ``fall``) and ``series`` are standard deviations
#: in logarithms. Histories are ``least`` and a log-normal number more. The rest are deviations of stars, in
#: parts of their range; ``agree`` correlates liking with choosing, ``known`` quality with popularity.
_WORLDS = {
    "films": SimpleNamespace(
        users=2_000, items=2_000, least=16, typical=65, spread=1.15, head=0.017, tail=2.6, steep=1.5,
        taste=2.7, directions=14, fall=0.5, series=1, level=0.46, user=0.11, item=0.14, known=0.6,
        liking=0.19, agree=0.4, noise=0.205,
    ),
    "sparse": SimpleNamespace(
        users=5_000, items=1_500, least=4, typical=8, spread=0.9, head=0.01, tail=1, steep=1, taste=2.6,
        directions=8, fall=0.4, series=2, level=0.32, user=0.26, item=0.085, known=0, liking=0.34,
        agree=1, noise=0.2,
    ),
    "shop": SimpleNamespace(
        users=5_000, items=2_000, least=1, typical=4, spread=1.1, head=0.01, tail=2, steep=1.2,
        taste=1.8, directions=30, fall=0.3, series=3, level=0.75, user=0.15, item=0.08, known=0.3,
        liking=0.1, agree=0.5, noise=0.22,
    ),
}  # fmt: skip


def lifelike(
    setting: Literal["films", "sparse", "shop"] = "films",
    *,
    n_users: int | None = None,
    n_items: int | None = None,
    seed: int,
) -> Ratings:
    """Generate ratings of 1 to 5 by users whose tastes affect their choices and their ratings.

    In :func:`realistic` all users choose by popularity. Here popularity, lengths of histories, tastes and
    item pairs are like those of real tables (docs/reference/generated-data.md). A user's rows depend on the
    seed and their number only.

    Parameters
    ----------
    setting : {"films", "sparse", "shop"}
        Long histories of films; a dozen ratings a user; a shop's few purchases, which is assumed.
    n_users, n_items : int, optional
        By default 2,000 of each for films, 5,000 users and 1,500 or 2,000 items for the others.
    seed : int

    Examples
    --------
    >>> ratings = hushrec.data.lifelike("films", n_users=100, n_items=60, seed=0)
    >>> ratings.n_users, ratings.n_items
    (100, 60)
    """
    if setting not in _WORLDS:
        raise InputError(f"setting must be one of {', '.join(_WORLDS)}, not {setting!r}.")
    world, rng = _WORLDS[setting], np.random.default_rng([3, check_seed(seed)])
    n_users = check_count("n_users", world.users if n_users is None else n_users)
    n_items = check_count("n_items", world.items if n_items is None else n_items)
    domain = Domain(names("i", n_items, 5), rating_range=(1, 5))
    place = (rng.permutation(n_items) + 0.5) / n_items
    popular = -world.steep * (world.tail * place + np.log(place + world.head))
    series = np.argsort(np.argsort(place + _APART * rng.standard_normal(n_items))) // _SERIES
    strength = np.arange(1.0, world.directions + 1) ** -world.fall
    drawn = rng.standard_normal((3, n_items, world.directions)) * strength / np.linalg.norm(strength)
    chosen = _mixed(_LIKE_THEIR_SERIES, drawn[0][series], drawn[1])
    liked = _mixed(world.agree**2, chosen, drawn[2])
    standard = (popular - popular.mean()) / max(float(popular.std()), 1e-9)
    good = _mixed(world.known**2, standard, rng.standard_normal(n_items))

    ids = mix(np.arange(1, n_users + 1, dtype=np.uint64))
    base = {name: stream_base(ids, seed, name) for name in ("traits", "taste", "series", "choice", "stars")}
    traits = ndtri(_uniform(base["traits"][:, None], np.arange(2)))
    taste = ndtri(_uniform(base["taste"][:, None], np.arange(world.directions)))
    most = min(max(1, n_items // 2), domain.max_ratings_per_user)
    lengths = np.minimum(world.least + np.floor(world.typical * np.exp(world.spread * traits[:, 0])), most)
    rows, columns = [], []
    for part in slices(n_users, max(1, _CELLS // n_items)):
        keys = popular + world.taste * (taste[part] @ chosen.T)
        keys += world.series * ndtri(_uniform(base["series"][part, None], np.arange(n_items)))[:, series]
        keys -= np.log(-np.log(_uniform(base["choice"][part, None], np.arange(n_items))))  # Gumbel's law
        order = np.argsort(-keys, axis=1)
        user, nth = np.nonzero(np.arange(n_items) < lengths[part, None])
        rows.append(user + part.start)
        columns.append(order[user, nth])
    user, item = np.concatenate(rows), np.concatenate(columns)
    star = world.level + world.user * traits[user, 1] + world.item * good[item]
    star += world.liking * np.einsum("ij,ij->i", taste[user], liked[item])
    star += world.noise * ndtri(_uniform(base["stars"][user], item))
    stars = 1 + np.clip(np.rint(4 * star), 0, 4).astype(np.float32)
    users = pa.array(names("u", n_users, 6), pa.large_string())
    sorted_ = np.lexsort((item, user))
    encoded = Encoded(user[sorted_].astype(np.int32), users, users)
    return Ratings(domain, *build(domain, Columns(encoded, item[sorted_].astype(np.int32), stars[sorted_])))


def _uniform(base: Array, cells: Array) -> Array:
    return (cell_keys(base, cells) >> np.uint64(11)) * 2.0**-53 + 2.0**-54


def _mixed(share: float, first: Array, second: Array) -> Array:
    return math.sqrt(share) * first + math.sqrt(1 - share) * second
