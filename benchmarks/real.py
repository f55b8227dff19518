"""Real tables, whole, from the folder HUSHREC_DATA."""

from __future__ import annotations

import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.frontier.data import folder
from hushrec.data import Domain, Ratings

#: File and range of each.
SETS = {
    "ml-100k": ("ml-100k.parquet", (1.0, 5.0)),
    "ml-1m": ("ml-1m.parquet", (1.0, 5.0)),
    "jester": ("jester-1.parquet", (-10.0, 10.0)),
    "yahoo-r3": ("yahoo-r3.train.parquet", (1.0, 5.0)),
    "coat": ("small/coat.train.parquet", (1.0, 5.0)),
    "flixster": ("small/flixster.parquet", (0.5, 5.0)),
    "restaurant": ("restaurant.parquet", (0.0, 2.0)),
}


def read(name: str) -> Ratings | None:
    """All ratings of a table over a catalogue of its own items; None where it is not there."""
    file, ends = SETS[name]
    if (home := folder()) is None or not (home / file).exists():
        return None
    table = pq.read_table(home / file, columns=["user", "item", "rating"])
    domain = Domain(sorted(pc.unique(table["item"]).to_pylist()), rating_range=ends)
    return Ratings.from_any(tuple(table[each].to_numpy() for each in table.column_names), domain)


def liked(ratings: Ratings) -> Ratings:
    """The ratings from three quarters of the range up, of users who have one."""
    return ratings.liked(ratings.domain.like_threshold).rated()
