"""Several models over several epsilons: a table, and the plot of error against privacy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hushrec import notebook
from hushrec.checks import check_kind, check_listed, check_numbers, check_options, settings_by_name
from hushrec.data import Ratings
from hushrec.data.splits import k_folds
from hushrec.disk import private_file
from hushrec.errors import InputError
from hushrec.evaluation.metrics import PRIVATE_FIGURE, check_relevant, evaluate, relevant, shown
from hushrec.evaluation.plots import needs_matplotlib, privacy_utility_plot, save_plot
from hushrec.evaluation.user_metrics import K
from hushrec.privacy import Accountant, Budget, Gaussian, Release, Reservation, epsilon_of, total_mu
from hushrec.progress import progress_bar
from hushrec.registry import ESTIMATORS
from hushrec.training.estimator import Estimator
from hushrec.training.named import check_run, choose, train
from hushrec.training.run import check

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hushrec.privacy import Ledger

#: Baselines that every private model has to beat, for ratings and for likes.
BASELINES = {False: ("global-mean", "item-bias"), True: ("popular",)}
#: The references without privacy, for ratings and where lists are judged, trained where that is allowed.
REFERENCES = {False: ("als",), True: ("als", "ease")}
#: Models to compare if none is named, for ratings and for likes.
USUAL = {False: ("both", "private-als", "item-bias"), True: ("private-eigenrec", "popular")}
#: The files that a comparison writes.
FILES = tuple(f"comparison.{kind}" for kind in ("parquet", "md", "png", "svg"))
#: Settings of the reference `als` for likes, the best of 18 on validation users of MovieLens-100K and -1M.
LIKES_ALS: Mapping[str, Any] = {"rank": 64, "unobserved_weight": 0.2, "regularization": 5.0}

NOT_PRIVATE = "NOT PRIVATE: the data were declared public, so nothing was charged"


@dataclass(frozen=True)
class Comparison:
    """Models by epsilon, each trained and measured; all rows have one unit, relation and delta.

    Attributes
    ----------
    rows : tuple of dict
        One run each: ``model``, ``epsilon``, ``draw``, taste ``directions``, and every metric with its
        interval; ``fold`` in a cross-validation.
    delta, unit, relation
    k : int
        Length of the lists.
    main_metrics : tuple of str
        Plotted ones: ``rmse``, ``recall@k``, or both where some model has both jobs.
    data_is_public : bool
        If so, nothing was charged.
    total_epsilon : float
        Epsilon at ``delta`` of all charged runs together.
    relevant_from : float or None
        Held-out ratings from here up and purchases without a rating are relevant to lists. All if None.
    folds : int
        Parts of a cross-validation; 1 where one part was held out.
    purchases : bool
        Whether the held-out rows may be purchases without a rating.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> train, _, test = hushrec.split_ratings(ratings, seed=0)
    >>> found = hushrec.compare(train, test, ["item-bias"], [5], delta=1e-6, data_is_public=True)
    >>> sorted({row["epsilon"] for row in found.rows})
    [5.0, inf]
    >>> found.total_epsilon                                       # public data: nothing was charged
    0.0
    """

    rows: tuple[dict[str, Any], ...]
    delta: float
    unit: str
    relation: str
    k: int
    main_metrics: tuple[str, ...]
    data_is_public: bool
    total_epsilon: float
    relevant_from: float | None = None
    folds: int = 1
    purchases: bool = False

    @property
    def stamp(self) -> str:
        """The sentence on privacy of every table and plot."""
        if self.data_is_public:
            return f"{NOT_PRIVATE}."
        stamp = "NOT PRIVATE. " if math.isinf(self.total_epsilon) else ""
        return (
            f"{stamp}All runs together: epsilon = {_number(self.total_epsilon)} at delta = {self.delta:g}"
            f" (unit: {self.unit}, relation: {self.relation}). The errors are a {PRIVATE_FIGURE}."
        )

    @property
    def main_metric(self) -> str:
        return self.main_metrics[0]

    @property
    def metrics(self) -> list[str]:
        errors = ["rmse", "mae"] if "rmse" in self.main_metrics else []
        lists = [f"{name}@{self.k}" for name in ("recall", "ndcg", "coverage", "different-lists")]
        return [*errors, *lists, "commonest-first"]

    def summary(self, metric: str) -> list[dict[str, Any]]:
        """Return a metric's mean over noise draws and folds for each model and epsilon.

        Keys are ``model``, ``epsilon``, ``draws``, ``value``, ``low`` and ``high``. The last two are the
        bootstrap interval of a single run, or the extremes of several.
        """
        cells: dict[tuple[str, float], list[dict[str, Any]]] = {}
        for row in self.rows:
            cells.setdefault((row["model"], row["epsilon"]), []).append(row)
        result = []
        for (model, epsilon), runs in cells.items():
            values = [run[metric] for run in runs]
            one = len(runs) == 1
            result.append(
                {
                    "model": model,
                    "epsilon": epsilon,
                    "draws": len(runs),
                    "value": float(np.mean(values)),
                    "low": runs[0][f"{metric}_low"] if one else min(values),
                    "high": runs[0][f"{metric}_high"] if one else max(values),
                }
            )
        return result

    def __repr__(self) -> str:
        cells = [
            f"{cell['model']} at {_number(cell['epsilon'])}: {cell['value']:.4f}"
            for cell in self.summary(self.main_metric)
        ]
        return f"Comparison({self.main_metric} of {', '.join(cells)}; {self.stamp})"

    def __str__(self) -> str:
        return self.markdown()

    def _repr_html_(self) -> str:
        return notebook.table("Comparison", self.brief(), self.stamp)

    def table(self) -> pa.Table:
        """Return a row per run, with the stamp in the schema's metadata."""
        declared = {"delta": self.delta, "unit": self.unit, "relation": self.relation}
        rows = [{**row, **declared, "data_is_public": self.data_is_public} for row in self.rows]
        return pa.Table.from_pylist(rows).replace_schema_metadata({"hushrec": self.stamp})

    def markdown(self) -> str:
        """Return a line per model and epsilon."""
        names = self.metrics
        lines = [
            f"Unit: {self.unit}, relation: {self.relation}, delta = {self.delta:g}. Of a user's held-out"
            f" items a list is to find: {relevant(self.relevant_from, self.purchases)}.",
            "",
            f"| model | epsilon | {' | '.join(names)} | taste dimensions |",
            "|---|---:|" + "---:|" * (len(names) + 1),
        ]
        columns = {name: self.summary(name) for name in names}
        for position, cell in enumerate(columns[names[0]]):
            figures = [_interval(name, columns[name][position]) for name in names]
            figures.append(self._directions(cell["model"], cell["epsilon"]))
            lines.append(f"| {cell['model']} | {_number(cell['epsilon'])} | {' | '.join(figures)} |")
        lines += [
            "",
            f"In brackets: {self.interval}.",
            "Taste dimensions: with 0, all users get nearly the same list. different-lists: their number."
            " commonest-first: the fraction of users with the commonest first item. Both are counted before"
            " items of the history are left out.",
            "",
            self.stamp,
            "",
        ]
        return "\n".join(lines)

    def brief(self) -> list[list[str]]:
        """Return the main metrics as rows of texts, after a head."""
        columns = [self.summary(name) for name in self.main_metrics]
        rows = [["model", "epsilon", *self.main_metrics, "taste dimensions"]]
        for cells in zip(*columns, strict=True):
            model, epsilon = cells[0]["model"], cells[0]["epsilon"]
            figures = [
                shown(name, cell["value"]) for name, cell in zip(self.main_metrics, cells, strict=True)
            ]
            rows.append([model, _number(epsilon), *figures, self._directions(model, epsilon)])
        return rows

    @property
    def interval(self) -> str:
        if len({(row["draw"], row.get("fold")) for row in self.rows}) <= 1:
            return "95% bootstrap interval over users"
        draws = max(row["draw"] for row in self.rows) + 1
        of = [f"{draws} noise draws"] * (draws > 1) + [f"{self.folds} folds"] * (self.folds > 1)
        return f"smallest and largest of {' x '.join(of)}, whose mean is shown"

    def _directions(self, model: str, epsilon: float) -> str:
        counts = [
            row["directions"] for row in self.rows if (row["model"], row["epsilon"]) == (model, epsilon)
        ]
        known = sorted({count for count in counts if count is not None})
        return "–".join(map(str, dict.fromkeys([known[0], known[-1]]))) if known else "not known"

    def plot(self) -> Figure:
        """Plot the main metrics against epsilon, a panel each."""
        return privacy_utility_plot(
            {name: self.summary(name) for name in self.main_metrics},
            unit=f"{self.unit} ({self.relation}, delta = {self.delta:g})",
            interval=self.interval,
            stamp=self.stamp,
        )

    def to_dict(self) -> dict[str, Any]:
        words = "unit relation delta k main_metric main_metrics relevant_from folds data_is_public"
        values: dict[str, Any] = {name: getattr(self, name) for name in (*words.split(), "total_epsilon")}
        values["main_metrics"] = list(self.main_metrics)
        return values | {"note": self.stamp, "runs": list(self.rows)}

    def write(self, folder: str | Path) -> dict[str, Path]:
        """Write table (Parquet, Markdown) and plot (PNG, SVG), for their owner alone."""
        from pyarrow import parquet

        needs_matplotlib()
        paths = {name.rpartition(".")[2]: Path(folder) / name for name in FILES}
        for path in paths.values():
            private_file(path).close()
        parquet.write_table(self.table(), paths["parquet"])
        paths["md"].write_text(self.markdown(), encoding="utf-8")
        for kind in ("png", "svg"):
            save_plot(self.plot(), paths[kind], self.stamp)
        return paths


