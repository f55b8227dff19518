"""``hushrec collect``."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from hushrec.checks import plural
from hushrec.cli import output, output_model
from hushrec.cli.agree import connected, is_loopback, read_agreement
from hushrec.cli.donated import Published
from hushrec.cli.files import output_file
from hushrec.cli.options import Account, Count, Days, File, Force, Json, Seconds, Whole
from hushrec.cli.train import save
from hushrec.errors import InputError
from hushrec.serving.modelfile import write_atomically

if TYPE_CHECKING:
    from hushrec.engines.two_servers.server import CollectingServer
    from hushrec.network.transport import Connection
    from hushrec.serving.billboard import Billboard

#: Characters: 128 bits in hexadecimal digits.
_SHORTEST_TOKEN = 32
#: Where a folder keeps that both servers have the model, and where this one's goes.
_ENDED = "ended"
#: Seconds between two looks at the other server.
_PAUSE = 0.2
#: Seconds for which a server that does not fit to this one can still ask.
_TOLD = 2.0


def collect(
    agreement: str,
    /,
    *,
    role: Literal["first", "second"],
    devices: File,
    peer: Annotated[str, Parameter(metavar="URL")],
    peer_token: File,
    folder: Annotated[str, Parameter(metavar="FOLDER")],
    out: File,
    deadline: Days = 1.0,
    linger: Seconds = 60.0,
    account: Account = Account(),
    published: Published = Published(),
    host: str = "127.0.0.1",
    port: Annotated[Whole, Parameter(validator=Number(gte=0, lte=65535))] = 8765,
    certificate: File | None = None,
    certificate_key: Annotated[File, Parameter(show_default="in --certificate")] | None = None,
    ca: Annotated[File, Parameter(show_default="the system's")] | None = None,
    plain_http: bool = False,
    requests_per_second: Annotated[float, Parameter(validator=Number(gt=0))] = 100.0,
    connections: Count = 2000,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Run one of two servers that train on devices' shares, under an AGREEMENT, without holding a rating.

    The other server belongs to somebody else: against both together nothing is promised. Killed, it goes on
    with the same command. The first start writes FOLDER/tokens.csv, a token for each device: give each device
    its own. Ends when both servers have the model; public ratings are weighed into this server's then.

      hushrec collect agreement.json --role first --devices names.txt --folder first --out model.hush \\
                      --peer https://second.example:8765 --peer-token peer.txt --certificate first.pem

    Parameters
    ----------
    agreement
        What hushrec agree wrote, the same file as at the other server.
    role
        Two different ones: the first takes the larger shares.
    devices
        Names of the devices that may take part, one a line, as the other server has them.
    peer
        Address of the other server.
    peer_token
        A file with 32 characters or more that the two operators share.
    folder
        What this server must not forget; made where it is not there.
    out
        Where the model goes.
    deadline
        How long a round is open, as in 1d or 12h; less where all devices have answered.
    linger
        Seconds to go on answering devices after the end.
    host
        Address to listen on.
    port
        0: a free one.
    certificate
        Of this server and its chain, PEM: serves HTTPS.
    certificate_key
        Its private key, PEM.
    ca
        Authority that signed the other server's certificate, PEM.
    plain_http
        Serve and ask over http:// beyond this machine, since a proxy or a tunnel encrypts it.
    requests_per_second
        Of one address on average.
    connections
        Open at the same time.
    """
    from hushrec.engines.two_servers.book import Book
    from hushrec.engines.two_servers.server import CollectingServer, Settings
    from hushrec.network.service import Limits, Service

    agreed, names = read_agreement(agreement), _lines(devices, "device")
    key, public = _peer_token(peer_token), published.read()
    ended = _ended(Path(folder), out)
    target = output_file(out, (agreement, devices, peer_token, *published.files()), force or ended)
    other = connected(peer, plain_http, ca, 0.0)
    _check_way(host, certificate, plain_http)
    if public is not None:
        public.read(agreed.estimator, agreed.nobody)
    settings = Settings(
        role=role,
        devices=_tokens(Path(folder), names),
        peer_token=key,
        deadline=86_400 * deadline,
        dataset=account.dataset,
        public=public,
    )
    book = Book(folder)
    with book.alone():
        ledger = account.open(create=not (Path(folder) / "session").exists())
        server = CollectingServer(agreed, settings, folder, ledger, other)
        limits = Limits(
            body_bytes=1 << 27,
            waiting_bytes=1 << 27,
            requests_per_second=requests_per_second,
            connections=connections,
        )
        service = Service(
            server.answer,
            host=host,
            port=port,
            limits=limits,
            certificate=certificate,
            key=certificate_key,
            admit=server.admit,
        )
        with service:
            output.note(f"The {role} server of {plural(len(names), 'device')} is at {service.url}.")
            board = _trained(server, other, ended)
            book.put(_ENDED, out.encode())
            save(board, target)
            output.note(f"Both have the model, here in {target}; devices are told so for {linger:g} s more.")
            time.sleep(linger)
    output_model.trained(board, target, "Trained", False, as_json, rows=False)


