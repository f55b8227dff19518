"""One of the two servers: it adds up its shares, adds its noise, and publishes the noisy sums.

It serves

    GET  /nonce                             for the other server: the first meeting
    GET  /state                             for nodes: the open round
    GET  /node/<node>                       for a node: a check of its token, before it is charged
    GET  /total/<release>                   a released total
    POST /share/<node>/<release>/<digest>   a node's share of the open round, as bytes
    GET  /held/<release>                    for the other server: whose shares a closed round has
    GET  /noisy/<release>                   for the other server: its noisy share of a release

Every step that must not happen twice is in its folder first, so a kill is safe.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from hushrec.checks import line_of_text
from hushrec.engines.two_servers.agreement import Agreement, run_of, session_of
from hushrec.engines.two_servers.book import Book, Shares
from hushrec.engines.two_servers.messages import Held, Line, Nonce, State, Sum, Taken
from hushrec.engines.two_servers.replay import Opened, Round, Wanted, Words
from hushrec.engines.two_servers.shares import ROLES, add_share, check_length, share_bytes
from hushrec.errors import HushrecError, InputError
from hushrec.kernels.fixed_point import LARGEST_COUNT
from hushrec.network.messages import SHORT, Kind, Message, Refusal, array_bytes, check_name
from hushrec.privacy import Ledger, Reservation
from hushrec.privacy.noise import GeneratorNoise, SystemNoise
from hushrec.serving.model import Model

#: HTTP codes for an answer that does not exist yet, and for an unknown token.
_NOT_YET, _NOT_FOR_YOU = 404, 403


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings that an operator decides.

    Attributes
    ----------
    nodes : mapping of str to str
        SHA-256 (hexadecimal) of each node's token for this server, by the node's name.
    peer_token : str
        Shared with the other server.
    deadline : float
        Seconds for which a round is open, unless all nodes have answered.
    dataset : str
        Name of the nodes in the ledger.
    """

    role: str
    nodes: Mapping[str, str]
    peer_token: str
    deadline: float = 86_400.0
    dataset: str = "default"

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise InputError(f"role={self.role!r} is not one of {', '.join(ROLES)}.")
        for name in self.nodes:
            check_name(name)
        line_of_text("dataset", self.dataset)
        if not 0 <= self.deadline < math.inf:
            raise InputError("deadline must be a number of seconds, at least 0.")


@dataclass
class _Collecting:
    which: Round
    opened: Opened
    digest: str
    shares: Shares
    since: float
    held: list[str] | None = None


@dataclass
class _Collected:
    which: Round
    keys: tuple[str, ...]
    ends: list[int]
    total: Words


@dataclass
class _Progress:
    """The state of a training, which the folder keeps.

    Attributes
    ----------
    session : str
        Empty before the servers have met.
    totals : list of ndarray
        Noisy, of the releases that are made.
    encoded : dict of int to Sum
        Messages with the totals.
    collecting : _Collecting or None
        The open round.
    collected : list of _Collected
        The closed ones.
    wanted : Wanted or None
        The next release.
    """

    session: str
    totals: list[Words] = field(default_factory=list)
    encoded: dict[int, Sum] = field(default_factory=dict)
    collecting: _Collecting | None = None
    collected: list[_Collected] = field(default_factory=list)
    wanted: Wanted | None = None


