"""DPALS's own experiments (Chien et al. 2021, figures 2 to 5 and appendix D) in terms of our data.

A study is a family of curves: a line and a place on the x axis for each run. MovieLens-1M stands for their
MovieLens-10M, so that figures are larger than theirs; what is compared is the order of the lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.frontier.cells import DELTA, Cell
from benchmarks.frontier.data import split
from benchmarks.frontier.methods import UserMean
from benchmarks.frontier.tables import Curve, curves, draw, figure_of
from hushrec.checks import settings_of
from hushrec.data import Domain, Ratings
from hushrec.data.sampling import sample_per_user
from hushrec.models import ALS, Estimator, Gate, ItemBias, Popular, PrivateALS, UserState
from hushrec.papers.dpals import DPALS
from hushrec.papers.frank_wolfe import CorrectiveFrankWolfe
from hushrec.privacy import Budget, Plan, positive
from hushrec.training.estimator import Round, plan_of
from hushrec.training.posterior import adaptive_weights
from hushrec.training.users import FittedUsers, Users
from hushrec.types import Parts

#: Settings of Algorithm 1 that are best on MovieLens-1M at epsilon 10.
PUBLISHED: dict[str, Any] = {"user_norm": 0.2, "sampling": "tail", "center": "user"}
#: Line styles of a figure, in order.
_STYLES: tuple[tuple[str, Any, str], ...] = (
    ("#000000", "-", "o"),
    ("#404040", (0, (5, 2)), "s"),
    ("#404040", (0, (1, 1.2)), "^"),
    ("#8c8c8c", (0, (5, 2)), "D"),
    ("#8c8c8c", (0, (1, 1.2)), "v"),
    ("#8c8c8c", (0, (4, 1.5, 1, 1.5)), "P"),
    ("#8c8c8c", "-", "|"),
)


@dataclass(frozen=True)
class Point:
    """One run of a study: where it is drawn, and what it is."""

    line: str
    x: float
    data: str
    epsilon: float
    estimator: Estimator
    patch: str = ""


@dataclass(frozen=True)
class Study:
    """A figure and a table.

    Attributes
    ----------
    title : str
    about : str
        What it shows, and where the paper has it.
    xlabel : str
    points : callable
        The runs, given whether the form is long.
    metric : str
    log_x, log_y : bool
    """

    title: str
    about: str
    xlabel: str
    points: Callable[[bool], Iterable[Point]]
    metric: str = "rmse"
    log_x: bool = True
    log_y: bool = False


@dataclass(frozen=True, kw_only=True)
class Frequent(Estimator):
    """Another algorithm on the most frequent items only; for the others a user's own level (section 6.2).

    Privacy
    -------
    Unit: user. The item weights of :class:`Popular`, then the releases of ``inner`` on the rows of the chosen
    items, which are a function of what was released.
    """

    name: ClassVar[str] = "frequent"

    inner: Estimator
    fraction: float
    weights_share: float = 0.1

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        weights = plan_of([Round("item weights", 1.0, positive(1.0))], budget, fraction * self.weights_share)
        inner = self.inner.releases(budget, self.part(domain), fraction * (1 - self.weights_share))
        return Plan(budget, (*weights.releases, *inner.releases))

    def users(self, ratings: Ratings) -> FrequentUsers:
        return FrequentUsers(ratings, self)

    def train(self, users: FrequentUsers, gate: Gate, seed: int) -> dict[str, Any]:
        n_items, released = users.domain.n_items, gate.release("item weights", users.item_weights())
        chosen = np.sort(np.argsort(-released)[: self.part(users.domain).n_items])
        inner = Parts.of(self.inner.train(users.on(chosen), gate, seed)).serve
        factors, bias = np.zeros((n_items, inner["item_factors"].shape[1])), np.zeros(n_items)
        factors[chosen], bias[chosen] = inner["item_factors"], inner["item_bias"]
        kept = {f"inner {name}": value for name, value in inner.items()}
        center = {"center": inner["center"], "item_bias": bias, "item_factors": factors}
        return kept | center | {"chosen": chosen}

    def fold_in(self, arrays: Mapping[str, NDArray[Any]], history: Ratings) -> UserState:
        inner = {name[6:]: value for name, value in arrays.items() if name.startswith("inner ")}
        return self.inner.fold_in(inner, self.rows(history, arrays["chosen"]))

    @property
    def described(self) -> dict[str, Any]:
        inner = {"algorithm": self.inner.name, **settings_of(self.inner)}
        return {"inner": inner, "fraction": self.fraction, "weights_share": self.weights_share}

    def part(self, domain: Domain) -> Domain:
        count = max(1, math.ceil(self.fraction * domain.n_items))
        return Domain(items=range(count), rating_range=(domain.low, domain.high))

    def rows(self, ratings: Ratings, chosen: NDArray[Any]) -> Ratings:
        matrix = ratings.matrix[:, chosen]
        matrix.sort_indices()
        return Ratings(self.part(ratings.domain), matrix, ratings.user_values, ratings.user_texts)


class FrequentUsers(Users):
    """Users of another algorithm, on the items that were chosen."""

    def __init__(self, ratings: Ratings, settings: Frequent) -> None:
        super().__init__(ratings)
        self._settings = settings

    def on(self, chosen: NDArray[Any]) -> Users:
        """The same users with their ratings of chosen items only."""
        return self._settings.inner.users(self._settings.rows(self._ratings, chosen))


# ---------------------------------------------------------------------- the studies


def _planned(data: str, epsilon: float, **changes: Any) -> PrivateALS:
    train = split(data).train
    return PrivateALS.planned(Budget(epsilon, DELTA), train.domain, train.n_users, **changes)


def _walk(data: str, epsilon: float, **changes: Any) -> CorrectiveFrankWolfe:
    train = split(data).train
    large = {"eigenvector": "power", "inner_steps": 3} if train.n_items > 2000 else {}
    given = {**large, **changes}
    return CorrectiveFrankWolfe.planned(Budget(epsilon, DELTA), train.domain, train.n_users, **given)


def movie_fraction(long: bool) -> Iterable[Point]:
    """Figure 5."""
    lines = {
        "rare items first": ({}, 10.0, ""),
        "uniform sample": ({"sampling": "uniform"}, 10.0, ""),
        "adaptive weights": ({"sampling": "weights", "max_ratings_per_user": 1, "clip": 1.2}, 10.0, ""),
        "without PSD projection": ({}, 10.0, "no projection"),
        "no privacy, sampled": ({"clip": None, "user_norm": None, "rank": 8}, math.inf, ""),
    }
    for fraction in (0.05, 0.1, 0.2, 0.4, 0.7, 1.0) if long else (0.1, 0.4, 1.0):
        for line, (changes, epsilon, patch) in lines.items():
            model = DPALS.of(**{**PUBLISHED, **changes}, item_fraction=fraction)
            yield Point(line, fraction, "ml-1m", epsilon, model, patch)
        yield Point("no privacy, all ratings", fraction, "ml-1m", math.inf, ALS())


def rank(long: bool) -> Iterable[Point]:
    for count in (2, 4, 8, 16, 32) if long else (2, 8, 32):
        for epsilon in (1.0, 10.0):
            name = f"DPALS, epsilon {epsilon:g}"
            yield Point(name, count, "ml-1m", epsilon, DPALS.of(**PUBLISHED, rank=count))
            model = _planned("ml-1m", epsilon, rank=count)
            yield Point(f"private ALS, epsilon {epsilon:g}", count, "ml-1m", epsilon, model)
        free = {"clip": None, "user_norm": None}
        yield Point(
            "DPALS, no privacy", count, "ml-1m", math.inf, DPALS.of(**{**PUBLISHED, **free}, rank=count)
        )


def regularization(long: bool) -> Iterable[Point]:
    for ridge in (2.0, 5.0, 10.0, 20.0, 50.0, 100.0) if long else (5.0, 20.0, 100.0):
        for epsilon in (1.0, 10.0):
            model = DPALS.of(**PUBLISHED, regularization=ridge)
            yield Point(f"DPALS, epsilon {epsilon:g}", ridge, "ml-1m", epsilon, model)
        free = {"clip": None, "user_norm": None}
        model = DPALS.of(**{**PUBLISHED, **free}, regularization=ridge, rank=8)
        yield Point("DPALS, no privacy, rank 8", ridge, "ml-1m", math.inf, model)


def iterations(long: bool) -> Iterable[Point]:
    """Figure 7."""
    for count in (1, 2, 3, 5, 8) if long else (1, 3, 8):
        for epsilon in (10.0, math.inf):
            what = "epsilon 10" if epsilon == 10.0 else "no noise"
            yield Point(f"DPALS, {what}", count, "ml-1m", epsilon, DPALS.of(**PUBLISHED, iterations=count))
            model = _planned("ml-1m", epsilon, iterations=count)
            yield Point(f"private ALS, {what}", count, "ml-1m", epsilon, model)
            walk = _walk("ml-1m", epsilon, iterations=count)
            yield Point(f"Frank-Wolfe, {what}", count, "ml-1m", epsilon, walk)


def fraction_of_users(long: bool) -> Iterable[Point]:
    for fraction in (0.1, 0.25, 0.5, 1.0):
        data = "ml-1m" if fraction == 1 else f"ml-1m@{fraction:g}"
        yield Point("private ALS", fraction, data, 10.0, _planned(data, 10.0))
        yield Point("DPALS", fraction, data, 10.0, DPALS.of(**PUBLISHED))
        yield Point("corrective Frank-Wolfe", fraction, data, 10.0, _walk(data, 10.0))
        yield Point("user mean + item bias", fraction, data, 10.0, ItemBias())


def number_of_users(kind: str) -> Callable[[bool], Iterable[Point]]:
    """Figure 4, on low-rank data and on realistic ones."""

    def points(long: bool) -> Iterable[Point]:
        for count in (5_000, 10_000, 20_000, 50_000) if long else (5_000, 20_000):
            data = f"low-rank:{count}:1000" if kind == "low-rank" else f"shape:{count}:1000:{100 * count}"
            for epsilon in (1.0, 10.0):
                low = kind == "low-rank"
                settings: dict[str, Any] = {"rank": 5, "max_ratings_per_user": 150, "clip": 0.375}
                published = DPALS.of(**settings, user_norm=0.0625) if low else DPALS.of(**PUBLISHED)
                planned = _planned(data, epsilon)
                yield Point(f"private ALS, epsilon {epsilon:g}", count, data, epsilon, planned)
                yield Point(f"DPALS, epsilon {epsilon:g}", count, data, epsilon, published)
                walk = _walk(data, epsilon, **({"max_ratings_per_user": 200} if low else {}))
                yield Point(f"Frank-Wolfe, epsilon {epsilon:g}", count, data, epsilon, walk)
            if kind != "low-rank":
                yield Point("ALS, no privacy", count, data, math.inf, ALS())

    return points


def frequent_frank_wolfe(long: bool) -> Iterable[Point]:
    data, epsilon = "ml-1m", 10.0
    for fraction in (0.05, 0.1, 0.25, 0.5, 1.0) if long else (0.1, 0.5, 1.0):
        walk = _walk(data, epsilon, center="user")
        yield Point(
            "corrective Frank-Wolfe", fraction, data, epsilon, Frequent(inner=walk, fraction=fraction)
        )
        model = DPALS.of(**PUBLISHED, item_fraction=fraction)
        yield Point("DPALS", fraction, data, epsilon, model)
        yield Point("private ALS, all items", fraction, data, epsilon, _planned(data, epsilon))
        yield Point("user mean", fraction, data, epsilon, UserMean())


def recall(long: bool) -> Iterable[Point]:
    data = "ml-1m-likes"
    for fraction in (0.05, 0.1, 0.2, 0.4, 1.0) if long else (0.1, 0.4, 1.0):
        for epsilon in (5.0, 20.0):
            model = DPALS.of(
                clip=2.0,
                user_norm=0.5,
                unobserved_weight=0.1,
                sampling="tail",
                weights_share=0.1,
                item_fraction=fraction,
            )
            yield Point(f"DPALS, epsilon {epsilon:g}", fraction, data, epsilon, model)
        yield Point("most popular, epsilon 5", fraction, data, 5.0, Popular())


STUDIES: dict[str, Study] = {
    "movie-fraction": Study(
        "Share of the catalogue that gets factors, epsilon 10 (their figure 5)",
        "DPALS at rank 2; items without factors are predicted by the user's own mean.",
        "share of the items that get factors",
        movie_fraction,
    ),
    "rank": Study("Rank (appendix D)", "MovieLens-1M.", "rank", rank),
    "regularization": Study(
        "Regularisation (appendix D)", "MovieLens-1M, rank 2.", "ridge on users and items", regularization
    ),
    "iterations": Study(
        "Iterations, with and without noise (their figure 7)",
        "MovieLens-1M. Without noise the clips stay.",
        "iterations",
        iterations,
    ),
    "users-fraction": Study(
        "Fraction of the users trained on, epsilon 10 (appendix D)",
        "MovieLens-1M; everybody is served and judged.",
        "fraction of the users",
        fraction_of_users,
    ),
    "users-low-rank": Study(
        "Number of users, low-rank data (their figure 4)",
        "Rank 5, 1,000 items, unit variance: the trivial model has RMSE 1.",
        "users",
        number_of_users("low-rank"),
        log_y=True,
    ),
    "users-realistic": Study(
        "Number of users, realistic ratings",
        "1,000 items, 100 ratings a user; biases, rank 8 and noise of standard deviation 0.83.",
        "users",
        number_of_users("realistic"),
    ),
    "frequent": Study(
        "Frank-Wolfe on the most frequent items, epsilon 10 (their figure 3b)",
        "MovieLens-1M; the list of items is released for a tenth of the budget.",
        "share of the items trained on",
        frequent_frank_wolfe,
    ),
    "recall": Study(
        "Share of the catalogue and recall, with the most popular items as a baseline (their figure 3c)",
        "Likes of MovieLens-1M.",
        "share of the items that get factors",
        recall,
        metric="recall@20",
    ),
}


def cells(name: str, draws: int, long: bool) -> list[Cell]:
    """Runs of a study."""
    planned = []
    for point in STUDIES[name].points(long):
        count = draws if math.isfinite(point.epsilon) else 1
        method = f"{point.line}|{point.x:g}"
        planned += [
            Cell(f"study {name}", point.data, method, point.epsilon, draw, point.estimator, point.patch)
            for draw in range(count)
        ]
    return planned


def report(name: str, rows: list[dict[str, Any]], folder: Path) -> str:
    """Figure and table."""
    study = STUDIES[name]
    lines: dict[str, Curve] = {}
    for method, by_epsilon in curves(rows, study.metric).items():
        line, x = method.split("|")
        lines.setdefault(line, {})[float(x)] = next(iter(by_epsilon.values()))
    lines = {line: dict(sorted(curve.items())) for line, curve in lines.items()}
    draw(
        lines={line: (curve, _STYLES[i % len(_STYLES)]) for i, (line, curve) in enumerate(lines.items())},
        xlabel=study.xlabel,
        ylabel="test RMSE" if study.metric == "rmse" else "Recall@20",
        title=study.title,
        path=folder / f"frontier-study-{name}.svg",
        lower_is_better=study.metric == "rmse",
        log_y=study.log_y,
    )
    places = sorted({x for curve in lines.values() for x in curve})
    table = [
        f"**{study.title}.** {study.about}\n",
        f"| {study.xlabel} | " + " | ".join(f"{x:,g}" for x in places) + " |",
        "|---|" + "---|" * len(places),
    ]
    for line, curve in lines.items():
        table.append(f"| {line} | " + " | ".join(figure_of(curve.get(x)) for x in places) + " |")
    return "\n".join(table)


# ---------------------------------------------------------------------- figure 2: skew


def skew(folder: Path) -> str:
    """Share of the observations that the top movies contribute, by how a user's ratings are sampled."""
    train = split("ml-1m").train
    counts = np.bincount(train.matrix.indices, minlength=train.n_items).astype(np.float64)
    order = np.argsort(-counts)
    lines: dict[str, NDArray[np.float64]] = {"all ratings": counts}
    for line, priority in (("uniform sample of 50", None), ("rare items first, 50", counts)):
        sampled = sample_per_user(train, 50, 0, priority=priority)
        lines[line] = np.bincount(sampled.matrix.indices, minlength=train.n_items).astype(np.float64)
    users = FittedUsers(train)
    weights = np.maximum(users.item_weights()._values, 1e-2)
    for exponent in (-0.25, -0.5, -1.0):
        relative = adaptive_weights(weights, exponent)
        users.weigh(0.0, relative)
        cells = np.repeat(users._user_weight, np.diff(train.matrix.indptr))
        squares = (cells * relative[train.matrix.indices]) ** 2
        lines[f"adaptive weights, {exponent:g}"] = np.bincount(
            train.matrix.indices, squares, minlength=train.n_items
        )
    shares = np.array([0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0])
    found: dict[str, Curve] = {}
    for line, values in lines.items():
        total = np.cumsum(values[order]) / values.sum()
        found[line] = {x: (float(total[math.ceil(x * len(total)) - 1]), math.nan) for x in shares}
    title = "Share of the observations contributed by the top movies (their figure 2)"
    draw(
        lines={line: (curve, _STYLES[i]) for i, (line, curve) in enumerate(found.items())},
        xlabel="share of the movies, most rated first",
        ylabel="share of the observations",
        title=title,
        path=folder / "frontier-study-skew.svg",
        log_x=False,
    )
    table = [
        f"**{title}.** MovieLens-1M; of weighted ratings the squared weights, which add up to 1 a user.\n",
        "| share of the movies | " + " | ".join(f"{x:.0%}" for x in shares) + " |",
        "|---|" + "---|" * len(shares),
    ]
    for line, curve in found.items():
        table.append(f"| {line} | " + " | ".join(f"{mean:.3f}" for mean, _ in curve.values()) + " |")
    return "\n".join(table)
