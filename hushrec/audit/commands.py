"""Commands that attack or test what was released: ``hushrec audit ...``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hushrec.console import json_option, print_json, settings


@click.group()
def audit() -> None:
    """Attack or test what was sent or released.

    \b
    hushrec audit distinguish --model item-bias --epsilon 5 --delta 1e-6
    hushrec audit canaries --epsilon 1 --delta 1e-5
    hushrec audit membership --epsilons 1,5,20 --delta 1e-6
    hushrec audit masked upload.json --rating-range 1 5
    """


@audit.command()
@click.argument("record_path", metavar="RECORD")
@click.option(
    "--rating-range", type=(float, float), required=True, metavar="LOW HIGH", help="Lowest, highest rating."
)
@click.option(
    "--step",
    type=float,
    default=1.0,
    show_default=True,
    help="Ratings are LOW, LOW + step, ...; 0.5 for half stars.",
)
@json_option
def masked(record_path: str, rating_range: tuple[float, float], step: float, as_json: bool) -> None:
    """Compute the ratings behind a masked upload, from what the server saw of it.

    RECORD was written by ``hushrec node submit --record``: masked values, and the public key at the items.

    \b
    hushrec audit masked upload.json --rating-range 1 5
    hushrec audit masked upload.json --rating-range 0.5 5 --step 0.5 --json
    """
    from hushrec.audit.masked import reconstruct
    from hushrec.errors import InputError
    from hushrec.outsourcing.messages import Record, from_json

    try:
        record = from_json(Record, Path(record_path).read_bytes())
    except OSError as error:
        raise InputError(f"Cannot read {record_path!r} ({error.strerror}).") from None
    found = reconstruct(record.values, record.public_rows, rating_range=rating_range, step=step)
    if as_json:
        ratings = None if found.ratings is None else found.ratings.tolist()
        print_json(
            {
                "uploaded": found.n_ratings,
                "recovered": found.recovered,
                "exact_combinations": found.exact_combinations,
                "ratings": ratings,
                "reason": found.reason,
            }
        )
        return
    click.echo(
        f"Recovered {found.recovered} of {found.n_ratings} ratings exactly"
        + (f": {found.reason}." if found.reason else ".")
    )
    click.echo(
        f"The mask leaves {found.exact_combinations} exact linear combinations of the ratings untouched,"
        " whatever its noise."
    )


# ---------------------------------------------------------------------- audits of the guarantee

_model_name = click.option(
    "--model", default="private-als", show_default=True, help="A model with a guarantee."
)
_epsilon = click.option("--epsilon", type=float, required=True, help="The claim. No default.")
_delta = click.option("--delta", type=float, required=True, help="Its delta. No default.")
_relation = click.option(
    "--relation", type=click.Choice(["add-remove", "replace"]), default="add-remove", show_default=True
)
_unit = click.option("--unit", type=click.Choice(["user", "rating"]), default="user", show_default=True)
_plot = click.option("--plot", "plot_path", metavar="FILE.png", help="Write a plot too (PNG or SVG).")
_seed = click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
_set = click.option(
    "--set", "overrides", multiple=True, metavar="NAME=VALUE", help="Set a hyper-parameter; repeatable."
)

#: Number of users that a model is tuned to where its releases are audited on a handful of them.
_TUNED_TO = 1000


@audit.command()
@_model_name
@_epsilon
@_delta
@_relation
@_unit
@_set
@click.option("--runs", type=click.IntRange(min=10), default=2000, show_default=True)
@_seed
@_plot
@json_option
def distinguish(
    model: str,
    epsilon: float,
    delta: float,
    relation: str,
    unit: str,
    overrides: tuple[str, ...],
    runs: int,
    seed: int,
    plot_path: str | None,
    as_json: bool,
) -> None:
    """Run a model many times on two generated neighbours and bound its mu from below.

    No data are read. The bound exceeds the claim only if a sensitivity, a noise scale or the accounting is
    wrong, but for a chance of 1e-6.

    \b
    hushrec audit distinguish --model item-bias --epsilon 5 --delta 1e-6 --runs 20000 --plot mu.png
    """
    from hushrec.audit.distinguish import distinguish as run
    from hushrec.data import Domain
    from hushrec.evaluation.runs import choose
    from hushrec.privacy import Budget

    budget = Budget(epsilon, delta, unit=unit, relation=relation)
    domain = Domain(tuple("abcdefgh"), rating_range=(1, 5))
    estimator = choose(model, budget, domain, n_users=_TUNED_TO, settings=settings(overrides))
    _show(run(estimator, budget, runs=runs, domain=domain, seed=seed), plot_path, as_json)


@audit.command()
@_model_name
@_epsilon
@_delta
@_relation
@_set
@click.option("--canaries", "n_canaries", type=click.IntRange(min=20), default=1000, show_default=True)
@_seed
@_plot
@json_option
def canaries(
    model: str,
    epsilon: float,
    delta: float,
    relation: str,
    overrides: tuple[str, ...],
    n_canaries: int,
    seed: int,
    plot_path: str | None,
    as_json: bool,
) -> None:
    """Train once on generated users who are in or out by a coin, and guess the coins from the releases.

    \b
    hushrec audit canaries --model private-als --epsilon 1 --delta 1e-5 --canaries 10000
    """
    from hushrec.audit.canaries import canaries as run
    from hushrec.data import Domain
    from hushrec.evaluation.runs import choose
    from hushrec.privacy import Budget

    budget = Budget(epsilon, delta, relation=relation)
    domain = Domain((1, 2), rating_range=(1, 5))
    estimator = choose(model, budget, domain, n_users=n_canaries // 2, settings=settings(overrides))
    _show(run(estimator, budget, n_canaries=n_canaries, seed=seed), plot_path, as_json)


@audit.command()
@click.argument("ratings_path", metavar="[RATINGS]", required=False)
@_model_name
@click.option("--epsilons", required=True, help="Privacy levels, separated by commas. No default.")
@_delta
@_relation
@click.option("--rating-range", type=(float, float), metavar="LOW HIGH", help="Declared, with RATINGS.")
@click.option("--catalogue", metavar="FILE", help="Declared items, one id a line, with RATINGS.")
@click.option("--planted", "n_planted", type=click.IntRange(min=20), default=400, show_default=True)
@click.option("--draws", type=click.IntRange(min=1), default=1, show_default=True)
@_set
@_seed
@_plot
@json_option
def membership(
    ratings_path: str | None,
    model: str,
    epsilons: str,
    delta: float,
    relation: str,
    rating_range: tuple[float, float] | None,
    catalogue: str | None,
    n_planted: int,
    draws: int,
    overrides: tuple[str, ...],
    seed: int,
    plot_path: str | None,
    as_json: bool,
) -> None:
    """Plant random users, and tell from the model alone which of them were in the training data.

    A model without privacy is the control. Without RATINGS the other users are generated; with RATINGS the
    figures are the curator's own, to be kept.

    \b
    hushrec audit membership --epsilons 1,5,20 --delta 1e-6 --plot membership.png
    hushrec audit membership ratings.parquet --epsilons 1,5 --delta 1e-6 --rating-range 1 5 \\
                             --catalogue items.txt
    """
    from hushrec.audit.membership import membership as run
    from hushrec.data import Domain, Ratings, realistic
    from hushrec.errors import InputError

    try:
        levels = [float(part) for part in epsilons.split(",")]
    except ValueError:
        raise InputError(
            f"--epsilons {epsilons!r} is not a list of numbers; write for example 1,5."
        ) from None
    if ratings_path is None:
        ratings = realistic(1500, 1000, 90_000, seed=seed)
    elif rating_range is None or catalogue is None:
        raise InputError("With RATINGS, declare --rating-range LOW HIGH and --catalogue FILE.")
    else:
        ratings = Ratings.read(ratings_path, Domain(tuple(Domain.read_catalogue(catalogue)), rating_range))
    result = run(
        ratings,
        model,
        levels,
        delta=delta,
        relation=relation,
        n_planted=n_planted,
        draws=draws,
        settings=settings(overrides),
        seed=seed,
        data_is_public=ratings_path is None,
    )
    _show(result, plot_path, as_json)


def _show(result: Any, plot_path: str | None, as_json: bool) -> None:
    if plot_path is not None:
        from hushrec.audit.plots import save_plot

        save_plot(result, Path(plot_path))
    if as_json:
        print_json(result.to_dict())
    else:
        click.echo(result.text() + (f"\nPlot: {plot_path}" if plot_path else ""))
