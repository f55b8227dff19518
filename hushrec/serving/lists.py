"""Predictions and ranked lists, from released values and what a user brings along."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.checks import plural
from hushrec.data import Domain, Ratings
from hushrec.data.ids import encode_ratings
from hushrec.data.ratings_builder import within_range
from hushrec.data.readers import read_columns
from hushrec.errors import InputError
from hushrec.kernels import residuals, topk
from hushrec.kernels.threads import one_blas_thread
from hushrec.progress import progress_bar
from hushrec.serving.attributes import Attributes
from hushrec.serving.blend import lowered, mixed, standard
from hushrec.serving.rules import Rules, boosted, limited
from hushrec.serving.vectors import item_vectors, queries, reach
from hushrec.types import Array, Parts

if TYPE_CHECKING:
    import pyarrow as pa


#: Users are served in blocks of about this many scores, so memory does not grow with the catalogue.
_SCORES_PER_BLOCK = 1 << 22
#: So many ids are looked up one by one, and more against the whole catalogue.
_SHORT = 1000


class UserState(NamedTuple):
    """A user's own state, computed from the billboard and their own rows; never released.

    Attributes
    ----------
    offset : ndarray of shape (n_users,)
        Their level: added to every score.
    factors : ndarray or csr_array of shape (n_users, rank)
        Their taste, in the space of the billboard's item factors; sparse where it is their own row of likes.
    beside : Beside, optional
        What a public model has of them, which counts in every score.

    Examples
    --------
    >>> state = hushrec.serving.UserState(offset=np.zeros(1), factors=np.ones((1, 2)))      # of one user
    >>> state.factors.shape
    (1, 2)
    """

    offset: NDArray[np.float64]
    factors: NDArray[np.float64] | sp.csr_array
    beside: Beside | None = None

    @classmethod
    def of(cls, table: NDArray[np.float64]) -> UserState:
        """Take users' factors with their offsets in the last column apart."""
        return cls(offset=table[:, -1], factors=table[:, :-1])

    def at(self, rows: slice) -> UserState:
        """Some users only."""
        return UserState(self.offset[rows], self.factors[rows], self.beside and self.beside.at(rows))

    def moved(self, position: Array) -> UserState:
        """The rows at ``position``; zero, which is the released values alone, where that is negative."""
        known = position >= 0
        start = np.concatenate([[0], np.cumsum(known)])
        chosen = sp.csr_array(
            (np.ones(start[-1]), position[known], start), shape=(len(position), len(self.offset))
        )
        beside = self.beside and self.beside._replace(state=self.beside.state.moved(position))
        return UserState(chosen @ self.offset, chosen @ self.factors, beside)


class Beside(NamedTuple):
    """A public model's part of some users' scores.

    Attributes
    ----------
    arrays : mapping of str to ndarray
        Its arrays.
    state : UserState
        What the users computed from them and their own rows.
    weight : float
        What it counts, in (0, 1]; the private model counts the rest.
    ranks : bool
        Scores only rank: both are brought to mean 0 and deviation 1 over a user's items first.
    """

    arrays: Mapping[str, Array]
    state: UserState
    weight: float
    ranks: bool

    def at(self, rows: slice) -> Beside:
        """Some users only."""
        return self._replace(state=self.state.at(rows))


