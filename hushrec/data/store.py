"""A store: the cleaned rows of all users on disk, in partitions of whole users, mapped into memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from hushrec.checks import check_options
from hushrec.data import store_files
from hushrec.data.columns import fields_of
from hushrec.data.domain import Domain
from hushrec.data.ids import Encoded, encode_ids
from hushrec.data.integers import hashes_of
from hushrec.data.preparing import write_store
from hushrec.data.ratings import OTHER_DOMAIN, Ratings, joined
from hushrec.errors import InputError


class Store:
    """The ratings of all users, on disk; made by `Store.prepare` or ``hushrec prepare``.

    Everything but ``domain`` and the marks is private.

    Parameters
    ----------
    path : path
    domain : Domain, optional
        The domain with which the store was prepared.

    Attributes
    ----------
    domain : Domain
    n_users, n_ratings : int
    by_position, hand_picked, purchases : bool
    splits : tuple of str
        As in `Ratings`.

    Raises
    ------
    InputError
        There is no store, it is of another version or domain, or damaged.

    Examples
    --------
    >>> domain = hushrec.Domain(["matrix", "alien"], rating_range=(1, 5))
    >>> table = {"user": ["ann", "ann", "bob"], "item": ["matrix", "alien", "alien"], "rating": [5, 4, 2]}
    >>> store = hushrec.Store.prepare(table, "store", domain)   # a folder: private, like the table
    >>> store.n_users, store.n_ratings
    (2, 3)
    >>> model = hushrec.ItemBias().fit(hushrec.Store("store"), hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    """

    by_position: bool
    hand_picked: bool
    purchases: bool
    splits: tuple[str, ...]
    #: A user is in one partition, once.
    users_differ = True

    def __init__(self, path: str | Path, domain: Domain | None = None) -> None:
        self.path = Path(path).absolute()
        self._manifest, self.domain = store_files.opened(self.path, domain)
        self.n_users: int = sum(entry["users"] for entry in self._manifest["partitions"])
        self.n_ratings: int = sum(entry["ratings"] for entry in self._manifest["partitions"])
        for mark, value in fields_of(self._manifest["marks"]).items():
            setattr(self, mark, value)

    @staticmethod
    def prepare(source: Any, out: str | os.PathLike[str], domain: Domain, **options: Any) -> Store:
        """Write ratings of any number to disk, cleaned and in partitions of users (docs/guides/scaling.md).

        Ids that are neither integers nor text become text. Memory is bounded.

        Parameters
        ----------
        source : path, list of paths, or any other source that `Ratings.from_any` takes
            A stream of Arrow blocks is read block by block (docs/guides/warehouse.md), also from a pipe. A
            path may be an address such as ``s3://bucket/folder``.
        out : path
            The store, a folder that exists whole or not at all.
        domain : Domain
        columns, format, implicit
            As in `Ratings.from_any`.
        partitions : int, optional
            Number of files, 32 by default: one for each 2 million expected rows, since a partition is
            cleaned in memory.
        force : bool
            Replace a store that is there.
        progress : bool
            Show the number of rows read: private.

        Raises
        ------
        InputError
            As in `Ratings.from_any`; or the store cannot be written.
        """
        check_options("Store.prepare", options, signature(write_store).parameters)
        if isinstance(source, Ratings):
            if source.domain.fingerprint != domain.fingerprint:
                raise InputError(OTHER_DOMAIN)
            columns = source.columns()
            source = columns._replace(items=Encoded(columns.items, domain.item_texts, domain.item_texts))
        return Store(write_store(source, out, domain, **options), domain)

    def __repr__(self) -> str:
        return f"Store(private rows over {self.domain!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened_again, (str(self.path), self._manifest["checksum"])

    def partitions(self) -> list[Partition]:
        """The partitions, each the rows of some users."""
        return [Partition(self, number) for number in range(len(self._manifest["partitions"]))]

    def blocks(self) -> list[Callable[[], Ratings]]:
        """Return functions that each read the rows of some users."""
        return [block for partition in self.partitions() for block in partition.blocks()]

    def rated(self) -> Store:
        """As of `Ratings`."""
        return self

    def ratings(self) -> Ratings:
        """All rows in memory."""
        return joined(self.domain, [block() for block in self.blocks()])

    def for_users(self, ids: Any) -> Ratings:
        """As `Ratings.for_users`."""
        wanted = encode_ids(ids, exact=True)
        parts = self.partitions()
        chosen = sorted(set((hashes_of(wanted.texts) % np.uint64(len(parts))).tolist()))
        blocks = [block() for number in chosen for block in parts[int(number)].blocks()]
        blocks = [rows.rows(rows.user_index(ids)[rows.user_index(ids) >= 0]) for rows in blocks]
        return joined(self.domain, blocks).for_users(ids)

    def verify(self) -> None:
        """Read every byte and refuse a missing or changed file."""
        store_files.verify(self.path, self._manifest)


def _opened_again(path: str, checksum: str) -> Store:
    store = Store(path)
    store._manifest["checksum"] = checksum  # noqa: SLF001  # each mapping compares it
    return store


@dataclass(frozen=True)
class Partition:
    """The rows of some users of a store; it can be sent to another process."""

    store: Store
    number: int

    @property
    def entry(self) -> Mapping[str, Any]:
        """Its entry in the manifest."""
        manifest_entry: Mapping[str, Any] = self.store._manifest["partitions"][self.number]  # noqa: SLF001
        return manifest_entry

    @property
    def path(self) -> Path:
        """Its file."""
        return self.store.path / self.entry["file"]

    def blocks(self) -> list[Callable[[], Ratings]]:
        """As `Store.blocks`."""
        return [partial(self.block, number) for number in range(self.entry["blocks"])]

    def block(self, number: int) -> Ratings:
        """The rows of one block of users."""
        domain, manifest = self.store.domain, self.store._manifest  # noqa: SLF001
        rows = store_files.block_of(self.store.path, manifest, self.number, number, domain.n_items)
        return Ratings(domain, *rows)

    def ratings(self) -> Ratings:
        """All its rows in memory."""
        return joined(self.store.domain, [block() for block in self.blocks()])

    def verify(self) -> None:
        """Read every byte and refuse a changed file."""
        store_files.check_file(self.path, self.entry)
