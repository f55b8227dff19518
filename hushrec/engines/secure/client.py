"""A node of a private training: trains on its own users, through sums seen in total and noisy only.

Protocol: Bonawitz et al. 2017 for an honest-but-curious server, with the sparse neighbour graph of Bell et
al. 2020. Each release has fresh keys, since what a dropout gives away must not open an earlier one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace

from hushrec.billboard import Billboard
from hushrec.data import Ratings
from hushrec.engines.secure import masks
from hushrec.engines.secure.agreement import Agreement, Array, grid_noise
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
from hushrec.network.messages import Kind, Message
from hushrec.network.transport import Connection, RefusedError
from hushrec.privacy import Ledger
from hushrec.privacy.noise import GeneratorNoise, SystemNoise

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
        For tests; makes the statement say NOT PRIVATE.

    Returns
    -------
    Billboard
        With the privacy statement of the whole training, and what the node's ledger says of its users.

    Raises
    ------
    BudgetError
        The node's own budget has no room, for the training or for its next release.
    HushrecError
        The server refused, went away, or too few nodes are left. Nothing but what was released is known.
    """
    agreement.check(ratings)
    member = Member(
        connection, agreement, node, noise or SystemNoise(), ledger=ledger, dataset=dataset, identity=identity
    )
    member.enrol()
    billboard = agreement.train(ratings, member.total, secure=noise is None)
    if ledger is None:
        return billboard
    summary = ledger.summary(dataset, agreement.budget.delta)
    return replace(billboard, privacy=replace(billboard.privacy, ledger=summary))


