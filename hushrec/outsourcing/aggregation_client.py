"""A node of a private training: trains on its own users, through sums seen in total and noisy only.

Protocol: Bonawitz et al. 2017 for an honest-but-curious server, with the sparse neighbour graph of Bell et
al. 2020. Each release has fresh keys, since what a dropout gives away must not open an earlier one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from hushrec.algorithms import Billboard
from hushrec.data import Ratings
from hushrec.errors import HushrecError, InputError
from hushrec.outsourcing import masks
from hushrec.outsourcing.agreement import Agreement, grid_noise
from hushrec.outsourcing.messages import (
    Enrolment,
    Envelopes,
    Kind,
    Masked,
    Message,
    Neighbours,
    Prepared,
    Sum,
    Survivors,
    Unmasking,
)
from hushrec.outsourcing.transport import Connection, RefusedError
from hushrec.privacy.noise import GeneratorNoise, SystemNoise

#: HTTP code for "this release goes on without you".
LATE = 409


def take_part(
    connection: Connection,
    agreement: Agreement,
    ratings: Ratings,
    *,
    node: str,
    noise: GeneratorNoise | None = None,
) -> Billboard:
    """Take part in one private training; every node ends with the same billboard.

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
    noise : GeneratorNoise, optional
        For tests; makes the statement say NOT PRIVATE.

    Returns
    -------
    Billboard
        With the privacy statement of the whole training.

    Raises
    ------
    HushrecError
        The server refused, went away, or too few nodes are left. Nothing but what was released is known.
    """
    agreement.check(ratings)
    member = Member(connection, agreement, node, noise or SystemNoise())
    member.enrol()
    return agreement.train(ratings, member.total, secure=noise is None)


class Member:
    """One node's part of the protocol.

    Parameters
    ----------
    connection, agreement, node
        As in :func:`take_part`.
    noise : GeneratorNoise
    """

    def __init__(
        self, connection: Connection, agreement: Agreement, node: str, noise: GeneratorNoise
    ) -> None:
        self.node = node
        self._connection, self._agreement, self._noise = connection, agreement, noise
        self._token = secrets.token_urlsafe(32)
        self._envelope_key = masks.new_secret()
        self._session = ""
        self._names: tuple[str, ...] = ()
        self._sealing: dict[str, bytes] = {}

    def enrol(self) -> None:
        """Join, wait for the others, and learn who the neighbours are."""
        agreement = self._agreement
        enrolment = Enrolment(self.node, agreement.fingerprint, masks.public_part(self._envelope_key))
        found = self._connection.post(enrolment, Neighbours, "enrolment", token=self._token)
        if found.agreement != agreement.fingerprint:
            raise InputError("The server trains under another agreement than this node's; nothing was sent.")
        if len(set(found.names) - {self.node}) != agreement.graph.degree:
            raise HushrecError("The server gave this node another number of neighbours than was agreed.")
        self._session, self._names = found.session, found.names
        envelope_key = masks.private_key(self._envelope_key)
        for name in found.names:
            purpose = masks.envelope_purpose(found.session, self.node, name)
            self._sealing[name] = masks.agree(envelope_key, found.envelope_keys[name], purpose)

    def total(self, index: int, label: str, integers: masks.Words, noise_sd: float) -> masks.Words:
        """Add up one release with all other nodes; who drops out of it fetches what the others got."""
        noisy = integers + grid_noise(self._noise, len(integers), noise_sd, label)
        try:
            return self._add(index, noisy)
        except RefusedError as refused:
            if refused.status != LATE:
                raise
            return self._connection.get(Sum, "total", str(index), self.node, token=self._token).values

    def _add(self, index: int, noisy: masks.Words) -> masks.Words:
        """The three steps of a release."""
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
        envelopes = self._post(
            Prepared(self.node, masks.public_part(key), sealed), Envelopes, "prepared", index
        )
        present = self._among_neighbours(envelopes.mask_keys)
        held = {
            name: masks.unseal(self._sealing[name], index, name, self.node, envelopes.shares[name])
            for name in present
        }
        agreed = masks.private_key(key)
        pairs = [
            (name, masks.agree(agreed, envelopes.mask_keys[name], self._purpose(index, name)))
            for name in present
        ]
        hidden = noisy + masks.pairwise_total(self.node, pairs, len(noisy))
        masks.add_stream(hidden, seed)
        survivors = self._post(Masked(self.node, hidden), Survivors, "masked", index)
        alive, dropped = self._among_neighbours(survivors.alive), self._among_neighbours(survivors.dropped)
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

    def _among_neighbours(self, names: Iterable[str]) -> list[str]:
        wanted = set(names)
        return [name for name in self._names if name in wanted]

    def _purpose(self, index: int, name: str) -> bytes:
        return masks.pair_purpose(self._session, index, self.node, name)

    def _post(self, message: Message, kind: type[Kind], step: str, index: int) -> Kind:
        return self._connection.post(message, kind, step, str(index), token=self._token)
