"""Two servers: the local gate's model, a server's view, kills, lies, and refusals."""

import contextlib
import errno
import fcntl
import itertools
import json
import math
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import threadpoolctl
from scipy import stats

import hushrec
from hushrec.cli.servers_init import at_most, small
from hushrec.data import Ratings
from hushrec.engines.two_servers import book, node, replay
from hushrec.engines.two_servers.agreement import Agreement, run_of
from hushrec.engines.two_servers.messages import Held, Sum
from hushrec.errors import BudgetError, HushrecError, InputError
from hushrec.kernels.threads import one_blas_thread
from hushrec.models.private_eigenrec.stacking import WEIGHTS
from hushrec.network.messages import Refusal
from hushrec.privacy import Accountant, Budget, Ledger
from hushrec.privacy.accounting import epsilon_of
from hushrec.testing import hostile_rows, ratings_of
from hushrec.training.gate import LocalGate
from hushrec.training.named import choose
from hushrec.training.partitioned import Call, Query
from tests.engines.servers import PEER, Deaf, KeptNoise, World, server

ALS = hushrec.PrivateALS(rank=3, iterations=1, bias_rounds=1, n_users=12)
ESTIMATORS = {
    "item-bias": hushrec.ItemBias(),
    "popular": hushrec.Popular(),
    "private-als": ALS,
    "private-eigenrec": hushrec.PrivateEigenRec(rank=2, iterations=2, n_users=12),
    "private-eigenrec, pairs": hushrec.PrivateEigenRec(rank=2, pairs=True, n_users=12),
    "both": hushrec.Both(
        ratings=ALS, lists=hushrec.PrivateEigenRec(rank=2, iterations=3, n_users=12), like_threshold=4.0
    ),
}


#: Five releases in three rounds.
BIASES = hushrec.PrivateALS(rank=0, features=False, bias_rounds=2, n_users=4)


def timed(rows):
    return replace(rows, times=np.arange(rows.n_ratings) % 5)


@pytest.fixture(scope="module")
def ratings():
    return timed(hushrec.realistic(12, 9, 70, seed=1))


@pytest.fixture(scope="module")
def few():
    return hushrec.realistic(4, 6, 15, seed=1)


class SumOfBoth:
    """The noise source of a local gate that is given what two servers drew, on their grids."""

    def __init__(self, world):
        totals, plan = world.lines[0].server._progress.totals, world.agreement.plan
        self._steps = {
            release.label: world.agreement.next(totals[:number]).grid.steps
            for number, release in enumerate(plan.releases)
        }
        self._noises = world.noises

    def add_gaussian(self, value, sd, label):
        steps = self._steps[label]
        noise = sum(source.drawn[label] for source in self._noises)
        return ((np.ravel(value) / steps).astype(np.int64) + noise).reshape(value.shape) * steps.reshape(
            value.shape
        )


def model_of_a_local_gate(world, rows, model):
    """The bytes of the model that a local gate makes of these rows with the noise of both servers."""
    estimator = world.agreement.estimator
    accountant = Accountant(world.agreement.budget, noise=SumOfBoth(world))
    gate = LocalGate(accountant, world.agreement.both)
    with one_blas_thread():
        parts = estimator.train(estimator.users(rows.rated()), gate, world.agreement.seed)
    return hushrec.Model.of(estimator, rows.domain, parts, model.privacy).to_bytes()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_model_is_the_local_gates_with_the_noise_of_both(name, ratings):
    world = World(ESTIMATORS[name], ratings, noises=(KeptNoise(1), KeptNoise(2)))
    model = world.train(lost={3}, half={7})
    there = ratings.rows(~np.isin(np.arange(12), [3, 7]), keyed=True)
    assert model_of_a_local_gate(world, there, model) == model.to_bytes()
    assert not model.privacy.private  # the noise was injected


def test_lists_with_a_table_are_those_of_the_local_gate():
    """Each device answers gradient and Hessian of the weights of all parts; a user has up to two."""
    rows = hushrec.realistic(30, 12, 250, seed=1)
    titles = [f"tea pot number {number // 2}" for number in range(12)]
    table = {"item": list(rows.domain.items), "kind": [f"k{n % 3}" for n in range(12)], "title": titles}
    rows = replace(rows, domain=replace(rows.domain, item_features=table))
    estimator = hushrec.PrivateEigenRec.of(rank=2, iterations=2, n_users=30, parts_share=0.3)
    world = World(estimator, rows, noises=(KeptNoise(1), KeptNoise(2)), nodes_per_user=2)
    model = world.train()
    assert model_of_a_local_gate(world, rows, model) == model.to_bytes()
    assert {"popularity", "kind", "words"} <= {part.name for part in model.parts}


def test_devices_read_purchases_and_returns_as_memory_does(ratings):
    """Every third rating is a purchase without stars, and every sixth was returned."""
    table, columns = ratings.to_arrow(), {"quantity": "pieces"}
    number = np.arange(len(table))
    stars = pa.array(table["rating"].to_numpy(), mask=number % 3 == 0)
    table = table.set_column(2, "rating", stars).append_column("pieces", [np.where(number % 6, 1, -1)])
    rows = Ratings.from_any(table, ratings.domain, columns=columns)
    assert rows.n_ratings < ratings.n_ratings and np.isnan(rows.matrix.data).any()
    world = World(ESTIMATORS["both"], rows, noises=(KeptNoise(1), KeptNoise(2)))
    model = world.train()
    assert model_of_a_local_gate(world, rows, model) == model.to_bytes()


@pytest.mark.true("T1")
@pytest.mark.parametrize(("name", "k"), [("item-bias", 1), ("private-eigenrec, pairs", 1), ("both", 2)])
def test_nodes_of_any_number_of_users_train_the_model_of_all_their_users(name, k, tmp_path):
    """Of 0, 1 and 500 users; a user of two nodes is two rows. No message reveals a node's number of users."""
    several = timed(hushrec.realistic(502, 9, 3000, seed=1))
    domain, ledger = several.domain, Ledger(tmp_path / "node.sqlite")
    nobody = Ratings.from_any(([], [], [], []), domain)
    nodes = [nobody, *(several.rows(range(*ends), keyed=True) for ends in ((0, 1), (1, 501)))]
    everybody = several.rows(range(501), keyed=True)
    if k == 2:
        users, items, values, times = (everybody.to_arrow()[column].to_pylist() for column in range(4))
        chosen = [number for number, user in enumerate(users) if user in set(several.users[:40].tolist())]
        again = [[column[number] for number in chosen] for column in (users, items, values, times)]
        nodes.append(Ratings.from_any(tuple(again), domain))  # users of the other nodes, here too
        other = [f"{user} again" for user in again[0]]
        columns = [*items, *again[1]], [*values, *again[2]], [*times, *again[3]]
        everybody = Ratings.from_any(([*map(str, users), *other], *columns), domain)
    noises = KeptNoise(1), KeptNoise(2)
    world = World(ESTIMATORS[name], several, nodes=nodes, noises=noises, users_per_node=500, nodes_per_user=k)
    world.settle()
    for number in range(len(nodes)):
        assert world.answer(number, ledger=ledger, dataset=f"{number}") == "answered"
    sent = {tuple(len(raw) for path, raw in line.said if path[0] == "share") for line in world.lines}
    assert all(len(set(sizes)) == 1 and len(sizes) == len(nodes) for sizes in sent)
    for number in range(len(nodes)):  # also of the node that has no users
        assert ledger.summary(f"{number}", 1e-6).epsilon == pytest.approx(5, rel=1e-6)
    model = world.train()
    assert model_of_a_local_gate(world, everybody, model) == model.to_bytes()
    text = " ".join(model.privacy.text().split())
    assert f"no user is at more than {k} of the nodes" in text and "no node has more than 500 users" in text
    assert not re.search(r"(?<![\d.])50[12]\b", text)


