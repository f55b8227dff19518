"""Private training by nodes: equal to the central run, with dropouts at every step, and nothing else seen."""

import json
import math
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from hushrec.algorithms import ItemBias, Popular, PrivateALS
from hushrec.data import Domain, Ratings, realistic
from hushrec.engines.secure import agreement as agreements
from hushrec.engines.secure.agreement import Agreement
from hushrec.engines.secure.gate import SecureGate
from hushrec.engines.secure.graph import _apart, _at_least, choose_graph
from hushrec.engines.secure.messages import (
    Envelopes,
    Masked,
    Neighbours,
    Prepared,
    Unmasking,
)
from hushrec.errors import BudgetError, HushrecError, InputError
from hushrec.network.messages import Refusal, from_json
from hushrec.network.service import Limits, Service
from hushrec.network.transport import Connection
from hushrec.papers.dpals import DPALS
from hushrec.papers.frank_wolfe import PrivateFrankWolfe
from hushrec.privacy import Accountant, Bounded, Budget, Gaussian, Laplace, Plan, Release, mu_of, positive
from hushrec.privacy.testing import RecordingNoise, SeededNoise
from hushrec.testing import hostile_users, ratings_of
from hushrec.users import Users
from tests.algorithms.cases import CASES

client = pytest.importorskip("hushrec.engines.secure.client", exc_type=ImportError)
server = pytest.importorskip("hushrec.engines.secure.server", exc_type=ImportError)

N_NODES = 9
USER_CASES = [case for case in CASES if case.unit == "user"]
RATINGS = realistic(36, 30, 400, seed=3)
PARTS = [RATINGS.rows(np.arange(36) % N_NODES == node, keyed=True) for node in range(N_NODES)]
SHARED = PrivateALS(rank=2, iterations=1, bias_rounds=1, n_users=36)
BY_ITEM = DPALS(rank=2, iterations=1, max_ratings_per_user=10, user_norm=0.5, clip=1.0, regularization=5.0)


def agreed(estimator=SHARED, epsilon=5.0, **changes):
    settings = {"n_nodes": N_NODES, "colluding": 1, "seed": 4, **changes}
    return Agreement(estimator=estimator, budget=Budget(epsilon, 1e-6), domain=RATINGS.domain, **settings)


class Network:
    """A server and its nodes, each in a thread, over the loopback address."""

    def __init__(self, agreement, spoil=lambda node, connection: None, patience=20, parts=PARTS, quiet=20.0):
        self.server = server.AggregationServer(agreement, quiet=quiet, patience=patience)
        self.results: list = [None] * agreement.n_nodes
        self.seen: list = []
        limits = Limits(connections=4 * agreement.n_nodes, requests_per_second=1e6)

        def answer(method, path, token, body):
            self.seen.append((path, body))
            return self.server.answer(method, path, token, body)

        def one(node, url):
            connection = Connection(url, timeout=60, patience=5)
            spoil(node, connection)
            try:
                self.results[node] = client.take_part(
                    connection, agreement, parts[node], node=f"n{node}", ledger=None, noise=SeededNoise(node)
                )
            except BaseException as error:
                self.results[node] = error

        with Service(answer, limits=limits) as service:
            nodes = [threading.Thread(target=one, args=(n, service.url)) for n in range(agreement.n_nodes)]
            for node in nodes:
                node.start()
            try:
                self.billboard = self.server.train()
            except HushrecError as error:
                self.billboard = error
            for node in nodes:
                node.join()
        for result in self.results:
            if isinstance(result, BaseException) and not isinstance(result, HushrecError | SystemExit):
                raise result


def central_run(agreement, alive=lambda index: range(N_NODES), parts=PARTS):
    """The same training in lock step, every contribution and noise added up in one place in the clear."""
    barrier = threading.Barrier(agreement.n_nodes, timeout=60)
    held: dict[int, list] = {index: [None] * agreement.n_nodes for index in range(50)}
    boards: list = [None] * agreement.n_nodes

    def one(node):
        noise = SeededNoise(node)

        def total(index, label, integers, noise_sd, steps):
            drawn = noise.rounded_gaussian(noise_sd, label)
            whole = [int(x) + int(z) for x, z in zip(integers.view(np.int64), drawn)]
            held[index][node] = np.array(whole, dtype=object)
            barrier.wait()
            added = sum(held[index][member] for member in alive(index))
            return np.array([value % 2**64 for value in added], dtype=np.uint64)

        boards[node] = agreement.train(parts[node], total)

    nodes = [threading.Thread(target=one, args=(node,)) for node in range(agreement.n_nodes)]
    for node in nodes:
        node.start()
    for node in nodes:
        node.join()
    return boards[0]


