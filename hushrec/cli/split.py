"""``hushrec split``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from hushrec.checks import plural
from hushrec.cli import output
from hushrec.cli.files import output_folder, write_table
from hushrec.cli.options import Count, Force, Json, NoProgress, Seed, progress_shown
from hushrec.cli.tables import Declared, Reading, Table
from hushrec.data import (
    Ratings,
    leave_k_out,
    leave_last_out,
    split_by_time,
    split_ratings,
    strong_generalization,
)
from hushrec.data.preview import PRIVATE_LOOK
from hushrec.data.splits import check_times
from hushrec.data.times import NO_TIME
from hushrec.errors import InputError
from hushrec.progress import progress_bar

Share = Annotated[float, Parameter(validator=Number(gt=0, lt=1))]


def split(
    ratings: Table,
    /,
    *,
    out_dir: Annotated[str, Parameter(metavar="DIR")],
    test_share: Share | None = None,
    leave_out: Count | None = None,
    leave_last: bool = False,
    test_users: Share | None = None,
    date: Annotated[str | None, Parameter(name="--from", metavar="DATE")] = None,
    seed: Seed = 0,
    declared: Declared = Declared(),
    reading: Reading = Reading(),
    force: Force = False,
    no_progress: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Split private RATINGS for training and test, in one of five ways.

    Each user's split depends on that user's ratings, id and the seed only, so you may train privately on the
    training part. The files are Parquet, and private like RATINGS.

      hushrec split ratings.csv --test-share 0.2 --catalogue items.txt --rating-range 1 5 --out-dir parts
      hushrec split ratings.csv --from 2024-06-01 --catalogue items.txt --rating-range 1 5 --out-dir parts
      hushrec evaluate model.hush parts/train.parquet parts/test.parquet

    Parameters
    ----------
    out_dir
        Folder of the parts.
    test_share
        Part of all ratings that the test gets, at random: train.parquet and test.parquet.
    leave_out
        Number of random ratings that the test gets of each user who has more.
    leave_last
        The test gets the last rating of each user who has two or more; needs a time column.
    test_users
        Part of the users who are held out: history.parquet has 80% of their ratings, test.parquet the rest.
    date
        The test gets the ratings from this declared date on, such as 2024-06-01; needs a time column.
    """
    ways: dict[str, tuple[Any, Callable[[Ratings, Any], tuple[Ratings, ...]]]] = {
        "--test-share": (test_share, lambda rows, part: split_ratings(rows, (1 - part, part), seed=seed)),
        "--leave-out": (leave_out, lambda rows, count: leave_k_out(rows, count, seed=seed)),
        "--leave-last": (leave_last, _last),
        "--test-users": (test_users, lambda rows, part: strong_generalization(rows, part, seed=seed)),
        "--from": (date, _by_time),
    }
    chosen = [(value, parts_of) for value, parts_of in ways.values() if value]
    if len(chosen) != 1:
        raise InputError(f"Pass exactly one way to split: {', '.join(ways)}.")
    (value, parts_of), *_ = chosen
    domain = declared.domain(reading.implicit, ratings)
    names = ("train", "test") if test_users is None else ("train", "history", "test")
    folder = output_folder(out_dir, force, ["train.parquet", "history.parquet", "test.parquet"])
    files = [folder / f"{name}.parquet" for name in names]
    with progress_bar(progress_shown(no_progress), 2 + len(files), "splitting", "steps") as advance:
        advance(0, "reading")
        rows = reading.read(ratings, domain, times=date is not None or leave_last)
        advance(1, "the parts")
        parts = parts_of(rows, value)
        folder.mkdir(exist_ok=True)
        if test_users is None:  # of a former split, whose users may be in the new training part
            (folder / "history.parquet").unlink(missing_ok=True)
        for file, part in zip(files, parts, strict=True):
            advance(1, file.name)
            write_table(part.to_arrow(), file)
        advance(1)
    written = [str(file) for file in files]
    payload: dict[str, Any] = {"files": written}
    lines = [f"Wrote {', '.join(written)}; they are private, like {ratings}."]
    if (date is not None or leave_last) and rows.times is not None:
        payload |= {"note": PRIVATE_LOOK, "without_time": int((rows.times == NO_TIME).sum())}
        lines += [
            f"Without a time that can be read, so earlier than all others: {payload['without_time']:,} of"
            f" {plural(rows.n_ratings, 'rating')}.",
            f"{PRIVATE_LOOK}.",
        ]
    output.done(as_json, payload, *lines)


def _by_time(rows: Ratings, date: str) -> tuple[Ratings, Ratings]:
    check_times(rows, date)
    return split_by_time(rows, date)


def _last(rows: Ratings, _: Any) -> tuple[Ratings, Ratings]:
    check_times(rows)
    return leave_last_out(rows)
