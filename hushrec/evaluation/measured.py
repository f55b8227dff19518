"""Results on public tables, printed next to a plan; ``python -m benchmarks.lists --measured`` makes them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hushrec.checks import check_numbers

TABLE = Path(__file__).with_name("measured.json")


@dataclass(frozen=True)
class Measured:
    """A public table, or some of its users, and the figures of the default training at one epsilon.

    ``epsilon`` is at delta 1e-6 (unit: user, relation: add-remove). ``recall`` is Recall@20 of the model's
    lists, of the most popular items with the same budget, and of the model with one user in twenty as a
    donor; ``rmse`` the same of predictions on the table's scale, with items' means as the baseline.
    """

    table: str
    n_users: int
    n_items: int
    ratings_per_user: float
    rating_range: tuple[float, float] | None
    epsilon: float
    recall: float
    recall_popular: float
    recall_donors: float
    rmse: float | None = None
    rmse_means: float | None = None
    rmse_donors: float | None = None


def nearest(
    n_users: int, n_items: int, epsilon: float, ratings_per_user: float | None = None, count: int = 3
) -> list[Measured]:
    """Return the rows of the tables that are most like a planned training, the most alike first.

    The distance is that of the logarithms of the declared figures; each table occurs once.
    """
    declared = {"n_users": n_users, "n_items": n_items, "epsilon": epsilon}
    if ratings_per_user is not None:
        declared["ratings_per_user"] = ratings_per_user
    for name, value in declared.items():
        check_numbers(**{name: (value, float, "(0, inf)")})

    def distance(row: Measured) -> float:
        return math.fsum(math.log(getattr(row, name) / value) ** 2 for name, value in declared.items())

    tables: dict[str, Measured] = {}
    for row in sorted(_rows(), key=distance):
        tables.setdefault(row.table, row)
    return list(tables.values())[:count]


def public_decides(n_users: int, n_items: int, epsilon: float) -> str:
    """Return a sentence if public data decide on the table that is most like a planned training.

    There, donors make lists better than the largest epsilon does, and by at least half. Empty elsewhere.
    """
    (row,) = nearest(n_users, n_items, epsilon, count=1)
    same = [other for other in _rows() if (other.table, other.n_users) == (row.table, row.n_users)]
    most = max(same, key=lambda other: other.epsilon)
    private = max(row.recall, row.recall_popular)
    if most is row or row.recall_donors <= most.recall or row.recall_donors - private < private / 2:
        return ""
    return (
        f"On {row.table}, public data decide, not more budget: Recall@20 is {row.recall:.3f} at epsilon"
        f" {row.epsilon:g}, {most.recall:.3f} at epsilon {most.epsilon:g}, and {row.recall_donors:.3f} at"
        f" epsilon {row.epsilon:g} with 5% donors. Use --donors or --item-features."
    )


@lru_cache
def _rows() -> tuple[Measured, ...]:
    return tuple(Measured(**row) for row in json.loads(TABLE.read_text(encoding="utf-8")))