def assert_equal(first, second):
    assert first.arrays.keys() == second.arrays.keys()
    for name, array in first.arrays.items():
        np.testing.assert_array_equal(array, second.arrays[name], err_msg=name)


def stop_at(kind, release):
    """Spoil a connection: the node is gone where it would send this message of this release."""

    def spoil(connection):
        post = connection.post

        def until(message, reply, *path, token=""):
            if isinstance(message, kind) and path[1] == str(release):
                raise SystemExit
            return post(message, reply, *path, token=token)

        connection.post = until

    return spoil


@pytest.mark.parametrize(
    "estimator",
    [SHARED, BY_ITEM, ItemBias(), PrivateFrankWolfe(nuclear_norm=20.0, iterations=2)],
    ids=["shared", "by item", "item-bias", "frank-wolfe"],
)
def test_equals_the_central_run_bit_for_bit(estimator):
    agreement = agreed(estimator)
    network = Network(agreement)
    for result in network.results:
        assert_equal(result, network.billboard)
    assert_equal(central_run(agreement), network.billboard)
    assert network.billboard.privacy.releases == agreement.plan.releases
    assert not network.results[0].privacy.private  # its noise was injected


@pytest.mark.full
def test_two_hundred_nodes_with_a_third_gone():
    """MovieLens-100K's shape, one full training; the same bits as the central run of the survivors."""
    ratings = realistic(943, 1682, 100_000, seed=0)
    parts = [ratings.rows(np.arange(943) % 200 == node, keyed=True) for node in range(200)]
    budget = Budget(5.0, 1e-6)
    agreement = Agreement(
        estimator=PrivateALS.planned(budget, ratings.domain, 943),
        budget=budget,
        domain=ratings.domain,
        n_nodes=200,
        colluding=10,
    )
    assert agreement.graph.degree < 100
    gone = set(range(2, 200, 3))
    network = Network(
        agreement, lambda node, c: stop_at(Masked, 2)(c) if node in gone else None, parts=parts, quiet=10
    )

    def alive(index):
        return range(200) if index < 2 else [node for node in range(200) if node not in gone]

    assert_equal(central_run(agreement, alive, parts), network.billboard)