def compare(
    train_ratings: Ratings,
    test_ratings: Ratings,
    models: Sequence[str | Estimator[Any]],
    epsilons: Sequence[float],
    *,
    delta: float,
    relation: str = "add-remove",
    n_users: int | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    draws: int = 1,
    k: int = K,
    relevant_from: float | None = None,
    ledger: Ledger | None = None,
    dataset: str = "default",
    data_is_public: bool = False,
    allow_composition: bool = False,
    seed: int = 0,
    on_price: Callable[[int, float], None] | None = None,
    progress: bool = False,
) -> Comparison:
    """Train and measure models over a grid of epsilons, with the baselines that each must beat.

    The references without privacy (`als`; for lists `ease`, and `als` of likes) are trained if ``epsilons``
    holds ``math.inf`` or the data are public. Models of likes alone are judged by their lists.

    Parameters
    ----------
    train_ratings, test_ratings : Ratings
        Over one domain. Users are folded in from the training ratings.
    models : sequence of str or Estimator
        Names in ``hushrec.registry.ESTIMATORS``, with planned settings, or estimators. Likes need models that
        rank.
    epsilons : sequence of float
        All at the same ``delta`` and ``relation``.
    delta : float
        In (0, 1).
    relation : {"add-remove", "replace"}
    n_users : int, optional
        Declared; else each run that needs it releases it.
    settings : mapping of model name to settings, optional
        They override the planned ones.
    draws : int
        Runs of each cell, with fresh noise.
    k, relevant_from
        As in :func:`hushrec.evaluation.evaluate`; where some model is for lists, ratings from
        ``domain.like_threshold`` up are relevant by default.
    ledger, dataset, allow_composition
        Ledger for the charges of all runs.
    data_is_public : bool
        Charge nothing and stamp every result NOT PRIVATE.
    seed : int
        Seeds initialisation, sampling and the bootstrap.
    on_price : callable, optional
        Called before the first run with the number of charged runs and their epsilon together. An exception
        stops the comparison, and no budget is spent.
    progress : bool

    Raises
    ------
    BudgetError
        All runs together do not fit into the ledger's budget; nothing was spent.

    Privacy
    -------
    Unit: user. Relation: ``relation``. Each run spends its epsilon. The figures are exact, for the curator.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> train, _, test = hushrec.split_ratings(ratings, seed=0)
    >>> found = hushrec.compare(train, test, ["item-bias"], [1, 5], delta=1e-6, data_is_public=True)
    >>> {row["model"] for row in found.rows} >= {"item-bias", "global-mean", "als"}
    True
    """
    check_numbers(draws=(draws, int, "[1, inf)"))
    _check_kinds(train_ratings, test_ratings, models, epsilons)
    check_relevant(relevant_from, train_ratings.domain)
    settings = settings_by_name(settings, '{"private-als": {"rank": 8}}, for example')
    named = _by_label(models)
    grid, jobs = _grid(train_ratings, named, epsilons, delta, relation, n_users, settings, data_is_public)
    hidden = () if "ratings" in jobs else ("rmse", "mae")
    if relevant_from is None and "lists" in jobs:
        relevant_from = train_ratings.domain.like_threshold
    runs = [(name, budget, draw) for name, budget in grid for draw in range(draws if budget.private else 1)]
    ledger = None if data_is_public else ledger
    rows, charged = list[dict[str, Any]](), list[float]()
    words: dict[str, Any] = {"allow_composition": allow_composition}
    with _reserved(ledger, dataset, [budget for _, budget, _ in runs], on_price, words) as reservation:
        words |= {"ledger": ledger, "dataset": dataset, "reservation": reservation}
        for name, budget, draw in _shown(runs, progress):
            accountant = Accountant(budget, data_is_public=data_is_public, **words)
            estimator, changes = named.get(name), settings.get(name)
            if estimator is not None:
                model = estimator.fit(train_ratings, accountant, seed=seed)
            else:
                model = train(name, train_ratings, accountant, n_users=n_users, settings=changes, seed=seed)
            charged += [0.0 if data_is_public else release.mu for release in accountant.releases]
            result = evaluate(model, train_ratings, test_ratings, k=k, relevant_from=relevant_from, seed=seed)
            run = {"model": name, "epsilon": budget.epsilon, "draw": draw, "directions": model.directions}
            rows.append({**run, **_flat({key: m for key, m in result.metrics.items() if key not in hidden})})
    return Comparison(
        rows=tuple(sorted(rows, key=lambda run: math.isinf(run["epsilon"]))),
        delta=delta,
        unit="user",
        relation=relation,
        k=k,
        main_metrics=tuple({"ratings": "rmse", "lists": f"recall@{k}"}[job] for job in jobs),
        data_is_public=data_is_public,
        total_epsilon=epsilon_of(total_mu(charged), delta),
        relevant_from=relevant_from,
        purchases=test_ratings.purchases,
    )


