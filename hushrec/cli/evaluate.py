"""``hushrec evaluate``."""

from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from hushrec.billboard import load
from hushrec.cli import show, show_model
from hushrec.cli.cluster import Scheduler, cluster
from hushrec.cli.options import Json, Lists, Seed, Whole, listed
from hushrec.cli.tables import Reading
from hushrec.errors import InputError
from hushrec.evaluation import evaluate as measure


def evaluate(
    model: str,
    history: str,
    test: str,
    /,
    *,
    lists: Lists = Lists(),
    metrics: Annotated[str, Parameter(metavar="NAME,...")] = "rmse,mae,recall,ndcg,coverage",
    resamples: Annotated[Whole, Parameter(validator=Number(gte=0))] = 1000,
    seed: Seed = 0,
    scheduler: Scheduler | None = None,
    reading: Reading = Reading(),
    as_json: Json = False,
) -> None:
    """Measure MODEL on held-out ratings TEST, users folded in from HISTORY.

    RMSE and MAE over all held-out ratings, Recall, NDCG and catalogue coverage of the lists, each with a 95%
    bootstrap interval over users. Users without a history are served from the released values alone. The
    figures are computed without noise: keep them to yourself.

      hushrec evaluate model.hush train.parquet test.parquet
      hushrec evaluate model.hush train.parquet test.parquet --relevant-from 4 -k 10 --json

    Parameters
    ----------
    model
        A model file.
    history
        Ratings that users are folded in from.
    test
        Held-out ratings of the same users.
    metrics
        Some of rmse, mae, recall, ndcg, map, mrr, hit-rate, coverage, novelty.
    resamples
        Bootstrap resamples behind the intervals.
    """
    billboard = load(model)
    rows, targets = reading.open(history, billboard.domain), reading.open(test, billboard.domain)
    show_model.first_use()
    chosen = asdict(lists)
    if lists.relevant_from is None:  # the likes that its lists were trained on
        chosen["relevant_from"] = getattr(billboard.estimator, "like_from", None)
    with cluster(scheduler, history, test) as engine:
        result = measure(
            billboard,
            rows,
            targets,
            **chosen,
            metrics=listed(metrics),
            resamples=resamples,
            seed=seed,
            engine=engine,
        )
    if not result.n_ratings:
        raise InputError(
            f"{test} holds no usable rating, so nothing can be measured; `hushrec check` shows what became of"
            " its rows."
        )
    show.result(as_json, {"model": billboard.estimator.name, **result.to_dict()}, result.text())