@pytest.mark.true("T1")
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize(
    "estimator", [hushrec.Popular(), hushrec.ItemBias(clip=0.3)], ids=["popular", "bias"]
)
def test_a_user_at_k_nodes_moves_a_release_by_the_claimed_mu(estimator, k):
    """Killed: a sensitivity that counts a user once, noise that does (the total moves k times as far)."""
    domain = hushrec.Domain([f"i{item}" for item in range(5)], rating_range=(1, 5))
    others = [[("a", "i0", 5), ("d", "i3", 2)], [("b", "i1", 5)], [("c", "i2", 5)], []]
    hers = [("she", "i4", 5), ("she", "i3", 1)]
    with_her = [part + hers if node < k else part for node, part in enumerate(others)]
    agreement = Agreement(
        estimator=estimator, budget=Budget(1, 1e-6), domain=domain, nodes_per_user=k, users_per_node=3
    )
    wanted, which = agreement.next([]), agreement.round_for([], 0)
    opened = agreement.opened([], which)

    def total(nodes):
        rows = [Ratings.from_any(tuple(zip(*part)) or ([], [], []), domain) for part in nodes]
        for each in rows:
            agreement.check(each)
        sums = sum(agreement.answer(opened, each.rated()) for each in rows)
        ends = np.cumsum([0, *map(len, opened.steps)])
        return (sums[ends[wanted.question] + wanted.place].view(np.int64)) * wanted.grid.coarse

    moved = np.linalg.norm((total(with_her) - total(others)) / wanted.grid.noise_sd)
    assert 0.5 * agreement.plan.mu < moved <= agreement.plan.mu * (1 + 1e-9)
    assert agreement.plan.mu <= agreement.budget.mu * (1 + 1e-12)
    assert agreement.plan.releases[0].sensitivity == pytest.approx(k * agreement.sent.releases[0].sensitivity)


@pytest.mark.true("T1")
@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_hostile_user_at_k_nodes_moves_the_weights_of_a_lists_parts_by_the_claimed_mu(k):
    """With other rows at each node, or the same at all, which then move the total k times as far."""
    ids = [f"i{number}" for number in range(40)]
    table = {
        "item": ids,
        "kind": [f"k{n % 3}" for n in range(40)],
        "title": [f"tea {n // 2}" for n in range(40)],
    }
    domain = hushrec.Domain(ids, rating_range=(1, 5), item_features=table)
    estimator = hushrec.PrivateEigenRec.of(
        rank=2, iterations=2, n_users=30, parts_share=0.3, like_threshold=4.0
    )
    agreement = Agreement(estimator=estimator, budget=Budget(3, 1e-6), domain=domain, nodes_per_user=k)
    last = len(agreement.plan.releases) - 1
    release, totals, rng = agreement.plan.releases[last], [], np.random.default_rng(4)
    assert release.label == WEIGHTS
    while len(totals) < last:
        noise = agreement.next(totals).grid.noise_sd
        totals.append((noise * rng.standard_normal(len(noise))).astype(np.int64).view(np.uint64))
    wanted = agreement.next(totals)
    first = int(wanted.question.min())
    opened = agreement.opened(totals, agreement.round_for(totals, first))
    ends = np.cumsum([0, *map(len, opened.steps)])

    def answer(rows):
        words = agreement.answer(opened, ratings_of({"she": rows}, domain).rated())
        return words[ends[wanted.question - first] + wanted.place].view(np.int64) * wanted.grid.coarse

    answers = [answer(hostile_rows("she", rng, number % 7, domain)) for number in range(42)]
    moves = [np.linalg.norm(k * mine / wanted.grid.noise_sd) for mine in answers]
    for _ in range(100):
        several = sum(answers[place] for place in rng.choice(len(answers), k))
        moves.append(np.linalg.norm(several / wanted.grid.noise_sd))
    assert 0.9 * release.mu < max(moves) <= release.mu * (1 + 1e-9)


@pytest.mark.parametrize("name", ["lists", "both"])
def test_public_ratings_are_weighed_in_as_beside_a_training_with_the_noise_of_both(name, tmp_path):
    """The oracle is the ordinary training at the epsilon of both noises, with the same draws."""
    everybody = hushrec.realistic(90, 12, 700, seed=3)
    ratings, published = (everybody.rows(range(*ends), keyed=True) for ends in ((0, 50), (50, 90)))
    lists = hushrec.PrivateEigenRec(rank=2, iterations=1, n_users=50)
    estimator = {"lists": lists, "both": hushrec.Both(ratings=ALS, lists=lists, like_threshold=4.0)}[name]
    published.to_arrow().to_pandas().to_csv(tmp_path / "published.csv", index=False)
    public = hushrec.PublicRatings(same=str(tmp_path / "published.csv"))
    world = World(estimator, ratings, noises=(KeptNoise(1), KeptNoise(2)), public=public)
    model = world.train()
    budget = Budget(epsilon_of(world.agreement.both.mu, 1e-6), 1e-6)
    accountant = Accountant(budget, noise=SumOfBoth(world))
    oracle = estimator.fit(ratings, accountant, seed=world.agreement.seed, public=public)
    nearly = json.loads(
        json.dumps(oracle.judged), parse_float=lambda text: pytest.approx(float(text), rel=1e-6)
    )
    assert json.loads(json.dumps(model.judged)) == nearly
    history = published.rows([0], keyed=True)
    one, other = (each.recommend_batch(history, n=5).to_pandas() for each in (model, oracle))
    pd.testing.assert_frame_equal(one, other, rtol=1e-5)
    assert model.privacy.public_ratings
    assert "public likes" in [part.name for part in (model.lists or model).parts]
    assert world.agreement.fingerprint != replace(world.agreement, public=None).fingerprint
    assert "Ratings of 40 users are public and have no privacy here" in " ".join(model.privacy.text().split())


