"""The agreement of nodes and server on a private training, and the gate that both train through.

Every node runs the estimator's own training loop on its own few users, and the server runs it on none: what
they hand to the gate is summed over the nodes by secure aggregation, what comes back is the same noisy total
for all. So each computes every public step alike, and no algorithm has to be written again.

Proofs: docs/proofs/secure-aggregation.md.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from hushrec.checks import check_numbers, settings_of
from hushrec.data import Domain, Ratings
from hushrec.engines.secure.gate import LARGEST_MULTIPLIER, SecureGate, Total
from hushrec.engines.secure.graph import FAILURE, Graph, choose_graph, circle
from hushrec.errors import InputError
from hushrec.kernels.threads import one_blas_thread
from hushrec.network.messages import check, check_name
from hushrec.privacy import Accountant, Budget, Gaussian, Plan, PrivacyStatement, Release
from hushrec.privacy.statement import library_version
from hushrec.serving.billboard import Billboard
from hushrec.training import run
from hushrec.training.estimator import Estimator


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The settings of one private training; node and server compare its fingerprint.

    Attributes
    ----------
    estimator : Estimator
    budget : Budget
    domain : Domain
        Declared; item features belong to it.
    n_nodes : int
        Who takes part; this is public.
    dropouts : float
        Part of the nodes that may drop out of any one release, below 1/2.
    colluding : int
        Nodes that may tell the server all they know: noise is sized, and the neighbour graph chosen, so that
        the promise holds against them together.
    nodes_per_user : int
        With how many nodes one user may be (a patient of two clinics): each of them contributes up to the
        sensitivity of a release, so that many times the noise is drawn.
    keys : mapping of str to bytes
        The nodes that take part, by name, with what each registered (``Identity.public``). Then nodes sign
        what they send, and the promise holds against a server that does not follow the protocol. Without,
        anybody may enrol.
    seed : int
        Of initialisation and sampling.

    Privacy
    -------
    Unit: user, with up to ``nodes_per_user`` nodes. Relation: a user is replaced by empty contributions (the
    sensitivities of "add-remove"), since which nodes take part is public. Of delta 2^-39 is reserved for the
    neighbour graph, and noise is sized for the rest. Every release has at least the planned noise from nodes
    that neither dropped out nor collude; the adversary, an honest-but-curious server with ``colluding``
    nodes, sees nothing else but for cryptographic assumptions (docs/guides/secure-aggregation.md).

    Examples
    --------
    >>> from hushrec.engines.secure.agreement import Agreement
    >>> estimator, budget = hushrec.ItemBias(), hushrec.Budget(5, 1e-6)
    >>> ratings = hushrec.realistic(40, 10, 300, seed=0)
    >>> agreement = Agreement(
    ...     estimator=estimator, budget=budget, domain=ratings.domain, n_nodes=4, dropouts=0.25
    ... )
    >>> agreement.fewest                                          # nodes that must stay
    3
    """

    estimator: Estimator
    budget: Budget
    domain: Domain
    n_nodes: int
    dropouts: float = 1 / 3
    colluding: int = 0
    nodes_per_user: int = 1
    keys: Mapping[str, bytes] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.dropouts < 0.5 or self.n_nodes < 3:
            raise InputError("A private training needs at least 3 nodes and dropouts from 0 to below 1/2.")
        if self.budget.relation != "add-remove" or self.budget.unit != "user":
            raise InputError("Secure aggregation protects unit 'user' under relation 'add-remove'.")
        if self.budget.private and not self.domain.declared:
            raise InputError(
                "The catalogue and rating range of this domain were read from ratings, which leaks them;"
                " declare Domain(items=..., rating_range=(low, high))."
            )
        if not 0 <= self.colluding < self.fewest - 1:
            raise InputError(
                f"colluding={self.colluding} must be from 0 to {self.fewest - 2}: at least two nodes that"
                " neither drop out nor collude are needed."
            )
        check_numbers(nodes_per_user=(self.nodes_per_user, int, f"[1, {self.n_nodes}]"))
        if self.keys:
            self._check_keys()
        if self.budget.delta <= FAILURE:
            raise InputError(
                f"delta = {self.budget.delta:g} is not above 2^-39 = {FAILURE:.3g}, the chance that the"
                " neighbour graph does not hide a sum; declare a larger delta."
            )
        if not all(isinstance(release.mechanism, Gaussian) for release in self.sent.releases):
            raise InputError(
                f"{self.estimator.name} has releases that are not Gaussian; shares of those do not add."
            )
        self.plan.check()
        if any(release.mechanism.noise_sd(1.0) > LARGEST_MULTIPLIER for release in self.sent.releases):
            raise InputError(
                f"A release would get noise of more than {LARGEST_MULTIPLIER:,.0f} times its sensitivity, for"
                " which nodes' sums have no room, and nothing is learned from it; declare a larger epsilon."
            )

    def _check_keys(self) -> None:
        if len(self.keys) != self.n_nodes or len(set(self.keys.values())) != self.n_nodes:
            raise InputError(f"keys must hold {self.n_nodes} nodes with a key of its own each.")
        for name, key in self.keys.items():
            check_name(name)
            check(len(key) == 64, f"What node {name!r} registered has {len(key)} bytes and not 64.")
        if self.quorum > self.fewest:
            raise InputError(
                f"With {self.n_nodes - self.fewest} of {self.n_nodes} nodes gone the others cannot agree on"
                " who is in a total; lower dropouts or colluding."
            )

    @property
    def quorum(self) -> int:
        """Signatures that no two different lists of nodes can both have: honest nodes sign one only."""
        return (self.n_nodes + self.colluding) // 2 + 1

    @cached_property
    def neighbours(self) -> dict[str, list[str]]:
        """The neighbours of every registered node, on a circle by hashes, which no server arranges."""
        order = sorted(
            self.keys, key=lambda name: hashlib.sha256(f"{self.fingerprint} {name}".encode()).digest()
        )
        return circle(order, self.graph.degree)

    @property
    def fewest(self) -> int:
        """Nodes that every release needs; with fewer the training stops and nothing more is told."""
        return self.n_nodes - math.floor(self.dropouts * self.n_nodes + 1e-9)

    @cached_property
    def promise(self) -> Budget:
        """The budget, with the chance that the neighbour graph fails reserved."""
        return replace(self.budget, failure=FAILURE)

    @cached_property
    def sent(self) -> Plan:
        """The releases, with the sensitivity of what one node contributes for a user: its share of mu^2."""
        return self.estimator.releases(self.promise, self.domain, 1 / self.nodes_per_user**2)

    @cached_property
    def plan(self) -> Plan:
        """The releases, with the sensitivity of a user with all their nodes."""
        return Plan(self.promise, [_per_user(release, self.nodes_per_user) for release in self.sent.releases])

    @cached_property
    def graph(self) -> Graph:
        """The number of a node's neighbours, and how many of their shares open a secret."""
        dropouts = self.n_nodes - self.fewest
        releases = len(self.plan.releases)
        return choose_graph(self.n_nodes, dropouts, self.colluding, releases, active=bool(self.keys))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all attributes, of the item features and of the library's version."""
        estimator = {"name": self.estimator.name, **settings_of(self.estimator)}
        budget = [self.budget.epsilon, self.budget.delta, self.budget.unit, self.budget.relation]
        nodes = [self.n_nodes, self.dropouts, self.colluding, self.nodes_per_user, self.seed]
        keys = {name: key.hex() for name, key in self.keys.items()}
        public = [estimator, budget, identity_of(self.domain), nodes, keys, library_version()]
        text = json.dumps(public, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def check(self, ratings: Ratings) -> None:
        """Refuse rows that this training cannot be made on; a node does so before it enrols."""
        if identity_of(ratings.domain) != identity_of(self.domain):
            raise InputError(
                "These ratings were read over another domain than the agreement's; read them with its"
                " catalogue, rating range, cap and item features."
            )
        run.check_users(ratings, Accountant(self.budget))

    def train(self, ratings: Ratings, total: Total, *, secure: bool = True) -> Billboard:
        """Run the estimator's training with totals over all nodes in place of its own sums.

        Parameters
        ----------
        ratings : Ratings
            The rows of this node's users; none for the server. Rows without ratings are left out, so that
            they contribute nothing.
        total : callable
            Adds up over the nodes.
        secure : bool
            False where noise was injected for a test: the statement then says NOT PRIVATE.
        """
        self.check(ratings)

        accountant = Accountant(self.promise)
        run.check(self.estimator, ratings, accountant, self.seed)
        with one_blas_thread():
            users = self.estimator.users(ratings.rated())
            gate = SecureGate(self.sent, self.fewest - self.colluding, total)
            parts = self.estimator.train(users, gate, self.seed)
        statement = self._statement(run.statement(self.estimator, ratings, accountant), secure)
        return Billboard.of(self.estimator, self.domain, parts, statement)

    def _statement(self, privacy: PrivacyStatement, secure: bool) -> PrivacyStatement:
        """Return the statement of an accountant that released nothing, with what the nodes released."""
        server = "" if self.keys else "an honest-but-curious server, and "
        public = (
            *privacy.public,
            f"which of the {self.n_nodes} nodes took part (so a user is replaced by an empty contribution)",
            f"no user is with more than {self.nodes_per_user} of the nodes",
            f"trusted: {server}all but {self.colluding} nodes",
        )
        injected = () if secure else ("the noise came from an injected source",)
        return replace(
            privacy,
            releases=self.plan.releases,
            public=public,
            notes=(*privacy.notes, "delta holds 2^-39 for the chance that the neighbour graph hides no sum"),
            reasons=(*injected, *privacy.reasons),
            secure_noise=secure,
            exact_noise=secure,
        )


def _per_user(release: Release, nodes: int) -> Release:
    """The same noise, in units of the sensitivity of a user with so many nodes."""
    sent: Any = release.mechanism
    mechanism = Gaussian(sent.noise_multiplier / nodes)
    return replace(release, mechanism=mechanism, sensitivity=nodes * release.sensitivity)


def identity_of(domain: Domain) -> list[Any]:
    """All that a training reads of a domain."""
    features = domain.item_features
    if features is None:
        return [domain.fingerprint]
    return [domain.fingerprint, *features.shape, hashlib.sha256(features.tobytes()).hexdigest()]
