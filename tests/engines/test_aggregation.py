"""Private training by nodes: equal to the central run, with dropouts at every step, and nothing else seen."""

import math
import threading
from dataclasses import replace

import numpy as np
import pytest

from hushrec.algorithms import ItemBias, Popular, PrivateALS
from hushrec.data import Domain, Ratings, realistic
from hushrec.engines.secure import agreement as agreements
from hushrec.engines.secure.gate import SecureGate
from hushrec.engines.secure.messages import Enrolment, Masked, Prepared, Unmasking
from hushrec.engines.two_servers import agreement as two_servers
from hushrec.errors import BudgetError, HushrecError, InputError
from hushrec.network.messages import Refusal
from hushrec.network.service import Service
from hushrec.network.transport import Connection
from hushrec.papers.dpals import DPALS
from hushrec.papers.frank_wolfe import PrivateFrankWolfe
from hushrec.privacy import Accountant, Bounded, Budget, Gaussian, Laplace, Plan, Release, mu_of, positive
from hushrec.privacy.testing import RecordingNoise, SeededNoise
from hushrec.testing import hostile_users, ratings_of
from hushrec.training.users import Users
from tests.algorithms.cases import CASES
from tests.engines.nodes import Session, agreement_of, assert_equal, client, names_of, parts_of, server

N_NODES = 9
NAMES = names_of(N_NODES)
USER_CASES = [case for case in CASES if case.unit == "user"]
RATINGS = realistic(36, 30, 400, seed=3)
PARTS = parts_of(RATINGS, N_NODES)
SHARED = PrivateALS(rank=2, iterations=1, bias_rounds=1, n_users=36)
BY_ITEM = DPALS(rank=2, iterations=1, max_ratings_per_user=10, user_norm=0.5, clip=1.0, regularization=5.0)


def agreed(estimator=SHARED, epsilon=5.0, **changes):
    settings = {"n_nodes": N_NODES, "colluding": 1} | changes
    return agreement_of(estimator, RATINGS, epsilon=epsilon, **settings)


def central_run(agreement, alive=lambda index, name: True, parts=PARTS):
    """The same training in lock step, every contribution and noise added up in one place in the clear."""
    barrier = threading.Barrier(agreement.n_nodes, timeout=500)
    held, boards = [{} for _ in agreement.plan.releases], {}

    def one(name):
        noise = SeededNoise(int(name[1:]))

        def total(index, label, integers, noise_sd, steps):
            drawn = noise.rounded_gaussian(noise_sd, label)
            whole = [int(x) + int(z) for x, z in zip(integers.view(np.int64), drawn)]
            held[index][name] = np.array(whole, dtype=object)
            barrier.wait()
            added = sum(each for other, each in held[index].items() if alive(index, other))
            return np.array([value % 2**64 for value in added], dtype=np.uint64)

        boards[name] = agreement.train(parts[name], total)

    nodes = [threading.Thread(target=one, args=(name,)) for name in parts]
    for node in nodes:
        node.start()
    for node in nodes:
        node.join()
    return boards["n0"]


@pytest.mark.parametrize(
    "estimator",
    [SHARED, BY_ITEM, ItemBias(), PrivateFrankWolfe(nuclear_norm=20.0, iterations=2)],
    ids=["shared", "by item", "item-bias", "frank-wolfe"],
)
def test_equals_the_central_run_bit_for_bit(estimator):
    agreement = agreed(estimator)
    session = Session(agreement, PARTS)
    for result in session.results.values():
        assert_equal(result, session.billboard)
    assert_equal(central_run(agreement), session.billboard)
    assert session.billboard.privacy.releases == agreement.plan.releases
    assert not session.results["n0"].privacy.private  # its noise was injected


@pytest.mark.parametrize("does", ["gone", "late"])
@pytest.mark.parametrize("kind", [Prepared, Masked, Unmasking])
def test_a_third_drops_out_at_any_step(kind, does):
    """A node that was late for one release gets its total and is in the next one again."""
    agreement, away = agreed(), {"n1", "n4", "n7"} if does == "gone" else {"n3"}
    session = Session(agreement, PARTS, dict.fromkeys(away, (kind, "1", does)))

    def alive(index, name):
        lost = (index > 1 and does == "gone") or (index == 1 and kind is not Unmasking)
        return not lost or name not in away

    if (kind, does) != (Prepared, "late"):  # which draws no noise in that release, and other noise then
        assert_equal(central_run(agreement, alive), session.billboard)
    assert does == "gone" or "n3" in session.of(Masked, len(agreement.plan.releases) - 1)
    for name in set(NAMES) - (away if does == "gone" else set()):
        assert_equal(session.results[name], session.billboard)