def test_agreements_that_differ_in_anything_have_other_fingerprints(ratings):
    """Else a node could answer under one agreement what the servers ask under another."""
    agreed = World(hushrec.Popular(), ratings).agreement
    larger = replace(agreed.domain, items=(*agreed.domain.items, "one more"))
    budgets = {"epsilon": 4.0}, {"delta": 2e-6}, {"failure": 1e-7}
    changes = [
        {"seed": 1},
        {"nodes_per_user": 2},
        {"users_per_node": 2},
        {"estimator": hushrec.ItemBias()},
        {"domain": larger},
        *({"budget": replace(agreed.budget, **other)} for other in budgets),
    ]
    fingerprints = {replace(agreed, **change).fingerprint for change in [{}, *changes]}
    assert len(fingerprints) == 1 + len(changes)


def test_questions_of_the_same_bytes_have_other_digests():
    arrays = [np.zeros(4), np.zeros((2, 2)), np.zeros(8, np.float32), np.zeros(4, np.int64)]
    questions = [Query((), Call("ask", (value,), {})) for value in (*arrays, (0.0,), [0.0], 0.0, 0)]
    assert len({replay._key(question) for question in questions}) == len(questions)


def test_tokens_of_servers_and_nodes_are_compared_whole(ratings):
    world = World(hushrec.Popular(), ratings)
    server, known = world.lines[0].server, world.names[0]
    for path in (["nonce"], ["held", "0"], ["noisy", "0"]):
        for token in ("", PEER[:-1], PEER[:-1] + "q", PEER + "p", "q" + PEER[1:]):
            with pytest.raises(Refusal, match="for the other server alone"):
                server.answer("GET", path, token, b"")
    assert server.answer("GET", ["nonce"], PEER, b"")
    own = world.token(known, 0)
    for name, token in ((known, own[:-1]), (known, own + "x"), (known, ""), ("nobody", own), ("nobody", "")):
        with pytest.raises(Refusal, match="no node of this name with this token"):
            server.answer("GET", ["node", name], token, b"")
        with pytest.raises(Refusal, match="no node of this name with this token"):
            server.admit("POST", ["share", name, "0", "0" * 64], token, 1 << 20)
    assert server.answer("GET", ["node", known], own, b"")


def test_the_statement_has_both_promises(ratings):
    model = World(hushrec.Popular(), ratings).train()
    budget, text = Budget(5, 1e-6), " ".join(model.privacy.text().split())
    everybody = epsilon_of(budget.mu / math.sqrt(2), 1e-6)
    assert model.privacy.private
    assert "against both servers together nothing is promised" in text
    for who, epsilon in (("either server", 5), ("everybody else", everybody)):
        line = next(each for each in model.privacy.against if f"against {who}" in each)
        assert f"epsilon = {epsilon:.6g} at delta = 1e-06 (unit: user, relation: add-remove)" in line


def test_the_statement_counts_the_other_runs_of_a_servers_ledger(few, tmp_path):
    """Oracle: mu of both runs, by the root of the sum of squares."""
    ledgers = [Ledger(tmp_path / f"{place}.sqlite") for place in (0, 1)]
    world = World(hushrec.Popular(), few, ledgers=ledgers)
    for ledger in ledgers:
        ledger.charge("default", "another run", world.agreement.plan.releases[0])
    summary, mu = world.train().privacy.ledger, world.agreement.plan.mu * math.sqrt(2)
    assert (summary.runs, summary.mu) == (2, pytest.approx(mu))
    assert summary.epsilon == pytest.approx(epsilon_of(mu, 1e-6))


def test_a_list_of_nodes_in_another_order_is_the_same_list(few):
    world = World(hushrec.Popular(), few)
    nodes = world.lines[0].server.settings.nodes
    world.start(0, nodes=dict(reversed(nodes.items())))
    world.settle()
    assert world.answer(0) == "answered"


def test_shares_are_on_the_disk_before_a_round_is_closed(few, monkeypatch):
    """A power cut after the close would else lose shares that both servers count."""
    world, done = World(hushrec.Popular(), few), []
    world.settle()
    world.answer(0)
    put, sync = book.Book.put, os.fsync

    def synced(handle):
        done.append(os.readlink(f"/proc/self/fd/{handle}").rpartition("/")[2])
        sync(handle)

    monkeypatch.setattr(book.os, "fsync", synced)
    monkeypatch.setattr(book.Book, "put", lambda self, name, raw: (done.append(name), put(self, name, raw)))
    world.pass_time()
    world.lines[0].server.step()
    assert "shares-0" in done[: done.index("held-0")]


def test_a_closed_round_is_shown_to_no_node(few):
    """A node that asks meanwhile is not charged for a share that comes too late."""
    world = World(hushrec.Popular(), few)
    world.settle()
    world.answer(0)
    world.pass_time()
    one = world.lines[0].server
    while one._progress.collecting.held is None:
        one.step()
    assert one.answer("GET", ["state"], "", b"").round == () and world.answer(1) == "waiting"


def view_of_the_first(world):
    """Return the first server's view: the sum of all answers with the second server's noise."""
    release = world.agreement.plan.releases[0].label
    first, second = (line.server for line in world.lines)
    source, wanted = first._progress.collected[0], world.agreement.next([])
    places = np.array([0, *source.ends])[wanted.question - source.which.first] + wanted.place
    own = source.total[places] * wanted.grid.coarse.astype(np.uint64)
    noisy = np.frombuffer(second._book.get("noisy-0"), np.uint64)
    return (own + noisy).view(np.int64), wanted.grid, release


def test_a_servers_view_of_neighbours_has_the_claimed_mu(ratings):
    """The other server's noise is N(0, sd^2) on the sum; one user moves it by at most mu sds, and attains
    this."""
    fewer = ratings.rows(np.arange(12) != 5, keyed=True)
    noises = []
    for seed in range(12):
        with_user, without = (
            World(hushrec.Popular(), rows, noises=(KeptNoise(99), KeptNoise(seed)))
            for rows in (ratings, fewer)
        )
        views = []
        for world in (with_user, without):
            world.train()
            view, grid, label = view_of_the_first(world)
            views.append((view - world.noises[1].drawn[label]) / grid.noise_sd)
            noises.append(world.noises[1].drawn[label] / grid.noise_sd)
        mu = np.linalg.norm(views[0] - views[1])
        assert mu <= with_user.agreement.plan.mu * (1 + 1e-6)
        assert mu >= 0.99 * with_user.agreement.plan.mu
    drawn = np.ravel(noises[::2])
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    assert 1e-4 < stats.chi2(len(drawn)).cdf(drawn @ drawn) < 1 - 1e-4


def test_a_share_alone_does_not_depend_on_the_ratings(ratings):
    """The first server's bits are fair coins and the second server's share is a seed; together they are the
    answer."""
    world = World(ALS, ratings)
    world.settle()
    world.answer(0)
    (path, rest), (_, seed) = (line.said[-1] for line in world.lines)
    assert path[:3] == ("share", "node 0", "0") and len(seed) == 32
    ones = np.unpackbits(np.frombuffer(rest, np.uint8))
    assert abs(ones.mean() - 0.5) < 6 * 0.5 / math.sqrt(ones.size)


