"""``hushrec servers join``."""

from __future__ import annotations

import time
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from hushrec.checks import plural
from hushrec.cli import output
from hushrec.cli.donated import Published
from hushrec.cli.files import tokens as tokens_of
from hushrec.cli.options import Account, Authority, File, Json, PlainHttp, Seconds
from hushrec.cli.servers_init import connected, read_agreement
from hushrec.cli.tables import Reading, Table
from hushrec.data import Ratings


def servers_join(
    ratings: Table,
    agreement: str,
    /,
    *,
    name: Annotated[str, Parameter(metavar="NAME")],
    first: Annotated[str, Parameter(metavar="URL")],
    second: Annotated[str, Parameter(metavar="URL")],
    tokens: File,
    folder: Annotated[str, Parameter(metavar="FOLDER")],
    reading: Reading = Reading(),
    account: Account = Account(),
    published: Published = Published(),
    once: bool = False,
    every: Annotated[float, Parameter(validator=Number(gt=0, lte=10_000_000))] = 60.0,
    patience: Seconds = 30.0,
    ca: Authority | None = None,
    plain_http: PlainHttp = False,
    as_json: Json = False,
) -> None:
    """Take part in a training of two servers with the RATINGS of this node's users; the ratings stay here.

    This node sends two shares of bounded integers; each is random bits to its server. Before the first one,
    the whole training is charged to this node's own ledger. The command ends with the training.

      hushrec servers join mine.csv agreement.json --name alice --tokens tokens.txt --folder answers \\
                           --first https://first.example:8765 --second https://second.example:8765

    Parameters
    ----------
    agreement
        The agreement that hushrec servers init wrote; read it.
    name
        This node's name at both servers.
    first
        Address of the first server.
    second
        Address of the second server.
    tokens
        This node's token at the first server, then the one at the second, one per line.
    folder
        This node's answers. A new folder is a new node.
    once
        Answer the open round, if there is one, and end (for cron).
    every
        Seconds between two requests to the servers.
    patience
        Seconds to keep trying while a server is away.
    """
    from hushrec.engines.two_servers import node as protocol

    agreed = read_agreement(agreement, published)
    keys = tokens_of(tokens, 2)
    rows = Ratings.from_any(ratings, agreed.domain, **reading.arguments())
    agreed.check(rows)
    servers = [connected(url, plain_http, ca, patience) for url in (first, second)]
    public, answered = protocol.Public(agreed), 0
    ledger, dataset = account.open(create=True), account.dataset
    mine = protocol.Node(name=name, tokens=keys, folder=folder, ledger=ledger, dataset=dataset)
    while True:
        outcome = protocol.contribute(servers, public, rows, mine)
        answered += outcome == "answered"
        if once or outcome == "over":
            break
        time.sleep(every)
    words = {"answered": answered, "over": outcome == "over", "promises": list(agreed.promises)}
    text = "The training is over." if outcome == "over" else "The training continues."
    output.done(as_json, words, f"Answered {plural(answered, 'round')}. {text}", *agreed.promises)
