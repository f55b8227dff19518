"""A node of a private training: trains on its own users, through sums seen in total and noisy only.

Protocol: Bonawitz et al. 2017 for an honest-but-curious server, with the sparse neighbour graph of Bell et
al. 2020. Each release has fresh keys, since what a dropout gives away must not open an earlier one.
"""

from __future__ import annotations

import secrets
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

import numpy as np

from hushrec.data import Ratings
from hushrec.engines.secure import masks
from hushrec.engines.secure.agreement import Agreement
from hushrec.engines.secure.graph import FAILURE
from hushrec.engines.secure.identity import Identity, enrolment_words, envelope_part, signed
from hushrec.engines.secure.messages import (
    Agreed,
    Enrolment,
    Envelopes,
    Masked,
    Neighbours,
    Prepared,
    Quorum,
    Sum,
    Survivors,
    Unmasking,
)
from hushrec.errors import HushrecError, InputError
from hushrec.network.messages import Kind, Message, Refusal
from hushrec.network.transport import Connection
from hushrec.privacy import Ledger
from hushrec.privacy.noise import GeneratorNoise, SystemNoise
from hushrec.serving.billboard import Billboard
from hushrec.types import Array

#: HTTP code for "this release goes on without you".
LATE = 409


def take_part(
    connection: Connection,
    agreement: Agreement,
    ratings: Ratings,
    *,
    node: str,
    ledger: Ledger | None,
    dataset: str = "default",
    identity: Identity | None = None,
    noise: GeneratorNoise | None = None,
) -> Billboard:
    """Take part in one private training; every node ends with the same billboard.

    A node that was stopped calls this again with the same name, ledger and identity: it goes on with the next
    release, and makes none again.

    Parameters
    ----------
    connection : Connection
        To the server; its timeout must be longer than the server's ``hold``, 20 seconds by default. The node
        then waits as long as the server does.
    agreement : Agreement
        What the owner of this node agreed to; a server with another one is refused.
    ratings : Ratings
        The rows of this node's users. They never leave: only masked integers do.
    node : str
        Name, unlike any other node's.
    ledger : Ledger or None
        The node's own: every release is charged there before anything of it leaves, whatever the server says.
        None is the explicit word for not counting.
    dataset : str
        Name of this node's users in its ledger.
    identity : Identity, optional
        What was registered for this node, where the agreement has keys.
    noise : GeneratorNoise, optional
        For tests; makes the statement say NOT PRIVATE, and is refused together with a ledger.

    Returns
    -------
    Billboard
        With the privacy statement of the whole training, and what the node's ledger says of its users.

    Raises
    ------
    BudgetError
        The node's own budget has no room, for the training with what it may fail by, or for its next release.
    HushrecError
        The server refused, went away, or too few nodes are left. Nothing but what was released is known.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from hushrec.engines.secure.agreement import Agreement
    >>> from hushrec.engines.secure.client import take_part
    >>> from hushrec.engines.secure.server import AggregationServer
    >>> from hushrec.network.service import Service
    >>> from hushrec.network.transport import Connection
    >>> estimator, budget = hushrec.ItemBias(), hushrec.Budget(5, 1e-6)
    >>> ratings = hushrec.realistic(40, 10, 300, seed=0)
    >>> agreement = Agreement(
    ...     estimator=estimator, budget=budget, domain=ratings.domain, n_nodes=4, dropouts=0.25
    ... )
    >>> def node(number):                                        # each has the ratings of its own users
    ...     mine = ratings.rows(np.arange(40) % 4 == number, keyed=True)
    ...     return take_part(Connection(service.url), agreement, mine, node=f"node {number}", ledger=None)
    >>> server = AggregationServer(agreement)
    >>> with Service(server.answer) as service, ThreadPoolExecutor(4) as pool:
    ...     nodes = [pool.submit(node, number) for number in range(4)]
    ...     model = server.train()
    >>> all(each.result().to_bytes() == model.to_bytes() for each in nodes)
    True
    """
    agreement.check(ratings)
    member = Member(connection, agreement, node, noise or SystemNoise(), ledger, dataset, identity)
    member.enrol()
    billboard = agreement.train(ratings, member.total, secure=noise is None)
    if ledger is None:
        return billboard
    summary = ledger.summary(dataset, agreement.budget.delta)
    return replace(billboard, privacy=replace(billboard.privacy, ledger=summary))