class Killed(Exception):
    """The process of a server is gone."""


@pytest.mark.true("A3")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2, 3))])
def test_kills_release_nothing_twice_and_nothing_uncharged(seed, few, tmp_path, monkeypatch):
    """Killed 60 times, before or after anything is written, either server ends with the same model."""
    generator, kills = np.random.default_rng(seed), 0
    while kills < 60:
        ledgers = [Ledger(tmp_path / f"{kills}-{place}.sqlite") for place in (0, 1)]
        for ledger in ledgers:  # with room for one training, and no more
            ledger.open_dataset("default", Budget(5, 1e-6))
        world = World(BIASES, few, ledgers=ledgers)
        with monkeypatch.context() as patch:
            writing = (book.Book, "put"), (Ledger, "charge"), (Ledger, "keep"), (book.Shares, "take")
            for owner, name in writing:
                patch.setattr(owner, name, mortal(getattr(owner, name), generator))
            for _ in range(1000):
                try:
                    world.settle()
                    if None not in [line.server.model for line in world.lines]:
                        break
                    for number in range(4):
                        world.answer(number)
                except Killed:
                    kills += 1
                    if not kills % 9:
                        world.pass_time()
                    restarted(world, int(generator.integers(2)))
        models = [line.server.model for line in world.lines]
        assert None not in models and models[0].to_bytes() == models[1].to_bytes()
        releases = world.agreement.plan.releases
        for line, ledger in zip(world.peers, ledgers, strict=True):
            run = run_of(line.server._progress.session, line.server.settings.role)
            charged = ledger.numbered("default", run)
            assert list(charged) == list(range(len(releases)))
            said = {(path, raw) for path, raw in line.said if path[0] in ("noisy", "held")}
            assert len({path for path, _ in said}) == len(said)  # one value each, whoever asked when


def restarted(world, place):
    """Both servers again, in either order; a start can be killed too."""
    for each in (place, 1 - place):
        while True:
            try:
                world.start(each)
                break
            except Killed:
                continue


def mortal(method, generator):
    """A method that is sometimes killed, before or after its work."""

    def maybe(self, *given, **named):
        fate = generator.integers(6)
        if fate == 0:
            raise Killed
        found = method(self, *given, **named)
        if fate == 1:
            raise Killed
        return found

    return maybe


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 20))])
@pytest.mark.parametrize("honest", [0, 1])
@pytest.mark.parametrize("name", ["popular", "private-eigenrec"])
def test_a_lying_server_gets_one_noisy_sum_of_a_release(honest, seed, name, few):
    """For any messages of it and of its nodes, an honest server publishes one sum of matching shares,
    once."""
    generator, published = np.random.default_rng([honest, seed]), 0
    for _ in range(25):
        noises = [KeptNoise(1), KeptNoise(2)]
        groups = ((0, 0), (0, 1), (1, 2), (2, 4))
        nodes = [timed(few).rows(range(*ends), keyed=True) for ends in groups]
        world = World(ESTIMATORS[name], few, nodes=nodes, users_per_node=2, noises=noises)
        liar = Liar(world, honest, generator)
        liar.run()
        liar.check()
        published += len(liar.published)
    assert published > 5


class Liar:
    """One server that does as it likes; it reads all that it was sent, and knows the agreement."""

    def __init__(self, world, honest, generator):
        self.world, self.honest, self.generator = world, honest, generator
        self.line, self.own, self.peer = world.lines[honest], world.lines[1 - honest], world.peers[1 - honest]
        self.published, self.shares = set(), {}

    def run(self):
        world, one = self.world, self.line.server
        world.settle()  # the liar keeps to the protocol until a round is open
        moves = [self.replay, self.other_values, self.choose_set, self.second_run, self.withhold, self.ask]
        for number in self.generator.permutation(4):
            self.lie(moves)
            if self.generator.integers(3) == 0:
                self.lying_node(world.names[number])
            try:
                world.answer(number)
            except HushrecError:
                continue
        world.pass_time()
        for _ in range(6):
            self.lie(moves)
            with contextlib.suppress(HushrecError):  # where the liar's values are none that can be
                one.step()

    def lie(self, moves):
        moves[self.generator.integers(len(moves))]()

    def lying_node(self, name):
        """Send words of no answer, as a node on the liar's side."""
        agreement, which = self.world.agreement, self.line.server._progress.collecting.which
        opened = agreement.opened([], which)
        digest = agreement.state(self.line.server._progress.session, which, opened)
        words = self.generator.bytes(server.share_bytes(server.ROLES[self.honest], opened.size))
        self.post("share", name, "0", digest, content=words, token=self.world.token(name, self.honest))

    def post(self, *path, content=b"x" * 32, token=""):
        try:
            return self.line.post(content, server.Taken, *path, token=token)
        except (Refusal, InputError):
            return None

    def replay(self):
        """Send a node's share again, changed, as another node, or for another round."""
        for path, raw in [each for each in self.own.said + self.line.said if each[0][0] == "share"][-3:]:
            for name in (path[1], "node 3", "nobody"):
                for token in ("", self.world.token(path[1], self.honest)):
                    self.post("share", name, path[2], path[3][::-1], content=raw, token=token)
                    self.post("share", name, "1", path[3], content=raw, token=token)

    def other_values(self):
        """Announce another round, or other totals, to nodes."""
        state = self.own.server._state()
        changes = {"digest": "0" * 64} if self.generator.integers(2) and state.round else {"totals": 1}
        lie = replace(state, **changes)
        self.own.server._state = lambda: lie

    def second_run(self):
        """Start again under the same name, with the earlier nonce."""
        folder = self.world.folder / f"again {self.generator.integers(1 << 60)}"
        if self.generator.integers(2):
            shutil.copytree(self.own.server._book.path, folder)
            (folder / "session").unlink(missing_ok=True)
        self.world.start(1 - self.honest, folder)

    def choose_set(self):
        """Claim the shares of only some nodes, or of nodes that do not exist."""
        chosen = tuple(name for name in [*self.world.names, "ghost"] if self.generator.integers(2))

        def told(kind, *path, token="", most=None):
            return (
                Held(self.line.server._progress.collecting.digest, chosen)
                if kind is Held
                else self._sum(path)
            )

        self.peer.get = told

    def _sum(self, path):
        size = self.line.server._progress.wanted.question.size
        return Sum(self.generator.integers(0, 1 << 63, size).astype(np.uint64))

    def withhold(self):
        def away(kind, *path, token="", most=None):
            raise Refusal(404, "This is not there yet.")

        self.peer.get = away

    def ask(self):
        """Ask for everything, in any order."""
        for path in (("held", "0"), ("noisy", "0"), ("total", "0"), ("noisy", "7"), ("nonce",), ("state",)):
            try:
                answer = self.line.server.answer("GET", list(path), PEER, b"")
            except Refusal:
                continue
            if path == ("noisy", "0"):
                self.published.add(answer.to_json())

    def check(self):
        """One value at most, and it is one sum of answers, each of a node once, with all of its noise."""
        self.ask()
        assert len(self.published) <= 1
        if not self.published:
            return
        world, source = self.world, self.line.server._progress.collected[0]
        grid, opened = world.agreement.next([]).grid, world.agreement.opened([], source.which)
        digest = world.agreement.state(self.line.server._progress.session, source.which, opened)
        assert all(path[3] == digest for path, _ in self.line.taken)
        sent = {path[1]: raw for path, raw in self.line.taken}
        assert len({(path[1], raw) for path, raw in self.line.taken}) == len(sent)
        noisy = np.frombuffer(self.line.server._book.get("noisy-0"), np.uint64)
        noise = world.noises[self.honest].drawn["item weights"].view(np.uint64)
        role, sums = server.ROLES[self.honest], []
        for bits in range(1 << len(sent)):
            total = np.zeros(opened.size, np.uint64)
            for number, name in enumerate(sorted(sent)):
                if bits >> number & 1:
                    server.add_share(total, sent[name], role)
            sums.append(total * grid.coarse.astype(np.uint64))
        assert any(np.array_equal(each, noisy - noise) for each in sums)


