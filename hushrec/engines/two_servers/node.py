"""A node of a training over two servers: its users' ratings stay there."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hushrec.checks import line_of_text
from hushrec.data import Ratings
from hushrec.engines.two_servers.agreement import Agreement
from hushrec.engines.two_servers.book import Book
from hushrec.engines.two_servers.messages import Line, State, Sum, Taken
from hushrec.engines.two_servers.replay import Opened, Round, Wanted, Words
from hushrec.engines.two_servers.shares import ROLES, SEED_BYTES, split
from hushrec.errors import HushrecError
from hushrec.network.messages import Refusal, array_bytes, check_name
from hushrec.privacy import Gaussian, Ledger, Release


class Public:
    """The public computation that the nodes of one process share."""

    def __init__(self, agreement: Agreement) -> None:
        self.agreement = agreement
        self._totals: list[Words] = []
        self._last: tuple[str, Opened] | None = None

    def opened(self, server: Line, state: State) -> Opened:
        """Return the questions of a server's open round, given the totals that it publishes."""
        which = Round(*state.round)

        def total_of(wanted: Wanted) -> Words | None:
            number = wanted.release
            if number == len(self._totals) < which.release:
                most = array_bytes(len(wanted.place))
                self._totals.append(server.get(Sum, "total", str(number), most=most).values)
            return self._totals[number] if number < which.release else None

        if self._last is None or self._last[0] != state.digest:
            try:
                opened = self.agreement.opened(total_of, which)
            except HushrecError:
                self._totals.clear()
                raise
            if self.agreement.state(state.session, which, opened) != state.digest:
                self._totals.clear()
                raise HushrecError(
                    "The servers' round does not follow from this agreement and their totals, or this"
                    " processor rounds unlike theirs; nothing was sent."
                )
            self._last = (state.digest, opened)
        return self._last[1]


@dataclass(frozen=True, kw_only=True)
class Node:
    """Settings that the owner of a node decides.

    Attributes
    ----------
    name : str
        Each node has another one.
    tokens : sequence of two str
        At the first server and the second one.
    folder : path
        This node's answers. A lost folder is a new node.
    ledger : Ledger or None
        Charged for the whole training before the first share leaves.
    dataset : str
        Name of the node's users in it.
    """

    name: str
    tokens: Sequence[str]
    folder: str | Path
    ledger: Ledger | None
    dataset: str = "default"

    def __post_init__(self) -> None:
        check_name(self.name)
        line_of_text("dataset", self.dataset)


def contribute(servers: Sequence[Line], public: Public, ratings: Ratings, node: Node) -> str:
    """Answer the open round, if this node has not answered it.

    Parameters
    ----------
    servers : sequence of two Lines
        The first and the second one.
    public : Public
        The public part of the agreement that the owner accepted.

    Returns
    -------
    str
        ``"answered"``, ``"waiting"`` for the next round, or ``"over"``.

    Raises
    ------
    HushrecError
        The node's budget has no room, or the servers do not follow the agreement. Nothing was sent.
    """
    public.agreement.check(ratings)
    book, ways = Book(node.folder), list(zip(servers, node.tokens, ROLES, strict=True))
    with book.alone():
        states = [server.get(State, "state") for server in servers]
        if tuple(state.role for state in states) != ROLES:  # one server would get both shares in the end
            raise HushrecError(
                "These are not the first and the second server, in this order; check their addresses. Nothing"
                " was sent."
            )
        _check_session(book, {state.session for state in states})
        agreed = public.agreement.fingerprint.encode()
        if book.get("agreement") not in (None, agreed):
            raise HushrecError(
                "This is not the agreement that this node answered under; pass that one. Nothing was sent."
            )
        if book.get("node") not in (None, node.name.encode()):
            raise HushrecError(
                "This folder belongs to another node; pass this node's folder. Nothing was sent."
            )
        if all(state.over for state in states):
            return "over"
        state = states[0]
        if state == replace(states[1], role=state.role) and state.round and book.get(_kept(state)) is None:
            opened = public.opened(servers[0], state)  # which the agreement must lead to
            if book.get("agreement") is None:
                for server, token, _ in ways:
                    server.get(Taken, "node", node.name, token=token)
            _charge(node, public.agreement, book)
            book.put("agreement", agreed)
            book.put("node", node.name.encode())
            rest, seed = split(public.agreement.answer(opened, ratings.rated()))
            # kept before any of it leaves: sent again, it is the same
            book.put(_kept(state), b"".join([state.digest.encode(), seed, rest]))
        sent = []
        for (server, token, role), state in zip(ways, states, strict=True):
            answer = _answer(book, state, role)
            if answer is not None:
                _send(server, ("share", node.name, *answer[0]), answer[1], token)
            sent.append(answer is not None)
        if all(sent):
            book.put(_kept(state), b"")
    return "answered" if any(sent) else "waiting"


#: HTTP code for a round that is closed by now, or was answered.
_LATE = 409
#: Characters of a digest.
_DIGEST = 64


def _kept(state: State) -> str:
    """Return the file of the answer to a round, empty once both servers have it."""
    return f"answer-{Round(*state.round).release}"


def _answer(book: Book, state: State, role: str) -> tuple[tuple[str, str], bytes] | None:
    kept = book.get(_kept(state)) if state.round else None
    if not kept:
        return None
    digest, seed, rest = kept[:_DIGEST], kept[_DIGEST:][:SEED_BYTES], kept[_DIGEST + SEED_BYTES :]
    return (str(Round(*state.round).release), digest.decode()), seed if role == "second" else rest


def _send(server: Line, path: Sequence[str], share: bytes, token: str) -> None:
    try:
        server.post(share, Taken, *path, token=token)
    except Refusal as refused:
        if refused.status != _LATE:
            raise


def _check_session(book: Book, sessions: set[str]) -> None:
    known = book.get("session")
    if known is None and len(sessions) == 1 and "" not in sessions:
        book.put("session", "".join(sessions).encode())
    elif known is not None and sessions - {"", known.decode()}:
        raise HushrecError(
            "The servers are not in the training that this node began with; to take part in another one, "
            "which is charged again, pass another folder."
        )


def _charge(node: Node, agreement: Agreement, book: Book) -> None:
    """Charge this folder's training once, under a name that no server can repeat."""
    ledger, dataset = node.ledger, node.dataset
    if ledger is None:
        return
    if (run := book.get("run")) is None:
        book.put("run", run := secrets.token_hex(32).encode())
    label = f"training over two servers: {agreement.estimator.name}"
    budget = agreement.budget
    release = Release(label, Gaussian(1 / agreement.plan.mu), 1.0, budget.unit, budget.relation)
    if not ledger.numbered(dataset, run.decode()):
        ledger.charge(dataset, run.decode(), release, step=0)
