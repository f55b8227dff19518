"""What every algorithm shares: the estimator, the gate it releases through, and the billboard it returns.

Left of the gate everything is privileged; what the gate returns is public and ends in the
:class:`Billboard`, from which any user, known or new, is served by folding her own ratings in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.kernels.fixed_point import LARGEST_COUNT
from hushrec.kernels.threads import one_blas_thread
from hushrec.privacy import (
    Accountant,
    Aggregate,
    Budget,
    Mechanism,
    Plan,
    PrivacyStatement,
    RandomizedResponse,
)

if TYPE_CHECKING:
    import pyarrow as pa

#: Users are served in blocks of about this many scores, so memory does not grow with the catalogue.
_SCORES_PER_BLOCK = 1 << 22

#: What every privacy statement says is assumed public.
PUBLIC_INPUTS = ("item catalogue", "rating range", "cap on ratings per user", "hyper-parameters")


#: What a training returns.
Result = TypeVar("Result")


class UserState(NamedTuple):
    """What a user computes about herself from the billboard and her own rows; never released.

    Attributes
    ----------
    offset : ndarray of shape (n_users,)
        Her level: added to every score.
    factors : ndarray of shape (n_users, rank)
        Her taste, in the space of the billboard's item factors.
    """

    offset: NDArray[np.float64]
    factors: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Estimator:
    """Hyper-parameters of one algorithm; frozen, so training never changes them.

    Subclasses write four things: ``name``, :meth:`releases` (what will pass the gate, computable
    without data), :meth:`train` (the loop: local steps, aggregates, gate, global steps) and
    :meth:`fold_in` (the local step that serves a user from the billboard).
    """

    #: Name on the command line and in model files.
    name: ClassVar[str] = ""
    #: Units of privacy that its sensitivities are derived for.
    units: ClassVar[tuple[str, ...]] = ("user",)
    #: What its privacy statement says is assumed public.
    public_inputs: ClassVar[tuple[str, ...]] = PUBLIC_INPUTS
    #: True where it makes use of the domain's item features.
    uses_item_features: ClassVar[bool] = False
    #: True where the data are likes rather than ratings: scores are then not clipped to the range.
    implicit: ClassVar[bool] = False
    #: True where what is released is a sum of fixed-point numbers, free of floating-point rounding.
    exact_arithmetic: ClassVar[bool] = True

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        """Every release of a run that spends ``fraction`` of the budget's mu squared."""
        raise NotImplementedError

    def train(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Any]:
        """Run the algorithm; return the released arrays ``center``, ``item_bias``, ``item_factors``, ..."""
        raise NotImplementedError

    def fold_in(self, arrays: Mapping[str, NDArray[Any]], history: Ratings) -> UserState:
        """Local step: what each user computes from the released arrays and her own rows."""
        raise NotImplementedError

    def notes(self, budget: Budget, domain: Domain) -> tuple[str, ...]:
        """What else its privacy statement must say, in words."""
        return ()

    def plan(self, budget: Budget, domain: Domain) -> Plan:
        """What a run under ``budget`` releases, with the noise of each release; needs no data.

        Parameters
        ----------
        budget : Budget
            The whole budget of the run.
        domain : Domain
            The declared catalogue, rating range and cap per user.

        Returns
        -------
        Plan
            The releases in order. After :meth:`fit` with a fresh accountant of the same budget,
            ``accountant.releases == plan.releases``.
        """
        return self.releases(budget, domain, 1.0)

    def fit(
        self,
        ratings: Ratings,
        accountant: Accountant,
        *,
        seed: int = 0,
        progress: bool = False,
        share: float = 1.0,
    ) -> Billboard:
        """Train, spending whatever is left of the accountant's budget.

        Parameters
        ----------
        ratings : Ratings
            The private rows.
        accountant : Accountant
            The only way out for anything computed from the rows.
        seed : int
            Governs initialisation and sampling, never privacy noise.
        progress : bool
            Show a bar with the number of releases made and the time, nothing else.
        share : float
            Part of what is left (of mu squared) to spend, in (0, 1].

        Returns
        -------
        Billboard
            Released values only.

        Raises
        ------
        InputError
            If a declaration is missing or a hyper-parameter is out of range; nothing is spent.
        BudgetError
            If the plan does not fit into the budget or the ledger; nothing is spent.
        """
        arrays, privacy = self.run(self.train, ratings, accountant, seed, progress, share)
        return Billboard(estimator=self, domain=ratings.domain, arrays=arrays, privacy=privacy)

    def run(
        self,
        train: Callable[[Ratings, Gate, int], Result],
        ratings: Ratings,
        accountant: Accountant,
        seed: int,
        progress: bool = False,
        share: float = 1.0,
    ) -> tuple[Result, PrivacyStatement]:
        """Check everything that can be checked beforehand, then train through a gate.

        Returns
        -------
        (what ``train`` returned, PrivacyStatement)
        """
        if not isinstance(ratings, Ratings):
            raise InputError(
                f"ratings must be Ratings, not {type(ratings).__name__}; load them with Ratings.read(table,"
                " domain), which takes files and data frames."
            )
        if not isinstance(accountant, Accountant):
            raise InputError(
                f"accountant must be an Accountant, not {type(accountant).__name__}; pass Accountant(budget)."
            )
        budget = accountant.budget
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
            raise InputError(f"seed={seed!r} is not a non-negative integer; pass one, for example seed=0.")
        if budget.private and not ratings.domain.declared:
            raise InputError(
                "The catalogue and rating range of these ratings were read from the ratings themselves, which"
                " leaks them; declare Domain(items=..., rating_range=(low, high)) and load them with it."
            )
        if ratings.n_users > LARGEST_COUNT:
            raise InputError(
                f"Sums are exact for up to {LARGEST_COUNT:,} users and these are more; train on a part."
            )
        if budget.unit not in self.units:
            raise InputError(
                f"{self.name} has a guarantee for unit {self.units[0]!r}, but the budget's unit is"
                f" {budget.unit!r}; pass Budget(..., unit={self.units[0]!r})."
            )
        plan = self.releases(budget, ratings.domain, share * accountant.remaining_fraction)
        accountant.check(plan)
        gate = Gate(accountant, plan, progress)
        with gate, one_blas_thread():
            result = train(ratings, gate, int(seed))
        notes = self.notes(budget, ratings.domain)
        exact = self.exact_arithmetic and budget.private
        return result, accountant.statement(self.public_inputs, notes, exact_arithmetic=exact)

    def hyper_parameters(self) -> dict[str, Any]:
        """The settings by name, as stored in a model file."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class Gate:
    """Sends an estimator's aggregates through :meth:`Accountant.release`, each as its plan says.

    Sensitivity, unit, relation and mechanism come from the plan, so a release that was not planned,
    or not as planned, cannot happen.
    """

    def __init__(self, accountant: Accountant, plan: Plan, progress: bool = False) -> None:
        self._accountant = accountant
        self._planned = {release.label: release for release in plan.releases}
        self._progress = progress
        self._bar: Any = None
        #: False when the budget is the explicit "no privacy": clips may then be off and sums in float32.
        self.private = accountant.budget.private

    def __enter__(self) -> Gate:
        if self._progress:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=len(self._planned), desc="training", unit="release")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def release(
        self, label: str, value: NDArray[Any], *, scale: NDArray[Any] | float | None = None
    ) -> NDArray[Any]:
        """Release one planned statistic: charge, add the planned noise, return the noisy array."""
        noisy = self._send(label, value, scale)
        assert isinstance(noisy, np.ndarray)
        return noisy

    def release_blocks(
        self, label: str, blocks: Iterable[NDArray[Any]], *, scale: NDArray[Any] | float | None = None
    ) -> Iterator[NDArray[Any]]:
        """Release one planned statistic that is computed block by block; charged once, before the first."""
        noisy = self._send(label, iter(blocks), scale)
        assert not isinstance(noisy, np.ndarray)
        return noisy

    def plans(self, label: str) -> bool:
        """True if a release of this label is planned."""
        return label in self._planned

    def noise_sd(self, label: str) -> float:
        """Planned noise standard deviation of a release (public)."""
        return self._planned[label].noise_sd

    def flip_probability(self, label: str) -> float:
        """Planned probability with which a label is flipped (public)."""
        planned = self._planned[label]
        assert isinstance(planned.mechanism, RandomizedResponse)
        return planned.mechanism.flip_probability(planned.sensitivity)

    def _send(self, label: str, value: Any, scale: Any) -> NDArray[Any] | Iterator[NDArray[Any]]:
        planned = self._planned[label]
        assert isinstance(planned.mechanism, Mechanism), "a selection is made of whole runs"
        aggregate = Aggregate(
            value,
            sensitivity=planned.sensitivity,
            unit=planned.unit,
            relation=planned.relation,
            norm=planned.mechanism.norm,
            scale=scale,
        )
        noisy = self._accountant.release(aggregate, planned.mechanism, label)
        if self._bar is not None:
            self._bar.update()
        return noisy


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
        The released values, read-only. Always ``center`` (a scalar), ``item_bias`` of shape
        (n_items,) and ``item_factors`` of shape (n_items, rank). ``supported``, where there is one, tells
        the items whose released weight stands out of its noise; the others are recommended last.
    privacy : PrivacyStatement
        What was released, at what cost, under which assumptions.
    """

    estimator: Estimator
    domain: Domain
    arrays: Mapping[str, Any]
    privacy: PrivacyStatement

    def __post_init__(self) -> None:
        frozen = {}
        for key, value in self.arrays.items():
            array = np.array(value)
            array.setflags(write=False)
            frozen[key] = array
        object.__setattr__(self, "arrays", MappingProxyType(frozen))

    def __repr__(self) -> str:
        return f"Billboard({self.estimator!r}, {self.domain!r})"

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
        scores = self._clip(self._scores(self.fold_in(rows))[:, columns])
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
        from hushrec.kernels.residuals import predict_pairs

        state = _at_users(self.fold_in(history), history, targets)
        rows = np.repeat(np.arange(targets.n_users), np.diff(targets.matrix.indptr))
        columns = targets.matrix.indices
        scores = predict_pairs(rows, columns, state.factors, np.asarray(self.item_factors, dtype=np.float64))
        return self._clip(
            scores + float(self.arrays["center"]) + state.offset[rows] + self.item_bias[columns]
        )

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
        from hushrec.kernels.topk import top_k

        count = min(_count(n), self.domain.n_items)
        allowed = None if items is None else self._columns(items)
        state = self.fold_in(history)
        supported = self.arrays.get("supported")  # an item that is all noise comes after every other
        first = None if supported is None else supported.astype(bool)
        block = max(1, _SCORES_PER_BLOCK // self.domain.n_items)
        for start in range(0, history.n_users, block):
            stop = min(start + block, history.n_users)
            scores = self._scores(UserState(state.offset[start:stop], state.factors[start:stop]))
            if allowed is not None:
                kept = np.full(scores.shape, -np.inf)
                kept[:, allowed] = scores[:, allowed]
                scores = kept
            indptr = history.matrix.indptr[start : stop + 1]
            seen = history.matrix.indices[indptr[0] : indptr[-1]]
            excluded = indptr - indptr[0] if exclude_seen else None
            columns, best = top_k(scores, count, excluded, seen, first)
            yield columns, self._clip(best)

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
        column = self._columns([item])[0]
        norms = np.linalg.norm(self.item_factors, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            cosines = self.item_factors @ self.item_factors[column] / (norms * norms[column])
        cosines = np.where(np.isfinite(cosines), cosines, -np.inf)
        cosines[column] = -np.inf
        best = np.argsort(-cosines, kind="stable")[: _count(n)]
        return [(self.domain.items[i], float(cosines[i])) for i in best if np.isfinite(cosines[i])]

    def save(self, path: str | Path) -> None:
        """Write the model file (docs/format.md), whole or not at all."""
        from hushrec.store import save

        save(self, path)

    @staticmethod
    def load(path: str | Path) -> Billboard:
        """Read a model file; :class:`hushrec.errors.ModelFileError` if it is damaged."""
        from hushrec.store import load

        return load(path)

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

    def _scores(self, state: UserState) -> NDArray[np.float64]:
        base = float(self.arrays["center"]) + self.item_bias
        return state.offset[:, None] + base + state.factors @ np.asarray(self.item_factors, np.float64).T

    def _clip(self, scores: NDArray[Any]) -> NDArray[Any]:
        if self.estimator.implicit:
            return scores
        return np.clip(scores, self.domain.low, self.domain.high)


def _at_users(state: UserState, history: Ratings, targets: Ratings) -> UserState:
    """Rows of ``state`` for the users of ``targets``; zero, the released values alone, where unknown."""
    position = history.user_index(targets.users)
    known = position >= 0
    offset = np.zeros(targets.n_users)
    factors = np.zeros((targets.n_users, state.factors.shape[1]))
    offset[known] = state.offset[position[known]]
    factors[known] = state.factors[position[known]]
    return UserState(offset, factors)


def _count(n: int) -> int:
    if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1:
        raise InputError(f"n={n!r} is not a positive number of items; pass for example n=10.")
    return int(n)