class Recommended(NamedTuple):
    """An item of a user's list.

    Attributes
    ----------
    item
        Its id.
    score : float
        What the list is ranked by: it never rises from one rank to the next, and is compared within one
        user's scores only.
    rating : float or None
        What :meth:`Recommender.predict` says of it; None where the model predicts no ratings.

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


class Because(NamedTuple):
    """One of a user's items, and how much it moved the score of another.

    Attributes
    ----------
    item
        Its id.
    moved : float
        What it added to the score; below 0 where it lowered it.
    """

    item: Any
    moved: float


class Explanation(NamedTuple):
    """Why an item has its score for a user: theirs alone, like their list.

    Attributes
    ----------
    item
        Its id.
    score : float
        In lists, items that do not stand out of the noise have a lower one, below all others.
    base : float
        What it would be without the items below.
    because : list of Because
        What each of the user's items adds to the base, what moves it most first.

    Examples
    --------
    >>> ratings = hushrec.realistic(2000, 50, 60_000, seed=0)
    >>> model = hushrec.PrivateALS().fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> first, second, third, *others = ratings.domain.items
    >>> why = model.explain({first: 5, second: 1}, third)
    >>> round(why.base + sum(each.moved for each in why.because) - why.score, 9)
    0.0
    """

    item: Any
    score: float
    base: float
    because: list[Because]


class Algorithm(Protocol):
    """The estimator that trained, as far as serving asks for it."""

    @property
    def name(self) -> str:
        """The name in model files."""

    @property
    def scores(self) -> str:
        """The kind of the scores: ``"ratings"``, ``"likes"`` or ``"log-odds"``."""

    @property
    def expected(self) -> Parts | Mapping[str, Any]:
        """The kinds and shapes of its own arrays (`hushrec.serving.modelfile.Expected`)."""

    def fold_in(self, arrays: Mapping[str, NDArray[Any]], history: Ratings) -> UserState:
        """Compute each user's state from the released arrays and their own rows."""

    def score_parts(
        self, arrays: Mapping[str, NDArray[Any]], history: Ratings, column: int
    ) -> NDArray[np.float64]:
        """Return what each rating of one user adds to the score of an item."""


@dataclass(frozen=True, eq=False)
class PublicPart:
    """A model of public ratings that counts beside a private one (docs/guides/public.md).

    Attributes
    ----------
    model : Recommender
        The public model.
    weight : float
        What it counts, in (0, 1].
    """

    model: Recommender
    weight: float


