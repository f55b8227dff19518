"""Predictions, lists and explanations for users, from released values and the users' own ratings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypedDict, Unpack

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushrec.checks import check_count, check_kind, check_options, plural, shown
from hushrec.data import Domain, Ratings
from hushrec.data.ids import encode_ratings
from hushrec.data.ratings_builder import within_range
from hushrec.data.readers import read_columns
from hushrec.errors import InputError
from hushrec.kernels.threads import one_blas_thread
from hushrec.progress import progress_bar
from hushrec.serving.attributes import Attributes
from hushrec.serving.item_lists import known_lists, positions
from hushrec.serving.recency import in_order, spans
from hushrec.serving.rules import Rules
from hushrec.serving.score_mixing import mixed
from hushrec.serving.scoring import PublicScores, UserState, best_columns, scores_at
from hushrec.serving.vectors import item_vectors, queries, reach
from hushrec.types import Array, ModelArrays, Part


class RuleOptions(TypedDict, total=False):
    attributes: Any
    where: str | Sequence[str] | None
    at_most: Mapping[str, int] | None
    boost: Mapping[str, float] | None


class ListOptions(RuleOptions, total=False):
    next: bool
    exclude_seen: bool
    items: Sequence[Any] | None
    exclude_items: Sequence[Any] | None


LIST_OPTIONS = ("n", *ListOptions.__annotations__)
Rating = float | None
History = Mapping[Any, Rating] | Iterable[tuple[Any, Rating] | tuple[Any, Rating, Any]]


class Recommended(NamedTuple):
    """An item of a user's list.

    Attributes
    ----------
    item
    score : float
        Compare scores of one user only.
    rating : float or None
        Predicted; None where the model predicts none.

    Examples
    --------
    >>> best = hushrec.serving.Recommended("alien", 0.41, 4.2)
    >>> item, score, rating = best
    >>> best.rating
    4.2
    """

    item: Any
    score: float
    rating: float | None = None


class Ranked(NamedTuple):
    """Lists of a block of users, as positions in the catalogue.

    Attributes
    ----------
    columns : ndarray of int64, shape (n_users, n)
        Best first; -1 past the end of a list.
    scores : ndarray, same shape
    ratings : ndarray or None
        NaN past the end of a list; None for models that predict none.
    """

    columns: NDArray[np.int64]
    scores: NDArray[Any]
    ratings: NDArray[np.float64] | None


class Because(NamedTuple):
    """One of a user's items, and its contribution to another's score."""

    item: Any
    moved: float


class Explanation(NamedTuple):
    """Why an item has its score for a user; private, like the list.

    Attributes
    ----------
    item
    score : float
        Before lists lower items that do not exceed the noise.
    base : float
        The score without the items below.
    because : list of Because
        Contributions of the user's items, the largest first.

    Examples
    --------
    >>> ratings = hushrec.realistic(2000, 50, 60_000, seed=0)
    >>> model = hushrec.PrivateALS().fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> first, second, third, *others = ratings.domain.items
    >>> why = model.explain({first: 5, second: 1}, third)
    >>> abs(why.base + sum(part.moved for part in why.because) - why.score) < 1e-9
    True
    """

    item: Any
    score: float
    base: float
    because: list[Because]


class Algorithm(Protocol):
    """The members of an estimator that serving uses."""

    @property
    def name(self) -> str: ...

    @property
    def scores(self) -> str:
        """``"ratings"``, ``"likes"`` or ``"log-odds"``."""

    @property
    def expected(self) -> ModelArrays | Mapping[str, Any]:
        """Kinds and shapes of its arrays (`hushrec.serving.modelfile.Expected`)."""

    @property
    def user_count(self) -> int | None: ...

    def fold_in(self, arrays: Mapping[str, NDArray[Any]], history: Ratings) -> UserState: ...

    def score_parts(
        self, arrays: Mapping[str, NDArray[Any]], history: Ratings, column: int
    ) -> NDArray[np.float64]: ...


@dataclass(frozen=True, eq=False)
class PublicPart:
    """A public model of ratings and its weight, in (0, 1] (docs/guides/public.md)."""

    model: Recommender
    weight: float


@dataclass(frozen=True, eq=False)
class Recommender:
    """Serves users, each from released values and the user's own ratings.

    Attributes
    ----------
    estimator : Algorithm
    domain : Domain
    arrays : mapping of str to ndarray
        Released values: ``center`` (a scalar), ``item_bias`` (n_items,) and ``item_factors`` (n_items, rank).
        Items with ``supported`` 0 do not exceed the noise and come last in lists. ``directions`` counts the
        first columns of the factors that exceed it. ``pair_items``, ``neighbours`` and ``public_factors`` are
        of items that recommend items (docs/reference/format.md).
    lists : Recommender or None
        The model for lists, where this one only predicts.
    state : mapping of str to ndarray
        In a season: means and variances of released statistics.
    parts : tuple of Part
        The parts of the lists and their weights; none where only popularity and taste count.
    public : PublicPart or None
    """

    estimator: Algorithm
    domain: Domain
    arrays: Mapping[str, Any]
    lists: Recommender | None = field(default=None, kw_only=True)
    state: Mapping[str, NDArray[Any]] = field(default_factory=dict, kw_only=True)
    parts: tuple[Part, ...] = field(default=(), kw_only=True)
    public: PublicPart | None = field(default=None, kw_only=True)

    @property
    def scores(self) -> str:
        """``"ratings"``, ``"likes"`` or ``"log-odds"``."""
        return self.estimator.scores

    @property
    def takes_purchases(self) -> bool:
        """Whether purchases without ratings count."""
        return self.scores == "likes" and hasattr(self.estimator, "like_threshold")

    @property
    def has_pairs(self) -> bool:
        """Whether the lists have weights of item pairs."""
        return "pair_items" in self.arrays

    @property
    def item_factors(self) -> NDArray[Any]:
        """Shape (n_items, rank)."""
        return np.asarray(self.arrays["item_factors"])

    @property
    def item_bias(self) -> NDArray[Any]:
        """Shape (n_items,)."""
        return self.arrays["item_bias"]

    def fold_in(self, history: Ratings) -> UserState:
        """Compute users' offsets and factors from their own ratings."""
        if history.domain.fingerprint != self.domain.fingerprint:
            raise InputError(
                "These ratings were read with another catalogue or rating range than the model's;"
                " read them with the model's own domain (model.domain)."
            )
        # setting the number of threads takes a millisecond
        with nullcontext() if history.n_users == 1 else one_blas_thread():
            history = history if self.takes_purchases else history.starred()
            state = self.estimator.fold_in(self.arrays, history)
        if self.public is None:
            return state
        public = self.public.model.fold_in(history)
        return state._replace(public=PublicScores(self.public.model.arrays, public, self.public.weight))

    def predict(self, history: Ratings | History, items: Any) -> Any:
        """Return predicted ratings of some items, clipped to the declared range.

        Parameters
        ----------
        history : mapping or pairs of item id and rating, or Ratings
            One user's own ratings, or many users'.
        items : sequence of item ids, or a table
            With Ratings also a table with a column of users and one of items.

        Returns
        -------
        list of float
            For one user.
        ndarray
            For Ratings: shape (n_users, n_items). For a table: (n_rows,), NaN where the item is not in the
            catalogue. Users without a row in ``history`` are served from released values alone.
        """
        if isinstance(items, Mapping) or hasattr(items, "columns"):
            return self._predict_rows(history, items)
        rows, single = self._rows(history)
        columns = self.columns_of(items)
        users = np.repeat(np.arange(rows.n_users), len(columns))
        scores = scores_at(self.arrays, self.fold_in(rows), users, np.tile(columns, rows.n_users))
        predicted = self._clip(scores).reshape(rows.n_users, len(columns))
        return predicted[0].tolist() if single else predicted

    def predict_pairs(self, history: Ratings, targets: Ratings) -> NDArray[np.float64]:
        """Return predicted ratings at the cells of ``targets``, in the order of ``targets.matrix.data``.

        Users without a row in ``history`` are served from released values alone.
        """
        users = np.repeat(history.user_index(targets), np.diff(targets.matrix.indptr))
        return self._predict_cells(history, users, targets.matrix.indices)

    def recommend(
        self,
        history: History,
        n: int = 10,
        *,
        next: bool = False,
        exclude_seen: bool = True,
        items: Sequence[Any] | None = None,
        exclude_items: Sequence[Any] | None = None,
        **rules: Unpack[RuleOptions],
    ) -> list[Recommended]:
        """Return the best items for one user, from the user's own ratings.

        Parameters
        ----------
        history : mapping or pairs of item id and rating
            May be empty. An entry of a list may have a time: ``(item, rating, time)``. Where lists come from
            likes, a rating of None is a purchase without a rating.
        n : int
            At most.
        next : bool
            Later ratings count more (docs/guides/next.md). The history is then a list, ordered by its times
            or, without times, with the latest last.
        exclude_seen : bool
            Leave out the items in the history.
        items, exclude_items : sequence of item ids, optional
            Recommend among these only, and none of those. Ids that the catalogue lacks are skipped with a
            warning; a list without any of its items is refused.
        attributes : Attributes, table or path, optional
            Public table of the items (:meth:`hushrec.serving.Attributes.read`) for the rules below
            (docs/guides/rules.md).
        where : str or list of str, optional
            Recommend items that meet this condition, such as ``"in_stock and price < 50"``, or all of them.
        at_most : mapping of str to int, optional
            Most items that share a value of a column: ``{"brand": 2}``.
        boost : mapping of str to float, optional
            Factors for items that meet a condition: ``{"new": 1.1}``. They multiply the distance of the score
            to the user's lowest.

        Privacy
        -------
        Rules are post-processing: they use released values, the public table and the user's own ratings.
        """
        check_options("recommend", rules, LIST_OPTIONS)
        rows, single = self._rows(history, next)
        if not single:
            raise InputError("recommend serves one user; for Ratings of many users call recommend_batch.")
        options: Any = {"items": items, "exclude_items": exclude_items, **rules}
        (block,) = self.rank(rows, n, next=next, exclude_seen=exclude_seen, **options)
        columns, scores = block.columns[0].tolist(), block.scores[0].tolist()
        ratings = [None] * len(columns) if block.ratings is None else block.ratings[0].tolist()
        return [
            Recommended(self.domain.items[column], score, rating)
            for column, score, rating in zip(columns, scores, ratings, strict=True)
            if column >= 0
        ]

    def recommend_batch(
        self, history: Ratings, n: int = 10, *, progress: bool = False, **options: Unpack[ListOptions]
    ) -> pa.Table:
        """Return the best items for many users; each user's rows are for that user alone.

        Parameters
        ----------
        history : Ratings
        n, **options
            As in :meth:`recommend`.
        progress : bool
            Show the fraction of users served, and the time: private.

        Returns
        -------
        pyarrow.Table
            Columns ``user``, ``item``, ``rank`` (from 1), ``score`` and, where they exist, ``rating``,
            ``new`` and ``title``. Item ids have the type of the catalogue. User ids have that of the
            history's column of integers, or else are text.
        """
        check_options("recommend_batch", options, LIST_OPTIONS)
        blocks = []
        with progress_bar(progress, getattr(history, "n_users", 0), "lists (private)") as advance:
            for block in self.rank(history, n, **options):
                blocks.append(block)
                advance(len(block.columns))
        columns = np.concatenate([block.columns for block in blocks])
        scores = np.concatenate([block.scores for block in blocks])
        users, ranks = np.nonzero(columns >= 0)
        table = {
            "user": history.user_column.take(pa.array(users)),
            "item": self.domain.item_column.take(pa.array(columns[users, ranks])),
            "rank": pa.array((ranks + 1).astype(np.int32)),
            "score": pa.array(scores[users, ranks].astype(np.float64)),
        }
        if self.scores == "ratings":
            ratings = np.concatenate([block.ratings for block in blocks if block.ratings is not None])
            table["rating"] = pa.array(ratings[users, ranks])
        if "new" in self.arrays:
            table["new"] = pa.array(np.asarray(self.arrays["new"])[columns[users, ranks]] != 0)
        titles = Attributes.read(options.get("attributes"), self.domain).title_column
        if titles is not None:
            table["title"] = titles.take(pa.array(columns[users, ranks]))
        return pa.table(table)

    def rank(
        self,
        history: Ratings,
        n: int = 10,
        *,
        predict: bool = True,
        next: bool = False,
        exclude_seen: bool = True,
        items: Sequence[Any] | None = None,
        exclude_items: Sequence[Any] | None = None,
        **rules: Any,
    ) -> Iterator[Ranked]:
        """Yield the lists of :meth:`recommend_batch` as positions in the catalogue, in blocks of users."""
        how = "load it with Ratings.from_any(table, model.domain), or serve one user with recommend"
        check_kind(history, Ratings, "history", how)
        count = min(check_count("n", n), self.domain.n_items)
        evaluated = Rules.of(self.domain, **rules)
        listed = known_lists(self.domain, items, exclude_items)
        evaluated = evaluated.among(self.domain.n_items, *listed)
        lister, predict = self.lists or self, predict and self.scores == "ratings"
        state = lister.fold_in(history)
        rating_state = state if lister is self or not predict else self.fold_in(history)
        if next:  # a short span of a long history is no sign of doubt
            told = lister if lister.parts else replace(lister, arrays={**lister.arrays, "history_prior": 0.0})
            state = UserState.mean([told.fold_in(rows) for rows in spans(history)])
        excluded = history.matrix if exclude_seen else None
        for users, columns, scores, own in best_columns(
            lister.arrays, state, count, first=lister.supported, excluded=excluded, rules=evaluated
        ):
            if predict and rating_state is not state:
                rows, places = np.repeat(np.arange(len(columns)), count), np.maximum(columns, 0).ravel()
                own = scores_at(self.arrays, rating_state.at(users), rows, places).reshape(columns.shape)
            ratings = np.where(columns >= 0, self._clip(own), np.nan) if predict else None
            yield Ranked(columns, scores, ratings)

    def explain(self, history: History, item: Any) -> Explanation:
        """Return which of a user's items moved the score of this one; private, like the list.

        Raises
        ------
        InputError
            The item is not in the catalogue, or the model's scores are no sums over the ratings: of the
            papers' models, only those of `dpals` are.
        """
        rows, single = self._rows(history)
        if not single:
            raise InputError("explain is for one user; pass a mapping or pairs of item and rating.")
        lister, (column,) = self.lists or self, self.columns_of([item]).tolist()
        state = lister.fold_in(rows)
        score = float(scores_at(lister.arrays, state, np.array([0]), np.array([column]))[0])
        moved = lister.score_parts(rows, state, column).tolist()
        rated = (self.domain.items[place] for place in rows.matrix.indices.tolist())
        because = sorted(map(Because, rated, moved), key=lambda part: -abs(part.moved))
        return Explanation(self.domain.items[column], score, score - sum(moved), because)

    def score_parts(self, history: Ratings, state: UserState, column: int) -> NDArray[np.float64]:
        parts = self.estimator.score_parts(self.arrays, history, column)
        if self.public is None or state.public is None:
            return parts
        public_parts = self.public.model.score_parts(history, state.public.state, column)
        return mixed(parts, public_parts, self.public.weight)

    @property
    def directions(self) -> int | None:
        """The number of taste dimensions that exceed the noise; None if unknown.

        With 0, all users get nearly the same list, unless the factors have columns that may be noise.
        """
        arrays = (self.lists or self).arrays
        if "directions" in arrays and np.ndim(arrays["directions"]) == 0:
            return int(arrays["directions"])
        return None if arrays["item_factors"].shape[1] else 0

    def item_vectors(self) -> NDArray[np.float32]:
        """Return a vector for each item of the catalogue, for an index of inner products; public.

        Returns
        -------
        ndarray of shape (n_items, n_dimensions)
            In the order of the catalogue. Their inner products with :meth:`query` rank as lists do, except
            where scores are equal in float32 (docs/guides/vectors.md).
        """
        return item_vectors(self._ranking.arrays)

    def query(self, history: Ratings | History) -> NDArray[np.float32]:
        """Return a user's vector for an index of :meth:`item_vectors`; private, like the list.

        Returns
        -------
        ndarray of shape (n_dimensions,), or (n_users, n_dimensions) of Ratings
            Items of the history are ranked too: ask the index for as many more and leave them out.
        """
        (rows, single), model = self._rows(history), self._ranking
        state = model.fold_in(rows)
        vectors = queries(model.arrays, state.factors, state.likes, model.reach)
        return vectors[0] if single else vectors

    @property
    def _ranking(self) -> Recommender:
        lister = self.lists or self
        if lister.public is None:
            return lister
        if lister.public.weight < 1:
            raise InputError(
                "This model mixes the scores of a private and a public model, and no inner product ranks as"
                " they do; train without public ratings for an index of vectors."
            )
        return lister.public.model

    @cached_property
    def supported(self) -> NDArray[np.bool_] | None:
        """Whether each item exceeds the noise; None if all do."""
        supported = self.arrays.get("supported")
        return None if supported is None or np.all(supported) else np.asarray(supported).astype(bool)

    @cached_property
    def reach(self) -> tuple[float, float]:
        return reach(self.arrays)

    # ------------------------------------------------------------------ inside

    def _predict_rows(self, history: Any, table: Any) -> NDArray[np.float64]:
        if not isinstance(history, Ratings):
            raise InputError("To predict a table of users and items, pass the users' histories as Ratings.")
        read = read_columns(table, None, None, implicit=True)
        users, columns = history.user_index(read.users), self.domain.index(read.items)
        known, predicted = columns >= 0, np.full(len(columns), np.nan)
        predicted[known] = self._predict_cells(history, users[known], columns[known])
        return predicted

    def _predict_cells(self, history: Ratings, users: Array, columns: Array) -> NDArray[np.float64]:
        """A negative user has no ratings."""
        state = self.fold_in(history).moved(np.append(np.arange(history.n_users), -1))
        rows = np.where(users < 0, history.n_users, users)
        return self._clip(scores_at(self.arrays, state, rows, columns))

    def _rows(self, history: Any, ordered: bool = False) -> tuple[Ratings, bool]:
        if isinstance(history, Ratings):
            return history, False
        domain, is_bought = self.domain, (self.lists or self).takes_purchases
        pairs = _pairs(history, domain, self.scores == "likes")
        if timed := ordered or any(len(entry) == 3 for entry in pairs):
            pairs, last = in_order(history, pairs, domain)
        rows = Ratings.of_user(pairs, domain, purchases=is_bought)
        if rows.n_ratings < len(pairs):
            _refuse_unusable(pairs, domain, is_bought)
        if timed:
            times = np.array([last[column] for column in rows.matrix.indices.tolist()], np.int64)
            rows = replace(rows, times=times)
        return rows, True

    def columns_of(self, items: Sequence[Any]) -> NDArray[np.int64]:
        items = list(items) if isinstance(items, Iterator) else items  # an iterator is read once only
        columns = positions(self.domain, items)
        if (columns < 0).any():
            unknown = list(items)[int(np.argmin(columns))]
            raise InputError(
                f"Item {unknown!r} is not in the model's catalogue of {plural(self.domain.n_items, 'item')};"
                " leave it out or declare it and train again."
            )
        return columns

    def _clip(self, scores: NDArray[Any]) -> NDArray[Any]:
        if self.scores != "ratings":
            return scores
        return np.minimum(np.maximum(scores, self.domain.low), self.domain.high)


