"""The server of a private training: routes keys and shares, adds up masked vectors, unmasks only the total.

It serves

    POST /enrolment                 join; answered when all have joined
    POST /prepared/<release>        fresh key and sealed shares; answered with those of the neighbours
    POST /masked/<release>          masked integers; answered with who is in the total
    POST /agreed/<release>          where keys are registered: who is in the total, signed, and answered so
    POST /unmasking/<release>       shares; answered with the total
    GET  /total/<release>/<node>    the total, for a node that dropped out of the release

Each answer waits until the step is over: when all who are expected have come, or when nobody came for
``quiet`` seconds and enough have. Who comes later is told so, and may come back in the next release. After
``hold`` seconds the answer is 202, and the node sends the same again: no connection need outlast the others.
"""

from __future__ import annotations

import hmac
import math
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hushrec.billboard import Billboard
from hushrec.data import Ratings
from hushrec.engines.secure import masks
from hushrec.engines.secure.agreement import Agreement
from hushrec.engines.secure.graph import circle
from hushrec.engines.secure.identity import enrolment_words, signed
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
from hushrec.network.messages import Kind, Message, Refusal, from_json

_SHORTEST_TOKEN = 32


class AggregationServer:
    """Trains one estimator on the sums of many nodes.

    Parameters
    ----------
    agreement : Agreement
    quiet : float
        Seconds without a message after which a step goes on without those who are missing.
    patience : float
        Seconds after which a step that has too few is given up, and the training with it; as is a training
        in which no node has sent anything new for so long, local computing included.
    enrolment : float
        Likewise before all have enrolled: seconds to wait for the first node, and then for all others.
    hold : float
        Seconds for which a node is kept waiting for an answer; its connection's timeout must be longer.
    """

    def __init__(
        self,
        agreement: Agreement,
        *,
        quiet: float = 2.0,
        patience: float = 300.0,
        enrolment: float = 3600.0,
        hold: float = 20.0,
    ) -> None:
        self.agreement = agreement
        self.session = secrets.token_hex(16)
        self._quiet, self._patience, self._enrolment, self._hold = quiet, patience, enrolment, hold
        self._last = -math.inf  # when a node sent something new
        self._lock = threading.Condition()
        self._steps: dict[tuple[str, int], _Step] = {}
        self._tokens: dict[str, str] = {}
        self._neighbours: dict[str, list[str]] = {}
        self._present: set[str] = set()
        self._totals: dict[int, masks.Words] = {}
        self._sums: dict[int, Sum] = {}
        self._trouble = ""

    def train(self) -> Billboard:
        """Wait for the nodes, train, and return the billboard; raises HushrecError where too few are left."""
        domain = self.agreement.domain
        nobody = Ratings.from_any(([], [], []), domain)
        return self.agreement.train(nobody, lambda index, label, integers, sd: self._total(index))

    def answer(self, method: str, path: list[str], token: str, body: bytes) -> Message:
        """Reply to one request (see `hushrec.network.service`)."""
        match method, path:
            case "POST", ["enrolment"]:
                return self._enrol(from_json(Enrolment, body), token)
            case "POST", ["prepared", index]:
                prepared = self._sent(Prepared, body, token)
                return self._prepare(prepared, self._index(index))
            case "POST", ["masked", index]:
                return self._mask(self._sent(Masked, body, token), self._index(index))
            case "POST", ["agreed", index]:
                return self._agree(self._sent(Agreed, body, token), self._index(index))
            case "POST", ["unmasking", index]:
                return self._unmask(self._sent(Unmasking, body, token), self._index(index))
            case "GET", ["total", index, node]:
                self._check_token(node, token)
                number = self._index(index)
                self._total(number, self._hold)
                with self._lock:
                    self._present.add(node)
                return self._sums[number]
        raise Refusal(404, "There is no such page.")

    def _index(self, text: str) -> int:
        if not text.isdecimal() or len(text) > 9 or int(text) >= len(self.agreement.plan.releases):
            raise Refusal(404, "There is no such release.")
        return int(text)

    def _sent(self, kind: type[Kind], body: bytes, token: str) -> Kind:
        message = from_json(kind, body)
        self._check_token(message.node, token)  # type: ignore[attr-defined]
        return message

    def _check_token(self, node: str, token: str) -> None:
        if not hmac.compare_digest(self._tokens.get(node, "").encode(), token.encode()) or not token:
            raise Refusal(403, "This token is not that of this node.")

    # ---- steps

    def _enrol(self, enrolment: Enrolment, token: str) -> Neighbours:
        if enrolment.agreement != self.agreement.fingerprint:
            raise Refusal(403, "This server trains under another agreement.")
        self._check_signature(enrolment, token)
        if len(token) < _SHORTEST_TOKEN:
            raise Refusal(401, f"An enrolment needs a bearer token of at least {_SHORTEST_TOKEN} characters.")
        node, n_nodes = enrolment.node, self.agreement.n_nodes
        with self._lock:
            if node not in self._tokens and len(self._tokens) >= n_nodes:
                raise Refusal(403, f"All {n_nodes} nodes have enrolled.")
            if self.agreement.keys:  # a node that was started anew is itself again
                self._tokens[node] = token
            self._tokens.setdefault(node, token)
        self._check_token(node, token)
        step = self._step("enrolment", 0, lambda: None, n_nodes)
        enrolment = step.sent.get(node, enrolment) if self.agreement.keys else enrolment
        sent = self._join(step, node, enrolment, self._introduce)
        names = self._neighbours[node]
        return Neighbours(
            self.session,
            self.agreement.fingerprint,
            tuple(names),
            {name: sent[name].envelope_key for name in names},
        )

    def _check_signature(self, enrolment: Enrolment, token: str) -> None:
        """Where keys are registered, only who has the key may take a name."""
        node, keys = enrolment.node, self.agreement.keys
        words = (self.agreement.fingerprint, "", *enrolment_words(node, token))
        if keys and not (node in keys and signed(keys[node], enrolment.signature, *words)):
            raise Refusal(403, "This enrolment is not signed with the key that is registered for this node.")

    def _introduce(self, sent: dict[str, Any]) -> None:
        """All have enrolled: put them on a circle in random order, which registered keys decide."""
        order = sorted(sent)
        secrets.SystemRandom().shuffle(order)
        if self.agreement.keys:
            self._neighbours = self.agreement.neighbours
        else:
            self._neighbours = circle(order, self.agreement.graph.degree)
        self._present = set(order)

    def _prepare(self, prepared: Prepared, index: int) -> Envelopes:
        if prepared.shares.keys() != set(self._neighbours.get(prepared.node, ())):
            raise InputError("A node sends a share to each neighbour.")
        step = self._step("prepared", index, lambda: set(self._present))
        sent = self._join(step, prepared.node, prepared)
        names = [name for name in self._neighbours[prepared.node] if name in sent]
        return Envelopes(
            {name: sent[name].mask_key for name in names},
            {name: sent[name].shares[prepared.node] for name in names},
            {name: sent[name].signature for name in names},
        )

    def _mask(self, masked: Masked, index: int) -> Survivors:
        prepared = self._over("prepared", index, masked.node)
        step = self._step("masked", index, lambda: set(prepared))
        sent = self._join(step, masked.node, masked)
        names = [name for name in self._neighbours[masked.node] if name in prepared]
        alive, dropped = (tuple(name for name in names if (name in sent) == there) for there in (True, False))
        if not self.agreement.keys:
            return Survivors(alive, dropped)
        return Survivors(
            alive,
            dropped,
            tuple(sorted(sent)),
            {name: sent[name].met for name in alive},
            {name: sent[name].signature for name in alive},
        )

    def _agree(self, agreed: Agreed, index: int) -> Quorum:
        masked = self._over("masked", index, agreed.node)
        step = self._step("agreed", index, lambda: set(masked))
        sent = self._join(step, agreed.node, agreed)
        return Quorum({name: message.signature for name, message in sent.items()})

    def _unmask(self, unmasking: Unmasking, index: int) -> Sum:
        before = self._over("agreed" if self.agreement.keys else "masked", index, unmasking.node)
        step = self._step("unmasking", index, lambda: set(before))
        self._join(step, unmasking.node, unmasking, lambda sent: self._open(index, sent))
        self._total(index)
        return self._sums[index]

    def _open(self, index: int, unmaskings: dict[str, Any]) -> None:
        """The total of a release: the masked vectors, less what does not cancel."""
        prepared, masked = self._steps["prepared", index].sent, self._steps["masked", index].sent
        sizes = {len(message.values) for message in masked.values()}
        if len(sizes) != 1:
            raise HushrecError("The nodes' contributions differ in length.")
        size = sizes.pop()
        total = np.zeros(size, dtype=np.uint64)
        for name, message in masked.items():
            total += message.values
            seed = unmaskings[name].seed if name in unmaskings else self._secret(name, "seeds", unmaskings)
            masks.add_stream(total, seed, negative=True)
        for name in prepared.keys() - masked.keys():
            key = masks.private_key(self._secret(name, "keys", unmaskings))
            pairs = [
                (
                    other,
                    masks.agree(
                        key, prepared[other].mask_key, masks.pair_purpose(self.session, index, name, other)
                    ),
                )
                for other in self._neighbours[name]
                if other in masked
            ]
            total += masks.pairwise_total(name, pairs, size)
        self._sums[index] = Sum(total)
        self._totals[index] = total
        self._present = set(unmaskings)

    def _secret(self, name: str, kind: str, unmaskings: dict[str, Any]) -> bytes:
        """A node's seed or key, from its neighbours' shares."""
        shares = {}
        for place, other in enumerate(self._neighbours[name], 1):
            share = getattr(unmaskings[other], kind).get(name) if other in unmaskings else None
            if share is not None:
                shares[place] = share
            if len(shares) == self.agreement.graph.threshold:
                return masks.join(shares)
        raise HushrecError("Too few neighbours of a node are left to open the total.")

    # ---- waiting

    def _step(
        self, name: str, index: int, expected: Callable[[], set[str] | None], fewest: int | None = None
    ) -> _Step:
        with self._lock:
            if (name, index) not in self._steps:
                who = expected()
                self._steps[name, index] = _Step(who, self.agreement.fewest if fewest is None else fewest)
            return self._steps[name, index]

    def _over(self, name: str, index: int, node: str) -> dict[str, Any]:
        """Messages of a step that is over and that the node took part in."""
        step = self._steps.get((name, index))
        if step is None or not step.closed or node not in step.sent:
            raise Refusal(409, "This release goes on without this node.")
        return step.sent

    def _join(
        self,
        step: _Step,
        node: str,
        message: Message,
        then: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """Add a message to a step, wait until the step is over, and return all its messages."""
        with self._lock:
            asked = time.monotonic()
            if not step.closed and node not in step.sent:
                step.sent[node] = message
                step.last = self._last = asked  # the others need not wake: who completes a step closes it
            elif node not in step.sent:
                raise Refusal(409, "This release goes on without this node.")
            elif step.sent[node].to_json() != message.to_json():
                raise Refusal(409, "This node has sent another message in this step already.")
            while not step.closed and not self._trouble:
                now = time.monotonic()
                if step.complete or (step.enough and now - step.last >= self._quiet):
                    step.closed = True
                    self._settle(step, then)
                elif not self._overdue(step.opened):
                    self._check_hold(asked, self._hold)
                    self._lock.wait(min(self._quiet, 1.0) if step.enough else 1.0)
            self._check_trouble()
            return step.sent

    def _settle(self, step: _Step, then: Callable[[dict[str, Any]], None] | None) -> None:
        try:
            if then is not None:
                then(step.sent)
        except HushrecError as error:
            self._fail(str(error))
        except Exception as error:  # nobody may wait for ever
            self._fail(f"The total could not be opened ({type(error).__name__}).")
        self._lock.notify_all()

    def _total(self, index: int, hold: float = math.inf) -> masks.Words:
        """Wait for the total of a release, as long as nodes are heard of."""
        with self._lock:
            asked = time.monotonic()
            while index not in self._totals and not self._trouble:
                if not self._overdue(max(asked, self._last)):
                    self._check_hold(asked, hold)
                    self._lock.wait(1.0)
            self._check_trouble()
            return self._totals[index]

    def _overdue(self, since: float) -> bool:
        """Give the training up if its nodes have been waited for too long."""
        enrolled = bool(self._neighbours)
        overdue = time.monotonic() - since >= (self._patience if enrolled else self._enrolment)
        if overdue:
            what = "Too few nodes are left" if enrolled else "Not all nodes have enrolled in time"
            self._fail(f"{what}; the training has stopped.")
        return overdue

    def _check_hold(self, asked: float, hold: float) -> None:
        if time.monotonic() - asked >= hold:
            raise Refusal(202, "Other nodes are awaited; send the same again.")

    def _fail(self, sentence: str) -> None:
        self._trouble = sentence
        self._lock.notify_all()

    def _check_trouble(self) -> None:
        if self._trouble:
            raise Refusal(410, self._trouble)


class _Step:
    """One step of one release: who is expected, who has come, and since when nobody has."""

    def __init__(self, expected: set[str] | None, fewest: int) -> None:
        self.expected, self.fewest = expected, fewest
        self.sent: dict[str, Any] = {}
        self.closed = False
        self.opened = self.last = time.monotonic()

    @property
    def enough(self) -> bool:
        """Whether the step may go on without those who are missing."""
        return len(self.sent) >= self.fewest

    @property
    def complete(self) -> bool:
        """Whether all who are expected have come."""
        return self.enough and (self.expected is None or self.expected <= self.sent.keys())
