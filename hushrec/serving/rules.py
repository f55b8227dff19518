"""Rules for lists: which items may be listed, how many of a kind and which count for more.

They are computed from a public table of items and the user's own scores, after all noise was drawn: they
cost no privacy (post-processing). A column that was counted from private rows, such as sales, is not public.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushrec.checks import is_number, shown
from hushrec.data import Domain
from hushrec.errors import InputError
from hushrec.kernels import topk
from hushrec.serving.attributes import Attributes

#: A larger boost puts an item first as well, and several of them would be infinite.
_MOST = 1_000_000


class Rules(NamedTuple):
    """Rules as they bear on every item of a catalogue."""

    #: Which may be listed; None where all may.
    allowed: NDArray[np.bool_] | None = None
    #: By what each counts for more; None where all count alike.
    factors: NDArray[np.float64] | None = None
    #: For each limited column the code of every item's value, -1 of none, and how many may share one.
    limits: tuple[tuple[NDArray[np.int64], int], ...] = ()

    @classmethod
    def of(
        cls,
        domain: Domain,
        attributes: Any = None,
        where: str | None = None,
        at_most: Mapping[str, int] | None = None,
        boost: Mapping[str, float] | None = None,
    ) -> Rules:
        """Compute the rules of `Recommender.recommend` for all items; refused where one makes no sense."""
        if where is None and not at_most and not boost:
            return cls()
        if attributes is None:
            raise InputError(
                "where, at_most and boost need a table of the items: pass attributes, or start the server"
                " with --attributes FILE."
            )
        if not isinstance(at_most or {}, Mapping) or not isinstance(boost or {}, Mapping):
            raise InputError("at_most and boost are dictionaries, such as {'brand': 2} and {'new': 1.1}.")
        table = Attributes.read(attributes, domain)
        factors = np.ones(domain.n_items)
        for condition, factor in (boost or {}).items():
            if not is_number(factor) or not 0 < factor <= _MOST:
                raise InputError(
                    f"boost multiplies by a number above 0, at most {_MOST}, not {shown(factor)}",
                    parameter="boost",
                    value={"new": 1.1},
                )
            factors = np.where(table.matching(condition), factors * factor, factors)
        limits = []
        for name, most in (at_most or {}).items():
            if not isinstance(most, int | np.integer) or isinstance(most, bool) or most < 1:
                raise InputError(
                    f"at_most gives a positive number of items, not {shown(most)}",
                    parameter="at_most",
                    value={"brand": 2},
                )
            values = table.column(name).dictionary_encode()
            limits.append((pc.fill_null(values.indices, -1).to_numpy().astype(np.int64), int(most)))
        allowed = None if where is None else table.matching(where)
        return cls(allowed, factors if boost else None, tuple(limits))


def boosted(scores: NDArray[np.float64], factors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Multiply how far each score is above the user's lowest: more than 1 lowers none, whatever its sign."""
    least = scores.min(axis=1, keepdims=True, initial=np.inf)
    return least + factors * (scores - least)


def limited(
    limits: tuple[tuple[NDArray[np.int64], int], ...],
    scores: NDArray[np.float64],
    columns: NDArray[np.int64],
    indptr: NDArray[np.integer] | None = None,
    taken: NDArray[np.integer] | None = None,
    first: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the best columns of each row and their scores, of one kind no more than its limit.

    An item is left out where as many better ones of its kind are listed as may be; -1 is past the end.

    Parameters
    ----------
    limits
        As of `Rules`.
    columns
        The best ones without limits.
    scores, indptr, taken, first
        As of `hushrec.kernels.topk.top_k`.
    """
    count = columns.shape[1]
    kept, best = np.full(columns.shape, -1), np.full(columns.shape, -np.inf)
    for row, candidates in enumerate(columns):
        chosen: list[int] = []
        left, seen = scores[row].copy(), Counter[tuple[int, int]]()
        if indptr is not None and taken is not None:
            left[taken[indptr[row] : indptr[row + 1]]] = -np.inf
        while len(chosen) < count and candidates[0] >= 0:
            for column in candidates[candidates >= 0].tolist():
                kinds = [
                    (at, int(codes[column])) for at, (codes, _) in enumerate(limits) if codes[column] >= 0
                ]
                if len(chosen) < count and all(seen[kind] < limits[kind[0]][1] for kind in kinds):
                    chosen.append(column)
                    seen.update(kinds)
            left[candidates[candidates >= 0]] = -np.inf
            for at, code in [kind for kind, number in seen.items() if number == limits[kind[0]][1]]:
                left[limits[at][0] == code] = -np.inf
            candidates = (
                topk.top_k(left[None], count, first=first)[0][0] if len(chosen) < count else candidates
            )
        kept[row, : len(chosen)], best[row, : len(chosen)] = chosen, scores[row, chosen]
    return kept, best
