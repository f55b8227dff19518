"""Ratings declared public: of donors among the private users, and from other sources."""

from __future__ import annotations

import glob
import hashlib
import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import numpy as np

from hushrec.checks import plural
from hushrec.data import Ratings, Store
from hushrec.data.id_list import read_id_list
from hushrec.data.ids import encode_ids
from hushrec.data.ratings import of_nobody
from hushrec.errors import InputError
from hushrec.public.judging import judge, stacked, unjudged
from hushrec.serving.model import Model
from hushrec.types import Array, ModelArrays

#: Kinds of scores of models that use public ratings.
_SCORES = "ratings", "likes"


@dataclass(frozen=True, kw_only=True, eq=False)
class PublicRatings:
    """Ratings whose owners have published them, for a training.

    Lists get a part of public likes, whose weight all users learn. Predictions are mixed with a public model,
    weighed by its benefit for held-out ratings of donors and users of ``same`` (docs/guides/public.md). This
    object holds the declaration only.

    Parameters
    ----------
    donors : path or sequence of ids
        Users of the private ratings who have agreed to publish theirs: a text file with one id a line, or the
        ids. They have no privacy. Do not pass a list of donors that is secret.
    same : source or list of sources
        Public ratings of the same population, as :meth:`Ratings.from_any` takes them. A user who is a donor
        too counts once, as a donor.
    external : source or list of sources
        Public ratings of another population, over any part of the catalogue. Only without donors and ``same``
        they set their weight in predictions, by their agreement with the released item biases.

    Examples
    --------
    >>> ratings = hushrec.realistic(600, 50, 20_000, seed=0)
    >>> public = hushrec.PublicRatings(donors=list(ratings.users[:60]))
    >>> estimator = hushrec.PrivateEigenRec.planned(hushrec.Budget(1, 1e-6), ratings.domain, 600)
    >>> model = estimator.fit(ratings, hushrec.Accountant(hushrec.Budget(1, 1e-6)), public=public)
    >>> [part.name for part in model.parts]
    ['popularity', 'public likes']
    """

    donors: Any = ()
    same: Any = ()
    external: Any = ()

    def __post_init__(self) -> None:
        if not (self._donor_ids or _sources(self.same) or _sources(self.external)):
            raise InputError(
                "Nothing is declared public: name donors, ratings of the same population, or of another one."
            )

    @cached_property
    def _donor_ids(self) -> Sequence[Any]:
        donors = self.donors
        if isinstance(donors, str | os.PathLike):
            donors = read_id_list(donors, "The donors' file", "user")
        if isinstance(donors, bytes) or not isinstance(donors, Iterable):
            raise InputError("donors must be ids of users, or the name of a text file with one a line.")
        ids = list(donors)
        if not ids:
            return ()
        encoded = encode_ids(ids, exact=True)
        if (encoded.codes < 0).any():
            raise InputError("One of the donors has no id; write one id for each.")
        return list(encoded.texts.to_pylist())

    # ------------------------------------------------------------------ one training

    def apart_from(self, private: Any) -> None:
        """Refuse the private ratings as public ones: the same object, or a file of the same disk blocks."""
        for source in (*_sources(self.same), *_sources(self.external)):
            if source is private or _files(source) & _files(private):
                raise InputError(
                    "The same rows are given as private and as public; public rows cannot be protected, so"
                    " name the donors among them instead."
                )

    def read(self, estimator: Any, ratings: Ratings | Store) -> PublicRows:
        """Read the public rows of one training, or refuse them before anything is spent.

        It reads the private rows of donors only, and keeps no others.
        """
        same, external = _sources(self.same), _sources(self.external)
        for model in (estimator, getattr(estimator, "lists", None)):
            if model is not None and model.scores not in _SCORES:
                raise InputError(
                    f"{estimator.name} cannot use public ratings; train for lists, ratings or both."
                )
        self.apart_from(getattr(ratings, "path", ratings))
        rows = self._read(ratings, same, external)
        if (self._donor_ids or same) and not rows.same.n_users:
            raise InputError(
                "Neither the donors nor the public ratings of the same population have a row that can be "
                "used; check how ids are written, and that the ratings are numbers within the declared range."
                if same
                else "None of the donors has a rating here; a file of donors holds one id a line, as the"
                " ratings have it, and nothing else."
            )
        if rows.external is not None and not rows.external.n_ratings:
            raise InputError(
                "The public ratings of another population have no row that can be used; check that their"
                " items are of the catalogue, and the ratings numbers within the declared range."
            )
        return rows

    def _read(self, ratings: Ratings | Store, same: list[Any], external: list[Any]) -> PublicRows:
        domain = ratings.domain
        with warnings.catch_warnings(action="ignore"):  # a training does not say who has ratings
            people = ratings.for_users(self._donor_ids).rated() if self._donor_ids else of_nobody(domain)
        people = replace(people, by_position=False)
        for source in same:
            read = Ratings.from_any(source, domain)
            people = people.union(read.rows(people.user_index(read) < 0, keyed=True))
        others = [Ratings.from_any(source, domain) for source in external]
        order = np.argsort(np.array(people.user_texts.to_pylist(), dtype=object), kind="stable")
        return PublicRows(
            same=people.rows(order, keyed=True),
            external=reduce(stacked, others) if others else None,
            donors=tuple(self._donor_ids),
            external_sources=len(external),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class PublicRows:
    """The public rows of one training.

    Attributes
    ----------
    same : Ratings
        Ratings of the same population, ordered by user id.
    external : Ratings or None
        Ratings of other populations, with numbers as ids.
    donors : tuple of str
        Ids of the declared donors.
    external_sources : int
    """

    same: Ratings
    external: Ratings | None
    donors: tuple[str, ...]
    external_sources: int

    @property
    def digest(self) -> str:
        """SHA-256 of the rows, hexadecimal."""
        parts = [self.same, *([] if self.external is None else [self.external])]
        arrays = [a for rows in parts for a in (rows.matrix.indptr, rows.matrix.indices, rows.matrix.data)]
        octets = (f"{array.dtype.str}{array.shape}".encode() + array.tobytes() for array in arrays)
        return hashlib.sha256(b"".join(octets)).hexdigest()

    def beside(self, model: Model, parts: ModelArrays) -> Model:
        """Return the model with its notes, and with a public model of ratings if donors benefit from it."""
        privacy = replace(model.privacy, notes=(*model.privacy.notes, *self.notes), public_ratings=True)
        model = replace(model, privacy=privacy)
        if model.scores == "likes":
            return model
        if self.external is not None and not self.same.n_users:
            part, judged = unjudged(model, self.external, parts.state)
        else:
            part, judged = judge(model, self.same, self.external, parts.state)
        return replace(model, public=part, judged=judged.to_dict())

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the privacy statement."""
        sources = plural(self.external_sources, "source")
        if not self.same.n_users:
            return (
                f"Public ratings of another population: {sources}. The guarantee is the same as without.",
            )
        missing = len(self.donors) - len(self._rows_of_donors)
        text = f"Ratings of {plural(self.same.n_users, 'user')} are public and have no privacy here"
        if self.donors:
            text += f"; declared: {plural(len(self.donors), 'donor')}"
            text += f", {missing:,} of them without a rating" if missing else ""
        if self.external_sources:
            text += f"; and {sources} of another population"
        return (
            f"{text}. Assumed: they have consented to publication, and who they are is no secret. The"
            " releases protect all other users as without them.",
        )

    @property
    def _rows_of_donors(self) -> Array:
        place = self.same.user_index(list(self.donors))
        return np.asarray(place[place >= 0])


def _sources(declared: Any) -> list[Any]:
    if isinstance(declared, list):
        return declared
    return [] if isinstance(declared, tuple) and not declared else [declared]


def _files(source: Any) -> set[tuple[int, int]]:
    """Return device and inode of each file that a path names."""
    path = getattr(source, "path", source)  # of a store
    if not isinstance(path, str | os.PathLike):
        return set()
    named = [Path(path), *map(Path, glob.glob(str(path)))]  # noqa: PTH207
    inside = [file for place in named if place.is_dir() for file in place.rglob("*")]
    statuses = [place.stat() for place in (*named, *inside) if place.exists()]
    return {(status.st_dev, status.st_ino) for status in statuses}