def _reserved(
    ledger: Ledger | None,
    dataset: str,
    budgets: Sequence[Budget],
    on_price: Callable[[int, float], None] | None,
    words: Mapping[str, Any],
) -> AbstractContextManager[Reservation | None]:
    """Reserve the budgets of all runs; a refusal, or a "no" to the price, writes no ledger."""
    if ledger is None:
        return nullcontext()
    whole = [_whole(budget) for budget in budgets]
    if on_price is not None:
        ledger.check(dataset, whole, **words)
        on_price(len(budgets), epsilon_of(total_mu(budget.mu for budget in budgets), budgets[0].delta))
    return closing(ledger.reserve(dataset, whole, **words))


def _shown(runs: Sequence[tuple[str, Budget, int]], progress: bool) -> Iterator[tuple[str, Budget, int]]:
    with progress_bar(progress, len(runs), "comparing", "runs") as advance:
        for name, budget, draw in runs:
            advance(0, f"{name}, {f'epsilon {budget.epsilon:g}' if budget.private else 'without privacy'}")
            yield name, budget, draw
            advance(1)


def _by_label(models: Sequence[str | Estimator[Any]]) -> dict[str, Estimator[Any] | None]:
    """Return the estimators by label, or None for a model that is planned by name."""
    estimators: dict[str, Estimator[Any] | None] = {}
    for model in models:
        if isinstance(model, str):
            estimators.setdefault(model, None)
            continue
        check_kind(model, Estimator, "models", "pass names or estimators, for example PrivateALS(rank=8)")
        label, number = model.name, 1
        while label in estimators or (label in ESTIMATORS and type(model) is not ESTIMATORS[label]):
            number += 1
            label = f"{model.name} {number}"
        estimators[label] = model
    return estimators