@pytest.mark.parametrize(
    "seed, estimator", [*enumerate([BIASES, ESTIMATORS["both"], ESTIMATORS["private-eigenrec"]])]
)
def test_what_a_server_says_is_refused_in_words_or_changes_nothing(seed, estimator, few):
    """One server changes fields of all its messages to nodes and to the other server, after they were
    read."""
    generator, said = np.random.default_rng(seed), 0
    odd = ["f" * 64, (), (0, 0, 1), (1, 0, 9), (9, 9, 10), (0, 1, 1 << 40), 7, True, False, "second", ("x",)]
    odd += [
        np.zeros(2, np.uint64),
        np.full(6, 1 << 63, np.uint64),
        np.arange(6, dtype=np.uint64) << np.uint64(50),
    ]

    def lying(get):
        def told(kind, *path, token="", most=None):
            found = get(kind, *path, token=token)
            name = generator.choice([*vars(found)]) if generator.integers(2) else ""
            fits = [each for each in odd if name and type(each) is type(getattr(found, name))]
            try:
                return replace(found, **{name: fits[generator.integers(len(fits))]}) if fits else found
            except InputError:
                return found

        return told

    for _ in range(12):
        world = World(estimator, timed(few))
        for way in (world.lines[0], world.peers[0]):
            way.get = lying(way.get)
        for _ in range(12):
            for number in range(4):
                try:
                    world.answer(number)
                except HushrecError as error:
                    said += 1
                    assert "\n" not in str(error) and str(error).endswith(".")
            for line in world.lines:
                try:
                    line.server.step()
                except HushrecError as error:
                    said += 1
                    assert "\n" not in str(error) and str(error).endswith(".")
        for number in range(4):  # each share is one of an answer that was asked by both
            shares = [
                raw
                for line in world.lines
                for path, raw in line.said
                if path[:2] == ("share", f"node {number}")
            ]
            assert len({*shares}) <= 2 * 4
    assert said > 20


def test_a_folder_goes_on_with_its_ledger_and_data_set_alone(few, tmp_path):
    """Another ledger, or none, would allow the same release without a charge."""
    (tmp_path / "own").mkdir()
    ledgers = Ledger(tmp_path / "own" / "first.sqlite"), Ledger(tmp_path / "second.sqlite")
    world = World(BIASES, few, ledgers=ledgers)
    one = world.lines[0].server

    def start(ledger, settings=one.settings):
        server.CollectingServer(one.agreement, settings, one._book.path, ledger, world.peers[1])

    def refused(*given):
        with pytest.raises(InputError, match="began with another ledger or data set"):
            start(*given)

    world.settle()  # a round is open, and nothing is released yet
    other = Ledger(tmp_path / "other.sqlite")
    other.charge("default", "another run", one.agreement.plan.releases[0])
    shutil.copytree(tmp_path / "own", tmp_path / "early copy")
    for number in range(4):
        world.answer(number)
        for ledger in (other, Ledger(tmp_path / "new.sqlite"), None):
            refused(ledger)
        refused(ledgers[0], replace(one.settings, dataset="elsewhere"))
    start(Ledger(tmp_path / "early copy" / "first.sqlite"))
    world.settle()
    refused(Ledger(tmp_path / "early copy" / "first.sqlite"))
    shutil.copytree(tmp_path / "own", tmp_path / "moved")
    start(Ledger(tmp_path / "moved" / "first.sqlite"))


def test_servers_that_do_not_fit_are_both_told_before_a_node_is_charged(few, tmp_path):
    """Their training would never end; neither server learns the other's node names."""
    ledgers = [Ledger(tmp_path / f"{place}.sqlite") for place in (0, 1)]
    world, own = World(BIASES, few, ledgers=ledgers), Ledger(tmp_path / "own.sqlite")
    nodes = dict.fromkeys(world.names[1:], "")
    unlike = replace(world.agreement)
    unlike.__dict__["rehearsal"] = "0" * 64  # what another processor makes of it
    wrong = {
        "whose processor rounds unlike": {"agreement": unlike},
        "the second one, too; check --peer": {"role": "second"},
        "other names of nodes; give the same list": {"nodes": nodes},
        "another agreement; give the same file": {"agreement": replace(world.agreement, seed=5)},
        "another agreement; give the same": {"agreement": replace(world.agreement, nodes_per_user=2)},
        "does not know this one's token; give the same": {"peer_token": "q" * 32},
    }
    for number, (words, changes) in enumerate(wrong.items()):
        world.start(0, world.folder / f"{number}", **changes)
        for line in world.lines:
            with pytest.raises(InputError, match=words):
                line.server.step()
        if "role" in changes:  # the node finds two servers of one role
            with pytest.raises(HushrecError):
                world.answer(0, ledger=own)
        else:
            assert world.answer(0, ledger=own) == "waiting"
        assert not any(ledger.datasets() for ledger in (*ledgers, own))
    heard = b"".join(raw for line in world.peers for _, raw in line.said).decode()
    assert heard and not any(name in heard for name in world.names)
    world.start(0)  # and with what fits the same second server goes on
    world.settle()
    assert world.answer(0, ledger=own) == "answered"
    world.start(0, world.folder / "lost")
    with pytest.raises(InputError, match="start again with new folders at both servers"):
        world.lines[0].server.step()