class CollectingServer:
    """One server of a training. It reserves budget until it is closed.

    Parameters
    ----------
    folder : path
        This server's files. Never run a copy of it.
    ledger : Ledger or None
        Every release is charged there before its noise is drawn.
    noise : GeneratorNoise, optional
        For tests: NOT PRIVATE, and refused with a ledger.

    Examples
    --------
    >>> from hushrec.engines.two_servers.agreement import Agreement
    >>> from hushrec.engines.two_servers.server import CollectingServer, Settings
    >>> from hushrec.network.transport import Connection
    >>> domain = hushrec.Domain(["alien", "matrix"], rating_range=(1, 5))
    >>> agreement = Agreement(estimator=hushrec.ItemBias(), budget=hushrec.Budget(5, 1e-6), domain=domain)
    >>> settings = Settings(role="first", nodes={}, peer_token="0" * 32)
    >>> ledger, peer = hushrec.Ledger("first.sqlite"), Connection("https://second.example:8765")
    >>> server = CollectingServer(agreement, settings, "first", ledger, peer)    # then: server.step()
    >>> server.model is None
    True
    """

    def __init__(
        self,
        agreement: Agreement,
        settings: Settings,
        folder: str | Path,
        ledger: Ledger | None,
        peer: Line,
        noise: GeneratorNoise | None = None,
    ) -> None:
        if ledger is not None and noise is not None:
            raise InputError(
                "A ledger records private runs only: leave out the injected noise source or the ledger."
            )
        self.agreement, self.settings, self.model = agreement, settings, None
        self._book, self._ledger, self._peer = Book(folder), ledger, peer
        self._noise, self._secure = noise or SystemNoise(), noise is None
        if len(settings.nodes) * agreement.users_per_node >= LARGEST_COUNT:
            raise InputError(
                f"Nodes of up to {agreement.users_per_node:,} users each could have {LARGEST_COUNT:,} users"
                " or more in all, for which sums have no room; agree on a smaller maximum."
            )
        self._lock = threading.RLock()
        self._nonce = self._own_nonce()
        self._progress = _Progress((self._book.get("session") or b"").decode())
        self._check_account()
        self._check_published()
        if self._progress.session:
            self._take_up()
        self._reservation: Reservation | None = None
        if self._progress.session or self._book.get("meeting") is None:
            self._reserve(self._progress.session)

    model: Model | None

    def close(self) -> None:
        """Free the rest of the reserved budget."""
        if self._reservation is not None:
            self._reservation.close()
            self._reservation = None

    def __enter__(self) -> CollectingServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ requests

    def answer(self, method: str, path: list[str], token: str, body: bytes) -> Message:
        """Reply to a request."""
        match method, path:
            case "GET", ["nonce"]:
                self._check_peer(token)
                role, nodes = self.settings.role, self._nodes
                fits = self.agreement.fingerprint, self.agreement.rehearsal
                return Nonce(*fits, self._nonce, role, nodes, self._progress.session)
            case "GET", ["state"]:
                return self._state()
            case "GET", ["node", node]:
                return self._check_node(node, token)
            case "GET", ["total", number]:
                return self._numbered(number)
            case "POST", ["share", node, number, digest]:
                return self._take(node, number, digest, token, body)
            case "GET", ["held", number]:
                self._check_peer(token)
                digest, names = json.loads(self._kept(f"held-{_index(number)}"))
                return Held(digest, tuple(names))
            case "GET", ["noisy", number]:
                self._check_peer(token)
                self._kept(f"published-{_index(number)}")
                return Sum(_words(self._kept(f"noisy-{_index(number)}")))
        raise Refusal(404, "There is no such page.")

    def _state(self) -> State:
        with self._lock:
            now, over, role = self._progress.collecting, self.model is not None, self.settings.role
            if now is None or now.held is not None:
                return State(self._progress.session, (), "", len(self._progress.totals), over, role)
            return State(
                self._progress.session, tuple(now.which), now.digest, len(self._progress.totals), over, role
            )

    def _numbered(self, number: str) -> Sum:
        with self._lock:
            index = _index(number)
            if index >= len(self._progress.totals):
                raise Refusal(_NOT_YET, "There is no such total yet.")
            # one message for all who ask: it is encoded once
            return self._progress.encoded.setdefault(index, Sum(self._progress.totals[index]))

    def admit(self, method: str, path: list[str], token: str, length: int) -> None:
        """Refuse a request before its body is read."""
        match method, path:
            case "POST", ["share", node, number, digest]:
                self._check_node(node, token)
                with self._lock:
                    self._open_round(number, digest, length)
            case "POST", _:
                raise Refusal(404, "There is no such page.")

    def _open_round(self, number: str, digest: str, length: int) -> _Collecting:
        now = self._progress.collecting
        if now is None or now.which.release != _index(number) or now.held is not None:
            raise Refusal(409, "This round is not open.")
        if digest != now.digest:
            raise Refusal(
                409, "This share is of other totals, questions, steps or settings than this server's."
            )
        check_length(length, self.settings.role, now.opened.size)
        return now

    def _take(self, node: str, number: str, digest: str, token: str, share: bytes) -> Taken:
        taken = self._check_node(node, token)
        with self._lock:
            if not self._open_round(number, digest, len(share)).shares.take(node, share):
                raise Refusal(403, "This node has sent another share of this round; use its folder.")
            return taken

    def _check_node(self, node: str, token: str) -> Taken:
        known = self.settings.nodes.get(node, "")
        if not hmac.compare_digest(hashlib.sha256(token.encode()).hexdigest(), known):
            raise Refusal(
                _NOT_FOR_YOU,
                f"The {self.settings.role} server has no node of this name with this token; check the name,"
                " and that the first token is the first server's.",
            )
        return Taken(node)

    def _check_peer(self, token: str) -> None:
        if not hmac.compare_digest(token.encode(), self.settings.peer_token.encode()):
            raise Refusal(_NOT_FOR_YOU, "This is for the other server alone.")

    def _kept(self, name: str) -> bytes:
        content = self._book.get(name)
        if content is None:
            raise Refusal(_NOT_YET, "This is not there yet.")
        return content

    # ------------------------------------------------------------------ steps

    def step(self) -> bool:
        """Do the next step; return False while it waits for nodes or the other server."""
        if self.model is not None:
            return False
        if not self._progress.session:
            return self._meet()
        if self._progress.wanted is None:
            return self._look_ahead()
        with self._lock:
            source = self._source(self._progress.wanted)
        if source is None:
            return self._collect(self._progress.wanted)
        return self._release(self._progress.wanted, source)

    def _meet(self) -> bool:
        """Agree on a session; neither server can repeat an old one."""
        theirs = self._ask(Nonce, "nonce")
        if theirs is None:
            raise InputError(
                "The address in --peer is not the other server of this training; check it. Nothing was "
                "charged."
            )
        self._check_fit(theirs)
        nonces = {self.settings.role: self._nonce, theirs.role: theirs.nonce}
        session = session_of(self.agreement, nonces["first"], nonces["second"])
        if theirs.session not in ("", session):
            raise InputError(
                "The other server started this training with another folder. Nothing was charged; start again"
                " with new folders at both servers."
            )
        # a server killed from here on may have charged under a session that its folder does not name yet
        self._book.put("meeting", b"")
        self._reserve(session)
        self._charge(session, 0)  # so no other ledger can replace this one afterwards
        self._book.put("session", session.encode())
        self._progress.session = session
        return True

    def _check_fit(self, theirs: Nonce) -> None:
        wrong = ""
        if theirs.agreement != self.agreement.fingerprint:
            wrong = "The other server trains under another agreement; give the same file and version to both"
        elif theirs.role == self.settings.role:
            wrong = f"The other server is the {theirs.role} one, too; check --peer, and --role of both"
        elif theirs.nodes != self._nodes:
            wrong = "The other server has other names of nodes; give the same list to both"
        elif theirs.rehearsal != self.agreement.rehearsal:
            wrong = (
                "A rehearsed training asks other questions at the other server, whose processor rounds unlike"
                " this one's; run both servers on processors of one kind"
            )
        if wrong:
            raise InputError(f"{wrong}. Nothing was charged.")

    @property
    def _nodes(self) -> str:
        names = json.dumps(sorted(self.settings.nodes)).encode()
        return hmac.new(self.settings.peer_token.encode(), names, "sha256").hexdigest()

    def _look_ahead(self) -> bool:
        following = self.agreement.next(self._progress.totals, self._secure)
        with self._lock:
            if isinstance(following, Wanted):
                self._progress.wanted = following
            else:
                self.close()
                self.model = self._booked(following)
        return True

    def _booked(self, model: Model) -> Model:
        if self._ledger is None:
            return model
        delta = self.agreement.budget.delta
        summary = self._ledger.summary(self.settings.dataset, unless_declared=delta)
        return replace(model, privacy=replace(model.privacy, ledger=summary))

    def _source(self, wanted: Wanted) -> _Collected | None:
        first, last = int(wanted.question.min()), int(wanted.question.max())
        for closed in reversed(self._progress.collected):
            here = slice(closed.which.first, last + 1)
            if closed.which.first <= first and last < closed.which.stop:
                return closed if wanted.keys[here] == closed.keys[: last + 1 - closed.which.first] else None
        return None

    def _collect(self, wanted: Wanted) -> bool:
        """Open a round, close it at its deadline, and add up what both servers have."""
        now = self._progress.collecting
        if now is None:
            which = self.agreement.round_for(self._progress.totals, int(wanted.question.min()))
            if any(closed.which.release == which.release for closed in self._progress.collected):
                raise HushrecError("This training asked other questions when it was repeated, so it stops.")
            self._book.put(f"round-{which.release}", json.dumps([*which, time.time()]).encode())
            self._open(which, 0.0)
            return True
        if now.held is None:
            with self._lock:
                everybody = len(now.shares) == len(self.settings.nodes)
                if not everybody and time.monotonic() < now.since + self.settings.deadline:
                    return False
                now.held = now.shares.nodes  # no share is taken any more
            now.shares.seal()
            self._book.put(f"held-{now.which.release}", json.dumps([now.digest, now.held]).encode())
            return True
        names = len(json.dumps(list(self.settings.nodes)))
        theirs = self._ask(Held, "held", str(now.which.release), most=SHORT + names)
        if theirs is None:
            return False
        if theirs.digest != now.digest:
            raise HushrecError("The other server asked other questions in this round; the training stops.")
        both = set(now.held) & set(theirs.nodes)
        total = np.zeros(now.opened.size, np.uint64)
        now.shares.each(both, lambda share: add_share(total, share, self.settings.role))
        # from here on the set is fixed
        self._book.put(f"sum-{now.which.release}", total.tobytes())
        self._close(now, total)
        return True

    def _release(self, wanted: Wanted, source: _Collected) -> bool:
        """Charge, draw noise, publish the noisy share; add the other server's."""
        number = wanted.release
        noisy = self._book.get(f"noisy-{number}")
        if noisy is None:
            release = self.agreement.plan.releases[number]
            self._charge(self._progress.session, number)
            # the charge is durable: only now may noise be drawn
            noise = self._noise.rounded_gaussian(wanted.grid.noise_sd, release.label).view(np.uint64)
            entries = np.array([0, *source.ends])[wanted.question - source.which.first] + wanted.place
            share = source.total[entries] * wanted.grid.coarse.astype(np.uint64) + noise
            self._book.put(f"noisy-{number}", share.tobytes())
            return True
        if self._book.get(f"published-{number}") is None:  # so far no server saw it
            self._publish(number, noisy)
            return True
        size = len(wanted.question)
        theirs = self._ask(Sum, "noisy", str(number), most=array_bytes(size))
        if theirs is None:
            return False
        if theirs.values.shape != wanted.question.shape:
            raise HushrecError("The other server's noisy share is of another size; the training stops.")
        total = _words(noisy) + theirs.values
        self._book.put(f"total-{number}", total.tobytes())
        with self._lock:
            self._progress.totals.append(total)
            self._progress.wanted = None
        return True

    @property
    def _numbers(self) -> range:
        return range(len(self.agreement.plan.releases))

    @property
    def _run(self) -> str:
        return run_of(self._progress.session, self.settings.role)

    def _reserve(self, session: str) -> None:
        if self._ledger is None:
            return
        dataset, run, plan = self.settings.dataset, run_of(session, self.settings.role), self.agreement.plan
        charged = self._ledger.numbered(dataset, run)
        coming = [release for number, release in enumerate(plan.releases) if number not in charged]
        if coming:
            self._reservation = self._ledger.reserve(dataset, coming, run=run, reservation=self._reservation)

    def _charge(self, session: str, number: int) -> None:
        dataset, run = self.settings.dataset, run_of(session, self.settings.role)
        if self._ledger is not None and number not in self._ledger.numbered(dataset, run):
            release = self.agreement.plan.releases[number]
            self._ledger.charge(dataset, run, release, step=number, reservation=self._reservation)

    def _publish(self, number: int, noisy: bytes) -> None:
        if self._ledger is not None and number not in self._check_published():
            name, digest = f"noisy-{number}", hashlib.sha256(noisy).hexdigest()
            self._ledger.keep(self.settings.dataset, self._run, number, name, digest)
        self._book.put(f"published-{number}", b"")

    # ------------------------------------------------------------------ storage

    def _check_published(self) -> set[int]:
        """Return the releases that the ledger has as published; refuse an old copy of the folder."""
        known: dict[int, str | None] = {
            number: None for number in self._numbers if self._book.get(f"published-{number}") is not None
        }
        if self._ledger is not None and self._progress.session:
            rows = self._ledger.numbered(self.settings.dataset, self._run)
            known |= {number: row.digest for number, row in rows.items() if row.file is not None}
        for number, digest in known.items():
            noisy = self._book.get(f"noisy-{number}")
            if noisy is None or digest not in (None, hashlib.sha256(noisy).hexdigest()):
                raise HushrecError(
                    f"The folder {str(self._book.path)!r} lacks what was published of release {number}; it is"
                    " an old copy, and continuing with it would release twice what was charged once."
                )
        return {number for number, digest in known.items() if digest is not None}

    def _own_nonce(self) -> str:
        """Return the folder's number; refuse another agreement's folder."""
        kept, expected = self._book.get("nonce"), [self.agreement.fingerprint, self.settings.role]
        expected.append("" if self._ledger is None else self.settings.dataset)
        if kept is None:
            kept = json.dumps([*expected, secrets.token_hex(32)]).encode()
            self._book.put("nonce", kept)
        *known, nonce = json.loads(kept)
        if known[:2] != expected[:2]:
            raise InputError(
                f"The folder {str(self._book.path)!r} is of another agreement or role; pass a new one."
            )
        if known != expected:
            raise self._other_account()
        return str(nonce)

    def _check_account(self) -> None:
        if self._ledger is None or not self._progress.session:
            return
        made = [number for number in self._numbers if self._book.get(f"noisy-{number}")]
        if not {0, *made} <= self._ledger.numbered(self.settings.dataset, self._run).keys():
            raise self._other_account()

    def _other_account(self) -> InputError:
        return InputError(
            f"The training in the folder {str(self._book.path)!r} began with another ledger or data set,"
            " which was charged for it; pass the ledger and the data set that it began with."
        )

    def _take_up(self) -> None:
        for number in self._numbers:
            kept = self._book.get(f"round-{number}")
            if kept is not None:
                release, first, stop, since = json.loads(kept)
                self._open(Round(release, first, stop), max(0.0, time.time() - since))
            total = self._book.get(f"total-{number}")
            if total is None:
                return
            self._progress.totals.append(_words(total))

    def _open(self, which: Round, age: float) -> None:
        opened = self.agreement.opened(self._progress.totals, which)
        digest = self.agreement.state(self._progress.session, which, opened)
        path = self._book.path / f"shares-{which.release}"
        total = self._book.get(f"sum-{which.release}")
        size = share_bytes(self.settings.role, opened.size)
        shares = Shares(path, size, self.settings.nodes)
        now = _Collecting(which, opened, digest, shares, time.monotonic() - age)
        held = self._book.get(f"held-{which.release}")
        if held is not None:
            now.held = json.loads(held)[1]
        if total is None:
            with self._lock:
                self._progress.collecting = now
        else:
            self._close(now, _words(total))

    def _close(self, now: _Collecting, total: Words) -> None:
        now.shares.remove()
        ends = np.cumsum([len(steps) for steps in now.opened.steps]).tolist()
        with self._lock:
            self._progress.collected.append(_Collected(now.which, now.opened.keys, ends, total))
            self._progress.collecting = None

    def _ask(self, kind: type[Kind], *path: str, most: int = SHORT) -> Kind | None:
        try:
            return self._peer.get(kind, *path, token=self.settings.peer_token, most=most)
        except Refusal as refused:
            if refused.status == _NOT_FOR_YOU:
                raise InputError(
                    "The other server does not know this one's token; give the same --peer-token to both."
                ) from None
            if refused.status != _NOT_YET:
                raise
            return None


def _index(number: str) -> int:
    if not number.isdecimal() or len(number) > 9:
        raise Refusal(404, "There is no such page.")
    return int(number)


def _words(raw: bytes) -> Words:
    return np.frombuffer(raw, dtype="<u8").astype(np.uint64)