def _check_kinds(train_ratings: Any, test_ratings: Any, models: Any, epsilons: Any) -> None:
    for name, rows in (("train_ratings", train_ratings), ("test_ratings", test_ratings)):
        check_kind(rows, Ratings, name, "load them with Ratings.from_any(table, domain)")
    check_listed(models, "models", '["both", "item-bias"]')
    check_listed(epsilons, "epsilons", "[1, 5]")


def cross_validate(
    ratings: Ratings,
    models: Sequence[str | Estimator[Any]],
    epsilons: Sequence[float],
    *,
    folds: int = 5,
    seed: int = 0,
    data_is_public: bool = False,
    **options: Any,
) -> Comparison:
    """`compare` on every part of public ratings in turn, trained on the others.

    Parameters
    ----------
    ratings : Ratings
        Public: on private ones every fold would be charged.
    models, epsilons, seed, **options
        As in :func:`compare`, but for the ledger.
    folds : int
        Number of parts, by a hash of (seed, user, item).
    data_is_public : bool
        True, or cross-validation is refused.

    Examples
    --------
    >>> public = hushrec.realistic(200, 30, 3000, seed=0)
    >>> found = hushrec.cross_validate(public, ["item-bias"], [5], folds=2, delta=1e-6, data_is_public=True)
    >>> sorted({row["fold"] for row in found.rows})
    [0, 1]
    """
    check_options("cross_validate", options, signature(compare).parameters)
    if not data_is_public:
        raise InputError(
            "Cross-validation is for public ratings: pass data_is_public=True if these are; on private ones"
            " use compare, or tune."
        )
    comparisons = [
        compare(train_part, test_part, models, epsilons, seed=seed, data_is_public=True, **options)
        for train_part, test_part in k_folds(ratings, folds, seed=seed)
    ]
    rows = [{**row, "fold": fold} for fold, comparison in enumerate(comparisons) for row in comparison.rows]
    order = {(row["model"], row["epsilon"]): place for place, row in reversed([*enumerate(rows)])}
    rows.sort(key=lambda row: order[row["model"], row["epsilon"]])
    return replace(comparisons[0], rows=tuple(rows), folds=len(comparisons))