@dataclass(frozen=True, eq=False)
class Recommender:
    """Serves users, each from released values and their own ratings alone.

    Attributes
    ----------
    estimator : Algorithm
        The algorithm and its hyper-parameters.
    domain : Domain
        The declared catalogue and rating range.
    arrays : mapping of str to ndarray
        The released values. Always ``center`` (a scalar), ``item_bias`` of shape (n_items,) and
        ``item_factors`` of shape (n_items, rank). Where there is ``supported``, items whose released weight
        does not stand out of its noise are recommended last. Where there is ``learned_items``, ascending
        positions, ``item_factors`` has rows for these items only, and those of the others are 0. Where there
        is ``directions``, only so many first columns of ``item_factors`` stand out of their noise; beside
        ``learned_items`` they are directions of the matrix that the factors were made from.
    lists : Recommender or None
        What recommends and finds similar items in place of this model, which predicts ratings.
    state : mapping of str to ndarray
        Of a model of a season: means and variances of released statistics, for the next week to go on from.
    public : PublicPart or None
        A model of public ratings that counts beside this one, in predictions, lists and explanations.
    """

    estimator: Algorithm
    domain: Domain
    arrays: Mapping[str, Any]
    lists: Recommender | None = field(default=None, kw_only=True)
    state: Mapping[str, NDArray[Any]] = field(default_factory=dict, kw_only=True)
    public: PublicPart | None = field(default=None, kw_only=True)

    @property
    def scores(self) -> str:
        """The kind of scores: ``"ratings"``, ``"likes"`` or ``"log-odds"``; ratings keep to the range."""
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
        if history.n_users == 1:  # nothing to share among threads, whose number takes a millisecond to set
            return self._folded(history)
        with one_blas_thread():
            return self._folded(history)

    def _folded(self, history: Ratings) -> UserState:
        state = self.estimator.fold_in(self.arrays, history)
        if self.public is None:
            return state
        arrays, theirs = self.public.model.arrays, self.public.model.fold_in(history)
        ranks = self.scores != "ratings"
        return state._replace(beside=Beside(arrays, theirs, self.public.weight, ranks))

    def predict(
        self, history: Ratings | Mapping[Any, float] | Iterable[tuple[Any, float]], items: Any
    ) -> Any:
        """Return predicted ratings of some items, clipped to the declared range.

        Parameters
        ----------
        history : mapping or pairs of item id and rating, or Ratings
            One user's own ratings, or many users'.
        items : sequence of item ids, or a table
            Items of the declared catalogue. Or, beside Ratings, a data frame, Arrow table or mapping with a
            column of users and one of items (their usual names): one prediction a row.

        Returns
        -------
        list of float
            For one user, in the order of ``items``.
        ndarray
            Where ``history`` is Ratings: of shape (n_users, n_items); (n_rows,) for a table, in its order,
            NaN where the item is not in the catalogue. Users without a row in ``history`` are served from
            released values alone.
        """
        if isinstance(items, Mapping) or hasattr(items, "columns"):
            return self._predict_rows(history, items)
        rows, single = self._rows(history)
        columns = self._columns(items)
        every = np.repeat(np.arange(rows.n_users), len(columns))
        found = scores_at(self.arrays, self.fold_in(rows), every, np.tile(columns, rows.n_users))
        scores = self._clip(found).reshape(rows.n_users, len(columns))
        return scores[0].tolist() if single else scores

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
        state = self.fold_in(history).moved(history.user_index(targets))
        rows = np.repeat(np.arange(targets.n_users), np.diff(targets.matrix.indptr))
        return self._clip(scores_at(self.arrays, state, rows, targets.matrix.indices))

    def recommend(
        self,
        history: Mapping[Any, float] | Iterable[tuple[Any, float]],
        n: int = 10,
        *,
        exclude_seen: bool = True,
        items: Sequence[Any] | None = None,
        exclude_items: Sequence[Any] | None = None,
        attributes: Any = None,
        where: str | None = None,
        at_most: Mapping[str, int] | None = None,
        boost: Mapping[str, float] | None = None,
    ) -> list[Recommended]:
        """Return the best items for one user, from their own ratings.

        Parameters
        ----------
        history : mapping or pairs of item id and rating
            Their own ratings; may be empty.
        n : int
            How many items, at most.
        exclude_seen : bool
            Leave out the items in the history.
        items : sequence of item ids, optional
            Recommend among these only.
        exclude_items : sequence of item ids, optional
            Recommend none of these.
        attributes : Attributes, table or path, optional
            What is publicly known of the items (:meth:`hushrec.serving.Attributes.read`), for the rules below
            (docs/guides/rules.md).
        where : str, optional
            Recommend items of which this condition is true, such as ``"in_stock and price < 50"``.
        at_most : mapping of str to int, optional
            How many items may share a value of a column: ``{"brand": 2}``.
        boost : mapping of str to float, optional
            By how much items count for more of which a condition is true: ``{"new": 1.1}``. What is
            multiplied is how far their score is above the user's lowest.

        Returns
        -------
        list of Recommended
            Best first: tuples of item id, score and, from a model that predicts, rating.

        Privacy
        -------
        Rules are post-processing: they use released values, the public table and the user's own ratings.
        """
        rows, single = self._rows(history)
        if not single:
            raise InputError("recommend serves one user; for Ratings of many users call recommend_batch.")
        options: Any = {"exclude_seen": exclude_seen, "items": items, "exclude_items": exclude_items}
        options |= {"attributes": attributes, "where": where, "at_most": at_most, "boost": boost}
        ((columns, scores, ratings),) = self.top_rated(rows, n, **options)
        shown = [None] * len(columns[0]) if ratings is None else ratings[0].tolist()
        return [
            Recommended(self.domain.items[column], score, rating)
            for column, score, rating in zip(columns[0].tolist(), scores[0].tolist(), shown)
            if column >= 0
        ]

    def explain(self, history: Mapping[Any, float] | Iterable[tuple[Any, float]], item: Any) -> Explanation:
        """Return which of a user's items moved the score of this one; for their eyes only.

        Parameters
        ----------
        history : mapping or pairs of item id and rating
            Their own ratings; may be empty.
        item
            An item of the catalogue.

        Raises
        ------
        InputError
            If the item is not in the catalogue, or the model cannot say what each rating adds to a score: of
            the papers' models only `dpals` can.
        """
        rows, single = self._rows(history)
        if not single:
            raise InputError("explain is for one user; pass a mapping or pairs of item and rating.")
        lister, column = self.lists or self, int(self._columns([item])[0])
        here = np.zeros(1, np.int64)
        state = lister.fold_in(rows)
        score = float(scores_at(lister.arrays, state, here, here + column)[0])
        moved = lister.score_parts(rows, state, column).tolist()
        named = [
            Because(self.domain.items[at], part) for at, part in zip(rows.matrix.indices.tolist(), moved)
        ]
        because = sorted(named, key=lambda each: -abs(each.moved))
        return Explanation(self.domain.items[column], score, score - sum(moved), because)

    def score_parts(self, history: Ratings, state: UserState, column: int) -> NDArray[np.float64]:
        """Return what each rating of one user adds to the score of an item."""
        parts = self.estimator.score_parts(self.arrays, history, column)
        if self.public is None or state.beside is None:
            return parts
        theirs = self.public.model.score_parts(history, state.beside.state, column)
        own, public = 1.0 - self.public.weight, self.public.weight
        if state.beside.ranks:
            scores = own_scores(self.arrays, state), own_scores(state.beside.arrays, state.beside.state)
            own /= float(standard(lowered(scores[0], self.arrays.get("supported")))[1][0])
            public /= float(standard(scores[1])[1][0])
        return own * parts + public * theirs

    def recommend_batch(
        self, history: Ratings, n: int = 10, *, progress: bool = False, **options: Any
    ) -> pa.Table:
        """Return the best items for many users; each user's rows are for that user alone.

        Parameters
        ----------
        history : Ratings
            The users to serve and their own ratings.
        n, **options
            As in :meth:`recommend`.
        progress : bool
            Show what part of the users has its lists, and the time: private.

        Returns
        -------
        pyarrow.Table
            Columns ``user``, ``item``, ``rank`` (from 1), ``score`` and, of a model that predicts, ``rating``
            (:class:`Recommended`), ``title`` where the attributes have one; private, like any recommendation.
        """
        blocks = []
        with progress_bar(progress, getattr(history, "n_users", 0), "lists (private)") as advance:
            for block in self.top_rated(history, n, **options):
                blocks.append(block)
                advance(len(block[0]))
        nothing = np.empty((0, 0))
        columns = np.concatenate([block[0] for block in blocks] or [nothing.astype(np.int64)])
        scores = np.concatenate([block[1] for block in blocks] or [nothing])
        users, ranks = np.nonzero(columns >= 0)
        table = {
            "user": history.user_column.take(pa.array(users)),
            "item": self.domain.item_column.take(pa.array(columns[users, ranks])),
            "rank": pa.array((ranks + 1).astype(np.int32)),
            "score": pa.array(scores[users, ranks].astype(np.float64)),
        }
        if self.scores == "ratings":
            ratings = np.concatenate([block[2] for block in blocks if block[2] is not None] or [nothing])
            table["rating"] = pa.array(ratings[users, ranks])
        if "new" in self.arrays:
            table["new"] = pa.array(np.asarray(self.arrays["new"])[columns[users, ranks]] != 0)
        titles = Attributes.read(options.get("attributes"), self.domain).title_column
        if titles is not None:
            table["title"] = titles.take(pa.array(columns[users, ranks]))
        return pa.table(table)

    def top_columns(
        self, history: Ratings, n: int = 10, **options: Any
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """Yield the best items for many users as positions in the catalogue, a block of users at a time.

        Parameters
        ----------
        history, n, **options
            As in :meth:`recommend_batch`.

        Yields
        ------
        (columns, scores)
            Shape (users in the block, min(n, n_items)), best first; columns are -1 past the end of a list.
        """
        for _, columns, scores in self._ranked(history, n, (self.lists or self).fold_in, **options):
            yield columns, scores

    def top_rated(
        self, history: Ratings, n: int = 10, **options: Any
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float64] | None]]:
        """Yield as :meth:`top_columns`, with what is predicted of the items; None where nothing is.

        Parameters
        ----------
        history, n, **options
            As in :meth:`top_columns`.

        Yields
        ------
        (columns, scores, ratings)
            Of one shape; ratings are NaN past the end of a list.
        """
        folded: list[UserState] = []

        def fold_in(rows: Ratings) -> UserState:
            folded.append(self.fold_in(rows))
            return self.lists.fold_in(rows) if self.lists else folded[0]

        once = fold_in if self.scores == "ratings" else (self.lists or self).fold_in
        for users, columns, scores in self._ranked(history, n, once, **options):
            ratings = None
            if folded:
                rows, ranks = np.nonzero(columns >= 0)
                ratings = np.full(columns.shape, np.nan)
                found = scores_at(self.arrays, folded[0].at(users), rows, columns[rows, ranks])
                ratings[rows, ranks] = self._clip(found)
            yield columns, scores, ratings

    def _ranked(
        self,
        history: Ratings,
        n: int,
        fold_in: Callable[[Ratings], UserState],
        exclude_seen: bool = True,
        items: Sequence[Any] | None = None,
        exclude_items: Sequence[Any] | None = None,
        **rules: Any,
    ) -> Iterator[tuple[slice, NDArray[np.int64], NDArray[Any]]]:
        """Yield blocks of users with their best items and scores."""
        if not isinstance(history, Ratings):
            raise InputError(
                f"history must be Ratings, not {type(history).__name__}; load it with Ratings.read(table,"
                " model.domain), or serve one user with recommend."
            )
        count = min(_count(n), self.domain.n_items)
        said = Rules.of(self.domain, **rules)
        if items is not None or exclude_items is not None:
            among = np.full(self.domain.n_items, items is None)
            among[self._columns([] if items is None else items)] = True
            among[self._columns([] if exclude_items is None else exclude_items)] = False
            said = said._replace(allowed=among if said.allowed is None else among & said.allowed)
        excluded = history.matrix if exclude_seen else None
        arrays, state = (self.lists or self).arrays, fold_in(history)
        yield from best_columns(arrays, state, count, excluded=excluded, rules=said)

    @property
    def directions(self) -> int | None:
        """The number of directions of taste that stand out of the noise; None where the model does not know.

        From released values alone. With 0 everybody gets nearly the same list.
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
            In the order of the catalogue. Their inner products with :meth:`query` rank as lists do
            (docs/guides/vectors.md), but for scores that float32 cannot tell apart.
        """
        return item_vectors(self._ranking.arrays)

    @property
    def _ranking(self) -> Recommender:
        """The one model that makes the lists; refused where two make them, which no inner product ranks."""
        own = self.lists or self
        if own.public is not None and own.public.weight < 1:
            raise InputError(
                "Two models score the items of this one, a private and a public one, and no inner product"
                " ranks as they do; train without public ratings for an index of vectors."
            )
        return own if own.public is None else own.public.model

    def query(
        self, history: Ratings | Mapping[Any, float] | Iterable[tuple[Any, float]]
    ) -> NDArray[np.float32]:
        """Return a user's vector, to be compared with :meth:`item_vectors`; for their lists alone.

        Parameters
        ----------
        history : mapping or pairs of item id and rating, or Ratings
            One user's own ratings, or many users'.

        Returns
        -------
        ndarray of shape (n_dimensions,), or (n_users, n_dimensions) of Ratings
            Items of the history are ranked too: ask the index for so many more and leave them out.
        """
        rows, single = self._rows(history)
        model = self._ranking
        if model is self:
            found = queries(self.arrays, self.fold_in(rows).factors, self._reach)
        else:
            found = model.query(rows)
        return found[0] if single else found

    @cached_property
    def _reach(self) -> tuple[float, float]:
        return reach(self.arrays)

    def similar_items(self, item: Any, n: int = 10) -> list[tuple[Any, float]]:
        """Items that the same people like, most similar first; public.

        What is compared is the cosine of the items' factors in the directions that stand out of their noise,
        or, in a model of every item on all others, the item's own weight for them: what goes with it.

        Parameters
        ----------
        item : item id, or list of them
            For several, such as a basket, similarities are averaged.
        n : int
            How many items, at most.

        Raises
        ------
        InputError
            If an item is not in the catalogue or was not learned, or no direction of the model stands out of
            its noise.
        """
        given = list(item) if isinstance(item, list | tuple | set | frozenset) else [item]
        columns = self._columns(given)
        if not given:
            raise InputError("The list of items is empty; pass one item or more.")
        lister = self.lists or self
        if lister.directions == 0 and "learned_items" not in lister.arrays:
            raise InputError(
                "This model learned nothing of people's tastes beyond chance, so items cannot be compared."
                " Whether a model learns tastes depends on how much they differ; another training on the same"
                " users is charged on top."
            )
        found, known = similarities(lister.arrays, columns)
        if not known.all():
            raise InputError(
                f"Too few users like item {given[int(np.argmin(known))]!r} to tell at this epsilon what is"
                " similar to it; ask for a more popular one."
            )
        best = np.argsort(-found, kind="stable")[: _count(n)]
        return [(self.domain.items[i], float(found[i])) for i in best if np.isfinite(found[i])]

    # ------------------------------------------------------------------ inside

    def _predict_rows(self, history: Any, table: Any) -> NDArray[np.float64]:
        """A prediction for each row of a table of users and items; NaN where there is no such item."""
        if not isinstance(history, Ratings):
            raise InputError("A table of users and items is predicted from Ratings; pass their histories so.")
        read = read_columns(table, None, None, implicit=True)
        users, columns = history.user_index(read.users), self.domain.index(read.items)
        known = columns >= 0
        rows = np.where(users < 0, history.n_users, users)[known]  # the last one has no ratings
        state = self.fold_in(history).moved(np.append(np.arange(history.n_users), -1))
        predicted = np.full(len(columns), np.nan)
        predicted[known] = self._clip(scores_at(self.arrays, state, rows, columns[known]))
        return predicted

    def _rows(self, history: Any) -> tuple[Ratings, bool]:
        if isinstance(history, Ratings):
            return history, False
        return own_ratings(history, self.domain, self.scores == "likes"), True

    def _columns(self, items: Sequence[Any]) -> NDArray[np.int64]:
        if isinstance(items, str | bytes):
            raise InputError(f"items={items!r} is one id; pass a list of item ids.")
        if not isinstance(items, Iterable):
            raise InputError(f"items={items!r} is no list; pass a list of item ids.")
        items = list(items) if isinstance(items, Iterator) else items  # which can be read once only
        short = isinstance(items, list | tuple) and len(items) <= _SHORT
        columns = (
            np.fromiter(map(self.domain.position, items), np.int64) if short else self.domain.index(items)
        )
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
        return np.clip(scores, self.domain.low, self.domain.high)


