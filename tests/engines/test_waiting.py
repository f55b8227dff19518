"""Nobody waits for ever in a private training, and nobody is lost by waiting long."""

import threading
import time

import pytest

from hushrec.algorithms import ItemBias
from hushrec.engines.secure.messages import Enrolment, Masked, Prepared
from hushrec.errors import HushrecError
from hushrec.network.messages import Refusal
from hushrec.network.service import Service
from hushrec.network.transport import Connection, TransportError
from tests.engines.test_aggregation import N_NODES, PARTS, agreed, assert_equal, stop_at

client = pytest.importorskip("hushrec.engines.secure.client", exc_type=ImportError)
server = pytest.importorskip("hushrec.engines.secure.server", exc_type=ImportError)


class Run:
    """Nodes that come when the test says, each in a thread, and a server; no thread outlives its limits."""

    def __init__(self, delays, spoil=lambda connection: None, **settings):
        agreement = agreed(ItemBias())
        self.server = server.AggregationServer(agreement, **settings)
        self.results, self.paths = {}, []

        def answer(method, path, token, body):
            self.paths.append((path, body))
            return self.server.answer(method, path, token, body)

        def one(node, url):
            time.sleep(delays[node])
            connection = Connection(url, timeout=3, patience=0)
            spoil(connection)
            try:
                self.results[node] = client.take_part(
                    connection, agreement, PARTS[node], node=f"n{node}", ledger=None
                )
            except (HushrecError, SystemExit) as error:
                self.results[node] = error

        def train():
            try:
                self.billboard = self.server.train()
            except HushrecError as error:
                self.billboard = error

        with Service(answer) as service:
            threads = [
                threading.Thread(target=one, args=(n, service.url), daemon=True) for n in range(len(delays))
            ]
            threads.append(threading.Thread(target=train, daemon=True))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(timeout=60)
            assert not any(thread.is_alive() for thread in threads)


def test_early_nodes_wait_longer_than_a_connection():
    """A node's timeout and patience are over long before the last node comes; it asks again, seldom."""
    run = Run([0.0] * (N_NODES - 1) + [5.0], hold=1.0)
    for result in run.results.values():
        assert_equal(result, run.billboard)
    asked = sum(path == ["enrolment"] for path, _ in run.paths)
    assert 3 * (N_NODES - 1) < asked <= 8 * N_NODES
    assert len({body for path, body in run.paths if path == ["enrolment"]}) == N_NODES


def test_a_slow_step_does_not_lose_the_others():
    """One node takes longer over its masks than the others' connections last; nobody drops out."""

    def spoil(connection):
        post = connection.post

        def slow(message, reply, *path, token=""):
            if isinstance(message, Masked) and message.node == "n3":
                time.sleep(4)
            return post(message, reply, *path, token=token)

        connection.post = slow

    run = Run([0.0] * N_NODES, spoil, hold=1.0, quiet=20)
    for result in run.results.values():
        assert_equal(result, run.billboard)
    assert len(run.server._steps["masked", 0].sent) == N_NODES


@pytest.mark.parametrize("kind", [Prepared, Masked])
def test_a_server_whose_nodes_are_all_gone_stops(kind):
    run = Run([0.0] * N_NODES, stop_at(kind, 0), patience=2.0)
    assert "Too few nodes" in str(run.billboard)


def test_a_server_to_which_nobody_comes_stops():
    start = time.monotonic()
    assert "enrol" in str(Run([], patience=0.1, enrolment=1.5).billboard)
    assert 1.5 <= time.monotonic() - start < 10


def test_an_enrolment_that_stays_short_of_nodes_is_given_up():
    """After its own time, however short the patience; both the nodes and the server are told."""
    start = time.monotonic()
    run = Run([0.0, 0.3], patience=0.1, enrolment=3.0, hold=0.5)
    assert time.monotonic() - start > 3
    assert "enrol" in str(run.billboard)
    assert all("enrol" in str(result) for result in run.results.values())


def test_messages_renew_the_patience():
    """Steps that take their time, each within the patience, are no reason to stop."""

    def spoil(connection):
        post = connection.post

        def slow(message, reply, *path, token=""):
            time.sleep(1.5)
            return post(message, reply, *path, token=token)

        connection.post = slow

    run = Run([0.0] * N_NODES, spoil, patience=2.5)
    for result in run.results.values():
        assert_equal(result, run.billboard)


def test_the_same_enrolment_is_answered_again_and_no_other():
    agreement = agreed()
    aggregation = server.AggregationServer(agreement, hold=0.05)
    token, mine = "t" * 40, Enrolment("n0", agreement.fingerprint, bytes(32)).to_json()
    for _ in range(2):
        with pytest.raises(Refusal) as refused:
            aggregation.answer("POST", ["enrolment"], token, mine)
        assert refused.value.status == 202
    other = Enrolment("n0", agreement.fingerprint, b"k" * 32).to_json()
    cases = [(mine, "x" * 40, 403), (other, token, 409), (mine, "", 401), (mine, "t" * 31, 401)]
    for body, bearer, status in cases:
        with pytest.raises(Refusal) as refused:
            aggregation.answer("POST", ["enrolment"], bearer, body)
        assert refused.value.status == status


def test_endless_numbers_of_a_release_are_no_fault_of_the_server():
    aggregation = server.AggregationServer(agreed())
    for number in ("9" * 5000, "0" * 5000, "-1", "1.0", ""):
        with pytest.raises(Refusal) as refused:
            aggregation._index(number)
        assert refused.value.status == 404


def test_patience_begins_with_the_first_trouble():
    """A server that is silent for longer than the patience is asked a second time."""
    asked = []

    def answer(method, path, token, body):
        asked.append(path)
        if len(asked) == 1:
            time.sleep(2)
        raise Refusal(404, "Here.")

    with Service(answer) as service:
        with pytest.raises(Refusal, match="Here"):
            Connection(service.url, timeout=0.5, patience=0.3).post(
                Prepared("n0", bytes(32), "state" * 8, {}), Prepared, "x"
            )
        assert len(asked) == 2
    with pytest.raises(TransportError, match="does not answer"):
        Connection(service.url, timeout=0.5, patience=0.3).get(Prepared, "x")