def test_a_rehearsal_tells_unlike_processors_apart():
    """OpenBLAS rounds otherwise on another processor; two processes of one kind: test_servers_commands."""
    code = """
import hushrec
from hushrec.engines.two_servers.agreement import Agreement
from hushrec.training.named import choose
domain, budget = hushrec.Domain(range(300), rating_range=(1, 5)), hushrec.Budget(1, 1e-6)
model = choose("private-als", budget, domain, n_users=6000)
print(Agreement(estimator=model, budget=budget, domain=domain).rehearsal)
"""
    kinds = ["Haswell", "Prescott"]
    command = [sys.executable, "-c", code]
    settings = ({**os.environ, "OPENBLAS_CORETYPE": kind} for kind in kinds)
    one, other = (subprocess.check_output(command, env=each) for each in settings)
    assert len(one.strip()) == len(other.strip()) == 64
    if platform.machine() == "x86_64" and "haswell" in str(threadpoolctl.threadpool_info()).lower():
        assert one != other


@pytest.fixture(scope="module")
def halfway(few):
    """A training with releases, a closed round, an open one with two shares, and a copy of it."""
    world = World(BIASES, few, noises=(KeptNoise(1), KeptNoise(2)))
    while not (world.folder / "first" / "total-1").exists():
        world.settle()
        for number in range(4):
            world.answer(number)
    world.settle()
    for number in range(2):
        world.answer(number)
    shutil.copytree(world.folder, world.folder.with_suffix(".copy"))
    yield world
    shutil.rmtree(world.folder.with_suffix(".copy"))


def continued(world, path=None, change=None):
    """The model of both servers after a restart from the copy; new draws are always the same."""
    shutil.rmtree(world.folder)
    shutil.copytree(world.folder.with_suffix(".copy"), world.folder)
    if path is not None:
        path.write_bytes(change(path.read_bytes()))
    world.noises, world.public = (KeptNoise(3), KeptNoise(4)), node.Public(world.agreement)
    for place in (0, 1):
        world.start(place)
    return world.train().to_bytes()


def flipped(raw):
    return raw[: len(raw) // 2] + bytes([raw[len(raw) // 2] ^ 4]) + raw[len(raw) // 2 + 1 :] if raw else b"x"


@pytest.mark.true("T2")
@pytest.mark.parametrize("who", ["first", "node 0"])
def test_a_damaged_file_is_refused_in_one_sentence_or_not_read(who, halfway):
    """Killed: a flipped bit that makes another model, and raw errors. Restarts are without a ledger."""
    expected, refused = continued(halfway), set()
    files = [path.name for path in sorted((halfway.folder.with_suffix(".copy") / who).iterdir())]
    for name in files:
        for change in (flipped, lambda raw: raw[:-3], lambda raw: raw[:9], lambda raw: b""):
            path = halfway.folder / who / name
            try:
                assert continued(halfway, path, change) == expected
            except HushrecError as error:
                refused.add(name)
                assert name in str(error) and "is damaged; begin a new training" in str(error)
            except AssertionError:
                # a share that was cut short was not acknowledged: its node is as if it had not answered
                assert name.startswith("shares") and change is not flipped
    server_files = {"nonce", "session", "noisy-0", "published-0", "sum-0", "total-0", "total-1"}
    node_files = {"session", "agreement", "node"}
    server_files |= {name for name in files if name.startswith("shares")}
    assert refused >= (node_files if "node" in who else server_files) and len(server_files) >= 7


def test_a_clock_that_goes_back_keeps_no_round_open(few, monkeypatch):
    """Killed: a deadline by the computer's clock, which would be years away, also after a restart."""
    world = World(BIASES, few, deadline=0.3)
    world.settle()
    world.answer(0)
    monkeypatch.setattr(time, "time", lambda: 1e9)
    world.start(0)  # the second server goes on
    time.sleep(0.4)
    world.settle()
    assert all((line.server._book.path / "sum-0").exists() for line in world.lines)


def test_a_share_that_finds_the_disk_full_is_sent_again(tmp_path):
    """Killed: a half-written share before the next one, which damages the whole round."""

    def body(results):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        shares = book.Shares(tmp_path / "shares", 1000, ["a", "b", "c"])
        shares.take("a", b"a" * 1000)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, resource.RLIM_INFINITY))
        try:
            shares.take("b", b"b" * 1000)
        except Refusal as refused:
            results.put((refused.status, str(refused)))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        results.put(shares.take("c", b"c" * 1000) and shares.take("b", b"b" * 1000))

    results = get_context("fork").SimpleQueue()
    child = get_context("fork").Process(target=body, args=(results,))
    child.start()
    child.join(60)
    status, sentence = results.get()
    assert status == 503 and "no room for a share" in sentence and results.get() is True
    found = []
    book.Shares(tmp_path / "shares", 1000, ["a", "b", "c"]).each(["a", "b", "c"], found.append)
    assert sorted(found) == [letter * 1000 for letter in (b"a", b"b", b"c")]