def run_of(agreement: Agreement, session: str) -> str:
    """Name of a training in a node's ledger."""
    return sha256(f"secure aggregation {agreement.fingerprint} {session}".encode()).hexdigest()


@dataclass
class Member:
    """One node's part of the protocol.

    Parameters
    ----------
    connection, agreement, node, noise, ledger, dataset, identity
        As in :func:`take_part`.
    """

    connection: Connection
    agreement: Agreement
    node: str
    noise: GeneratorNoise
    ledger: Ledger | None = None
    dataset: str = "default"
    identity: Identity | None = None
    _session: str = field(default="", init=False)
    _names: tuple[str, ...] = field(default=(), init=False)
    _sealing: dict[str, bytes] = field(default_factory=dict, init=False)
    #: Digest of the totals so far, as the server told them to this node.
    _told: bytes = field(default=b"", init=False)

    def __post_init__(self) -> None:
        if self.ledger is not None and type(self.noise) is not SystemNoise:
            raise InputError(
                "A ledger records private runs only: leave out the injected noise source or the ledger."
            )
        keys = self.agreement.keys
        if keys and (self.identity is None or keys.get(self.node) != self.identity.public):
            raise InputError(
                f"The agreement has another key for node {self.node!r}; pass the identity it registered."
            )
        self.identity = self.identity if keys else None
        self._token = secrets.token_urlsafe(32)

    def enrol(self) -> None:
        """Join, wait for the others, and learn who the neighbours are."""
        agreement, node = self.agreement, self.node
        key = self.identity.envelope_key if self.identity else masks.new_secret()
        signature = self._sign(*enrolment_words(node, self._token))
        enrolment = Enrolment(node, agreement.fingerprint, masks.public_part(key), signature)
        found = self._post(enrolment, Neighbours, "enrolment")
        if found.agreement != agreement.fingerprint:
            raise InputError("The server trains under another agreement than this node's; nothing was sent.")
        names, theirs = found.names, found.envelope_keys
        if agreement.keys:
            names = tuple(agreement.neighbours[node])
            theirs = {name: envelope_part(agreement.keys[name]) for name in names}
        if len(set(names) - {node}) != agreement.graph.degree:
            raise HushrecError("The server gave this node another number of neighbours than was agreed.")
        self._session, self._names = found.session, names
        if self.ledger is not None:
            releases = list(enumerate(agreement.plan.releases))
            rest = [release for index, release in releases if not self._charged(index)]
            self.ledger.check(self.dataset, rest, failure=FAILURE if len(rest) == len(releases) else 0.0)
        theirs = {name: theirs[name] for name in names}
        self._sealing = masks.pair_keys(key, node, theirs, "hushrec envelope", self._session)

    def total(
        self, index: int, label: str, integers: masks.Words, noise_sd: Array, steps: Array
    ) -> masks.Words:
        """Add up one release with all other nodes; who drops out of it fetches what the others got."""
        values = None
        try:
            if not self._charged(index):
                values = self._add(index, label, integers, noise_sd, steps)
        except Refusal as refused:
            if refused.status != LATE:
                raise
        if values is None:
            values = self.connection.get(Sum, "total", str(index), self.node, token=self._token).values
        self._told = sha256(self._told + values.tobytes()).digest()
        return values

    def _add(
        self, index: int, label: str, integers: masks.Words, noise_sd: Array, steps: Array
    ) -> masks.Words:
        """The steps of a release."""
        node, size, threshold = self.node, len(self._names), self.agreement.graph.threshold
        key, seed = masks.new_secret(), masks.new_secret()
        shares = zip(masks.split(seed, size, threshold), masks.split(key, size, threshold), strict=True)
        sealed = {
            name: masks.seal(self._sealing[name], index, node, name, one + other)
            for name, (one, other) in zip(self._names, shares, strict=True)
        }
        public = masks.public_part(key)
        # units follow from the totals so far: masks cancel among those alone who were told the same
        state = sha256(self._told + steps.tobytes()).hexdigest()
        prepared = Prepared(node, public, state, sealed, self._sign("prepared", index, node, public.hex()))
        envelopes = self._post(prepared, Envelopes, "prepared", index)
        theirs = {name: envelopes.mask_keys[name] for name in self._among_neighbours(envelopes.mask_keys)}
        held = {}
        for name, other in theirs.items():
            self._verify(envelopes.signatures, name, "prepared", index, name, other.hex())
            held[name] = masks.unseal(self._sealing[name], index, name, node, envelopes.shares[name])
        seeds = masks.pair_keys(key, node, theirs, "hushrec mask", self._session, index, state)
        met = "".join(str(int(name in held)) for name in self._names) if self.identity else ""
        # the charge is durable: only now may noise be drawn, and the sum leave under its masks
        self._charge(index)
        hidden = integers + self.noise.rounded_gaussian(noise_sd, label).view(np.uint64)
        hidden += masks.pairwise_total(node, seeds, len(hidden))
        masks.add_stream(hidden, seed)
        masked = Masked(node, hidden, met, self._sign("masked", index, node, met))
        survivors = self._post(masked, Survivors, "masked", index)
        alive, dropped = self._among_neighbours(survivors.alive), self._among_neighbours(survivors.dropped)
        if self.identity:
            alive, dropped = self._agree_on(survivors, index, held)
        if set(alive) & set(dropped) or not set(alive) | set(dropped) <= held.keys():
            raise HushrecError("The server asks for shares that would open a node's contribution; refused.")
        if len(alive) < threshold:
            raise HushrecError("Too few neighbours of this node are left; the training cannot go on.")
        of_seeds = {name: held[name][:32] for name in alive}
        of_keys = {name: held[name][32:] for name in dropped}
        return self._post(Unmasking(node, seed, of_seeds, of_keys), Sum, "unmasking", index).values

    def _agree_on(
        self, survivors: Survivors, index: int, held: Mapping[str, bytes]
    ) -> tuple[list[str], list[str]]:
        """Neighbours in the total and not: after more than half the nodes signed the same list of all."""
        agreement, everybody = self.agreement, set(survivors.everybody)
        if self.node not in everybody or not everybody <= agreement.keys.keys():
            raise HushrecError("The server counts nodes that are not registered, or not this one; refused.")
        if len(everybody) < agreement.fewest:
            raise HushrecError("The server would open a total of fewer nodes than was agreed; refused.")
        alive = self._among_neighbours(everybody)
        for name in alive:
            met, around = survivors.met.get(name, ""), agreement.neighbours[name]
            self._verify(survivors.signatures, name, "masked", index, name, met)
            without = {other for other, bit in zip(around, met, strict=False) if bit != "1"}
            if len(met) != len(around) or everybody & without:
                raise HushrecError("A node in the total shares no mask with a neighbour in it; refused.")
        words: tuple[str | int, ...] = ("agreed", index, *sorted(everybody))
        quorum = self._post(Agreed(self.node, self._sign(*words)), Quorum, "agreed", index)
        signers = everybody & quorum.signatures.keys()
        if len(signers) < agreement.quorum:
            raise HushrecError("Too few nodes agree on who is in the total; refused.")
        for name in signers:
            self._verify(quorum.signatures, name, *words)
        return alive, [name for name in self._among_neighbours(held) if name not in everybody]

    @property
    def _run(self) -> str:
        """Name of this training in the ledger: no server can choose a session that gives another run's."""
        return run_of(self.agreement, self._session)

    def _charged(self, index: int) -> bool:
        return self.ledger is not None and self.ledger.charged(self.dataset, self._run, index)

    def _charge(self, index: int) -> None:
        """Charge the node's own ledger for a release, and with the first for the neighbour graph."""
        if self.ledger is not None:
            release = self.agreement.plan.releases[index]
            self.ledger.charge(self.dataset, self._run, release, step=index, failure=FAILURE)

    def _sign(self, *words: str | int) -> bytes:
        if self.identity is None:
            return b""
        return self.identity.sign(self.agreement.fingerprint, self._session, *map(str, words))

    def _verify(self, signatures: Mapping[str, bytes], name: str, *words: str | int) -> None:
        if self.identity is None:
            return
        signature, key = signatures.get(name, b""), self.agreement.keys[name]
        if not signed(key, signature, self.agreement.fingerprint, self._session, *map(str, words)):
            raise HushrecError(f"What the server says of node {name!r} is not signed by it; refused.")

    def _among_neighbours(self, names: Container[str]) -> list[str]:
        return [name for name in self._names if name in names]

    def _post(self, message: Message, kind: type[Kind], *path: str | int) -> Kind:
        return self.connection.post(message, kind, *map(str, path), token=self._token)