def _peer_token(path: str) -> str:
    """The token that both servers share."""
    token = _lines(path, "token")[0]
    if len(token) < _SHORTEST_TOKEN or not token.isascii():
        raise InputError(f"{path!r} must hold {_SHORTEST_TOKEN} characters or more, all of ASCII.")
    return token


def _check_way(host: str, certificate: str | None, plain_http: bool) -> None:
    """Refuse to listen to other machines in the clear, unless somebody says that a proxy encrypts."""
    if certificate is None and not (plain_http or is_loopback(host)):
        raise InputError(
            f"Without --certificate {host} would be told shares and tokens that everybody on the way reads;"
            " pass one, or --plain-http where a proxy in front of this server serves HTTPS."
        )


def _ended(folder: Path, out: str) -> bool:
    """Tell whether both servers had the model when this command was killed, so that OUT is its own."""
    path = folder / _ENDED
    return path.exists() and path.read_bytes() == out.encode()


def _trained(server: CollectingServer, other: Connection, ended: bool) -> Billboard:
    """Take one step after the other until both servers have the model."""
    from hushrec.engines.two_servers.messages import State
    from hushrec.network.transport import TransportError

    said = ""
    while True:
        try:
            busy = server.step()
            if server.billboard is not None and (ended or other.get(State, "state").over):
                return server.billboard
        except TransportError as error:
            busy = False
            if said != str(error):
                output.note(f"Waiting for the other server: {error}")
                said = str(error)
        except InputError:  # the other server asks again and again, and is to be refused as well
            time.sleep(_TOLD)
            raise
        if not busy:
            time.sleep(_PAUSE)


def _tokens(folder: Path, names: list[str]) -> dict[str, str]:
    """SHA-256 of each device's token; those without one get it, written down beside the name."""
    path = folder / "tokens.csv"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
    except OSError as error:
        raise InputError(f"Cannot use the folder {str(folder)!r} ({error.strerror}).") from None
    known = {json.loads(name): token for name, _, token in (line.rpartition(",") for line in lines)}
    tokens = known | {name: secrets.token_urlsafe(32) for name in names if name not in known}
    if tokens.keys() != known.keys():
        written = "".join(f"{json.dumps(name)},{token}\n" for name, token in tokens.items())
        write_atomically(path, [written.encode()])
    return {name: hashlib.sha256(tokens[name].encode()).hexdigest() for name in names}


def _lines(path: str, what: str) -> list[str]:
    try:
        found = [line.strip() for line in Path(path).read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{path!r} cannot be read; pass a text file, one {what} a line.") from None
    if not found or len(set(found)) != len(found):
        raise InputError(f"{path!r} must hold one {what} a line, each once.")
    return found