def _grid(
    ratings: Ratings,
    models: Mapping[str, Estimator[Any] | None],
    epsilons: Sequence[float],
    delta: float,
    relation: str,
    n_users: int | None,
    settings: dict[str, Mapping[str, Any]],
    data_is_public: bool,
) -> tuple[list[tuple[str, Budget]], list[str]]:
    """Check and return every (model, budget) to run, and the jobs (ratings, lists) that judge them."""
    budgets = [Budget(epsilon, delta, relation=relation) for epsilon in dict.fromkeys(epsilons)]
    private = [budget for budget in budgets if budget.private]
    wanted = [name for name in models if name not in REFERENCES[True]]
    if not private or not wanted:
        raise InputError("A comparison needs at least one private model and one finite epsilon.")
    chosen = {
        name: models[name]
        or choose(name, private[0], ratings.domain, n_users=n_users or 1, settings=settings.get(name))
        for name in wanted
    }
    of_likes = {name: model.scores != "ratings" for name, model in chosen.items()}
    if ratings.domain.likes and not all(of_likes.values()):
        name = next(name for name in wanted if not of_likes[name])
        raise InputError(
            f"{name} predicts ratings, and likes have none; compare models of likes, for example"
            f" {' and '.join(USUAL[True])}."
        )
    likes = all(of_likes.values())
    lists = {name for name, model in chosen.items() if of_likes[name] or hasattr(model, "lists")}
    planned = {name for name in wanted if models[name] is None}
    if unknown := set(settings) - {*planned, *REFERENCES[bool(lists)]}:
        raise InputError(
            f"Settings are given for {sorted(unknown)[0]!r}, which is not one of the compared models."
        )
    if likes:
        settings["als"] = {**LIKES_ALS, **settings.get("als", {})}
    jobs = ["ratings"] * (not likes) + ["lists"] * bool(lists)
    baselines = [name for job in jobs for name in BASELINES[job == "lists"] if name not in wanted]
    grid = [(name, budget) for name in [*wanted, *baselines] for budget in private]
    if data_is_public or len(private) < len(budgets):
        exact = Budget(math.inf, delta, relation=relation)  # first: no ledger lets it follow private ones
        grid = [*((name, exact) for name in REFERENCES[bool(lists)]), *grid]
    for name, budget in grid:
        changes = settings.get(name)
        model = models.get(name) or check_run(name, budget, ratings.domain, n_users, changes).estimators[0]
        check(model, ratings, Accountant(budget, data_is_public=data_is_public))
        model.plan(budget, ratings.domain)
    return grid, jobs


def _whole(budget: Budget) -> Release:
    """Return a release that costs a whole budget, to ask the ledger for room."""
    mechanism = budget.share(1.0) if budget.private else Gaussian(0.0)
    return Release("run of a comparison", mechanism, 1.0, budget.unit, budget.relation)


def _flat(metrics: Mapping[str, Any]) -> dict[str, float]:
    flat: dict[str, float] = {}
    for name, metric in metrics.items():
        flat |= {name: metric.value, f"{name}_low": metric.low, f"{name}_high": metric.high}
    return flat


def _interval(name: str, cell: Mapping[str, Any]) -> str:
    if math.isnan(cell["value"]):
        return "–"
    value, low, high = (shown(name, cell[end]) for end in ("value", "low", "high"))
    return f"{value} ({low}–{high})"


def _number(epsilon: float) -> str:
    return "inf" if math.isinf(epsilon) else f"{epsilon:g}"