def test_a_training_that_cannot_go_on_ends_for_everybody():
    """Too few stay, come or are left; a total cannot be opened. Nobody waits for ever, and all are told."""
    for where, count in {(Masked, "1"): 4, (Prepared, "0"): 9, (Masked, "0"): 9}.items():
        session = Session(agreed(), PARTS, dict.fromkeys(NAMES[:count], (*where, "gone")))
        assert "Too few nodes" in str(session.billboard)
        assert all("Too few nodes" in str(session.results[name]) for name in NAMES[count:])
        assert set(session.totals) == ({"0"} if where[1] == "1" else set())
    for missing in (NAMES, NAMES[2:]):
        session = Session(agreed(ItemBias()), PARTS, missing=missing)
        assert "Not all nodes have enrolled in time" in str(session.billboard)
        assert all("enrolled in time" in str(result) for result in session.results.values())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.masks, "join", lambda shares: 1 / 0)
        session = Session(agreed(ItemBias()), PARTS, {"n2": (Masked, "0", "gone")})
    for result in (session.billboard, *(session.results[name] for name in NAMES if name != "n2")):
        assert "could not be opened (ZeroDivisionError)" in str(result)


def test_early_nodes_wait_longer_than_a_connection():
    """Over HTTP: a node is told to ask again, and sends the same, until the last one comes."""
    agreement, asked, late, found = agreed(ItemBias()), [], threading.Event(), {}
    serving = server.AggregationServer(agreement, quiet=500, patience=500, hold=0.1)

    def answer(method, path, token, body):
        asked.append(body) if path == ["enrolment"] else None
        late.set() if len(asked) > 3 * N_NODES else None
        return serving.answer(method, path, token, body)

    def one(name):
        assert name != "n8" or late.wait(500)
        connection = Connection(service.url, timeout=100, patience=0)
        found[name] = client.take_part(connection, agreement, PARTS[name], node=name, ledger=None)

    threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in NAMES]
    with Service(answer) as service:
        for thread in threads:
            thread.start()
        billboard = serving.train()
        for thread in threads:
            thread.join()
    assert len(set(asked)) == N_NODES
    for name in NAMES:
        assert_equal(found[name], billboard)


def test_the_server_sees_uniform_words_only():
    """Masked vectors of a run: every bit is a fair coin, and none repeats in another run."""
    runs = [Session(agreed(ItemBias()), PARTS) for _ in range(2)]
    one, other = ([message.values for message in run.of(Masked).values()] for run in runs)
    bits = np.unpackbits(np.concatenate(one).view(np.uint8))
    assert abs(bits.mean() - 0.5) < 5 / (2 * math.sqrt(len(bits)))
    assert not np.array_equal(sum(one), runs[0].totals["0"])  # own masks are on even the sum
    assert not any((mine == theirs).any() for mine in one for theirs in other)
    np.testing.assert_array_equal(*(run.totals["0"] for run in runs))  # while the total is the same
    assert runs[0].called != runs[1].called and len(set(runs[0].called)) > 4


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


def enrolled(agreement, names=NAMES):
    """A server to which these nodes have come, and what it told them."""
    serving, answers = server.AggregationServer(agreement, quiet=500, hold=0.0), []
    for name in (*names, *names):
        message = Enrolment(name, agreement.fingerprint, client.masks.public_part(bytes([7]) * 32))
        try:
            answers.append(serving.answer("POST", ["enrolment"], name * 16, message.to_json()))
        except Refusal as refused:
            assert refused.status == 202
    return serving, answers


def status_of(serving, method, path, token, message=None):
    with pytest.raises(Refusal) as refused:
        serving.answer(method, path, token, b"" if message is None else message.to_json())
    return refused.value.status