def own_ratings(history: Any, domain: Domain, likes: bool) -> Ratings:
    """One user's ratings, refused where some cannot be used: they are the caller's own, who may be told."""
    if isinstance(history, str | bytes):
        raise InputError(
            f"{history!r} is one id; pass a mapping from item to rating, pairs of both, or a list."
        )
    if hasattr(history, "columns"):
        raise InputError(
            "A table may hold several users' ratings: read it with Ratings.from_any(table, model.domain) for"
            " recommend_batch, or pass one user's as a mapping from item to rating."
        )
    pairs: Any = list(history.items()) if isinstance(history, Mapping) else history
    if isinstance(pairs, Iterable):
        pairs = list(pairs)
        alone = [entry for entry in pairs if not isinstance(entry, tuple | list)]
        if likes and len(alone) == len(pairs):  # ids of liked items
            pairs = [(item, domain.high) for item in pairs]
        elif alone:
            raise InputError(
                f"A user's ratings must be a mapping from item to rating, or pairs of both; {alone[0]!r} is"
                " neither."
            )
    rows = Ratings.of_user(pairs, domain)
    if rows.n_ratings < len(pairs):
        _refuse_unusable(pairs, domain)
    return rows


def _refuse_unusable(pairs: list[Any], domain: Domain) -> None:
    """Name the first pair without an item of the catalogue or without a rating in the range."""
    items, ratings = [entry[0] for entry in pairs], [entry[-1] for entry in pairs]
    known = np.fromiter(map(domain.position, items), np.int64, len(items)) >= 0
    usable = known if domain.likes else known & ~np.isnan(within_range(encode_ratings(ratings), domain))
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