def test_a_folder_without_file_locks_is_refused_in_other_words_than_one_in_use(few, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(InputError, match="has no file locks .No locks available.; pass a folder on a local"):
        World(hushrec.Popular(), few).answer(0)


def test_a_rounds_digest_covers_its_questions(few):
    """Unlike processors may ask otherwise where totals and steps are the same."""
    agreement = World(hushrec.ItemBias(), few).agreement
    which = agreement.round_for([], 0)
    opened = agreement.opened([], which)
    other = opened._replace(keys=("0" * 64, *opened.keys[1:]))
    assert agreement.state("s", which, opened) != agreement.state("s", which, other)


@pytest.mark.true("A3")
def test_a_copied_folder_releases_once(few, tmp_path):
    """Two processes on a folder and its copy, with one ledger: one noisy share of a release leaves them."""
    ledgers = [Ledger(tmp_path / f"{place}.sqlite") for place in (0, 1)]
    world = World(BIASES, few, ledgers=ledgers)
    world.settle()
    for number in range(4):
        world.answer(number)
    one = world.lines[0].server
    while not (one._book.path / "sum-0").exists():
        for line in world.lines:
            line.server.step()
    shutil.copytree(one._book.path, tmp_path / "copy")
    world.start(0, tmp_path / "copy")
    two, published = world.lines[0].server, []
    for server_ in (one, two):
        with contextlib.suppress(HushrecError) if server_ is two else contextlib.nullcontext():
            for _ in range(6):
                server_.step()
        try:
            published.append(server_.answer("GET", ["noisy", "0"], PEER, b"").to_json())
        except Refusal as refused:
            assert server_ is two and refused.status == 404
    assert len(published) == 1
    with pytest.raises(HushrecError, match="old copy"):
        two.step()
    assert len(ledgers[0].numbered("default", one._run)) == 1


@pytest.mark.true("L2")
def test_a_server_reserves_its_training_so_that_it_ends(few, tmp_path):
    """Killed: a plan that is checked at the start only: two trainings spend one budget and both stop.

    Oracle: after any starts, restarts and refusals, the ledger holds whole trainings.
    """
    ledgers = [Ledger(tmp_path / f"{place}.sqlite") for place in (0, 1)]
    for ledger in ledgers:
        ledger.open_dataset("default", Budget(5, 1e-6))
    first, world = ledgers[0], World(BIASES, few, ledgers=ledgers)

    def refused():
        for begin in (
            lambda: World(BIASES, few, ledgers=(first, None)),
            lambda: hushrec.ItemBias().fit(few, Accountant(Budget(1, 1e-6), ledger=first)),
        ):
            with pytest.raises(BudgetError, match="what 1 running training reserves"):
                begin()

    refused()  # before the servers have met
    world.settle()
    refused()
    for path in (None, world.folder / "first" / "session"):  # also killed before it knew its session
        if path is not None:
            path.unlink()
        world.start(0)
        world.settle()
        refused()
    model = world.train()
    assert first.summary("default", 1e-6).running == 0
    assert first.summary("default").charges == len(model.privacy.releases)
    world.start(0)  # all charges exist: there is nothing to reserve
    world.settle()
    assert world.lines[0].server.model is not None


def test_a_node_answers_a_release_once_whatever_digest_it_is_asked_under(few):
    """Both servers name another digest of the same round, before and after each has its share."""
    world = World(hushrec.Popular(), few)
    world.settle()
    honest = [line.server._state for line in world.lines]

    def lie(digest):
        for line, state in zip(world.lines, honest, strict=True):
            line.server._state = lambda state=state: replace(state(), digest=digest)

    def shares():
        return [each for line in world.lines for each in line.said if each[0][0] == "share"]

    lie("1" * 64)  # which the agreement does not lead to
    with pytest.raises(HushrecError, match="does not follow from this agreement"):
        world.answer(0)
    assert not shares()
    lie(honest[0]().digest)
    deaf = Deaf()
    deaf.server = world.lines[1].server
    with pytest.raises(HushrecError, match="lost"):
        world.answer(0, servers=[world.lines[0], deaf])
    (sent,) = shares()
    lie("2" * 64)
    world.answer(0)  # sends again what it made, under the digest that it made it for
    assert shares()[1] == sent and len(shares()) == 3 and shares()[2][0][3] == honest[0]().digest
    lie("3" * 64)
    assert world.answer(0) == "waiting" and len(shares()) == 3


@pytest.mark.true("A4")
def test_a_servers_ledger_takes_no_injected_noise(few, tmp_path):
    ledger = Ledger(tmp_path / "first.sqlite")
    with pytest.raises(InputError, match="leave out the injected noise source or the ledger"):
        World(hushrec.Popular(), few, ledgers=(ledger, None), noises=(KeptNoise(1), None))
    assert not ledger.datasets()


def test_nodes_that_could_be_too_many_users_are_refused(few):
    """By the agreement alone, on the node's machine or at the servers, before anything is charged."""
    world = World(hushrec.Popular(), few, users_per_node=3)
    with pytest.raises(InputError, match="users_per_node: 3"):
        world.answer(0, ratings=few)
    assert not any(line.said for line in world.lines)
    agreement = replace(world.agreement, users_per_node=2**23)
    with pytest.raises(InputError, match="sums have no room"):
        world.start(0, world.folder / "new", agreement=agreement)
    world.start(0, world.folder / "new", agreement=replace(agreement, users_per_node=2**23 - 1))


@pytest.mark.parametrize("name", ["private-als", "both"])
def test_a_node_sends_what_was_planned_at_most(name):
    """Counted in the rounds of so many users that all is learned; at 4,000 items within 10 MB in any plan."""
    ratings, budget, copies = hushrec.realistic(60, 12, 500, seed=0), Budget(5, 1e-6), 20_000
    model = small(choose(name, budget, ratings.domain, n_users=60 * copies), {}, 12)
    agreement, totals, sizes = Agreement(estimator=model, budget=budget, domain=ratings.domain), [], []
    which = SimpleNamespace(stop=0)
    while isinstance(wanted := agreement.next(totals), replay.Wanted):
        if (first := int(wanted.question.min())) >= which.stop:
            which = agreement.round_for(totals, first)
            opened = agreement.opened(totals, which)
            sums = agreement.answer(opened, ratings.rated()) * np.uint64(copies)
            ends = np.array([0, *np.cumsum([len(each) for each in opened.steps])])
            sizes.append(opened.size)
        entries = ends[wanted.question - which.first] + wanted.place
        totals.append(sums[entries] * wanted.grid.coarse.astype(np.uint64))
    rounds, sent = at_most(model, 12)
    saved = rounds - len(sizes)  # both models' first questions are one round
    needed = sum(8 * size + 32 for size in sizes) + 32 * saved
    assert saved == (name == "both") and 0 <= sent - needed <= 8 * 12 * rounds  # weights in every round
    domain = hushrec.Domain(range(4000), rating_range=(1, 5))
    for epsilon, users in itertools.product((0.5, 5, 100), (1000, 10**5, 10**8)):
        chosen = choose(name, Budget(epsilon, 1e-6), domain, n_users=users)
        assert at_most(small(chosen, {}, 4000), 4000)[1] <= 1e7
    few_nodes = choose("private-eigenrec", budget, domain, n_users=6040)
    assert small(few_nodes, {}, 4000).iterations == few_nodes.iterations == 8


def test_what_is_refused(few, tmp_path):
    """Each in one sentence, before anything is sent or charged."""
    world = World(hushrec.Popular(), few, ledgers=[Ledger(tmp_path / f"{place}.sqlite") for place in (0, 1)])
    one, digest = world.lines[0].server, lambda: world.lines[0].server._state().digest
    world.settle()
    name, token = world.names[0], world.token(world.names[0], 0)
    post = partial(one.answer, "POST")
    edited = node.Public(replace(world.agreement, budget=Budget(4, 1e-6)))
    wrong = {
        "has no node of this name": lambda: post(["share", name, "0", digest()], "guess", b""),
        "other totals": lambda: post(["share", name, "0", "0" * 64], token, b""),
        "has 48 bytes": lambda: post(["share", name, "0", digest()], token, b"x" * 32),
        "not open": lambda: post(["share", name, "1", digest()], token, b""),
        "other server alone": lambda: one.answer("GET", ["held", "0"], token, b""),
        "more users than the agreement allows": lambda: world.answer(0, ratings=few),
        "another domain": lambda: world.answer(0, ratings=hushrec.realistic(1, 7, 3, seed=0)),
        "past its budget": lambda: world.answer(0, ledger=spent(tmp_path)),
        "the first server has no node": lambda: world.answer(0, ledger=own, tokens=["guess", "guess"]),
        "the second server has no node": lambda: world.answer(0, ledger=own, tokens=[token, token]),
        "in this order": lambda: world.answer(0, servers=world.lines[::-1]),
        "not the first and the second": lambda: world.answer(0, servers=world.lines[:1] * 2),
        "Another process": lambda: in_use(world, name),
        "answered under": lambda: world.answer(1, public=edited),
        "belongs to another node": lambda: world.answer(0, folder=world.folder / world.names[1]),
        "use its folder": lambda: world.answer(1, folder=world.folder / "lost"),
    }
    own = Ledger(tmp_path / "own.sqlite")
    world.answer(1)
    for words, do in wrong.items():
        with pytest.raises(HushrecError, match=f"(?i){words}"):
            do()
    assert not own.datasets()
    posted = {path[1] for line in world.lines for path, _ in line.said if path[0] == "share"}
    assert posted <= {world.names[1]}
    world.train()
    shutil.copytree(one._book.path, world.folder / "copy")
    (world.folder / "copy" / "noisy-0").unlink()
    (world.folder / "copy" / "total-0").unlink()
    with pytest.raises(HushrecError, match="old copy"):
        world.start(0, world.folder / "copy")
    again = World(hushrec.Popular(), few)
    again.settle()
    with pytest.raises(HushrecError, match="another folder"):
        again.answer(0, folder=world.folder / name)


def test_a_node_keeps_no_answer_that_both_servers_have(few):
    """Seed and rest are its exact sums, and folders are for their owners alone."""
    world = World(hushrec.Popular(), few)
    world.settle()
    deaf, own = Deaf(), book.Book(world.folder / world.names[0])
    deaf.server = world.lines[1].server
    with pytest.raises(HushrecError, match="lost"):
        world.answer(0, servers=[world.lines[0], deaf])
    assert len(own.get("answer-0")) > 64
    assert world.answer(0) == "answered" and own.get("answer-0") == b""
    assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in world.folder.iterdir())


