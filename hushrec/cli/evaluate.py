"""``hushrec evaluate``."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from hushrec.cli import output, output_model
from hushrec.cli.cluster import Scheduler, cluster
from hushrec.cli.options import Json, Lists, NoProgress, Seed, Whole, listed, progress_shown
from hushrec.cli.tables import Reading
from hushrec.data import leave_last_out
from hushrec.errors import InputError
from hushrec.evaluation import evaluate as measure
from hushrec.evaluation.baselines import measured
from hushrec.evaluation.intervals import RESAMPLES
from hushrec.evaluation.metrics import DEFAULT_METRICS, Evaluation, shown
from hushrec.evaluation.user_metrics import METRICS
from hushrec.progress import progress_bar
from hushrec.serving.model import Model, load

_METRICS = f"Some of {', '.join(METRICS)}."
#: Under the table.
_NOTES = (
    "(1) From this model's released values, without privacy cost: each user's mean (errors) and item"
    " popularity (lists).",
    "(2) The model popular with the whole budget, simulated from HISTORY. Training it adds to the cost.",
)


#: -1: a smaller figure is better; 1: a larger one is.
_BETTER = {"rmse": -1, "mae": -1} | dict.fromkeys(("recall", "capped-recall", "ndcg"), 1)
#: Names of the baselines in a sentence.
_BASELINES = {
    "user means": "each user's mean",
    "popularity": "the released popularity",
    "popular": "the model popular with the whole budget",
}


def evaluate(
    model: str,
    history: str,
    test: str | None = None,
    /,
    *,
    split: Literal["next"] | None = None,
    include_seen: bool = False,
    lists: Lists = Lists(),
    metrics: Annotated[str, Parameter(metavar="NAME,...", help=_METRICS, show_default="as above")] = ",".join(
        DEFAULT_METRICS
    ),
    resamples: Annotated[Whole, Parameter(validator=Number(gte=0))] = RESAMPLES,
    seed: Seed = 0,
    scheduler: Scheduler | None = None,
    reading: Reading = Reading(),
    no_progress: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Measure MODEL on held-out ratings TEST, users folded in from HISTORY.

    It prints RMSE and MAE of predictions, and Recall, NDCG and coverage of lists. Each has a 95% bootstrap
    interval over users. Baselines come from the model's own released values. The figures are PRIVATE: they
    are computed without noise.

      hushrec evaluate model.hush train.parquet test.parquet
      hushrec evaluate model.hush train.parquet test.parquet --relevant-from 4 -k 10 --json
      hushrec evaluate model.hush history.parquet --split next --metrics hit-rate,mrr,ndcg

    Parameters
    ----------
    model
        A model file.
    history
        Ratings that users are folded in from.
    test
        Held-out ratings of the same users; with --split next by default each user's last in HISTORY.
    split
        "next": measure lists of `recommend --next`; HISTORY needs a time column.
    include_seen
        Allow items of HISTORY in lists, and count repeat purchases in TEST as hits.
    resamples
        Bootstrap resamples behind the intervals.
    """
    trained = load(model)
    output.warn_of_publishing(trained, model)
    chosen = asdict(lists)
    if lists.relevant_from is None:  # the likes that its lists were trained on
        chosen["relevant_from"] = getattr(trained.estimator, "like_threshold", None)
    bar = progress_bar(progress_shown(no_progress), 3, "evaluating", "steps")
    with cluster(scheduler, history, test or history) as engine, bar as advance:
        advance(0, "reading")
        rows, targets = _read(reading, trained, history, test, split is not None)
        chosen["exclude_seen"] = not include_seen
        options: dict[str, Any] = {**chosen, "metrics": listed(metrics), "seed": seed, "engine": engine}
        advance(1, "the model")
        result = measure(trained, rows, targets, resamples=resamples, next=split is not None, **options)
        advance(1, "what it is held against")
        baselines = measured(trained, rows, targets, **options)
        advance(1)
    if not result.n_ratings:
        raise InputError(
            f"{test or history} holds no usable rating, so nothing can be measured; `hushrec check` shows "
            "which rows are used."
        )
    missing = output_model.popularity_of(trained)
    of_lists = {metric.called(result.k) for metric in METRICS.values() if metric.job == "lists"}
    columns = {"released (1)": dict.fromkeys(of_lists, missing), "popular (2)": _cells(baselines["popular"])}
    notes: tuple[str, ...] = _NOTES
    if not columns["popular (2)"]:  # a model without privacy has no budget to plan popular with
        del columns["popular (2)"]
        notes = _NOTES[:1]
    columns["released (1)"].update(_cells(baselines["user means"]) | _cells(baselines["popularity"]))
    plain = {name: None if figures is None else figures.to_dict() for name, figures in baselines.items()}
    payload = {"model": trained.estimator.name, **result.to_dict(), "baselines": plain}
    output.result(as_json, payload, result.text(columns), *notes, *_lost(result, baselines))


def _read(reading: Reading, model: Model, history: str, test: str | None, ordered: bool) -> tuple[Any, Any]:
    if test is None and not ordered:
        raise InputError(
            "TEST is missing: pass held-out ratings, or --split next to hold out each user's last."
        )
    if not ordered:
        return reading.open(history, model.domain), reading.second().open(str(test), model.domain)
    rows = reading.read(history, model.domain, times=True)
    return leave_last_out(rows) if test is None else (rows, reading.second().open(test, model.domain))


def _lost(result: Evaluation, baselines: Mapping[str, Evaluation | None]) -> list[str]:
    """Return a sentence for each baseline with a better figure than the model."""
    sentences = []
    for name, phrase in _BASELINES.items():
        figures = {} if (baseline := baselines[name]) is None else baseline.metrics
        names = {METRICS[metric].called(result.k): sign for metric, sign in _BETTER.items()}
        lost = [
            name
            for name in sorted(names.keys() & figures.keys() & result.metrics.keys())
            if names[name] * (figures[name].value - result[name].value) > 0
        ]
        if lost:
            sentences.append(f"Worse than {phrase}: {', '.join(lost)}.")
    return sentences


def _cells(evaluation: Evaluation | None) -> dict[str, str]:
    metrics = {} if evaluation is None else evaluation.metrics
    return {name: shown(name, figure.value) for name, figure in metrics.items()}