def test_doors_of_the_server():
    """Releases that are not planned, tokens that are not a node's own, enrolments that are taken."""
    agreement = agreed(ItemBias())
    serving, _ = enrolled(agreement)
    shares = {name: bytes(3) for name in NAMES if name != "n0"}
    for node, token in (("n0", ""), ("n0", "n1" * 16), ("n0", "n0"), ("ghost", ""), ("ghost", "n0" * 16)):
        for page, message in (
            ("prepared", Prepared(node, bytes(32), "", shares)),
            ("masked", Masked(node, np.zeros(1, np.uint64))),
            ("unmasking", Unmasking(node, bytes(32), {}, {})),
        ):
            assert status_of(serving, "POST", [page, "0"], token, message) == 403
        assert status_of(serving, "GET", ["total", "0", node], token) == 403
    for text in (str(len(agreement.plan.releases)), "-1", "", "x", "1.0", "1" * 9, "0" * 10, "9" * 5000):
        assert status_of(serving, "GET", ["total", text, "n0"], "n0" * 16) == 404
    for method, path in (
        ("GET", []),
        ("GET", ["masked", "0"]),
        ("PUT", ["total", "0", "n0"]),
        ("POST", ["x", "0"]),
    ):
        assert status_of(serving, method, path, "n0" * 16) == 404
    assert status_of(serving, "GET", ["total", "0", "n0"], "n0" * 16) == 202
    few, _ = enrolled(agreement, NAMES[:2])
    keys = (client.masks.public_part(bytes([number]) * 32) for number in (7, 8))
    mine, other = (Enrolment("n0", agreement.fingerprint, key) for key in keys)
    elsewhere = replace(mine, agreement=agreed(seed=5).fingerprint)
    for message, token, status in (
        (mine, "n0" * 16, 202), (mine, "x" * 40, 403), (other, "n0" * 16, 409), (mine, "", 401),
        (mine, "t" * 31, 401), (elsewhere, "n0" * 16, 403),
    ):  # fmt: skip
        assert status_of(few, "POST", ["enrolment"], token, message) == status
    assert status_of(serving, "POST", ["enrolment"], "t" * 40, replace(mine, node="ghost")) == 403


def test_a_step_is_for_those_who_took_part_in_the_one_before_when_that_is_over(monkeypatch):
    """Killed: a node whose keys nobody has sends masked sums; another message in a step; one that is late."""
    now = [0.0]
    monkeypatch.setattr(server, "time", type("Clock", (), {"monotonic": staticmethod(lambda: now[0])}))
    serving, _ = enrolled(agreed(ItemBias(), n_nodes=4, dropouts=0.25, colluding=0), NAMES[:4])

    def prepared(name, state="state"):
        shares = {other: bytes(3) for other in NAMES[:4] if other != name}
        return ["prepared", "0"], Prepared(name, name.encode() * 16, state, shares)

    def masked(name):
        return ["masked", "0"], Masked(name, np.zeros(1, np.uint64))

    def status(path, message):
        return status_of(serving, "POST", path, message.node * 16, message)

    assert [status(*prepared(name)) for name in NAMES[:3]] == [202] * 3
    assert status(*prepared("n0", "other")) == status(*masked("n0")) == 409  # it is not over
    now[0] = 501.0  # nothing was heard for too long: it goes on without n3
    found = serving.answer("POST", ["prepared", "0"], "n0" * 16, prepared("n0")[1].to_json())
    assert found.mask_keys.keys() == {"n1", "n2"}
    assert status(*prepared("n3")) == status(*masked("n3")) == 409
    assert [status(*masked(name)) for name in ("n0", "n1")] == [202] * 2
    found = serving.answer("POST", ["masked", "0"], "n2" * 16, masked("n2")[1].to_json())
    assert (sorted(found.alive), found.dropped) == (["n0", "n1"], ())


def test_the_circle_of_nodes_is_drawn_anew():
    """Who could foresee it would place a node between colluding ones, which open its sum."""
    assert len({tuple(enrolled(agreed())[1][-1].names) for _ in range(5)}) == 5


class Rounded(Users):
    """Users whose sums are none."""

    def item_weights(self):
        return Bounded(np.zeros(RATINGS.domain.n_items), super().item_weights().bound)


class Changed(ItemBias):
    """Releases of another law."""

    def releases(self, budget, domain, fraction):
        plan = super().releases(budget, domain, fraction)
        return Plan(budget, [replace(one, mechanism=self.law(one.mechanism)) for one in plan.releases])


class Pure(Changed):
    law = staticmethod(lambda mechanism: Laplace(0.1))


class Greedy(Changed):
    law = staticmethod(lambda mechanism: Gaussian(0.99 * mechanism.noise_multiplier))


