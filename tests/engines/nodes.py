"""A private training in this process: a server that may lie, nodes in threads, and all that they say to it.

No connection and no clock of the machine: a step is over when its nodes have come, and time passes only while
all nodes wait. So no load makes a node late that is not to be late.
"""

import threading
import time
from collections import defaultdict

import numpy as np
import pytest

from hushrec.engines.secure.agreement import Agreement
from hushrec.engines.secure.messages import Envelopes, Masked, Prepared, Sum, Unmasking
from hushrec.errors import HushrecError, InputError
from hushrec.network.messages import Refusal, from_json
from hushrec.privacy import Budget
from hushrec.privacy.testing import SeededNoise

client = pytest.importorskip("hushrec.engines.secure.client", exc_type=ImportError)
server = pytest.importorskip("hushrec.engines.secure.server", exc_type=ImportError)
identity = pytest.importorskip("hushrec.engines.secure.identity", exc_type=ImportError)


def names_of(n_nodes):
    return [f"n{node}" for node in range(n_nodes)]


def parts_of(ratings, n_nodes):
    """Give every n-th user to a node."""
    node = np.arange(ratings.n_users) % n_nodes
    return {name: ratings.rows(node == place, keyed=True) for place, name in enumerate(names_of(n_nodes))}


def agreement_of(estimator, ratings, n_nodes, epsilon=5.0, **changes):
    settings = {"budget": Budget(epsilon, 1e-6), "domain": ratings.domain, "n_nodes": n_nodes, "seed": 4}
    return Agreement(estimator=estimator, **(settings | changes))


def assert_equal(first, second):
    assert first.arrays.keys() == second.arrays.keys()
    for name, array in first.arrays.items():
        np.testing.assert_array_equal(array, second.arrays[name], err_msg=name)


class Clock:
    """The server's time, which stands still unless every node was told twice to wait."""

    def __init__(self):
        self._now, self._jump, self._told, self._lock = time.monotonic(), 1.0, {}, threading.Lock()

    def monotonic(self):
        if not self._told:  # there is nobody to wait for
            self._now += 1e6
        return self._now

    def moves(self, name):
        """Something new was answered: a node computes, or comes back."""
        with self._lock:
            self._jump, self._told = 1.0, dict.fromkeys(self._told | {name: 0}, 0)

    def waits(self, name):
        with self._lock:
            self._told[name] += 1
            if min(self._told.values()) >= 2:
                self._now, self._jump = self._now + self._jump, 2 * self._jump
                self._told = dict.fromkeys(self._told, 0)

    def leaves(self, name):
        with self._lock:
            self._told.pop(name, None)