def _pairs(history: Any, domain: Domain, likes: bool) -> list[Any]:
    if hasattr(history, "columns"):
        raise InputError(
            "A table may hold several users' ratings: read it with Ratings.from_any(table, model.domain) for"
            " recommend_batch, or pass one user's as a mapping from item to rating."
        )
    if isinstance(history, Mapping):
        return list(history.items())
    listed = isinstance(history, Iterable) and not isinstance(history, str | bytes)
    pairs = list(history) if listed else [history]
    alone = [entry for entry in pairs if not (isinstance(entry, tuple | list) and len(entry) in (2, 3))]
    if likes and listed and len(alone) == len(pairs):
        return [(item, domain.high) for item in pairs]
    if alone:
        raise InputError(
            "A user's ratings must be a mapping from item to rating, or pairs of both, or of likes a list of"
            f" items; {shown(alone[0])} is neither."
        )
    return pairs


def _refuse_unusable(pairs: list[Any], domain: Domain, is_bought: bool) -> None:
    items, ratings = [entry[0] for entry in pairs], [entry[-1] for entry in pairs]
    known = np.fromiter(map(domain.position, items), np.int64, len(items)) >= 0
    rated = ~np.isnan(within_range(encode_ratings(ratings), domain))
    usable = known & (domain.likes | rated | [is_bought and rating is None for rating in ratings])
    if usable.all():  # an item twice, or more ratings than a user may have
        return
    item, rating = pairs[int(np.argmin(usable))]
    if domain.position(item) < 0:
        raise InputError(
            f"Item {item!r} of these ratings is not in the model's catalogue of"
            f" {plural(domain.n_items, 'item')}; leave it out."
        )
    raise InputError(
        f"Rating {rating!r} of item {item!r} is not a number from {domain.low:g} to {domain.high:g}, the"
        " model's range; leave it out or rescale it."
    )