def all_scores(arrays: Mapping[str, Array], state: UserState) -> NDArray[np.float64]:
    """The score of every item for every user, shape (n_users, n_items)."""
    scores, beside = own_scores(arrays, state), state.beside
    if beside is None:
        return scores
    public = own_scores(beside.arrays, beside.state)
    if beside.ranks:
        scores = standard(lowered(scores, arrays.get("supported")))[0]
        public = standard(public)[0]
    return mixed(scores, public, beside.weight)


def own_scores(arrays: Mapping[str, Array], state: UserState) -> NDArray[np.float64]:
    """The scores of one model alone, shape (n_users, n_items)."""
    level = float(arrays["center"]) + arrays["item_bias"]
    if "learned_items" not in arrays:
        return topk.row_scores(np.asarray(state.factors), arrays["item_factors"], state.offset, level)
    scores = state.offset[:, None] + level
    scores[:, arrays["learned_items"]] += state.factors @ np.asarray(arrays["item_factors"], np.float64).T
    return scores


def scores_at(
    arrays: Mapping[str, Array], state: UserState, rows: Array, columns: Array
) -> NDArray[np.float64]:
    """The scores of some cells only."""
    beside = state.beside
    if "learned_items" in arrays or (
        beside is not None and beside.ranks
    ):  # all scores of a few users at a time
        found, order = np.empty(len(rows)), np.argsort(rows, kind="stable")
        for users in _blocks(arrays, state):
            first, last = np.searchsorted(rows[order], (users.start, users.stop))
            cells = order[first:last]
            found[cells] = all_scores(arrays, state.at(users))[rows[cells] - users.start, columns[cells]]
        return found
    factors, places = arrays["item_factors"], columns
    if len(columns) < len(factors):  # the rows that are needed
        factors, places = factors[columns], np.arange(len(columns))
    found = residuals.predict_pairs(rows, places, state.factors, np.asarray(factors, dtype=np.float64))
    found += float(arrays["center"]) + state.offset[rows] + arrays["item_bias"][columns]
    if beside is None:
        return found
    return mixed(found, scores_at(beside.arrays, beside.state, rows, columns), beside.weight)