class Member:
    """One node's part of the protocol.

    Parameters
    ----------
    connection, agreement, node, ledger, dataset, identity
        As in :func:`take_part`.
    noise : GeneratorNoise
    """

    def __init__(
        self,
        connection: Connection,
        agreement: Agreement,
        node: str,
        noise: GeneratorNoise,
        *,
        ledger: Ledger | None = None,
        dataset: str = "default",
        identity: Identity | None = None,
    ) -> None:
        if agreement.keys and (identity is None or agreement.keys.get(node) != identity.public):
            raise InputError(
                f"The agreement has another key for node {node!r}; pass the identity it registered."
            )
        self.node = node
        self._connection, self._agreement, self._noise = connection, agreement, noise
        self._ledger, self._dataset = ledger, dataset
        self._identity = identity if agreement.keys else None
        self._token = secrets.token_urlsafe(32)
        self._envelope_key = self._identity.envelope_key if self._identity else masks.new_secret()
        self._session = ""
        self._names: tuple[str, ...] = ()
        self._sealing: dict[str, bytes] = {}

    def enrol(self) -> None:
        """Join, wait for the others, and learn who the neighbours are."""
        agreement = self._agreement
        enrolment = Enrolment(
            self.node,
            agreement.fingerprint,
            masks.public_part(self._envelope_key),
            self._sign(*enrolment_words(self.node, self._token)),
        )
        found = self._connection.post(enrolment, Neighbours, "enrolment", token=self._token)
        if found.agreement != agreement.fingerprint:
            raise InputError("The server trains under another agreement than this node's; nothing was sent.")
        names, envelope_keys = found.names, found.envelope_keys
        if agreement.keys:
            names = tuple(agreement.neighbours[self.node])
            envelope_keys = {name: envelope_part(agreement.keys[name]) for name in names}
        if len(set(names) - {self.node}) != agreement.graph.degree:
            raise HushrecError("The server gave this node another number of neighbours than was agreed.")
        self._session, self._names = found.session, names
        if self._ledger is not None:
            rest = [
                release
                for index, release in enumerate(agreement.plan.releases)
                if not self._ledger.charged(self._dataset, self._session, index)
            ]
            self._ledger.check(self._dataset, rest)
        envelope_key = masks.private_key(self._envelope_key)
        for name in names:
            purpose = masks.envelope_purpose(found.session, self.node, name)
            self._sealing[name] = masks.agree(envelope_key, envelope_keys[name], purpose)

    def total(self, index: int, label: str, integers: masks.Words, noise_sd: Array) -> masks.Words:
        """Add up one release with all other nodes; who drops out of it fetches what the others got."""
        try:
            if self._ledger is None or not self._ledger.charged(self._dataset, self._session, index):
                return self._add(index, label, integers, noise_sd)
        except RefusedError as refused:
            if refused.status != LATE:
                raise
        return self._connection.get(Sum, "total", str(index), self.node, token=self._token).values

    def _add(self, index: int, label: str, integers: masks.Words, noise_sd: Array) -> masks.Words:
        """The steps of a release."""
        threshold = self._agreement.graph.threshold
        key, seed = masks.new_secret(), masks.new_secret()
        shares = zip(
            masks.split(seed, len(self._names), threshold),
            masks.split(key, len(self._names), threshold),
            strict=True,
        )
        sealed = {
            name: masks.seal(self._sealing[name], index, self.node, name, one + other)
            for name, (one, other) in zip(self._names, shares, strict=True)
        }
        public = masks.public_part(key)
        prepared = Prepared(self.node, public, sealed, self._sign("prepared", index, self.node, public.hex()))
        envelopes = self._post(prepared, Envelopes, "prepared", index)
        present = self._among_neighbours(envelopes.mask_keys)
        for name in present:
            self._verify(envelopes.signatures, name, "prepared", index, name, envelopes.mask_keys[name].hex())
        held = {
            name: masks.unseal(self._sealing[name], index, name, self.node, envelopes.shares[name])
            for name in present
        }
        agreed = masks.private_key(key)
        pairs = [
            (name, masks.agree(agreed, envelopes.mask_keys[name], self._purpose(index, name)))
            for name in present
        ]
        met = "".join(str(int(name in held)) for name in self._names) if self._identity else ""
        # the charge is durable: only now may noise be drawn, and the sum leave under its masks
        self._charge(index)
        hidden = integers + grid_noise(self._noise, noise_sd, label)
        hidden += masks.pairwise_total(self.node, pairs, len(hidden))
        masks.add_stream(hidden, seed)
        masked = Masked(self.node, hidden, met, self._sign("masked", index, self.node, met))
        survivors = self._post(masked, Survivors, "masked", index)
        alive, dropped = self._among_neighbours(survivors.alive), self._among_neighbours(survivors.dropped)
        if self._identity:
            alive, dropped = self._agree_on(survivors, index, held)
        if set(alive) & set(dropped) or not set(alive) | set(dropped) <= held.keys():
            raise HushrecError("The server asks for shares that would open a node's contribution; refused.")
        if len(alive) < threshold:
            raise HushrecError("Too few neighbours of this node are left; the training cannot go on.")
        unmasking = Unmasking(
            self.node,
            seed,
            {name: held[name][:32] for name in alive},
            {name: held[name][32:] for name in dropped},
        )
        return self._post(unmasking, Sum, "unmasking", index).values

    def _agree_on(
        self, survivors: Survivors, index: int, held: Mapping[str, bytes]
    ) -> tuple[list[str], list[str]]:
        """Neighbours in the total and not: after more than half the nodes signed the same list of all."""
        agreement, everybody = self._agreement, set(survivors.everybody)
        if self.node not in everybody or not everybody <= agreement.keys.keys():
            raise HushrecError("The server counts nodes that are not registered, or not this one; refused.")
        if len(everybody) < agreement.fewest:
            raise HushrecError("The server would open a total of fewer nodes than was agreed; refused.")
        alive = self._among_neighbours(everybody)
        for name in alive:
            met = survivors.met.get(name, "")
            self._verify(survivors.signatures, name, "masked", index, name, met)
            around = agreement.neighbours[name]
            without = [other for other, bit in zip(around, met, strict=False) if bit != "1"]
            if len(met) != len(around) or everybody & set(without):
                raise HushrecError("A node in the total shares no mask with a neighbour in it; refused.")
        words: tuple[str | int, ...] = ("agreed", index, *sorted(everybody))
        quorum = self._post(Agreed(self.node, self._sign(*words)), Quorum, "agreed", index)
        signers = everybody & quorum.signatures.keys()
        if len(signers) < agreement.quorum:
            raise HushrecError("Too few nodes agree on who is in the total; refused.")
        for name in signers:
            self._verify(quorum.signatures, name, *words)
        return alive, [name for name in self._among_neighbours(held) if name not in everybody]

    def _charge(self, index: int) -> None:
        """Charge the node's own ledger for a release, and with the first for the neighbour graph."""
        if self._ledger is not None:
            release = self._agreement.plan.releases[index]
            self._ledger.charge(self._dataset, self._session, release, step=index, failure=FAILURE)

    def _sign(self, *words: str | int) -> bytes:
        if self._identity is None:
            return b""
        return self._identity.sign(self._agreement.fingerprint, self._session, *map(str, words))

    def _verify(self, signatures: Mapping[str, bytes], name: str, *words: str | int) -> None:
        if self._identity is None:
            return
        signature, key = signatures.get(name, b""), self._agreement.keys[name]
        if not signed(key, signature, self._agreement.fingerprint, self._session, *map(str, words)):
            raise HushrecError(f"What the server says of node {name!r} is not signed by it; refused.")

    def _among_neighbours(self, names: Iterable[str]) -> list[str]:
        wanted = set(names)
        return [name for name in self._names if name in wanted]

    def _purpose(self, index: int, name: str) -> bytes:
        return masks.pair_purpose(self._session, index, self.node, name)

    def _post(self, message: Message, kind: type[Kind], step: str, index: int) -> Kind:
        return self._connection.post(message, kind, step, str(index), token=self._token)