@pytest.mark.parametrize(
    ("estimator", "changes", "error", "words"),
    [
        (Pure(), {}, InputError, "not Gaussian"),  # shares of Laplace noise do not add up to Laplace noise
        (Greedy(), {}, BudgetError, "past the budget"),  # without a ledger it counts nowhere else
        (Greedy(), {"nodes_per_user": 2}, BudgetError, "past the budget"),
        (SHARED, {"epsilon": 1e-5}, InputError, "larger epsilon"),  # no room in 64 bits
        (SHARED, {"n_nodes": 2, "dropouts": 0.0, "colluding": 0}, InputError, "at least 3"),
        (SHARED, {"dropouts": 0.5}, InputError, "below 1/2"),
        (SHARED, {"colluding": 5}, InputError, "colluding=5"),
        (SHARED, {"nodes_per_user": 0}, InputError, "nodes_per_user"),
        (SHARED, {"budget": Budget(5, 1e-6, relation="replace")}, InputError, "add-remove"),
        (SHARED, {"budget": Budget(5, 2.0**-39)}, InputError, "not above 2.-39"),
        (SHARED, {"domain": replace(RATINGS.domain, declared=False)}, InputError, "declare"),
    ],
)
def test_bad_agreements(estimator, changes, error, words):
    with pytest.raises(error, match=words):
        agreed(estimator, **changes)


def test_what_is_no_exact_sum_is_refused():
    gate = SecureGate(Popular().plan(Budget(5.0, 1e-6), RATINGS.domain), 3, lambda *_: None)
    with pytest.raises(InputError, match="no exact sum"):
        Popular().train(Rounded(PARTS["n0"]), gate, 0)


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("estimator", [Popular(), ItemBias(clip=0.3)], ids=["popular", "item-bias"])
def test_a_user_with_several_nodes_is_covered(estimator, nodes):
    """Killed: a sensitivity that counts a user once, noise that does (the total moved by k times as much)."""
    domain = Domain([f"i{item}" for item in range(5)], rating_range=(1, 5))
    nobody = Ratings.from_any(([], [], []), domain)
    agreement = agreement_of(estimator, nobody, 4, 1.0, dropouts=0, nodes_per_user=nodes)
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


def test_the_neighbour_graph_is_paid_for():
    """Killed: noise for all of delta, and 2^-39 that no statement names."""
    agreement = agreed()
    assert agreement.plan.mu <= mu_of(5.0, 1e-6 - 2.0**-39) * (1 + 1e-12) < Budget(5.0, 1e-6).mu
    text = agreement.train(PARTS["n0"], lambda index, label, integers, *_: integers).privacy.text()
    assert "2^-39" in text and "1.81899e-12 of delta reserved" in " ".join(text.split())


def refused(agreement, ratings, words):
    with pytest.raises(InputError, match=words):
        agreement.train(ratings, lambda *_: pytest.fail("a sum left the node"))


def test_nodes_and_servers_refuse_what_a_central_run_refuses(monkeypatch):
    observed = replace(RATINGS.domain, declared=False)
    refused(agreed(), replace(PARTS["n0"], domain=observed), "declare")
    with pytest.raises(InputError, match="read from ratings, which leaks them"):
        two_servers.Agreement(estimator=SHARED, budget=Budget(5.0, 1e-6), domain=observed)
    assert agreed(epsilon=math.inf, domain=observed).plan.releases
    refused(agreed(seed=-1), PARTS["n0"], "seed=-1")
    monkeypatch.setattr("hushrec.training.run.LARGEST_COUNT", 3)
    refused(agreed(), PARTS["n0"], "exact for up to 3 users")


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


@pytest.mark.parametrize("estimator", [SHARED, replace(SHARED, n_users=None), BY_ITEM, ItemBias()])
def test_a_row_without_ratings_contributes_nothing(estimator):
    """Killed: an empty row that votes for the level and is counted."""

    def sent(ratings):
        sums = []
        agreed(estimator).train(ratings, lambda index, label, integers, *_: sums.append(integers) or integers)
        return sums

    empty = replace(PARTS["n0"].for_users([*PARTS["n0"].users, "nobody", "nobody else"]), hand_picked=False)
    assert empty.n_users == PARTS["n0"].n_users + 2
    for one, other in zip(sent(PARTS["n0"]), sent(empty), strict=True):
        np.testing.assert_array_equal(one, other)


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
