"""``hushrec papers audit-masked``."""

from hushrec.cli import output
from hushrec.cli.options import Json, Range
from hushrec.disk import content_of
from hushrec.network.messages import from_json
from hushrec.papers.masked.messages import Record
from hushrec.papers.masked.reconstruction import reconstruct


def audit_masked(record: str, /, *, rating_range: Range, step: float = 1.0, as_json: Json = False) -> None:
    """Compute the ratings behind a masked upload, from the server's view of it.

      hushrec papers audit-masked upload.json --rating-range 1 5
      hushrec papers audit-masked upload.json --rating-range 0.5 5 --step 0.5 --json

    Parameters
    ----------
    record
        Written by hushrec papers node submit --record: masked values, and the public key at the items.
    rating_range
        Lowest, highest rating.
    step
        Ratings are LOW, LOW + step, ...; 0.5 for half stars.
    """
    seen = from_json(Record, content_of(record, "The record"))
    attack = reconstruct(seen.values, seen.public_rows, rating_range=rating_range, step=step)
    result = {
        "uploaded": attack.n_ratings,
        "recovered": attack.recovered,
        "exact_combinations": attack.exact_combinations,
        "ratings": None if attack.ratings is None else attack.ratings.tolist(),
        "reason": attack.reason,
    }
    why = f": {attack.reason}." if attack.reason else "."
    output.result(
        as_json,
        result,
        f"Recovered {attack.recovered} of {attack.n_ratings} ratings exactly{why}",
        f"The mask leaves {attack.exact_combinations} exact linear combinations of the ratings untouched,"
        " whatever its noise.",
    )