class Session:
    """A training.

    ``at`` says by name and (kind of message, release) what a node does there instead of sending it: "gone"
    for ever, started "anew", or "late", when the others have their total. ``told(session, name, reply)`` is
    what the server makes of a reply; ``missing`` nodes never come.
    """

    def __init__(self, agreement, parts, at=None, told=None, *, ledgers=None, identities=None, noise=True,
                 called=None, missing=(), patience=100.0):  # fmt: skip
        self.agreement, self.parts, self.at = agreement, parts, dict(at or {})
        self._told, self._ledgers, self._identities = told, ledgers or {}, identities or {}
        self._noise, self.clock = noise and not ledgers, Clock()
        self.sent, self.paths, self.given, self.results, self.totals = [], [], {}, {}, {}
        self.uncharged, self._over = 0, defaultdict(threading.Event)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(server, "time", self.clock)
            self.server = server.AggregationServer(
                agreement, quiet=0.5, patience=patience, enrolment=200.0, hold=0.0
            )
            self.server.session = called or self.server.session
            self.called = self.server.session
            names = [name for name in parts if name not in missing]
            for name in names:
                self.clock.moves(name)
            threads = [threading.Thread(target=self._node, args=(name,)) for name in names]
            for thread in threads:
                thread.start()
            try:
                self.billboard = self.server.train()
            except HushrecError as error:
                self.billboard = error
            for thread in threads:
                thread.join()

    def _node(self, name):
        number, again = int(name[1:]), True
        while again:
            again = False
            try:
                self.results[name] = client.take_part(
                    Direct(self, name), self.agreement, self.parts[name], node=name,
                    ledger=self._ledgers.get(name), identity=self._identities.get(name),
                    noise=SeededNoise(number) if self._noise else None,
                )  # fmt: skip
            except SystemExit as stopped:
                self.results[name], again = stopped, str(stopped) == "anew"
            except BaseException as error:
                self.results[name] = error
        self.clock.leaves(name)

    def ask(self, name, method, message, path, token):
        body = b"" if message is None else message.to_json()
        self.paths.append((name, *path))
        *place, does = self.at.get(name, (None, None, ""))
        here = [type(message), path[1]] == place if path[1:] else False
        if here and does in ("gone", "anew"):
            del self.at[name]
            raise SystemExit(does)
        if message is not None and path[1:]:
            self.sent.append(((self.called, path[1], name), message))
            if isinstance(message, Masked) and (ledger := self._ledgers.get(name)):
                run = client.run_of(self.agreement, self.called)
                self.uncharged += not ledger.charged("default", run, int(path[1]))
        if here:
            self.clock.leaves(name)
            assert self._over["total", path[1]].wait(60)
            self.clock.moves(name)
        while True:
            try:
                reply = self.server.answer(method, list(path), token, body)
                break
            except Refusal as refusal:
                if refusal.status != 202:
                    self.clock.moves(name)
                    raise Refusal(refusal.status, str(refusal)) from None
                self.clock.waits(name)
                time.sleep(0.002)
            except InputError as error:
                raise Refusal(400, str(error)) from None
        self.clock.moves(name)
        reply = reply if self._told is None else self._told(self, name, reply)
        if isinstance(reply, Envelopes):
            self.given[self.called, path[1], name] = reply.mask_keys
        if isinstance(reply, Sum):
            self.totals[path[1]] = reply.values
            self._over["total", path[1]].set()
            self._over["late", path[1]].set() if path[0] == "total" else None
            if any(one == path[1] and does == "late" for _, one, does in list(self.at.values())):
                assert self._over["late", path[1]].wait(60)  # the others do not go on without it
        return reply

    def of(self, kind, release=0):
        """Messages of one kind by node."""
        wanted = ((key, message) for key, message in self.sent if isinstance(message, kind))
        return {key[2]: message for key, message in wanted if key[1] == str(release)}

    def fewest_opened(self, release):
        """Nodes whose noise hides the smallest sum that the server can compute of what it was sent."""
        names, threshold = list(self.parts), self.agreement.graph.threshold
        here = [(key[2], message) for key, message in self.sent if key[:2] == release]
        masked = {name for name, message in here if isinstance(message, Masked)}
        keys, states = {}, {}
        for name, message in here:
            if isinstance(message, Prepared):
                keys.setdefault(name, set()).add(message.mask_key)
                states[name] = message.state
        told = [message for _, message in here if isinstance(message, Unmasking)]
        seeds = {name for name, message in here if isinstance(message, Unmasking)}
        seeds |= {name for name in names if sum(name in m.seeds for m in told) >= threshold}
        opened = {name for name in names if sum(name in m.keys for m in told) >= threshold}
        free, sums = set(masked & seeds), []
        while free:
            part, queue, hidden = set(), [free.pop()], False
            while queue:
                one = queue.pop()
                part.add(one)
                for other, key in self.given[(*release, one)].items():
                    if one in opened or other in opened or key not in keys.get(other, ()):
                        continue  # the server knows this mask
                    back = self.given.get((*release, other), {}).get(one)
                    if other not in masked & seeds or back not in keys[one] or states[one] != states[other]:
                        hidden = True
                    elif other in free:
                        free.discard(other)
                        queue.append(other)
            sums += [] if hidden else [len(part)]
        return min(sums, default=None)


class Direct:
    """A connection without a network."""

    def __init__(self, session, name):
        self.session, self.name = session, name

    def post(self, message, kind, *path, token=""):
        return from_json(kind, self.session.ask(self.name, "POST", message, path, token).to_json())

    def get(self, kind, *path, token=""):
        return from_json(kind, self.session.ask(self.name, "GET", None, path, token).to_json())
