"""Options of a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from hushrec.cli.options import File

if TYPE_CHECKING:
    from hushrec.network.transport import Connection

Key = Annotated[File, Parameter(help="The node's secrets; made if missing, readable by you only.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Link:
    """The way to a server.

    Parameters
    ----------
    server
        Address that serve-completion printed.
    ca
        Authority that signed the server's certificate, PEM.
    patience
        Seconds to keep trying while the server is away or not ready.
    """

    server: Annotated[str, Parameter(metavar="URL")]
    ca: Annotated[File, Parameter(show_default="the system's")] | None = None
    patience: Annotated[float, Parameter(validator=Number(gte=0))] = 30.0

    def connection(self) -> Connection:
        from hushrec.network.transport import Connection  # an extra

        return Connection(self.server, patience=self.patience, ca=self.ca)
