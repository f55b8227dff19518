"""The billboard: a trained model, which holds released values only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hushrec.data import Domain, Ratings
from hushrec.data.catalogue import pack, unpack
from hushrec.errors import InputError, ModelFileError
from hushrec.kernels.threads import one_blas_thread
from hushrec.modelfile import BAD_HEADER, Arrays, ModelFile, encode, other_version, read, write
from hushrec.privacy import PrivacyStatement
from hushrec.registry import ESTIMATORS
from hushrec.serving import UserState, all_scores, best_columns, cosines_with, scores_at

if TYPE_CHECKING:
    import pyarrow as pa


class Algorithm(Protocol):
    """What a billboard asks of the estimator that made it."""

    @property
    def name(self) -> str:
        """In model files."""

    @property
    def scores(self) -> str:
        """What scores are: ``"ratings"``, ``"likes"`` or ``"log-odds"``."""

    def hyper_parameters(self) -> dict[str, Any]:
        """The settings by name."""

    def fold_in(self, arrays: Mapping[str, NDArray[Any]], history: Ratings) -> UserState:
        """What each user computes from the released arrays and her own rows."""


@dataclass(frozen=True, eq=False)
class Billboard:
    """A trained model: released values, the declared domain, the settings and the privacy statement.

    Nothing in it was computed from private rows without passing the gate, so it may be printed,
    published and shipped to devices. It holds no user: whoever is served brings her own ratings
    (joint differential privacy), which is also how new users are served. What is computed for one
    user is for her eyes only; show it to nobody else and feed it into nothing shared.

    Attributes
    ----------
    estimator : Estimator
        The algorithm and its hyper-parameters.
    domain : Domain
        The declared catalogue and rating range.
    arrays : mapping of str to ndarray
        The released values, read-only: section ``serve`` of a model file. Always ``center`` (a scalar),
        ``item_bias`` of shape (n_items,) and ``item_factors`` of shape (n_items, rank). Where there is
        ``supported``, items whose released weight does not stand out of its noise are recommended last.
    privacy : PrivacyStatement
        What was released, at what cost, under which assumptions.
    """

    estimator: Algorithm
    domain: Domain
    arrays: Mapping[str, Any]
    privacy: PrivacyStatement

    def __post_init__(self) -> None:
        if isinstance(self.arrays, Arrays):  # read-only, and perhaps not yet read
            return
        frozen = {}
        for key, value in self.arrays.items():
            array = np.array(value)
            array.setflags(write=False)
            frozen[key] = array
        object.__setattr__(self, "arrays", MappingProxyType(frozen))

    def __repr__(self) -> str:
        return f"Billboard({self.estimator!r}, {self.domain!r})"

    @property
    def scores(self) -> str:
        """What scores are: ``"ratings"``, ``"likes"`` or ``"log-odds"``; only ratings keep to the range."""
        return self.estimator.scores

    @property
    def item_factors(self) -> NDArray[Any]:
        """Released item factors, shape (n_items, rank)."""
        return self.arrays["item_factors"]

    @property
    def item_bias(self) -> NDArray[Any]:
        """Released item biases, shape (n_items,)."""
        return self.arrays["item_bias"]

    def fold_in(self, history: Ratings) -> UserState:
        """Offsets and factors of users, from their own ratings alone.

        Parameters
        ----------
        history : Ratings
            The users' own rows, over the model's catalogue. They need not have been in training.

        Returns
        -------
        UserState
            One row a user, in the order of ``history.users``.
        """
        if history.domain.fingerprint != self.domain.fingerprint:
            raise InputError(
                "These ratings were read with another catalogue or rating range than the model's;"
                " read them with the model's own domain (billboard.domain)."
            )
        with one_blas_thread():
            return self.estimator.fold_in(self.arrays, history)

    def predict(
        self, history: Ratings | Mapping[Any, float] | Iterable[tuple[Any, float]], items: Sequence[Any]
    ) -> NDArray[np.float64]:
        """Predicted ratings of some items, clipped to the declared range.

        Parameters
        ----------
        history : mapping or pairs of item id and rating, or Ratings
            One user's own ratings, or many users'.
        items : sequence of item ids
            Items of the declared catalogue.

        Returns
        -------
        ndarray of shape (n_items,), or (n_users, n_items) where ``history`` is Ratings
        """
        rows, single = self._rows(history)
        columns = self._columns(items)
        scores = self._clip(all_scores(self.arrays, self.fold_in(rows))[:, columns])
        return scores[0] if single else scores

    def predict_pairs(self, history: Ratings, targets: Ratings) -> NDArray[np.float64]:
        """Predicted ratings at the cells of ``targets``, clipped to the declared range.

        Parameters
        ----------
        history : Ratings
            What the users' factors are computed from.
        targets : Ratings
            The cells to predict; users without a row in ``history`` are served from released values alone.

        Returns
        -------
        ndarray of shape (targets.n_ratings,)
            In the order of ``targets.matrix.data``.
        """
        state = self.fold_in(history).moved(history.user_index(targets.users))
        rows = np.repeat(np.arange(targets.n_users), np.diff(targets.matrix.indptr))
        return self._clip(scores_at(self.arrays, state, rows, targets.matrix.indices))

    def recommend(
        self,
        history: Mapping[Any, float] | Iterable[tuple[Any, float]],
        n: int = 10,
        *,
        exclude_seen: bool = True,
        items: Sequence[Any] | None = None,
    ) -> list[tuple[Any, float]]:
        """The best items for one user, from her own ratings.

        Parameters
        ----------
        history : mapping or pairs of item id and rating
            Her own ratings; may be empty.
        n : int
            How many items, at most.
        exclude_seen : bool
            Leave out the items in her history.
        items : sequence of item ids, optional
            Recommend among these only.

        Returns
        -------
        list of (item id, score)
            Best first.
        """
        rows, single = self._rows(history)
        if not single:
            raise InputError("recommend serves one user; for Ratings of many users call recommend_batch.")
        ((columns, scores),) = self.top_columns(rows, n, exclude_seen=exclude_seen, items=items)
        return [
            (self.domain.items[column], float(score))
            for column, score in zip(columns[0], scores[0])
            if column >= 0
        ]

    def recommend_batch(
        self, history: Ratings, n: int = 10, *, exclude_seen: bool = True, items: Sequence[Any] | None = None
    ) -> pa.Table:
        """The best items for many users; each user's rows are for that user alone.

        Parameters
        ----------
        history : Ratings
            The users to serve and their own ratings.
        n, exclude_seen, items
            As in :meth:`recommend`.

        Returns
        -------
        pyarrow.Table
            Columns ``user``, ``item``, ``rank`` (from 1) and ``score``; private, like any recommendation.
        """
        import pyarrow as pa

        columns_blocks, score_blocks = [], []
        for columns, scores in self.top_columns(history, n, exclude_seen=exclude_seen, items=items):
            columns_blocks.append(columns)
            score_blocks.append(scores)
        columns = np.concatenate(columns_blocks) if columns_blocks else np.empty((0, 0), dtype=np.int64)
        scores = np.concatenate(score_blocks) if score_blocks else np.empty((0, 0))
        users, ranks = np.nonzero(columns >= 0)
        catalogue = pa.array(list(self.domain.items))
        return pa.table(
            {
                "user": pa.array(history.users).take(pa.array(users)),
                "item": catalogue.take(pa.array(columns[users, ranks])),
                "rank": pa.array((ranks + 1).astype(np.int32)),
                "score": pa.array(scores[users, ranks].astype(np.float64)),
            }
        )

    def top_columns(
        self, history: Ratings, n: int = 10, *, exclude_seen: bool = True, items: Sequence[Any] | None = None
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """The best items for many users as positions in the catalogue, a block of users at a time.

        Parameters
        ----------
        history, n, exclude_seen, items
            As in :meth:`recommend_batch`.

        Yields
        ------
        (columns, scores)
            Shape (users in the block, min(n, n_items)), best first; columns are -1 past the end of a list.
        """
        count = min(_count(n), self.domain.n_items)
        allowed = None if items is None else self._columns(items)
        excluded = history.matrix if exclude_seen else None
        state = self.fold_in(history)
        for columns, scores in best_columns(self.arrays, state, count, excluded=excluded, allowed=allowed):
            yield columns, self._clip(scores)

    def similar_items(self, item: Any, n: int = 10) -> list[tuple[Any, float]]:
        """Items whose factors point the same way (cosine), most similar first; public.

        Raises
        ------
        InputError
            If the item is not in the catalogue, or the model has no item factors (rank 0).
        """
        if self.item_factors.shape[1] == 0:
            raise InputError(
                "This model has no item factors (rank 0), so items cannot be compared; train with rank >= 1."
            )
        cosines = cosines_with(self.item_factors, self._columns([item])[0])
        best = np.argsort(-cosines, kind="stable")[: _count(n)]
        return [(self.domain.items[i], float(cosines[i])) for i in best if np.isfinite(cosines[i])]

    def save(self, path: str | Path) -> None:
        """Write the model file (docs/format.md), whole or not at all."""
        write(path, *self._stored())

    def to_bytes(self) -> bytes:
        """What :meth:`save` writes."""
        return b"".join(encode(*self._stored()))

    @staticmethod
    def load(path: str | Path, *, memory_map: bool = False) -> Billboard:
        """Read a model file.

        Parameters
        ----------
        path : str or Path
            A file that :meth:`save` wrote, or hushrec 0.1.
        memory_map : bool
            Leave the arrays in the file and read each when it is first used.

        Raises
        ------
        ModelFileError
            If the file is missing, is no model file, is damaged, or was written by a newer version.
        """
        stored = read(path, memory_map=memory_map)
        try:
            return _of_stored(stored)
        except BAD_HEADER as error:
            if isinstance(error, ModelFileError):
                raise
            other_version(path, error)

    # ------------------------------------------------------------------ inside

    def _rows(self, history: Any) -> tuple[Ratings, bool]:
        if isinstance(history, Ratings):
            return history, False
        return Ratings.of_user(history, self.domain), True

    def _columns(self, items: Sequence[Any]) -> NDArray[np.int64]:
        if isinstance(items, str | bytes):
            raise InputError(f"items={items!r} is one id; pass a list of item ids.")
        columns = self.domain.index(items)
        if (columns < 0).any():
            unknown = list(items)[int(np.argmin(columns))]
            raise InputError(
                f"Item {unknown!r} is not in the model's catalogue of {self.domain.n_items} items;"
                " leave it out or declare it and train again."
            )
        return columns

    def _stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The header and the arrays of a model file."""
        declared, ids = pack(self.domain)
        estimator = self.estimator
        serve = {"model": estimator.name, "settings": estimator.hyper_parameters(), "scores": self.scores}
        header = {"sections": {"serve": serve}, "domain": declared, "privacy": self.privacy.to_dict()}
        arrays = {f"serve/{name}": array for name, array in self.arrays.items()}
        return header, arrays | {f"catalogue/{name}": array for name, array in ids.items()}

    def _clip(self, scores: NDArray[Any]) -> NDArray[Any]:
        if self.scores != "ratings":
            return scores
        return np.clip(scores, self.domain.low, self.domain.high)


