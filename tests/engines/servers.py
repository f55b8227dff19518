"""A training over two servers in this process: servers that may be killed, nodes, and all messages."""

import contextlib
import hashlib
import shutil
import tempfile
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from hushrec.engines.two_servers.agreement import Agreement
from hushrec.errors import HushrecError
from hushrec.network.messages import from_json
from hushrec.privacy import Budget
from hushrec.privacy.testing import SeededNoise

server = pytest.importorskip("hushrec.engines.two_servers.server", exc_type=ImportError)
node = pytest.importorskip("hushrec.engines.two_servers.node", exc_type=ImportError)

PEER = "p" * 32


class KeptNoise(SeededNoise):
    """Keeps its draws, by label; NOT PRIVATE."""

    def __init__(self, seed):
        super().__init__(seed)
        self.drawn = {}

    def rounded_gaussian(self, sd, label):
        self.drawn[label] = super().rounded_gaussian(sd, label)
        return self.drawn[label]


class Line:
    """A way to a server, which may be replaced; everything that went over it is kept."""

    def __init__(self):
        self.server, self.said, self.taken = None, [], []

    def get(self, kind, *path, token="", most=None):
        answer = self.server.answer("GET", list(path), token, b"")
        self.said.append((path, answer.to_json()))
        return from_json(kind, answer.to_json())

    def post(self, content, kind, *path, token=""):
        self.said.append((path, content))
        answer = self.server.answer("POST", list(path), token, content)
        self.taken.append((path, content))  # what was not refused
        return from_json(kind, answer.to_json())


class Deaf(Line):
    """A way to a server on which shares are lost."""

    def post(self, content, kind, *path, token=""):
        raise HushrecError("lost")


class World:
    """Two servers and a node for each user, or nodes with these ratings.

    ``ledgers`` and ``noises`` are those of the first and the second server.
    """

    def __init__(
        self,
        estimator,
        ratings,
        *,
        nodes=(),
        ledgers=(None, None),
        noises=(None, None),
        deadline=1e9,
        **agreed,
    ):
        self.nodes = nodes or [ratings.rows([number], keyed=True) for number in range(ratings.n_users)]
        self.folder = Path(tempfile.mkdtemp(dir=_fast()))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.agreement = Agreement(
            estimator=estimator, budget=Budget(5, 1e-6), domain=ratings.domain, seed=4, **agreed
        )
        self.names = [f"node {number}" for number in range(len(self.nodes))]
        self.lines, self.peers = [Line(), Line()], [Line(), Line()]  # for nodes, and for the other server
        self.ledgers, self.noises, self.deadline = ledgers, noises, deadline
        self.public = node.Public(self.agreement)
        for place in (0, 1):
            self.start(place)

    def start(self, place, folder=None, **changes):
        """Start a server, or start it again; with other settings, or another agreement."""
        digests = {name: hashlib.sha256(self.token(name, place).encode()).hexdigest() for name in self.names}
        role = server.ROLES[place]
        settings = server.Settings(role=role, nodes=digests, peer_token=PEER, deadline=self.deadline)
        agreement, settings = changes.pop("agreement", self.agreement), replace(settings, **changes)
        rest = self.ledgers[place], self.peers[1 - place], self.noises[place]
        if self.lines[place].server is not None:
            self.lines[place].server.close()  # as the end of its process does
        one = server.CollectingServer(agreement, settings, folder or self.folder / role, *rest)
        self.lines[place].server = self.peers[place].server = one

    def token(self, name, place):
        return f"{name} at {place}"

    def answer(self, number, **changes):
        """Let a node do its next step."""
        name = self.names[number]
        given = {"servers": self.lines, "public": self.public, "ratings": self.nodes[number]}
        given |= {
            "tokens": [self.token(name, place) for place in (0, 1)],
            "ledger": None,
            "dataset": "default",
        }
        given |= {"name": name, "folder": self.folder / name} | changes
        who = node.Node(**{key: given.pop(key) for key in ("name", "tokens", "folder", "ledger", "dataset")})
        return node.contribute(**given, node=who)

    def settle(self):
        """Let the servers take all possible steps."""
        while sum(line.server.step() for line in self.lines):
            pass

    def train(self, lost=(), half=()):
        """Run the training to its end; the model. Some nodes are lost, some reach the first server only."""
        deaf = Deaf()
        for _ in range(100):
            self.settle()
            models = [line.server.model for line in self.lines]
            if None not in models:
                assert models[0].to_bytes() == models[1].to_bytes()
                return models[0]
            deaf.server = self.lines[1].server
            for number in set(range(len(self.names))) - {*lost}:
                with contextlib.suppress(*[HushrecError] * (number in half)):
                    self.answer(number, **({"servers": [self.lines[0], deaf]} if number in half else {}))
            self.pass_time()
        raise AssertionError("the training does not end")

    def pass_time(self):
        """Let every open round be past its deadline."""
        for line in self.lines:
            if (collecting := line.server._progress.collecting) is not None:
                collecting.since = -1e12


def _fast():
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
