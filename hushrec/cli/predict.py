"""``hushrec predict``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from hushrec.cli import output
from hushrec.cli.files import table_file, write_private_table
from hushrec.cli.options import File, Force, Json, NoProgress, progress_shown
from hushrec.cli.tables import Reading
from hushrec.data.ids import Encoded, encode_ids
from hushrec.data.readers import read_columns
from hushrec.errors import InputError
from hushrec.progress import progress_bar
from hushrec.serving.batch import PRIVATE_TABLE
from hushrec.serving.model import load

#: Notes of pairs.
NO_ITEM = "no prediction: the item is not in the model's catalogue"
NEWCOMER = "no rating in the history: predicted as for any newcomer"


def predict(
    model: str,
    history: str,
    pairs: str,
    /,
    *,
    out: File,
    reading: Reading = Reading(),
    force: Force = False,
    no_progress: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Predict the ratings of PAIRS of user and item. HISTORY holds the users' own ratings.

    The output has the pairs in their order and two columns: prediction, which may be empty, and note, which
    gives the reason. It is private.

      hushrec predict model.hush history.parquet pairs.parquet --out predictions.private.parquet

    Parameters
    ----------
    model
        A model file.
    history
        Ratings of the users to predict for.
    pairs
        A table with a column of users and one of items.
    out
        File for the predictions: Parquet, marked private inside, or CSV if its name ends in .csv.
    """
    trained = load(model)
    if trained.scores == "likes":
        raise InputError(
            f"{trained.estimator.name} ranks items and predicts no ratings; use recommend, or train for"
            " ratings or both."
        )
    target = table_file(out, (model, history, pairs), force)
    with progress_bar(progress_shown(no_progress), 2, "predicting", "steps") as advance:
        advance(0, "reading")
        rows = reading.read(history, trained.domain)
        asked = read_columns(pairs, **{**reading.second().arguments(), "implicit": True})
        users, items = encode_ids(asked.users), encode_ids(asked.items)
        advance(1, "the pairs")
        predicted = trained.predict(rows, {"user": users, "item": items})
        advance(1)
    new = rows.user_index(users) < 0
    notes = np.where(np.isnan(predicted), NO_ITEM, np.where(new, NEWCOMER, ""))
    table = pa.table(
        {
            "user": _as_given(users),
            "item": _as_given(items),
            "prediction": pa.array(predicted, mask=np.isnan(predicted)),
            "note": pa.array(notes.tolist()),
        }
    )
    write_private_table(table, target, PRIVATE_TABLE)
    summary = {"path": str(target), "note": PRIVATE_TABLE}
    output.done(as_json, summary, f"Wrote the predictions for {pairs} to {target}", f"{PRIVATE_TABLE}.")


def _as_given(ids: Encoded) -> pa.Array:
    values = ids.values if isinstance(ids.values, pa.Array) else ids.texts
    return values.take(pa.array(ids.codes, mask=ids.codes < 0))
