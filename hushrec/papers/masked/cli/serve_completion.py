"""``hushrec papers serve-completion``."""

import time
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from hushrec.cli import output
from hushrec.cli.options import Catalogue, Count, Listening, Seed, Whole
from hushrec.data import Domain
from hushrec.papers.masked.masking import MaskingStatement
from hushrec.papers.masked.messages import fingerprint
from hushrec.papers.masked.server import CompletionServer, Settings, Store


def serve_completion(
    *,
    catalogue: Catalogue,
    nodes: Annotated[Whole, Parameter(validator=Number(gte=2))],
    enough: Annotated[Whole, Parameter(validator=Number(gte=2), show_default="all")] | None = None,
    wait: Annotated[float, Parameter(validator=Number(gte=0))] = 5.0,
    mask_rank: Count = 10,
    noise_sd: float = 100.0,
    rank: Annotated[Count, Parameter(show_default="estimated")] | None = None,
    solver: Literal["am", "nn"] = "am",
    rounds: Annotated[Whole, Parameter(validator=Number(gte=1, lte=2))] = 1,
    seed: Seed = 0,
    database: Annotated[str, Parameter(metavar="FILE")] = "completion.sqlite",
    listening: Listening = Listening(),
) -> None:
    """Complete the matrix of many nodes from masked columns. Obfuscation, not privacy: epsilon is None.

    Started again with the same options and database, it continues. Give it a certificate before it
    listens on another address than the loopback one.

      hushrec papers serve-completion --catalogue items.txt --nodes 50 --enough 40 --rank 4

    Parameters
    ----------
    nodes
        Largest number of columns of the matrix.
    enough
        Number of columns that are enough.
    wait
        Seconds of silence after which enough columns are completed without the others.
    mask_rank
        Public columns.
    noise_sd
        Standard deviation of mask coefficients.
    rank
        Rank of the ratings.
    solver
        Alternating or nuclear-norm minimisation.
    rounds
        Form of the scheme.
    database
        Folder that keeps the uploads.
    """
    items = Domain.read_catalogue(catalogue)
    settings = Settings(
        catalogue=fingerprint(items),
        n_items=len(items),
        n_nodes=nodes,
        enough=enough or nodes,
        wait=wait,
        mask_rank=mask_rank,
        noise_sd=noise_sd,
        rank=rank,
        solver=solver,
        rounds=rounds,
        seed=seed,
    )
    server = CompletionServer(settings, Store(database, settings))
    with listening.service(server, body_bytes=20 * len(items) + 10_000) as service:  # an upload of all items
        output.done(False, {}, MaskingStatement(mask_rank, rounds).text(), f"Serving on {service.url}")
        while True:
            time.sleep(3600)