def load(path: str | Path, *, memory_map: bool = False) -> Billboard:
    """Read a model file, as :meth:`Billboard.load` does."""
    return Billboard.load(path, memory_map=memory_map)


def _of_stored(stored: ModelFile) -> Billboard:
    """The model that a file's section ``serve`` holds; BAD_HEADER's errors where it holds none."""
    header, arrays = stored.header, stored.arrays.section("serve")
    domain = unpack(header["domain"], stored.arrays.section("catalogue"))
    shapes = [arrays.shape("center"), arrays.shape("item_bias"), arrays.shape("item_factors")[:-1]]
    if shapes != [(), (domain.n_items,), (domain.n_items,)]:
        raise ValueError("the arrays do not fit the catalogue")
    serve = header["sections"]["serve"]
    settings = {key: tuple(v) if isinstance(v, list) else v for key, v in serve["settings"].items()}
    estimator = ESTIMATORS[serve["model"]](**settings)
    if stored.version > 1 and serve["scores"] != estimator.scores:
        raise ValueError(f"scores of {serve['model']} that are {serve['scores']!r}")
    privacy = PrivacyStatement.from_dict(header["privacy"])
    return Billboard(estimator=estimator, domain=domain, arrays=arrays, privacy=privacy)


def _count(n: int) -> int:
    if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1:
        raise InputError(f"n={n!r} is not a positive number of items; pass for example n=10.")
    return int(n)
