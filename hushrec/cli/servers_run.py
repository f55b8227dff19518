"""``hushrec servers run``."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from hushrec.checks import plural
from hushrec.cli import output, output_model
from hushrec.cli.donated import Published
from hushrec.cli.files import output_file, text_lines, tokens
from hushrec.cli.options import Account, Authority, Days, File, Force, Json, Listening, PlainHttp, Seconds
from hushrec.cli.servers_init import connected, is_loopback, read_agreement
from hushrec.cli.train import save
from hushrec.errors import InputError
from hushrec.serving.modelfile import write_atomically

if TYPE_CHECKING:
    from hushrec.engines.two_servers.book import Book
    from hushrec.engines.two_servers.server import CollectingServer
    from hushrec.network.transport import Connection
    from hushrec.serving.model import Model

#: File that names OUT once both servers have the model.
_ENDED = "ended"
#: Seconds between two requests to the other server.
_PAUSE = 0.2
#: Seconds for which a server that does not fit to this one can still ask.
_TOLD = 2.0


def servers_run(
    agreement: str,
    /,
    *,
    role: Literal["first", "second"],
    nodes: File,
    peer: Annotated[str, Parameter(metavar="URL")],
    peer_token: File,
    folder: Annotated[str, Parameter(metavar="FOLDER")],
    out: File,
    deadline: Days = 1.0,
    linger: Seconds = 60.0,
    account: Account = Account(),
    published: Published = Published(),
    listening: Listening = Listening(),
    plain_http: PlainHttp = False,
    ca: Authority | None = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Run one of two servers that train on nodes' shares, under an AGREEMENT; no server sees a rating.

    Another organisation runs the other server: there is no promise against both together. After a kill, the
    same command continues. The first start writes FOLDER/tokens.csv: give each node its own token.

      hushrec servers run agreement.json --role first --nodes names.txt --folder first --out model.hush \\
                          --peer https://second.example:8765 --peer-token peer.txt --certificate first.pem

    Parameters
    ----------
    agreement
        The agreement that hushrec servers init wrote.
    role
        Role of this server.
    nodes
        Names of the nodes that may take part, one per line.
    peer
        Address of the other server.
    peer_token
        A file with 32 characters or more that the two operators share.
    folder
        This server's memory; made if missing.
    out
        File of the model.
    deadline
        Longest time of a round, as in 1d or 12h.
    linger
        Seconds to go on answering nodes after the end.
    """
    from hushrec.engines.two_servers.book import Book
    from hushrec.engines.two_servers.server import CollectingServer, Settings
    from hushrec.network.messages import check_name

    agreed, names = read_agreement(agreement, published), text_lines(nodes, "node")
    if not names or len(set(names)) != len(names):
        raise InputError(f"{nodes!r} must hold one node a line, each once.")
    for name in names:
        check_name(name)
    (key,) = tokens(peer_token, 1)
    # killed when both servers had the model, so OUT is from this training
    known = Book(folder) if Path(folder).is_dir() else None
    ended = known is not None and known.get(_ENDED) == out.encode()
    target = output_file(out, (agreement, nodes, peer_token, *published.files()), force or ended)
    other = connected(peer, plain_http, ca, 0.0)
    if listening.certificate is None and not (plain_http or is_loopback(listening.host)):
        raise InputError(
            f"Without --certificate, anyone on the network path to {listening.host} reads shares and tokens;"
            " pass one, or --plain-http if a proxy in front of this server serves HTTPS."
        )
    # refused before the folder is made
    ledger = account.open(create=known is None or known.get("session") is None)
    book = Book(folder) if known is None else known
    settings = Settings(
        role=role,
        nodes=_tokens(book, names),
        peer_token=key,
        deadline=86_400 * deadline,
        dataset=account.dataset,
    )
    with (
        book.alone(),
        CollectingServer(agreed, settings, folder, ledger, other) as server,
        listening.service(server, body_bytes=1 << 27, waiting_bytes=1 << 27) as service,
    ):
        output.note(f"The {role} server of {plural(len(names), 'node')} is at {service.url}.")
        model = _trained(server, other, ended)
        book.put(_ENDED, out.encode())
        save(model, target)
        output.note(f"Both have the model, here in {target}; nodes are told so for {linger:g} s more.")
        time.sleep(linger)
    output_model.trained(model, target, "Trained", as_json, rows=False)


def _trained(server: CollectingServer, other: Connection, ended: bool) -> Model:
    from hushrec.engines.two_servers.messages import State
    from hushrec.network.transport import TransportError

    noted = ""
    while True:
        try:
            busy = server.step()
            if server.model is not None and (ended or other.get(State, "state").over):
                return server.model
        except TransportError as error:
            busy = False
            if noted != str(error):
                output.note(f"Waiting for the other server: {error}")
                noted = str(error)
        except InputError:  # the other server asks again and again, and is to be refused as well
            time.sleep(_TOLD)
            raise
        if not busy:
            time.sleep(_PAUSE)


def _tokens(book: Book, names: list[str]) -> dict[str, str]:
    """Return SHA-256 of each node's token; new nodes get one, and a table of all is written."""
    known = json.loads(book.get("tokens") or b"{}")
    tokens = known | {name: secrets.token_urlsafe(32) for name in names if name not in known}
    if tokens != known:
        book.put("tokens", json.dumps(tokens).encode())
    written = "".join(f"{json.dumps(name)},{token}\n" for name, token in tokens.items())
    write_atomically(book.path / "tokens.csv", [written.encode()])
    return {name: hashlib.sha256(tokens[name].encode()).hexdigest() for name in names}
