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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

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
from hushrec.network.messages import Message, Refusal, check_token, from_json
from hushrec.serving.billboard import Billboard

_WITHOUT = "This release goes on without this node."


@dataclass
class _Step:
    """One step of one release: who is expected, who has come, and since when nobody has."""

    expected: set[str]
    fewest: int
    sent: dict[str, Any] = field(default_factory=dict)
    closed: bool = False
    opened: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)


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

    Examples
    --------
    >>> from hushrec.engines.secure.agreement import Agreement
    >>> from hushrec.engines.secure.server import AggregationServer
    >>> from hushrec.network.service import Service
    >>> estimator, budget = hushrec.ItemBias(), hushrec.Budget(5, 1e-6)
    >>> ratings = hushrec.realistic(40, 10, 300, seed=0)
    >>> agreement = Agreement(
    ...     estimator=estimator, budget=budget, domain=ratings.domain, n_nodes=4, dropouts=0.25
    ... )
    >>> server = AggregationServer(agreement)
    >>> with Service(server.answer) as service:                   # then: model = server.train()
    ...     service.url.startswith("http://127.0.0.1:")
    True
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
        self._replies: dict[str, tuple[type[Any], Callable[[Any, int], Message]]] = {
            "prepared": (Prepared, self._prepare),
            "masked": (Masked, self._mask),
            "agreed": (Agreed, self._agree),
            "unmasking": (Unmasking, self._unmask),
        }
        if not agreement.keys:
            del self._replies["agreed"]
        self._steps: dict[tuple[str, int], _Step] = {}
        self._tokens: dict[str, str] = {}
        self._neighbours: dict[str, list[str]] = {}
        self._present: set[str] = set()
        self._sums: dict[int, Sum] = {}
        self._trouble = ""

    def train(self) -> Billboard:
        """Wait for the nodes, train, and return the billboard; raises HushrecError where too few are left."""
        nobody = Ratings.from_any(([], [], []), self.agreement.domain)
        return self.agreement.train(nobody, lambda index, *_: self._total(index).values)

    def answer(self, method: str, path: list[str], token: str, body: bytes) -> Message:
        """Reply to one request (see `hushrec.network.service`)."""
        match method, path:
            case "POST", ["enrolment"]:
                return self._enrol(from_json(Enrolment, body), token)
            case "POST", [step, index] if step in self._replies:
                kind, reply = self._replies[step]
                message = from_json(kind, body)
                self._check_token(message.node, token)
                return reply(message, self._index(index))
            case "GET", ["total", index, node]:
                self._check_token(node, token)
                total = self._total(self._index(index), self._hold)
                with self._lock:
                    self._present.add(node)
                return total
        raise Refusal(404, "There is no such page.")

    def _index(self, text: str) -> int:
        if not text.isdecimal() or len(text) > 9 or int(text) >= len(self.agreement.plan.releases):
            raise Refusal(404, "There is no such release.")
        return int(text)

    def _check_token(self, node: str, token: str) -> None:
        if not hmac.compare_digest(self._tokens.get(node, "").encode(), token.encode()) or not token:
            raise Refusal(403, "This token is not that of this node.")

    # ---- steps

    def _enrol(self, enrolment: Enrolment, token: str) -> Neighbours:
        agreement, node = self.agreement, enrolment.node
        if enrolment.agreement != agreement.fingerprint:
            raise Refusal(403, "This server trains under another agreement.")
        self._check_signature(enrolment, token)
        check_token(token)
        with self._lock:
            if node not in self._tokens and len(self._tokens) >= agreement.n_nodes:
                raise Refusal(403, f"All {agreement.n_nodes} nodes have enrolled.")
            if agreement.keys:  # a node that was started anew is itself again
                self._tokens[node] = token
                enrolment = self._step("enrolment", 0, node).sent.get(node, enrolment)
            self._tokens.setdefault(node, token)
        self._check_token(node, token)
        sent = self._gather("enrolment", 0, enrolment, self._introduce)
        names = tuple(self._neighbours[node])
        keys = {name: sent[name].envelope_key for name in names}
        return Neighbours(self.session, agreement.fingerprint, names, keys)

    def _check_signature(self, enrolment: Enrolment, token: str) -> None:
        """Refuse a name to who has not its key, where keys are registered."""
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
        node = prepared.node
        if prepared.shares.keys() != set(self._neighbours.get(node, ())):
            raise InputError("A node sends a share to each neighbour.")
        sent = self._gather("prepared", index, prepared)
        around = {name: sent[name] for name in self._neighbours[node] if name in sent}
        return Envelopes(
            {name: other.mask_key for name, other in around.items()},
            {name: other.shares[node] for name, other in around.items()},
            {name: other.signature for name, other in around.items()},
        )

    def _mask(self, masked: Masked, index: int) -> Survivors:
        sent = self._gather("masked", index, masked)
        prepared = self._steps["prepared", index].sent
        names = [name for name in self._neighbours[masked.node] if name in prepared]
        alive, dropped = (tuple(name for name in names if (name in sent) == there) for there in (True, False))
        if not self.agreement.keys:
            return Survivors(alive, dropped)
        met = {name: sent[name].met for name in alive}
        return Survivors(alive, dropped, tuple(sorted(sent)), met, _signatures(sent, alive))

    def _agree(self, agreed: Agreed, index: int) -> Quorum:
        sent = self._gather("agreed", index, agreed)
        return Quorum(_signatures(sent, sent))

    def _unmask(self, unmasking: Unmasking, index: int) -> Sum:
        self._gather("unmasking", index, unmasking, lambda sent: self._open(index, sent))
        return self._sums[index]

    def _open(self, index: int, unmaskings: dict[str, Any]) -> None:
        """The total of a release: the masked vectors, less what does not cancel."""
        prepared, masked = self._steps["prepared", index].sent, self._steps["masked", index].sent
        sizes = {len(message.values) for message in masked.values()}
        if len(sizes) != 1 or len({message.state for message in prepared.values()}) != 1:
            raise HushrecError(
                "The nodes disagree about what was released before, or round differently; the training stops."
            )
        total = np.zeros(sizes.pop(), dtype=np.uint64)
        for name, message in masked.items():
            total += message.values
            seed = unmaskings[name].seed if name in unmaskings else self._secret(name, "seeds", unmaskings)
            masks.add_stream(total, seed, negative=True)
        for name in prepared.keys() - masked.keys():
            key = self._secret(name, "keys", unmaskings)
            theirs = {other: prepared[other].mask_key for other in self._neighbours[name] if other in masked}
            seeds = masks.pair_keys(
                key, name, theirs, "hushrec mask", self.session, index, prepared[name].state
            )
            total += masks.pairwise_total(name, seeds, len(total))
        self._sums[index] = Sum(total)
        self._present = set(unmaskings)

    def _secret(self, name: str, kind: str, unmaskings: dict[str, Any]) -> bytes:
        """A node's seed or key, from its neighbours' shares."""
        given = {
            place: getattr(unmaskings[other], kind)[name]
            for place, other in enumerate(self._neighbours[name], 1)
            if other in unmaskings and name in getattr(unmaskings[other], kind)
        }
        threshold = self.agreement.graph.threshold
        if len(given) < threshold:
            raise HushrecError("Too few neighbours of a node are left to open the total.")
        return masks.join(dict(islice(given.items(), threshold)))

    # ---- waiting

    def _step(self, name: str, index: int, node: str) -> _Step:
        """A step, which begins with its first message: expected is who took part in the step before."""
        order, expected, fewest = list(self._replies), set[str](), self.agreement.fewest
        if name == "enrolment":
            fewest = self.agreement.n_nodes
        elif name == order[0]:
            expected = set(self._present)
        else:
            before = self._steps.get((order[order.index(name) - 1], index))
            if before is None or not before.closed or node not in before.sent:
                raise Refusal(409, _WITHOUT)
            expected = set(before.sent)
        return self._steps.setdefault((name, index), _Step(expected, fewest))

    def _gather(
        self, name: str, index: int, message: Any, then: Callable[[dict[str, Any]], None] | None = None
    ) -> dict[str, Any]:
        """Add a message to a step, wait until the step is over, and return all its messages."""
        with self._lock:
            step = self._step(name, index, message.node)
            known = step.sent.get(message.node)
            if known is None and step.closed:
                raise Refusal(409, _WITHOUT)
            if known is None:
                step.sent[message.node] = message
                step.last = self._last = time.monotonic()
                # the others need not wake: who completes a step closes it
            elif known.to_json() != message.to_json():
                raise Refusal(409, "This node has sent another message in this step already.")
            self._wait(lambda: step.closed or self._close(step, then), self._hold, step.opened)
            return step.sent

    def _close(self, step: _Step, then: Callable[[dict[str, Any]], None] | None) -> bool:
        """End a step if nobody else has to be waited for; whether it is over."""
        silent = time.monotonic() - step.last >= self._quiet
        if len(step.sent) < step.fewest or not (silent or step.expected <= step.sent.keys()):
            return False
        step.closed = True
        try:
            if then is not None:
                then(step.sent)
        except HushrecError as error:
            self._trouble = str(error)
        except Exception as error:  # nobody may wait for ever
            self._trouble = f"The total could not be opened ({type(error).__name__})."
        self._lock.notify_all()
        return True

    def _total(self, index: int, hold: float = math.inf) -> Sum:
        """Wait for the total of a release, as long as nodes are heard of."""
        with self._lock:
            self._wait(lambda: index in self._sums, hold)
            return self._sums[index]

    def _wait(self, over: Callable[[], bool], hold: float, since: float | None = None) -> None:
        """Wait with the lock: until it is over, the node is to ask again, or the training is given up.

        That is when there was nothing new for too long: since a time, or from now on.
        """
        asked = time.monotonic()
        while not self._trouble and not over():
            patience, what = self._enrolment, "Not all nodes have enrolled in time"
            if self._neighbours:
                patience, what = self._patience, "Too few nodes are left"
            now = time.monotonic()
            if now - (max(asked, self._last) if since is None else since) >= patience:
                self._trouble = f"{what}; the training has stopped."
                self._lock.notify_all()
            elif now - asked >= hold:
                raise Refusal(202, "Other nodes are awaited; send the same again.")
            else:
                self._lock.wait(min(self._quiet, 1.0))
        if self._trouble:
            raise Refusal(410, self._trouble)


def _signatures(sent: dict[str, Any], names: Iterable[str]) -> dict[str, bytes]:
    return {name: sent[name].signature for name in names}
