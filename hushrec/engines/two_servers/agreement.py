"""The agreement of two servers and all nodes, and the rounds that follow from it.

The server's side is a function of the released totals. Each party runs it on no users to find the next
questions with their units and noise, so none trusts another about them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hushrec.checks import check_numbers, settings_of
from hushrec.data import Domain, Ratings
from hushrec.data.ratings import made_up, of_nobody
from hushrec.engines.two_servers.grid import LARGEST_MULTIPLIER
from hushrec.engines.two_servers.replay import (
    Opened,
    Replay,
    Round,
    TotalOf,
    Training,
    Wanted,
    Words,
    integers,
    rehearsal,
)
from hushrec.errors import InputError
from hushrec.kernels.fixed_point import LARGEST_COUNT
from hushrec.privacy import Accountant, Budget, Gaussian, Plan, PrivacyStatement, Release
from hushrec.privacy.statement import two_servers_promise
from hushrec.serving.model import Model
from hushrec.training import run
from hushrec.training.estimator import Estimator
from hushrec.training.trainable import Trainable
from hushrec.types import ModelArrays

#: Limits of docs/proofs/two-servers.md, section 5.
_LARGEST_EPSILON, _SMALLEST_DELTA = 100.0, 1e-100


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The settings of one training over two servers.

    Attributes
    ----------
    budget : Budget
        The promise against either server.
    seed : int
        Seeds initialisation and sampling.
    nodes_per_user : int
        Most nodes that hold ratings of one user. Noise is drawn for a user at all of them.
    users_per_node : int
        Most users of a node, chosen without counting rows. A device has one.
    public : PublicRatings, optional
        Ratings of no node's users, for a part of the lists and a public model of ratings.

    Privacy
    -------
    Unit: user, with all their ratings at up to ``nodes_per_user`` nodes. Relation: a user is replaced by
    empty contributions (the sensitivities of "add-remove"), since which nodes take part is public. A user
    moves one node's sum by the sensitivity of :attr:`sent` at most, and all sums by ``nodes_per_user`` times
    that. The budget holds against one server that does anything, with any nodes, by the noise of the other
    one. All others face the noise of both (:attr:`promises`). Shares are AES-256 in counter mode, so both are
    computational. Against both servers together nothing is promised. Proof: docs/proofs/two-servers.md.

    Examples
    --------
    >>> from hushrec.engines.two_servers.agreement import Agreement
    >>> domain = hushrec.Domain(["alien", "matrix"], rating_range=(1, 5))
    >>> agreement = Agreement(estimator=hushrec.ItemBias(), budget=hushrec.Budget(5, 1e-6), domain=domain)
    >>> [release.label for release in agreement.plan.releases]
    ['item biases']
    >>> agreement.promises[1].startswith("against everybody else epsilon = 3.3")
    True
    """

    estimator: Estimator[Any]
    budget: Budget
    domain: Domain
    seed: int = 0
    nodes_per_user: int = 1
    users_per_node: int = 1
    public: run.Public | None = None

    def __post_init__(self) -> None:
        budget, name = self.budget, self.estimator.name
        check_numbers(
            nodes_per_user=(self.nodes_per_user, int, f"[1, {LARGEST_COUNT}]"),
            users_per_node=(self.users_per_node, int, f"[1, {LARGEST_COUNT}]"),
        )
        if (budget.unit, budget.relation) != ("user", "add-remove"):
            raise InputError("Two servers protect unit 'user' under relation 'add-remove'.")
        if not (budget.epsilon <= _LARGEST_EPSILON and budget.delta >= _SMALLEST_DELTA):
            raise InputError(
                f"Two servers need an epsilon of at most {_LARGEST_EPSILON:g} and a delta of at least"
                f" {_SMALLEST_DELTA:g}."
            )
        if not (self.estimator.supports_partitions and self.estimator.exact_arithmetic):
            raise InputError(
                f"{name} cannot be trained over two servers; train item-bias, popular, private-als,"
                " private-eigenrec or both."
            )
        if self.estimator.counts_users:
            raise InputError(f"Two servers need a declared number of users; pass n_users to {name}.")
        self.estimator.check_budget(budget)
        self.plan.check()
        if not all(isinstance(release.mechanism, Gaussian) for release in self.sent.releases):
            raise InputError(f"{name} has releases that are not Gaussian; two servers cannot share those.")
        if any(release.mechanism.noise_sd(1.0) > LARGEST_MULTIPLIER for release in self.sent.releases):
            raise InputError(
                f"A release would get noise of more than {LARGEST_MULTIPLIER:,.0f} times its sensitivity, "
                "which is too large for its shares; declare a larger epsilon."
            )

    @cached_property
    def sent(self) -> Plan:
        """The releases for a user at one node, each with the noise of one server."""
        return self._whole.releases(self.budget, self.domain, 1 / self.nodes_per_user**2)

    @cached_property
    def plan(self) -> Plan:
        """The releases for a user at all nodes, each with the noise of one server."""
        return Plan(self.budget, [_per_user(release, self.nodes_per_user) for release in self.sent.releases])

    @cached_property
    def both(self) -> Plan:
        """The releases of :attr:`sent`, each with the noise of both servers."""
        return Plan(self.budget, [_twice(release) for release in self.sent.releases])

    @cached_property
    def _public_rows(self) -> run.PublicRows | None:
        return run.read_public(self.public, self.estimator, self.nobody)

    @cached_property
    def _whole(self) -> Trainable[Any]:
        return run.with_public(self.estimator, self._public_rows)

    @cached_property
    def _training(self) -> Training:
        return Training(self._whole, self.domain, self.seed, self.sent, self.both)

    @cached_property
    def rehearsal(self) -> str:
        """Digest of a training on made-up ratings; unlike processors differ."""
        return rehearsal(self._training, made_up(self.domain))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all attributes and of the version of hushrec."""
        estimator = {"name": self.estimator.name, **settings_of(self.estimator)}
        budget = [self.budget.epsilon, self.budget.delta, self.budget.failure]
        nodes = [self.nodes_per_user, self.users_per_node]
        inputs = run.public_inputs(self.domain) | run.public_binding(self._public_rows)
        public = ["two servers", estimator, budget, inputs, self.seed, nodes]
        return hashlib.sha256(json.dumps(public, sort_keys=True).encode()).hexdigest()

    @property
    def promises(self) -> tuple[str, str]:
        _, either, others = two_servers_promise(self.budget, self.plan.mu)
        return either, others

    @cached_property
    def nobody(self) -> Ratings:
        return of_nobody(self.domain)

    def check(self, ratings: Ratings) -> None:
        """Refuse rows that this training cannot use."""
        if run.public_inputs(ratings.domain) != run.public_inputs(self.domain):
            raise InputError(
                "These ratings were read over another domain than the agreement's; read them with its"
                " catalogue, rating range, cap and item features."
            )
        if ratings.n_users > self.users_per_node:
            raise InputError(
                "These ratings have more users than the agreement allows a node (users_per_node:"
                f" {self.users_per_node:,}), and no user is left out; agree on a larger maximum. Nothing was"
                " sent."
            )
        run.check_users(ratings, Accountant(self.budget))

    # ------------------------------------------------------------------ functions of the totals

    def next(self, totals: Sequence[Words], secure: bool = True) -> Wanted | Model:
        """Return the next release, or the model, given the totals so far in the order of the plan.

        ``secure`` is False for injected noise in a test, which makes the model NOT PRIVATE.
        """
        replay = Replay(self._training, totals)
        parts = replay.run()
        if replay.wanted is not None:
            return replay.wanted
        model, public = (
            Model.of(self.estimator, self.domain, parts, self._statement(secure)),
            self._public_rows,
        )
        return model if public is None else public.beside(model, ModelArrays.of(parts))

    def round_for(self, totals: Sequence[Words], first: int) -> Round:
        """Return the next round: the questions from `first` on that two stand-ins for later totals share.

        A question that changes nevertheless is asked again.
        """
        one, other = (Replay(self._training, totals, stand_in=number) for number in (0, 1))
        one.run()
        other.run()
        stop = one.needed
        for mine, theirs in zip(one.keys[stop:], other.keys[stop:], strict=False):
            if mine != theirs:
                break
            stop += 1
        return Round(len(totals), first, stop)

    def rehearsed(self) -> list[tuple[Round, Opened]]:
        """Return the rounds of a training on noise, the least that a real one has."""
        totals: list[Words] = []
        rounds: list[tuple[Round, Opened]] = []
        generator = np.random.default_rng(self.seed)
        while isinstance(wanted := self.next(totals), Wanted):
            first = int(wanted.question.min())
            if not rounds or rounds[-1][0].stop <= first:
                which = self.round_for(totals, first)
                rounds.append((which, self.opened(totals, which)))
            noise = math.sqrt(2) * wanted.grid.noise_sd * generator.standard_normal(len(wanted.place))
            totals.append(noise.astype(np.int64).view(np.uint64))
        return rounds

    def opened(self, totals: Sequence[Words] | TotalOf, which: Round) -> Opened:
        """Return the questions of a round, given the totals before it."""
        known = totals if callable(totals) else totals[: which.release]
        replay = Replay(self._training, known, stand_in=0, until=which.stop)
        replay.run()
        return replay.opened(which)

    def answer(self, opened: Opened, ratings: Ratings) -> Words:
        """Return a node's private sum of contributions to a round, in units of their steps."""
        return integers(self.estimator.users, run.used_rows(self.estimator, ratings), opened)

    def state(self, session: str, which: Round, opened: Opened) -> str:
        words = json.dumps([self.fingerprint, session, *which]).encode()
        questions, steps = "".join(opened.keys).encode(), (step.tobytes() for step in opened.steps)
        parts = [words, opened.totals_digest, questions, *steps]
        return hashlib.sha256(b"".join(parts)).hexdigest()

    def _statement(self, secure: bool) -> PrivacyStatement:
        privacy = run.statement(self.estimator, self.nobody, Accountant(self.budget))
        injected = () if secure else ("the noise came from an injected source",)
        notes = (
            "shares hide what is answered as well as AES-256 in counter mode does; in the table of releases"
            " the noise is that of one server, and both have drawn as much",
        )
        public = (
            "which nodes took part when (so a user is replaced by an empty contribution)",
            f"no user is at more than {self.nodes_per_user} of the nodes",
            f"no node has more than {self.users_per_node:,} users",
        )
        return replace(
            privacy,
            releases=self.plan.releases,
            public=(*privacy.public, *public),
            notes=(*notes, *privacy.notes),
            reasons=(*injected, *privacy.reasons),
            secure_noise=secure,
            exact_noise=secure,
            two_servers=True,
        )


def _twice(release: Release) -> Release:
    one: Any = release.mechanism
    return replace(release, mechanism=Gaussian(math.sqrt(2) * one.noise_multiplier))


def _per_user(release: Release, nodes: int) -> Release:
    one: Any = release.mechanism
    mechanism = Gaussian(one.noise_multiplier / nodes)
    return replace(release, mechanism=mechanism, sensitivity=nodes * release.sensitivity)


def session_of(agreement: Agreement, first: str, second: str) -> str:
    return hashlib.sha256(f"two servers {agreement.fingerprint} {first} {second}".encode()).hexdigest()


def run_of(session: str, role: str) -> str:
    """Return the run of a training in a server's ledger; neither server alone can choose it."""
    return hashlib.sha256(f"two servers {session} {role}".encode()).hexdigest()
