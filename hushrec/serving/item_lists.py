"""Public lists of items that a caller passes: which of them the catalogue has."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushrec.checks import check_listed, plural
from hushrec.data import Domain
from hushrec.errors import InputError

#: Up to this many ids are looked up one by one, which is faster.
_FEW_IDS = 1000


class Known(NamedTuple):
    """The items of a list that the catalogue has.

    Attributes
    ----------
    columns : ndarray of int64
        Their positions, in the order of the list.
    skipped : str
        A sentence with the number of other items; empty if there are none.
    """

    columns: NDArray[np.int64]
    skipped: str

    @classmethod
    def of(cls, domain: Domain, items: Sequence[Any], name: str) -> Known:
        """Raise InputError if the list has items and the catalogue has none of them."""
        places = positions(domain, items, name)
        columns = places[places >= 0]
        of = f"the model's catalogue of {plural(domain.n_items, 'item')}"
        if len(places) and not len(columns):
            raise InputError(
                f"{name} has no item of {of}; pass a list with the ids of the catalogue.", parameter=name
            )
        skipped = len(places) - len(columns)
        words = f"{name}: skipped {skipped:,} of {plural(len(places), 'item')}, not in {of}."
        return cls(columns, words if skipped else "")


def known_lists(
    domain: Domain, items: Any = None, exclude_items: Any = None
) -> tuple[NDArray[np.int64] | None, ...]:
    """Return the positions of the known items of both lists, and warn of the others."""
    found: list[NDArray[np.int64] | None] = []
    for name, listed in (("items", items), ("exclude_items", exclude_items)):
        known = None if listed is None else Known.of(domain, listed, name)
        if known is not None and known.skipped:
            warnings.warn(known.skipped, stacklevel=4)  # of the caller of recommend
        found.append(known and known.columns)
    return tuple(found)


def positions(domain: Domain, items: Sequence[Any], name: str = "items") -> NDArray[np.int64]:
    """Return the items' positions in the catalogue; negative if it lacks them."""
    check_listed(items, name, '["matrix", "alien"]')
    items = list(items) if isinstance(items, Iterator) else items  # an iterator is read once only
    few = isinstance(items, list | tuple) and len(items) <= _FEW_IDS
    return np.fromiter(map(domain.position, items), np.int64) if few else domain.index(items)
