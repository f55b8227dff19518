"""Accuracy of a model on held-out ratings, with confidence intervals over users.

Every figure is over the whole catalogue and all users with held-out ratings; a user without a history is
served from released values alone. The figures have no noise: they are for the curator, and never in a model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hushrec import notebook
from hushrec.checks import check_choice, check_kind, check_listed, check_numbers, plural
from hushrec.data import Domain, Ratings, Store
from hushrec.data.keys import mix
from hushrec.errors import InputError
from hushrec.evaluation.intervals import CONFIDENCE, RESAMPLES, Estimate, estimates
from hushrec.evaluation.one_bit import sign_metrics
from hushrec.evaluation.user_metrics import METRICS, K, Measured, Users
from hushrec.serving.recommend import Recommender
from hushrec.training.partitioned import Streaming
from hushrec.types import Array

if TYPE_CHECKING:
    from hushrec.data.store import Partition

#: The privacy remark of an evaluation.
PRIVATE_FIGURE = "private figure of the curator, computed from held-out ratings without noise"

DEFAULT_METRICS = (
    *("rmse", "mae", "recall", "capped-recall", "ndcg"),
    *("coverage", "different-lists", "commonest-first"),
)


@dataclass(frozen=True)
class Evaluation:
    """Accuracy of one model on one set of held-out ratings. A private figure of the curator.

    Attributes
    ----------
    metrics : mapping of str to Estimate
        The ``hushrec.evaluation.METRICS`` that were asked for, in that order, as ``recall@20`` with the
        lists' length; before them ``accuracy``, ``log_loss`` and ``auc`` for models of likes and dislikes.
    k, relevant_from
        As in `evaluate`.
    n_users, n_ratings : int
        Users with held-out ratings, and those ratings.
    n_known : int
        Held-out ratings of items of the user's history: they flatter the errors, and are no hits.
    purchases : bool
        Whether held-out rows may be purchases without a rating.
    exclude_seen : bool
        As in `evaluate`.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> train, _, test = hushrec.split_ratings(ratings, seed=0)
    >>> model = hushrec.Popular().fit(train, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> found = hushrec.evaluate(model, train, test, k=5, metrics=["recall", "ndcg"], resamples=10)
    >>> list(found.metrics)
    ['recall@5', 'ndcg@5']
    >>> 0 <= found["recall@5"].low <= found["recall@5"].high <= 1
    True
    """

    metrics: Mapping[str, Estimate]
    k: int
    relevant_from: float | None
    n_users: int
    n_ratings: int
    n_known: int = 0
    purchases: bool = False
    exclude_seen: bool = True

    def __getitem__(self, name: str) -> Estimate:
        return self.metrics[name]

    def __repr__(self) -> str:
        figures = ", ".join(f"{name}={metric.value:.4f}" for name, metric in self.metrics.items())
        return f"Evaluation({figures}; {PRIVATE_FIGURE})"

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        percent = f"{CONFIDENCE:.0%} interval"
        rows = [
            (name, shown(name, metric.value), f"{shown(name, metric.low)} to {shown(name, metric.high)}")
            for name, metric in self.metrics.items()
        ]
        return notebook.table("Evaluation", [("metric", "value", percent), *rows], f"{PRIVATE_FIGURE}.")

    def to_dict(self) -> dict[str, Any]:
        """Return each metric and its interval, for JSON."""
        intervals = {name: [_plain(m.low), _plain(m.high)] for name, m in self.metrics.items()}
        names = ("k", "relevant_from", "n_users", "n_ratings", "n_known")
        return {
            **{name: _plain(metric.value) for name, metric in self.metrics.items()},
            "intervals": intervals,
            "confidence": CONFIDENCE,
            **{name: getattr(self, name) for name in names},
            "note": PRIVATE_FIGURE,
        }

    def text(self, more_columns: Mapping[str, Mapping[str, str]] | None = None) -> str:
        """Return a text table; ``more_columns`` has further columns: heading -> metric -> cell."""
        errors = [metric.name for metric in METRICS.values() if metric.job == "ratings"]
        shown_ones = {
            name: metric
            for name, metric in self.metrics.items()
            if name not in errors or not math.isnan(metric.value)  # lists alone have no errors
        } or self.metrics
        more = more_columns or {}
        interval = f"{CONFIDENCE:.0%} interval{'' if more else ' (bootstrap over users)'}"
        rows = [["", "value", interval, *more]]
        for name, metric in shown_ones.items():
            value, between = shown(name, metric.value), ""
            if math.isnan(metric.value):
                value, between = "-", "(nothing to measure)"
            elif not math.isnan(metric.low):
                between = f"{shown(name, metric.low)} to {shown(name, metric.high)}"
            rows.append([name, value, between, *(cells.get(name, "") for cells in more.values())])
        lines = notebook.aligned(rows, left={0, 2})
        what = "held-out row" if self.purchases else "held-out rating"
        of = f"{plural(self.n_ratings, what)} of {plural(self.n_users, 'user')}"
        lines.append(f"{of}; relevant: {relevant(self.relevant_from, self.purchases)}.")
        if self.n_known and (self.purchases or not self.exclude_seen):
            kind = "a purchase" if self.purchases else "an item of the history"
            count = "lists leave these items out" if self.exclude_seen else "they count"
            lines.append(f"{self.n_known:,} of them repeat {kind}; {count}.")
        elif self.n_known:
            lines.append(
                f"In the history, too: {self.n_known:,} of them; the errors flatter the model, and"
                " lists leave these items out. Take them out of the history."
            )
        lines.append(f"This is a {PRIVATE_FIGURE}.")
        return "\n".join(lines)


def evaluate(
    model: Recommender,
    history: Ratings | Store,
    targets: Ratings | Store,
    *,
    k: int = K,
    relevant_from: float | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    resamples: int = RESAMPLES,
    seed: int = 0,
    next: bool = False,
    exclude_seen: bool = True,
    engine: Any = None,
) -> Evaluation:
    """Measure a model on held-out ratings.

    RMSE and MAE are over all held-out ratings. A list is the ``k`` best items outside a user's history. Means
    over the users who have a relevant item:

    - ``recall``: hits / number of their relevant items; ``precision``: hits / k;
    - ``capped-recall``: hits / min(k, number of their relevant items) (Chien et al. 2021, section 5.1); the
      "Recall@20" of this project's tables;
    - ``ndcg``: gain 1 for a relevant item, discount 1 / log2(rank + 1), relative to the best possible list;
    - ``map``: the precision at each hit, summed and divided by the number of relevant items;
    - ``mrr``: 1 / rank of the first hit; ``hit-rate``: the fraction of users with a hit;
    - ``head-recall`` and ``tail-recall``: recall among the most rated items, which have half of the history's
      ratings, and among all others.

    Over all lists: ``coverage`` is the fraction of the catalogue in at least one; ``gini`` is the Gini
    coefficient of how often each item is listed (0: all equally often); ``novelty`` the mean over their items
    of -log2 of the fraction of history's users who rated it, one being added to both counts.
    ``different-lists`` counts the lists, and ``commonest-first`` is the fraction of users with the most
    common first item, both before items of the history are removed. One list for all users gives 1 in both.

    Parameters
    ----------
    model : Recommender
    history : Ratings or Store
        Ratings that users are folded in from; these items are not recommended.
    targets : Ratings or Store
        Held-out ratings, over the same domain.
    k : int
        Length of the lists, >= 1.
    relevant_from : float, optional
        Only held-out ratings from here up, and purchases without a rating, are relevant to the ranking
        metrics; by default all rows are. Items in the user's history are not, with ``exclude_seen``.
    metrics : sequence of str
        Names out of ``hushrec.evaluation.METRICS``.
    resamples : int
        Bootstrap resamples of the users; 0 leaves the intervals undefined (NaN).
    seed : int
        Seeds the bootstrap.
    next : bool
        Measure lists of what users choose next, in which recent ratings count more. The history has times,
        and the held-out ratings are later (`hushrec.data.leave_last_out`).
    exclude_seen : bool
        False: lists may have items of the user's history, and repeat purchases of them are relevant.
    engine : Dask, optional
        It measures two stores with equal numbers of partitions. The figures are the same; intervals use
        another order of the users.

    Returns
    -------
    Evaluation
        RMSE and MAE are NaN for models of likes, whose scores are not ratings.

    Raises
    ------
    InputError
        An argument is out of range, or the ratings are over another domain than the model.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> train, _, test = hushrec.split_ratings(ratings, seed=0)
    >>> model = hushrec.ItemBias().fit(train, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> found = hushrec.evaluate(model, train, test, metrics=["rmse"], resamples=10)
    >>> 0.1 < found["rmse"].value < 4                            # private: the curator's own
    True
    """
    check_numbers(
        k=(k, int, "[1, inf)"), resamples=(resamples, int, "[0, inf)"), seed=(seed, int, "[0, inf)")
    )
    check_kind(model, Recommender, "model", "pass the trained model first")
    for name, rows in (("history", history), ("targets", targets)):
        check_kind(rows, (Ratings, Store), name, "load them with Ratings.from_any(table, model.domain)")
    check_listed(metrics, "metrics", '["rmse", "recall"]')
    if not metrics:
        raise InputError("metrics names none; pass one or more, such as recall.", parameter="metrics")
    for name in metrics:
        check_choice(metrics=(name, tuple(METRICS)))
    check_relevant(relevant_from, model.domain)
    if targets.domain.fingerprint != model.domain.fingerprint:
        raise InputError(
            "The held-out ratings were read with another catalogue or rating range than the model's;"
            " read them with the model's own domain (model.domain)."
        )
    if engine is None:
        history, targets, engine = _readable(model, history, targets)
    alike = any(METRICS[name].alike for name in metrics)
    public = model, k, relevant_from, alike, next, exclude_seen
    if isinstance(history, Ratings) and isinstance(targets, Ratings) and engine is None:
        signs = _sign_metrics(model, history, targets, resamples, seed)
        whole = _measured(history, targets, *public)
    else:
        signs = {}
        whole = _over_partitions(history, targets, public, engine)
    asked = [metric for name, metric in METRICS.items() if name in metrics]
    users = Users.of(whole, model.domain)
    figures = estimates(asked, users.sample, users.n_users, resamples, seed)
    return Evaluation(
        metrics=signs | {metric.called(k): figures[metric.name] for metric in asked},
        k=k,
        relevant_from=relevant_from,
        n_users=users.n_users,
        n_ratings=whole.n_ratings,
        n_known=whole.n_known,
        purchases=targets.purchases,
        exclude_seen=exclude_seen,
    )


def _measured(
    history: Ratings,
    targets: Ratings,
    model: Recommender,
    k: int,
    relevant_from: float | None,
    alike: bool,
    next: bool,
    exclude_seen: bool,
) -> Measured:
    targets = targets.rows(np.diff(targets.matrix.indptr) > 0)
    raters, n_history = np.bincount(history.matrix.indices, minlength=history.n_items), history.n_users
    history = history.aligned_to(targets)
    users = dict.fromkeys(("squared", "absolute", "rated"), np.zeros(targets.n_users))
    if model.scores == "ratings":
        predicted = model.predict_pairs(history, targets)
        users = user_errors(predicted, targets.matrix.data, targets.matrix.indptr)
    relevant, n_known = _relevant_cells(history, targets, relevant_from, exclude_seen)
    ranks, lists = _rank_metrics(model, history, relevant, k, next, exclude_seen)
    users |= ranks
    if alike:
        users |= _before_history(model, history, k, next)
    listed = _found(lists, relevant[0], history.n_items)
    return Measured(users, lists, listed, raters, n_history, targets.n_ratings, n_known)


def _readable(
    model: Recommender, history: Ratings | Store, targets: Ratings | Store
) -> tuple[Any, Any, Streaming | None]:
    """Measure two stores with equal numbers of partitions one by one, all else in memory."""
    stores = [rows for rows in (history, targets) if isinstance(rows, Store)]
    parts = {len(store.partitions()) for store in stores}
    if len(stores) == 2 and len(parts) == 1 and model.scores != "log-odds":
        return history, targets, Streaming()
    domain = model.domain
    whole = [
        Ratings.from_any(rows, domain) if isinstance(rows, Store) else rows for rows in (history, targets)
    ]
    return whole[0], whole[1], None


def _measured_there(number: int, partitions: Sequence[Partition], public: tuple[Any, ...]) -> Measured:
    history, targets = (partition.ratings() for partition in partitions)
    return _measured(history, targets, *public)


def _over_partitions(history: Any, targets: Any, public: tuple[Any, ...], engine: Any) -> Measured:
    if not (isinstance(history, Store) and isinstance(targets, Store) and engine is not None):
        raise InputError("An engine measures two stores; prepare history and held-out ratings.")
    if public[0].scores == "log-odds":
        raise InputError("Models of likes and dislikes are measured in one process; leave engine out.")
    parts: list[Measured] = engine.each(_measured_there, (history, targets), public)
    return Measured(
        users={name: np.concatenate([part.users[name] for part in parts]) for name in parts[0].users},
        lists=np.concatenate([part.lists for part in parts]),
        relevant=sp.vstack([part.relevant for part in parts], format="csr"),
        raters=np.sum([part.raters for part in parts], axis=0),
        history=sum(part.history for part in parts),
        n_ratings=sum(part.n_ratings for part in parts),
        n_known=sum(part.n_known for part in parts),
    )


def _sign_metrics(
    model: Recommender, history: Ratings, targets: Ratings, resamples: int, seed: int
) -> dict[str, Estimate]:
    if model.scores != "log-odds":
        return {}
    estimator: Any = model.estimator
    targets = targets.starred()
    threshold = targets.domain.midpoint if estimator.threshold is None else estimator.threshold
    scores, liked = model.predict_pairs(history, targets), targets.matrix.data > threshold
    return sign_metrics(scores, liked, targets.matrix.indptr, resamples, seed, estimator.link)


def user_errors(predicted: Array, actual: Array, indptr: Array) -> dict[str, Array]:
    """Return each user's ``squared`` and ``absolute`` errors, summed, and number of ``rated`` items."""
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    known = ~np.isnan(actual)  # else a purchase without a rating
    errors = np.where(known, predicted - actual, 0.0)
    columns = {"squared": errors**2, "absolute": np.abs(errors), "rated": known}
    return {name: np.bincount(rows, cells, len(indptr) - 1) for name, cells in columns.items()}


def check_relevant(relevant_from: Any, domain: Domain) -> None:
    """Refuse a rating from which on no rating is relevant."""
    if relevant_from is None:
        return
    check_numbers(relevant_from=(relevant_from, float, "(-inf, inf)"))
    if relevant_from > domain.high:
        raise InputError(
            f"relevant_from={relevant_from:g} is above all ratings; pass at most {domain.high:g}.",
            parameter="relevant_from",
        )


def relevant(relevant_from: float | None, purchases: bool) -> str:
    if relevant_from is None:
        return "all held-out items"
    return f"ratings from {relevant_from:g} up" + ", and purchases without a rating" * purchases


def shown(name: str, value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if name.startswith("different-lists@") else f"{value:.4f}"


def rank_scores(hits: Array, n_relevant: Array) -> dict[str, Array]:
    """Return the metrics of each user's list by name, shape (n_users,); NaN without a relevant item.

    ``hits`` of shape (n_users, k) are true where the item at a rank is relevant.
    """
    rank = np.arange(1, hits.shape[1] + 1)
    discount = 1 / np.log2(rank + 1)
    reachable = np.minimum(n_relevant, len(rank))
    best = np.concatenate([[0.0], np.cumsum(discount)])[reachable]
    precisions = (hits * np.cumsum(hits, axis=1) / rank).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        some = reachable / reachable  # NaN where nothing is relevant
        return {
            "recall": hits.sum(axis=1) / n_relevant,
            "capped-recall": hits.sum(axis=1) / reachable,
            "precision": hits.mean(axis=1) * some,
            "ndcg": (hits @ discount) / best,
            "map": precisions / n_relevant,
            "mrr": (hits / rank).max(axis=1, initial=0.0) * some,
            "hit-rate": hits.any(axis=1) * some,
        }


def _relevant_cells(
    history: Ratings, targets: Ratings, relevant_from: float | None, exclude_seen: bool
) -> tuple[tuple[Array, Array], int]:
    """Return relevant cells ``user * n_items + item``, their number per user, and that of known cells."""
    cells, n_items = _cells(targets), targets.domain.n_items
    keep = ~np.isin(cells, _cells(history), assume_unique=True)
    n_known = int((~keep).sum())
    keep |= not exclude_seen
    if relevant_from is not None:
        keep &= ~(targets.matrix.data < relevant_from)  # a purchase without a rating is relevant
    relevant = cells[keep]
    return (relevant, np.bincount(relevant // n_items, minlength=targets.n_users)), n_known


def _cells(ratings: Ratings) -> Array:
    rows = np.repeat(np.arange(ratings.n_users, dtype=np.int64), np.diff(ratings.matrix.indptr))
    return rows * ratings.domain.n_items + ratings.matrix.indices


def _rank_metrics(
    model: Recommender,
    history: Ratings,
    relevant: tuple[Array, Array],
    k: int,
    next: bool,
    exclude_seen: bool,
) -> tuple[dict[str, Array], Array]:
    """Return each user's `rank_scores`, and list."""
    keys, n_relevant = relevant
    n_items = model.domain.n_items
    lists = np.full((history.n_users, min(k, n_items)), -1, dtype=np.int64)
    hits = np.zeros((history.n_users, k), dtype=bool)
    start = 0
    for columns, *_ in model.rank(history, k, predict=False, next=next, exclude_seen=exclude_seen):
        stop = start + len(columns)
        lists[start:stop, : columns.shape[1]] = columns
        rows = np.arange(start, stop, dtype=np.int64)[:, None]
        mine = keys[slice(*np.searchsorted(keys, [start * n_items, stop * n_items]))]
        hits[start:stop, : columns.shape[1]] = np.isin(rows * n_items + columns, mine) & (columns >= 0)
        start = stop
    return rank_scores(hits, n_relevant), lists


def _found(lists: Array, keys: Array, n_items: int) -> Any:
    rows = np.arange(len(lists), dtype=np.int64)[:, None]
    listed = np.isin(keys, (rows * n_items + lists)[lists >= 0])
    return sp.csr_array((listed + 1, (keys // n_items, keys % n_items)), shape=(len(lists), n_items))


def _before_history(model: Recommender, history: Ratings, k: int, next: bool) -> dict[str, Array]:
    """Return a hash of each list and its first item, items of the history included."""
    hashes, firsts = np.zeros(history.n_users, np.uint64), np.zeros(history.n_users, np.int64)
    start = 0
    for columns, *_ in model.rank(history, k, predict=False, next=next, exclude_seen=False):
        part = slice(start, start := start + len(columns))
        firsts[part] = columns[:, 0]
        for column in columns.T:
            hashes[part] = mix(hashes[part] + column.astype(np.uint64))
    return {"list": hashes, "first item": firsts}


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value
