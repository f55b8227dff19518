"""Commands that attack or test what was released: ``hushrec audit ...``."""

from __future__ import annotations

import json

import click


@click.group()
def audit() -> None:
    """Attack or test what was sent or released.

    \b
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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, the ratings in it.")
def masked(record_path: str, rating_range: tuple[float, float], step: float, as_json: bool) -> None:
    """Compute the ratings behind a masked upload, from what the server saw of it.

    RECORD was written by ``hushrec node submit --record``: masked values, and the public key at the items.

    \b
    hushrec audit masked upload.json --rating-range 1 5
    hushrec audit masked upload.json --rating-range 0.5 5 --step 0.5 --json
    """
    from pathlib import Path

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
        click.echo(
            json.dumps(
                {
                    "uploaded": found.n_ratings,
                    "recovered": found.recovered,
                    "exact_combinations": found.exact_combinations,
                    "ratings": ratings,
                    "reason": found.reason,
                }
            )
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