def test_a_share_after_the_deadline_is_refused(few):
    """The set of nodes is fixed before the other server's is known, so neither can choose it."""
    world = World(hushrec.Popular(), few)
    world.settle()
    world.answer(0)
    one = world.lines[0].server
    one.settings = replace(one.settings, deadline=0.0)
    held, now = [world.names[0]], one._progress.collecting
    while now.held is None:
        one.step()
    late = ["share", world.names[1], "0", now.digest], world.token(world.names[1], 0), b"x" * 48
    for refused in (one.answer, lambda *given: one.admit(*given[:3], len(given[3]))):
        with pytest.raises(HushrecError, match="not open"):
            refused("POST", *late)
    assert now.held == held == now.shares.nodes


def in_use(world, name):
    """Two looks of one node at once would make two answers, of which each server may keep another."""
    with book.Book(world.folder / name).alone():
        world.answer(0)


def test_windows_which_has_no_fcntl_locks_a_folder_too(few, monkeypatch):
    """By the call that it has: of the C library, refused while another handle holds the byte."""
    held, world = set(), World(hushrec.Popular(), few)

    def locking(handle, mode, count):
        place = os.fstat(handle).st_ino
        if (mode, count) != (2, 1) or place in held:
            raise PermissionError(13, "Permission denied")
        held.add(place)

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(LK_NBLCK=2, locking=locking))
    with pytest.raises(InputError, match="Another process uses the folder"):
        in_use(world, world.names[0])


def spent(tmp_path):
    """A node's ledger without room."""
    ledger = Ledger(tmp_path / "node.sqlite")
    ledger.open_dataset("default", Budget(1, 1e-6))
    return ledger


@pytest.mark.true("L3")
def test_a_device_takes_part_in_as_many_trainings_as_its_own_budget_has_room_for(few, tmp_path):
    """Killed: a charge that another server, session or folder resets, or that comes after a share."""
    own, trainings = Ledger(tmp_path / "own.sqlite"), 3
    lifetime = epsilon_of(math.sqrt(trainings) * Budget(5, 1e-6).mu, 1e-6)
    own.open_dataset("default", Budget(lifetime * (1 + 1e-9), 1e-6))
    for number in range(trainings + 2):
        world = World(hushrec.Popular(), few)
        world.settle()
        refused = number >= trainings
        with pytest.raises(BudgetError, match="past its") if refused else contextlib.nullcontext():
            world.answer(0, ledger=own, folder=tmp_path / str(number))
        assert refused != any(path[0] == "share" for line in world.lines for path, _ in line.said)
    assert own.summary("default").epsilon == pytest.approx(lifetime)


def test_a_node_is_charged_once_for_all_rounds(few, tmp_path):
    own, world, said = Ledger(tmp_path / "own.sqlite"), World(BIASES, few), set()
    own.open_dataset("default", Budget(20, 1e-6))
    while said != {"over"}:
        world.settle()
        said = {world.answer(number, ledger=None if number else own) for number in range(4)}
    assert own.summary("default").epsilon == pytest.approx(5)


@pytest.mark.true("L3")
def test_no_lie_of_both_servers_gives_a_device_another_training(few, tmp_path, monkeypatch):
    """Both repeat the first training's session, the device is killed at each step, and starts again.

    Killed: a count by what servers name, by the folder, or in memory; a charge after the first share.
    """
    path, trainings, old, took_part = tmp_path / "own.sqlite", 3, None, []
    lifetime = epsilon_of(math.sqrt(trainings) * Budget(5, 1e-6).mu, 1e-6)
    Ledger(path).open_dataset("default", Budget(lifetime * (1 + 1e-9), 1e-6))
    for number in range(trainings + 3):
        world = World(hushrec.Popular(), few)
        world.settle()
        honest = world.lines[0].server._state()
        old = old or honest.session
        which = replay.Round(*honest.round)
        opened = world.agreement.opened(lambda wanted: None, which)
        digest = world.agreement.state(old, which, opened)
        for line in world.lines:
            said = replace(line.server._state(), session=old, digest=digest)
            line.server._state = lambda said=said: said
        for step in (1, 2, 2, 2, 3, 4, None):  # a restart has the files alone
            with monkeypatch.context() as patched, contextlib.suppress(HushrecError, Killed):
                if step is not None:
                    patched.setattr(book.Book, "put", dying(book.Book.put, step))
                world.answer(0, ledger=Ledger(path), folder=tmp_path / str(number))
        took_part += [number] * any(path[0] == "share" for line in world.lines for path, _ in line.said)
    assert took_part == list(range(trainings))
    assert Ledger(path).summary("default").charges == trainings


def dying(write, step):
    """Return a write that ends the process at its call of that number, before it writes."""
    count = itertools.count(1)

    def wrote(*arguments):
        if next(count) == step:
            raise Killed
        return write(*arguments)

    return wrote


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budget": Budget(5, 1e-6, relation="replace")}, "relation 'add-remove'"),
        ({"budget": Budget(math.inf, 1e-6)}, "epsilon of at most 100"),
        ({"budget": Budget(5, 1e-200)}, "delta of at least 1e-100"),
        ({"budget": Budget(1e-4, 1e-6)}, "declare a larger epsilon"),
        ({"estimator": hushrec.EASE()}, "cannot be trained over two servers"),
    ],
)
def test_an_agreement_that_cannot_be_kept_is_refused(changes, words, few):
    given = {"estimator": ALS, "budget": Budget(5, 1e-6), "domain": few.domain}
    with pytest.raises(InputError, match=words):
        Agreement(**(given | changes))