def test_without_noise_it_is_the_plain_fit():
    """The grid is so fine that the exact fit of all users together is met to single precision."""
    agreement = agreed(epsilon=math.inf)
    network = Network(agreement)
    plain = SHARED.fit(RATINGS, Accountant(Budget(math.inf, 1e-6)), seed=4)
    for name, array in plain.arrays.items():
        np.testing.assert_allclose(network.billboard.arrays[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", [Prepared, Masked, Unmasking])
def test_a_third_drops_out_at_any_step(kind):
    agreement, gone, release = agreed(), {1, 4, 7}, 1
    network = Network(agreement, lambda node, c: stop_at(kind, release)(c) if node in gone else None, quiet=2)
    staying = [node for node in range(N_NODES) if node not in gone]

    def alive(index):
        lost = index > release or (index == release and kind is not Unmasking)
        return staying if lost else range(N_NODES)

    assert_equal(central_run(agreement, alive), network.billboard)
    for node in staying:
        assert_equal(network.results[node], network.billboard)


def test_who_is_late_comes_back():
    """A node that sleeps through one release gets its total and is in the next one again."""
    agreement = agreed()
    last = len(agreement.plan.releases) - 1
    back = threading.Event()

    def spoil(node, connection):
        post = connection.post

        def late(message, reply, *path, token=""):
            if node == 3 and isinstance(message, Masked) and path[1] == "1":
                time.sleep(5)
            if isinstance(message, Prepared) and path[1] == str(last):
                back.set() if node == 3 else back.wait(10)
            return post(message, reply, *path, token=token)

        connection.post = late

    network = Network(agreement, spoil, quiet=2)
    assert_equal(network.results[3], network.billboard)
    assert any(path[:2] == ["total", "1"] for path, _ in network.seen)
    everybody = [f"n{node}" for node in range(N_NODES)]
    masked = network.server._steps["masked", last].sent
    assert sorted(masked) == everybody and "n3" not in network.server._steps["masked", 1].sent


def test_more_than_a_third_stop_the_training():
    network = Network(agreed(), lambda node, c: stop_at(Masked, 1)(c) if node < 4 else None, patience=4)
    assert isinstance(network.billboard, HushrecError)
    assert all(isinstance(result, HushrecError | SystemExit) for result in network.results)
    assert set(network.server._sums) == {0}


def test_the_server_sees_uniform_words_only():
    """Masked vectors of a run: every bit is a fair coin, and none repeats in another run."""
    agreement = agreed(ItemBias())
    network = Network(agreement)
    vectors = [message.values for message in network.server._steps["masked", 0].sent.values()]
    bits = np.unpackbits(np.concatenate(vectors).view(np.uint8))
    assert abs(bits.mean() - 0.5) < 5 / (2 * math.sqrt(len(bits)))
    total = network.server._sums[0].values
    assert not np.array_equal(sum(vectors), total)  # own masks are on even the sum
    again = Network(agreement)
    others = [message.values for message in again.server._steps["masked", 0].sent.values()]
    assert not any((one == other).any() for one in vectors for other in others)
    np.testing.assert_array_equal(again.server._sums[0].values, total)  # while the total is the same


def test_noise_of_the_survivors_is_the_planned_one(monkeypatch):
    """What the survivors' shares add up to without the colluding ones, against the plan."""
    agreement = agreed(ItemBias(), colluding=2)
    (release,) = agreement.plan.releases
    drawn = {}

    def total(index, label, integers, noise_sd, steps):
        drawn.update(sd=noise_sd, size=len(integers))
        return integers

    agreement.train(PARTS[0], total)
    honest = agreement.fewest - agreement.colluding
    assert honest == 4
    (scale,) = entry_scales(agreement.estimator, PARTS[0])
    assert (drawn["sd"] >= 2**20).all()
    steps = release.noise_sd / scale / math.sqrt(honest) / drawn["sd"]  # of the grid: powers of two
    np.testing.assert_allclose(np.exp2(np.rint(np.log2(steps))), steps, rtol=1e-12)
    noise = SeededNoise(0).rounded_gaussian(np.full(100_000, 1000.0), "x")
    assert abs(noise.std() / 1000 - 1) < 5 / math.sqrt(2e5)


def entry_scales(estimator, ratings):
    """Scales of the entries of an estimator's releases."""
    found = []

    class Keeping(SecureGate):
        def release(self, label, bounded):
            value = super().release(label, bounded)
            found.append(np.broadcast_to(bounded.entry_scale, value.shape).ravel())
            return value

    plan = estimator.plan(Budget(5.0, 1e-6), ratings.domain)
    gate = Keeping(plan, 1, lambda index, label, integers, *_: integers)
    estimator.train(estimator.users(ratings), gate, 0)
    return found


@pytest.mark.parametrize("case", USER_CASES, ids=lambda case: case.name)
def test_nodes_add_up_to_the_central_run(case):
    """Integers of the nodes are their values, and add up to what a central gate is given, to the last bit."""
    users = hostile_users(np.random.default_rng(1), 12)
    whole, noise, budget = ratings_of(users), RecordingNoise(SeededNoise(0)), case.budget("add-remove")
    case.estimator.fit(whole, Accountant(budget, noise=noise), seed=1)
    exact, released, sums = {}, {}, {}
    for call in noise.calls:
        exact.setdefault(call.label, []).append(call.value)
        released.setdefault(call.label, []).append(call.output)

    class Node(SecureGate):
        def release(self, label, bounded):
            sums[label] = sums.get(label, 0.0) + super().release(label, bounded)
            return np.concatenate(released[label])

    plan, names = case.estimator.plan(budget, whole.domain), list(users)
    for part in (names[:4], names[4:9], names[9:]):
        rows = ratings_of({name: users[name] for name in part})
        gate = Node(plan, 3, lambda index, label, integers, *_: integers)
        case.estimator.train(case.estimator.users(rows.rated()), gate, 1)
    for label, values in exact.items():
        np.testing.assert_array_equal(sums[label], np.concatenate(values))


def test_sessions_and_tokens_are_drawn_anew():
    """Equal by a chance below 2^-90."""
    servers = [server.AggregationServer(agreed()) for _ in range(2)]
    assert servers[0].session != servers[1].session and len(set(servers[0].session)) > 4
    members = [client.Member(None, agreed(), name, SeededNoise(1)) for name in ("n1", "n2")]
    assert members[0]._token != members[1]._token and len(set(members[0]._token)) > 4


def test_a_release_that_is_not_planned_is_no_page():
    aggregation = server.AggregationServer(agreed())
    aggregation._tokens["n0"] = "t" * 32
    last = len(agreed().plan.releases) - 1
    for text in (str(last + 1), "-1", "", "x", "1.0", "1" * 9, "0" * 10):
        with pytest.raises(Refusal) as refusal:
            aggregation.answer("GET", ["total", text, "n0"], "t" * 32, b"")
        assert refusal.value.status == 404
    assert aggregation._index(str(last)) == last


def test_the_circle_of_nodes_is_drawn_anew(monkeypatch):
    """Who can place a node beside colluding ones opens its sum: no seed, no order of enrolment decides."""
    orders = []
    monkeypatch.setattr(server, "circle", lambda order, degree: orders.append(tuple(order)) or {})
    for _ in range(5):
        server.AggregationServer(agreed())._introduce({f"n{node}": None for node in range(N_NODES)})
    assert len(set(orders)) == 5


def test_what_is_no_exact_sum_is_refused():
    class Rounded(Users):
        def item_weights(self):
            bounded = super().item_weights()
            return Bounded(bounded._values, bounded.bound)

    gate = SecureGate(Popular().plan(Budget(5.0, 1e-6), RATINGS.domain), 3, lambda *_: None)
    with pytest.raises(InputError, match="no exact sum"):
        Popular().train(Rounded(PARTS[0]), gate, 0)


def test_releases_whose_noise_does_not_add_are_refused():
    """Killed: Laplace noise taken for Gaussian, since shares of it do not add up to Laplace noise."""

    class Pure(ItemBias):
        def releases(self, budget, domain, fraction):
            plan = super().releases(budget, domain, fraction)
            return Plan(budget, [replace(one, mechanism=Laplace(0.1)) for one in plan.releases])

    with pytest.raises(InputError, match="not Gaussian"):
        agreed(Pure())


@pytest.mark.parametrize("nodes", [1, 2])
def test_releases_that_do_not_fit_the_budget_together_are_refused(nodes):
    """Nodes without a ledger count nowhere else what is released."""

    class Greedy(ItemBias):
        def releases(self, budget, domain, fraction):
            plan = super().releases(budget, domain, fraction)
            less = [Gaussian(0.99 * one.mechanism.noise_multiplier) for one in plan.releases]
            return Plan(budget, [replace(one, mechanism=law) for one, law in zip(plan.releases, less)])

    with pytest.raises(BudgetError, match="past the budget"):
        agreed(Greedy(), nodes_per_user=nodes)


def test_noise_that_sums_have_no_room_for_is_refused():
    with pytest.raises(InputError, match="larger epsilon"):
        agreed(epsilon=1e-5)


def test_what_a_server_left_out_is_refused():
    """Killed: an unexpected KeyError, which says nothing to whom a server lies."""
    for kind, whole in (
        (Neighbours, {"session": "s", "agreement": "a", "names": ["n1"], "envelope_keys": {}}),
        (Envelopes, {"mask_keys": {"n1": "AAAA"}, "shares": {}, "signatures": {}}),
    ):
        with pytest.raises(InputError, match="comes with"):
            from_json(kind, json.dumps(whole).encode())


def test_another_agreement_is_refused():
    mine, theirs = agreed(), agreed(seed=5)
    aggregation = server.AggregationServer(theirs)
    with Service(aggregation.answer) as service, pytest.raises(HushrecError, match="another agreement"):
        client.take_part(Connection(service.url, patience=0), mine, PARTS[0], node="n0", ledger=None)


@pytest.mark.parametrize(
    ("node", "token"), [("n0", ""), ("n0", "u" * 32), ("n0", "t" * 31), ("ghost", ""), ("ghost", "t" * 32)]
)
@pytest.mark.parametrize("page", ["prepared", "masked", "unmasking", "total"])
def test_no_page_is_for_a_node_without_its_own_token(page, node, token):
    aggregation = server.AggregationServer(agreed(), quiet=0.0, patience=0.0, hold=0.0)
    aggregation._tokens = {"n0": "t" * 32, "n1": "u" * 32}
    messages = {
        "prepared": Prepared(node, bytes(32), "", {}),
        "masked": Masked(node, np.zeros(1, np.uint64)),
        "unmasking": Unmasking(node, bytes(32), {}, {}),
    }
    with pytest.raises(Refusal, match="not that of this node") as refused:
        if page == "total":
            aggregation.answer("GET", ["total", "0", node], token, b"")
        else:
            aggregation.answer("POST", [page, "0"], token, messages[page].to_json())
    assert refused.value.status == 403 and not aggregation._steps and not aggregation._present


def test_a_failure_in_opening_the_total_stops_the_training(monkeypatch):
    """Nobody waits for ever for a total that will not come."""

    def fail(self, index, unmaskings):
        raise ZeroDivisionError

    monkeypatch.setattr(server.AggregationServer, "_open", fail)
    network = Network(agreed(ItemBias()))
    for result in (network.billboard, *network.results):
        assert "could not be opened (ZeroDivisionError)" in str(result)


def test_secrets_of_another_length_are_refused():
    with pytest.raises(InputError, match="32 bytes"):
        Unmasking("n0", b"short", {}, {})
    with pytest.raises(InputError, match="32 bytes"):
        Unmasking("n0", bytes(32), {"n1": bytes(31)}, {})


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("estimator", [Popular(), ItemBias(clip=0.3)], ids=["popular", "item-bias"])
def test_a_user_with_several_nodes_is_covered(estimator, nodes):
    """Killed: a sensitivity that counts her once, noise that does (the total moved by k times as much)."""
    domain = Domain([f"i{item}" for item in range(5)], rating_range=(1, 5))
    agreement = Agreement(
        estimator=estimator,
        budget=Budget(1, 1e-6),
        domain=domain,
        n_nodes=4,
        dropouts=0,
        nodes_per_user=nodes,
    )
    sds = []

    def total(rows):
        """The first release of all nodes together, without noise."""
        sums = []
        for part in rows:

            def send(index, label, integers, sd, steps):
                if index == 0:
                    sums.append(integers.copy())
                    sds.append(sd)
                return integers

            agreement.train(Ratings.from_any((*zip(*part),), domain) if part else nobody, send)
        return np.sum(sums, axis=0, dtype=np.uint64).view(np.int64)

    nobody = Ratings.from_any(([], [], []), domain)
    others = [[("a", "i0", 5)], [("b", "i1", 5)], [("c", "i2", 5)], []]
    hers = [("she", "i4", 5), ("she", "i3", 1)]
    with_her = [part + hers if node < nodes else part for node, part in enumerate(others)]
    moved = (total(with_her) - total(others)).astype(float)
    shown = np.linalg.norm(moved / np.sqrt(sum(sd**2 for sd in sds[:4])))
    assert 0.5 * agreement.plan.mu < shown <= agreement.plan.mu * (1 + 1e-12)
    assert agreement.plan.mu <= agreement.promise.mu * (1 + 1e-12)
    billboard = agreement.train(nobody, lambda index, label, integers, *_: integers)
    assert f"no user is with more than {nodes} of the nodes" in " ".join(billboard.privacy.text().split())
    assert billboard.privacy.releases == agreement.plan.releases


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_a_user_with_several_nodes_is_charged_for_all_of_them(nodes):
    """The noise of a release is as it was; the sensitivity that it is stated for is that of all her nodes."""
    alone, several = agreed(), agreed(nodes_per_user=nodes)
    plans = (agreement.releases for agreement in (alone.plan, several.sent, several.plan))
    for one, sent, more in zip(*plans, strict=True):
        sds = [each.sensitivity * each.mechanism.noise_multiplier for each in (one, sent, more)]
        assert more.sensitivity == pytest.approx(nodes * one.sensitivity) and more.label == one.label
        assert sds == pytest.approx([sds[0], nodes * sds[0], nodes * sds[0]])
    assert several.plan.mu == pytest.approx(alone.plan.mu)


def test_the_neighbour_graph_is_paid_for():
    """Killed: noise for all of delta, and 2^-39 that no statement names; a delta that is smaller."""
    agreement = agreed()
    assert agreement.plan.mu <= mu_of(5.0, 1e-6 - 2.0**-39) * (1 + 1e-12) < Budget(5.0, 1e-6).mu
    n_nodes, graph = agreement.n_nodes, choose_graph(200, 66, 10, 40)
    assert graph.degree < 199 and n_nodes == N_NODES
    chances = 200 * _at_least(graph.threshold, 199, 10, graph.degree) + 40 * _apart(200, 76, graph.degree)
    assert chances < 2.0**-39
    text = agreement.train(PARTS[0], lambda index, label, integers, *_: integers).privacy.text()
    assert "2^-39" in text and "1.81899e-12 of delta reserved" in " ".join(text.split())
    for delta in (1e-15, 2.0**-39):
        with pytest.raises(InputError, match="not above 2\\^-39"):
            replace(agreement, budget=Budget(5.0, delta))


@pytest.mark.parametrize(
    "changes",
    [
        {"n_nodes": 2, "dropouts": 0.0, "colluding": 0},  # each would learn the other's sums from the total
        {"dropouts": 0.5},
        {"dropouts": 0.7},
        {"dropouts": -0.1},
        {"colluding": -1},
        {"colluding": 5},
        {"nodes_per_user": 0},
        {"nodes_per_user": 10},
    ],
)
def test_bad_agreements(changes):
    with pytest.raises(InputError):
        agreed(**changes)
    with pytest.raises(InputError):
        Agreement(
            estimator=SHARED, budget=Budget(5, 1e-6, relation="replace"), domain=RATINGS.domain, n_nodes=9
        )


def refused(agreement, ratings, words):
    with pytest.raises(InputError, match=words):
        agreement.train(ratings, lambda *_: pytest.fail("a sum left the node"))


def test_a_domain_read_from_ratings_is_refused():
    """Killed: the agreement's domain taken for that of the ratings, alike but for `declared`."""
    observed = replace(RATINGS.domain, declared=False)
    with pytest.raises(InputError, match="declare"):
        replace(agreed(), domain=observed)
    refused(agreed(), replace(PARTS[0], domain=observed), "declare")
    assert replace(agreed(epsilon=math.inf), domain=observed).plan.releases


def test_nodes_refuse_what_a_central_run_refuses(monkeypatch):
    refused(agreed(seed=-1), PARTS[0], "seed=-1")
    monkeypatch.setattr("hushrec.training.LARGEST_COUNT", 3)
    refused(agreed(), PARTS[0], "exact for up to 3 users")


def test_a_node_refuses_rows_before_it_enrols():
    """There is no connection that it could say anything over."""
    picked = RATINGS.where(RATINGS.matrix.data > 2)
    other = realistic(10, 20, 100, seed=0)
    for rows, words in ((picked, "a rule of your own"), (other, "another domain")):
        with pytest.raises(InputError, match=words):
            client.take_part(None, agreed(), rows, node="n0", ledger=None)


def with_features(features):
    return replace(RATINGS.domain, item_features=features)


def test_the_fingerprint_holds_all_that_a_training_reads(monkeypatch):
    """Killed: item features, their shape, or the version of the library left out."""
    features = np.arange(60.0).reshape(30, 2)
    domains = [RATINGS.domain, *map(with_features, (features, features + 1, features[:, :1]))]
    agreements_made = [replace(agreed(), domain=domain) for domain in domains]
    agreements_made += [agreed(seed=5), agreed(colluding=2), agreed(dropouts=0.2), agreed(epsilon=4.0)]
    agreements_made += [agreed(nodes_per_user=2)]
    known = {agreement.fingerprint for agreement in agreements_made}
    assert len(known) == 9
    assert replace(agreed(), domain=with_features(features.copy())).fingerprint in known
    monkeypatch.setattr(agreements, "library_version", lambda: "another")
    assert agreed().fingerprint not in known


def test_item_features_are_agreed_on_and_stated():
    agreement = replace(agreed(), domain=with_features(np.ones((30, 3))))
    refused(agreement, PARTS[0], "item features")
    rows = replace(PARTS[0], domain=agreement.domain)
    billboard = agreement.train(rows, lambda index, label, integers, *_: integers)
    assert "3 item features" in billboard.privacy.text()


def test_every_release_counts_for_the_graph():
    agreement = agreed(replace(SHARED, iterations=20), n_nodes=200, colluding=10)
    releases = len(agreement.plan.releases)
    assert agreement.graph == choose_graph(200, 66, 10, releases) != choose_graph(200, 66, 10, 1)
    assert releases > 60


@pytest.mark.parametrize("estimator", [SHARED, replace(SHARED, n_users=None), BY_ITEM, ItemBias()])
def test_a_row_without_ratings_contributes_nothing(estimator):
    """Killed: an empty row that votes for the level and is counted."""

    def sent(ratings):
        sums = []
        agreed(estimator).train(ratings, lambda index, label, integers, *_: sums.append(integers) or integers)
        return sums

    empty = replace(PARTS[0].for_users([*PARTS[0].users, "nobody", "nobody else"]), hand_picked=False)
    assert empty.n_users == PARTS[0].n_users + 2
    for one, other in zip(sent(PARTS[0]), sent(empty), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_step_is_for_those_who_took_part_in_the_one_before_when_that_is_over():
    """Killed: a node whose keys nobody has sends masked sums; another one does not wait for the others."""
    domain = Domain(range(3), (1, 5))
    agreement = Agreement(
        estimator=ItemBias(), budget=Budget(5, 1e-6), domain=domain, n_nodes=4, dropouts=0.25
    )
    one = server.AggregationServer(agreement)
    one._present = {"n1", "n2", "n3"}
    first = one._step("prepared", 0, "n1")
    assert first.expected == one._present and first is one._step("prepared", 0, "n9")
    first.sent |= {"n1": None, "n2": None}
    for name in ("n1", "n3"):  # not over yet
        with pytest.raises(Refusal):
            one._step("masked", 0, name)
    first.closed = True
    with pytest.raises(Refusal):
        one._step("masked", 0, "n3")
    with pytest.raises(Refusal):  # there was none
        one._step("masked", 1, "n1")
    assert one._step("masked", 0, "n1").expected == {"n1", "n2"}


def test_as_many_shares_as_were_agreed_open_a_secret():
    """The threshold is enough, one share less is not; shares of others are none of it."""
    serving = server.AggregationServer(agreed())
    names, threshold = [f"n{node}" for node in range(1, N_NODES)], serving.agreement.graph.threshold
    serving._neighbours = {"n0": names}
    shares = dict(zip(names, server.masks.split(bytes([7]) * 32, len(names), threshold)))

    def told(count):
        return {
            name: Unmasking(name, bytes(32), {"n0": share} if place < count else {"n8": share}, {})
            for place, (name, share) in enumerate(shares.items())
        }

    for count in (threshold, threshold + 1):
        assert serving._secret("n0", "seeds", told(count)) == bytes([7]) * 32
    with pytest.raises(HushrecError, match="Too few neighbours"):
        serving._secret("n0", "seeds", told(threshold - 1))


@pytest.mark.parametrize(("heard", "since", "ends"), [(None, None, 10), (6, None, 16), (6, 3, 13)])
def test_a_training_is_given_up_when_nothing_was_heard_for_too_long(heard, since, ends, monkeypatch):
    """From the last message on, or from when the step began; the clock is this test's."""
    serving, clock = server.AggregationServer(agreed(), patience=10.0, enrolment=99.0), [0.0]
    serving._neighbours = {"n0": ["n1"]}
    monkeypatch.setattr(server.time, "monotonic", lambda: clock[0])

    def passes(seconds):
        clock[0] += 1.0
        if clock[0] == heard and serving._neighbours:
            serving._last = clock[0]

    serving._lock.wait = passes
    with serving._lock, pytest.raises(Refusal, match="Too few nodes are left; the training has") as gone:
        serving._wait(lambda: False, math.inf, since)
    assert (clock[0], gone.value.status) == (ends, 410)
    serving._trouble, serving._neighbours, clock[0], serving._last = "", {}, 0.0, -math.inf
    with serving._lock, pytest.raises(Refusal, match="Not all nodes have enrolled in time"):
        serving._wait(lambda: False, math.inf)
    assert clock[0] == 99.0
    serving._trouble, clock[0] = "", 0.0
    with serving._lock, pytest.raises(Refusal, match="send the same again") as later:
        serving._wait(lambda: False, 4.0)
    assert (clock[0], later.value.status) == (4.0, 202)


def test_a_step_that_is_over_takes_no_more():
    """Whoever comes later is told so; what was sent already may be sent again, and nothing else may."""
    serving = server.AggregationServer(agreed(), hold=0.0)
    one, two = (Prepared(name, bytes([number]) * 32, "state", {}) for number, name in enumerate(("n0", "n1")))
    first, awaited = server._Step({"n0"}, 1), server._Step({"n0", "n1"}, 1)
    serving._steps = {("prepared", 0): first, ("prepared", 1): awaited}
    assert serving._gather("prepared", 0, one) == {"n0": one} and first.closed
    assert serving._gather("prepared", 0, one) == {"n0": one}
    with pytest.raises(Refusal, match="goes on without this node") as late:
        serving._gather("prepared", 0, two)
    with pytest.raises(Refusal, match="another message in this step") as changed:
        serving._gather("prepared", 0, replace(one, state="other"))
    assert first.sent == {"n0": one} and late.value.status == changed.value.status == 409
    with pytest.raises(Refusal, match="Other nodes are awaited") as waits:
        serving._gather("prepared", 1, one)
    assert waits.value.status == 202 and not awaited.closed
    assert serving._gather("prepared", 1, two) == {"n0": one, "n1": two}


@pytest.mark.parametrize("coarse", [2.0**-4, 2.0**-40])
@pytest.mark.parametrize("multiplier", [3.0, 0.0])
def test_integers_and_noise_are_on_one_grid(coarse, multiplier):
    """A step is at most 2^-20 of a node's noise and divides that of the sums; squares of noise add up."""
    release = Release("sums", Gaussian(multiplier), 2.0, "user", "add-remove")
    values, asked = np.array([[1.0, -2.5], [0.75, 8.0]]), []

    def total(index, label, integers, noise_sd, steps):
        asked.append((index, label, integers.view(np.int64), noise_sd, steps))
        return integers * np.uint64(5)

    budget = Budget(5.0 if multiplier else math.inf, 1e-6)
    plan = Plan(budget, [replace(release, label="first"), release])
    found = SecureGate(plan, 4, total).release("sums", Bounded(values, positive(1.0), scale=2.0, step=coarse))
    ((index, label, integers, noise_sd, steps),) = asked
    share = 2.0 * multiplier / 2 / 2.0  # of four honest nodes, before the scale
    np.testing.assert_allclose(noise_sd * steps, share, rtol=1e-12)
    np.testing.assert_array_equal(integers * steps, values.ravel())
    assert (index, label, set(steps)) == (1, "sums", {min(coarse, 2.0**-20) if multiplier else coarse})
    np.testing.assert_array_equal(found, 5 * values)


@pytest.mark.parametrize("told", [[1 << 54, 0], [0, (1 << 64) - (1 << 54)], [1 << 63, 0], [0], [0, 0, 0]])
def test_a_total_that_no_nodes_can_add_up_to_is_refused(told):
    """Before anything is computed with what the server says. Killed: totals that are believed."""
    release = Release("sums", Gaussian(3.0), 1.0, "user", "add-remove")
    plan, told = Plan(Budget(5.0, 1e-6), [release]), np.array(told, np.uint64)
    sums = Bounded(np.zeros(2), positive(1.0), step=2.0**-28)
    assert SecureGate(plan, 4, lambda *_: np.full(2, 1 << 50, np.uint64)).release("sums", sums)[0] == 2.0**22
    with pytest.raises(HushrecError, match="none that nodes can add up to"):
        SecureGate(plan, 4, lambda *_: told).release("sums", sums)
    drowned = Bounded(np.zeros(2), positive(1.0), weight=[1.0, 1e300], step=2.0**-28)
    with pytest.raises(InputError, match="makes the noise of release 'sums' vanish"):
        SecureGate(plan, 4, lambda *_: told).release("sums", drowned)
