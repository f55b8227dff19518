"""The metrics of an evaluation, as records; each is a figure of the users' columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from hushrec.data import Domain
from hushrec.evaluation.intervals import Metric
from hushrec.types import Array

#: Length of the lists that are measured by default.
K = 20


class Measured(NamedTuple):
    """Private measures of some users.

    ``users`` has columns, and all but the last four a row, for each user with held-out ratings; ``relevant``
    is 1 where a relevant item is missed, 2 where it is listed. ``raters`` counts the history's users by item,
    ``history`` all of them.
    """

    users: dict[str, Array]
    lists: Array
    relevant: Any
    raters: Array
    history: int
    n_ratings: int
    n_known: int


@dataclass(frozen=True)
class Users:
    """Columns of the users that metrics are computed from; labels are numbered from 0."""

    columns: dict[str, Array]
    labels: dict[str, Array]
    lists: Array
    n_items: int
    width: float
    most_novel: float

    @classmethod
    def of(cls, whole: Measured, domain: Domain) -> Users:
        labels: dict[str, Array] = {
            name: whole.users[name] for name in ("list", "first item") if name in whole.users
        }
        ranked, listed = ~np.isnan(whole.users["recall"]), whole.lists >= 0
        novelty = np.log2((whole.history + 1) / (whole.raters + 1))
        columns = {
            **{name: np.nan_to_num(column) for name, column in whole.users.items() if name not in labels},
            **_sliced(whole),
            "ranked": ranked,
            "novelty": np.where(listed, novelty[whole.lists], 0.0).sum(axis=1),
            "listed": listed.sum(axis=1),
        }
        numbered: dict[str, Array] = {
            name: np.unique(column, return_inverse=True)[1] for name, column in labels.items()
        }
        width = 2 * domain.half_width
        return cls(columns, numbered, whole.lists, domain.n_items, width, float(novelty.max()))

    @property
    def n_users(self) -> int:
        return len(self.lists)

    def sample(self, weights: Array) -> Sample:
        return Sample(self, weights)


@dataclass(frozen=True)
class Sample:
    """Users, each of whom counts as often as drawn."""

    of: Users
    weights: Array

    def mean(self, name: str, over: str = "ranked") -> float:
        """Return one column's sum over another's; NaN over nothing."""
        values, counts = (float(self.weights @ self.of.columns[column]) for column in (name, over))
        return values / counts if counts else math.nan

    def counts(self, label: str) -> Array:
        """Return the number of users with each label."""
        return np.bincount(self.of.labels[label], self.weights)

    @cached_property
    def exposed(self) -> Array:
        """Number of lists with each item, shape (n_items,)."""
        listed = self.of.lists >= 0
        weights = np.repeat(self.weights, self.of.columns["listed"])
        return np.bincount(self.of.lists[listed], weights, self.of.n_items)


@dataclass(frozen=True)
class EvaluationMetric(Metric[Sample]):
    """A metric of `evaluate`.

    Attributes
    ----------
    job : {"ratings", "lists"}
    at_k : bool
        Its name in a result has the lists' length, as in recall@20.
    alike : bool
        Use lists before the history's items are removed, which would make any two lists differ.
    """

    job: str = "lists"
    at_k: bool = True
    alike: bool = False

    def called(self, k: int) -> str:
        return f"{self.name}@{k}" if self.at_k else self.name


def _width(sample: Sample) -> float:
    return sample.of.width


_ERRORS: dict[str, Any] = {"high": _width, "job": "ratings", "at_k": False}
_ALL = (
    EvaluationMetric("rmse", lambda users: math.sqrt(users.mean("squared", "rated")), **_ERRORS),
    EvaluationMetric("mae", lambda users: users.mean("absolute", "rated"), **_ERRORS),
    *(
        EvaluationMetric(name, partial(Sample.mean, name=name))
        for name in ("recall", "capped-recall", "precision", "ndcg", "map", "mrr", "hit-rate")
    ),
    *(
        EvaluationMetric(name, partial(Sample.mean, name=name, over=f"{name} exists"))
        for name in ("head-recall", "tail-recall")
    ),
    EvaluationMetric("coverage", lambda users: np.count_nonzero(users.exposed) / users.of.n_items),
    EvaluationMetric("gini", lambda users: gini(users.exposed)),
    EvaluationMetric(
        "novelty", lambda users: users.mean("novelty", "listed"), high=lambda users: users.of.most_novel
    ),
    EvaluationMetric(
        "different-lists",
        lambda users: float(np.count_nonzero(users.counts("list"))) if users.of.n_users else math.nan,
        high=lambda users: users.of.n_users,
        alike=True,
    ),
    EvaluationMetric(
        "commonest-first",
        lambda users: (
            users.counts("first item").max() / users.weights.sum() if users.of.n_users else math.nan
        ),
        at_k=False,
        alike=True,
    ),
)
#: Every metric by name, in the order of tables.
METRICS: Mapping[str, EvaluationMetric] = MappingProxyType({metric.name: metric for metric in _ALL})


def _sliced(whole: Measured) -> dict[str, Array]:
    """Return each user's recall in the head and in the tail, and whether each exists."""
    order = np.argsort(-whole.raters, kind="stable")
    before = np.cumsum(whole.raters[order]) - whole.raters[order]
    head = np.zeros(len(order))
    head[order[2 * before < whole.raters.sum()]] = 1
    columns: dict[str, Array] = {}
    for name, mask in (("head-recall", head), ("tail-recall", 1 - head)):
        there = (whole.relevant > 0) @ mask
        columns[name] = (whole.relevant > 1) @ mask / np.maximum(there, 1)
        columns[f"{name} exists"] = there > 0
    return columns


def gini(counts: Array) -> float:
    """Return the Gini coefficient of non-negative numbers; NaN if all are 0."""
    ordered, size = np.sort(counts), len(counts)
    with np.errstate(invalid="ignore"):
        return float((2 * np.arange(1, size + 1) - size - 1) @ ordered / (size * ordered.sum()))