def best_columns(
    arrays: Mapping[str, Array],
    state: UserState,
    count: int,
    *,
    excluded: sp.csr_array | None = None,
    rules: Rules = Rules(),
) -> Iterator[tuple[slice, NDArray[np.int64], Array]]:
    """Yield the best items of each user, a block of users at a time.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        The released arrays. Items whose ``supported`` is 0 come after all others, with scores below theirs.
    state : UserState
        The users.
    count : int
        How many items, at most the catalogue.
    excluded : csr_array of shape (n_users, n_items), optional
        Cells that must not be chosen.
    rules : Rules, optional
        Which items may be chosen, how many of a kind, and which count for more.

    Yields
    ------
    (users, columns, scores)
        Columns and scores of shape (users in the block, count), best first; columns are -1 past the end of a
        list. The score of an item is the same whatever else is asked for, unless rules boost some.
    """
    supported = arrays.get("supported")
    if state.beside is not None and state.beside.ranks:
        supported = None  # which its scores have done
    first = None if supported is None else supported.astype(bool)
    for rows in _blocks(arrays, state):
        every = all_scores(arrays, state.at(rows))
        if rules.factors is not None:
            every = boosted(every, rules.factors)
        found = every if rules.allowed is None else np.where(rules.allowed, every, -np.inf)
        indptr, taken = None, None
        if excluded is not None:
            indptr = excluded.indptr[rows.start : rows.stop + 1]
            indptr, taken = indptr - indptr[0], excluded.indices[indptr[0] : indptr[-1]]
        columns, scores = topk.top_k(found, count, indptr, taken, first)
        if rules.limits:
            columns, scores = limited(rules.limits, found, columns, indptr, taken, first)
        yield rows, columns, scores if first is None else below(every, first, columns, scores)


