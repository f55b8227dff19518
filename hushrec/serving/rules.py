"""Rules for lists: which items may be listed, how many may share a value, and which are boosted.

They have no privacy cost: they use a public table and a user's own scores. A column that was counted from
private ratings, such as sales, is not public.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.checks import check_numbers, plural
from hushrec.data import Domain
from hushrec.errors import InputError
from hushrec.serving.attributes import Attributes
from hushrec.serving.conditions import Condition

Columns = NDArray[np.int64]
Limits = tuple[tuple[NDArray[np.int64], int], ...]

#: A larger boost has no further effect, and a product of several could be infinite.
_MOST_BOOST = 1_000_000
#: Conditions of boost, and columns of at_most.
_MOST_ENTRIES = 20
#: Operations of all conditions of a request times the items of the catalogue: about 0.2 s on one core.
_MOST_WORK = 50_000_000


class Rules(NamedTuple):
    """Rules, evaluated for every item of the catalogue."""

    #: Whether each item may be listed; None: all may.
    allowed: NDArray[np.bool_] | None = None
    #: The factor of each item's score; None: 1.
    factors: NDArray[np.float64] | None = None
    #: Of each limited column: the code of every item's value (-1: none), and the most items that share one.
    limits: Limits = ()

    @classmethod
    def of(
        cls,
        domain: Domain,
        attributes: Any = None,
        where: str | Sequence[str] | None = None,
        at_most: Mapping[str, int] | None = None,
        boost: Mapping[str, float] | None = None,
    ) -> Rules:
        wanted = [where] if isinstance(where, str) else [] if where is None else list(where)
        if not wanted and not at_most and not boost:
            return cls()
        if attributes is None:
            raise InputError(
                "where, at_most and boost need a table of the items: pass attributes, or start the server"
                " with --attributes FILE."
            )
        at_most, boost = _checked(at_most or {}, boost or {})
        conditions = {text: Condition(text) for text in [*wanted, *boost]}
        operations = sum(condition.operations for condition in conditions.values())
        if operations * domain.n_items > _MOST_WORK:
            raise InputError(
                f"The conditions have {operations:,} names, words and signs, which is too much work for"
                f" {plural(domain.n_items, 'item')}: shorten them to {_MOST_WORK // domain.n_items:,}, or"
                " compute a column of truth values beforehand."
            )
        table = Attributes.read(attributes, domain)
        limits = tuple((table.codes(name), int(most)) for name, most in at_most.items())
        allowed = np.all([table.matching(conditions[text]) for text in wanted], axis=0) if wanted else None
        factors = np.ones(domain.n_items)
        for text, factor in boost.items():
            factors = np.where(table.matching(conditions[text]), factors * factor, factors)
        return cls(allowed, factors if boost else None, limits)

    def among(self, n_items: int, items: Columns | None, exclude_items: Columns | None) -> Rules:
        """Return the rules for lists of some items only, and without others."""
        if items is None and exclude_items is None:
            return self
        among = np.full(n_items, items is None)
        among[[] if items is None else items] = True
        among[[] if exclude_items is None else exclude_items] = False
        return self._replace(allowed=among if self.allowed is None else among & self.allowed)


def _checked(at_most: Any, boost: Any) -> tuple[Mapping[str, int], Mapping[str, float]]:
    if not isinstance(at_most, Mapping) or not isinstance(boost, Mapping):
        raise InputError("at_most and boost are dictionaries, such as {'brand': 2} and {'new': 1.1}.")
    for name, rules in (("boost", boost), ("at_most", at_most)):
        if len(rules) > _MOST_ENTRIES:
            raise InputError(f"{name} has {len(rules):,} entries; pass at most {_MOST_ENTRIES}.")
    for most in at_most.values():
        check_numbers(at_most=(most, int, "[1, inf)"))
    for factor in boost.values():
        check_numbers(boost=(factor, float, f"(0, {_MOST_BOOST}]"))
    return at_most, boost


def boosted(scores: NDArray[np.float64], factors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Multiply the distance of each score to the user's lowest: a factor above 1 lowers no score."""
    least = scores.min(axis=1, keepdims=True, initial=np.inf)
    return least + factors * (scores - least)


def limited(
    limits: Limits,
    scores: NDArray[np.float64],
    columns: NDArray[np.int64],
    first: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the best columns of each row and their scores within the limits; -1 is past the end.

    ``columns`` are the best without limits; the rest is as in `hushrec.kernels.topk.top_k`.
    """
    count = columns.shape[1]
    kept, best = np.full(columns.shape, -1), np.full(columns.shape, -np.inf)
    for row, candidates in enumerate(columns):
        seen = [np.zeros(codes.max(initial=-1) + 2, np.int64) for codes, _ in limits]
        chosen = _walk(limits, seen, candidates[candidates >= 0], count)
        if len(chosen) < count and candidates[-1] >= 0:  # there are more items than the best
            left = scores[row].copy()
            left[candidates] = -np.inf
            order = np.lexsort((-left,) if first is None else (-left, ~first))
            order = order[left[order] > -np.inf]
            for start in range(0, len(order), count):
                chosen += _walk(limits, seen, order[start : start + count], count - len(chosen))
                if len(chosen) == count:
                    break
        kept[row, : len(chosen)], best[row, : len(chosen)] = chosen, scores[row, chosen]
    return kept, best


def _walk(
    limits: Limits, seen: list[NDArray[np.int64]], candidates: NDArray[np.int64], count: int
) -> list[int]:
    kinds = [
        np.where(codes[candidates] < 0, len(held) - 1, codes[candidates])
        for (codes, _), held in zip(limits, seen, strict=True)
    ]
    full = [held[kind] >= most for kind, held, (_, most) in zip(kinds, seen, limits, strict=True)]
    chosen: list[int] = []
    for place in np.flatnonzero(~np.any(full, axis=0)).tolist():
        if len(chosen) == count:
            break
        if all(held[kind[place]] < most for kind, held, (_, most) in zip(kinds, seen, limits, strict=True)):
            chosen.append(int(candidates[place]))
            for kind, held, (codes, _) in zip(kinds, seen, limits, strict=True):
                held[kind[place]] += codes[candidates[place]] >= 0
    return chosen