def below(every: Array, first: NDArray[np.bool_], columns: Array, scores: Array) -> Array:
    """Return the scores of chosen items, those that are not of ``first`` lowered to below all that are.

    Parameters
    ----------
    every : ndarray of shape (n_users, n_items)
        All scores of each user.
    first : ndarray of bool, shape (n_items,)
    columns, scores : ndarrays of shape (n_users, count)
    """
    other = ~first[columns] & (columns >= 0)
    (users,) = np.nonzero(other.any(axis=1))
    if not len(users):  # as in most short lists
        return scores
    every = every if len(users) == len(every) else every[users]
    low = np.take_along_axis(lowered(every, first), np.maximum(columns[users], 0), axis=1)
    scores[users] = np.where(other[users], low, scores[users])
    return scores


def _blocks(arrays: Mapping[str, Array], state: UserState) -> Iterator[slice]:
    """The users, so many at a time as have a bounded number of scores."""
    block = max(1, _SCORES_PER_BLOCK // len(arrays["item_bias"]))
    for start in range(0, len(state.offset), block):
        yield slice(start, start + block)


def similarities(arrays: Mapping[str, Array], columns: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Return the mean similarity of every item to some, and which of these can be compared with another.

    The similarity is the cosine of the items' factors or, where items recommend items, their weight. Where
    only the first ``directions`` of the factors exceed the noise, each item has one more of usual length that
    it shares with no other: few directions would else make all items alike.

    Returns
    -------
    (mean, known)
        Of shape (n_items,), -inf for the given items and where nothing is known, and (n_columns,).
    """
    factors, mean = np.asarray(arrays["item_factors"]), np.full(len(arrays["item_bias"]), -np.inf)
    if "learned_items" in arrays:
        learned = np.asarray(arrays["learned_items"])
        places = np.minimum(np.searchsorted(learned, columns), max(len(learned) - 1, 0))
        known = learned[places] == columns if len(learned) else np.zeros(len(columns), bool)
        mean[learned] = factors[:, places[known]].mean(axis=1, dtype=np.float64) if known.any() else -np.inf
        known &= len(learned) > 1
    else:
        directions = arrays.get("directions")
        width = factors.shape[1] if directions is None else int(directions)
        squares = np.einsum("ij,ij->i", factors[:, :width], factors[:, :width], dtype=np.float64)
        present = squares > 0
        unknown = (
            0.0 if directions is None else squares[present].sum() / max(present.sum(), 1) / max(width, 1)
        )
        lengths = np.sqrt(squares + unknown)
        known = present[columns] & (present.sum() > 1)
        units = factors[columns[known], :width] / lengths[columns[known], None]
        if known.any():
            products = topk.row_scores(
                units.mean(axis=0)[None], factors[:, :width], np.zeros(1), np.zeros(len(mean))
            )
            mean[present] = products[0, present] / lengths[present]
    mean[columns] = -np.inf
    return mean, known


def _count(n: int) -> int:
    if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1:
        raise InputError(f"n={n!r} is not a positive number of items; pass for example 10.", parameter="n")
    return int(n)
