"""Private training by nodes over secure aggregation: time of a round, and against the number of nodes.

Nodes are threads of two processes, the server is a third process, everything goes over the loopback address.

    python -m benchmarks.bench_secure_aggregation --ratings ml-100k.parquet --catalogue items.txt
"""

import argparse
import multiprocessing
import threading
import time
from typing import NamedTuple

import numpy as np

from hushrec.algorithms import Estimator, PrivateALS
from hushrec.data import Domain, Ratings, realistic
from hushrec.engines.secure.agreement import Agreement
from hushrec.engines.secure.client import take_part
from hushrec.engines.secure.messages import Masked
from hushrec.engines.secure.server import AggregationServer
from hushrec.network.service import Limits, Service
from hushrec.network.transport import Connection
from hushrec.papers.dpals import DPALS
from hushrec.privacy import Budget

SHAPE = (943, 1_682, 100_000)
PROCESSES = 2
HEADER = """One round at rank 8. DPALS: a Gramian for every item. Private ALS: one for all, and the item sums.

| algorithm | nodes | neighbours | threshold | seconds, a third dropping out | seconds, none \
| CPU seconds of a node | largest upload, KB |
|---:|---:|---:|---:|---:|---:|---:|---:|"""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ratings", help="default: generated in MovieLens-100K's shape")
    parser.add_argument("--nodes", type=int, nargs="+", default=[50, 100, 200, 400])
    parser.add_argument("--epsilon", type=float, default=5.0)
    parser.add_argument("--full", action="store_true", help="a full training of private ALS too")
    options = parser.parse_args()
    ratings = load(options.ratings)
    n_users, budget = ratings.n_users, Budget(options.epsilon, 1e-6)
    print(HEADER)
    growth = []
    for estimator in (
        DPALS(rank=8, iterations=1),
        PrivateALS(rank=8, iterations=1, features=False, bias_rounds=0, n_users=n_users),
    ):
        work = []
        for n_nodes in options.nodes:
            agreement = agreed(estimator, budget, ratings.domain, n_nodes)
            if not work:  # compiles
                agreement.train(ratings, lambda index, label, integers, noise_sd: integers)
            first = next(
                index for index, one in enumerate(agreement.plan.releases) if one.label.endswith(" 1")
            )
            lossy, whole = (run(agreement, ratings, drop) for drop in (first, None))
            work.append(lossy.work + whole.work)
            spent = [f"{sum(one.seconds[first:]):.2f}" for one in (lossy, whole)]
            spent.append(f"{work[-1] / 2 / n_nodes:.3f}")
            graph, size = agreement.graph, 8 * max(whole.sizes) * 4 // 3 // 1000
            cells = [estimator.name, n_nodes, graph.degree, graph.threshold, *spent, size]
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
        if len(work) > 1:
            power = np.polyfit(np.log(options.nodes), np.log(work), 1)[0]
            growth.append(f"CPU seconds of all grow as nodes^{power:.2f} ({estimator.name}).")
    print("\n" + "\n".join(growth))
    if options.full:
        n_nodes = options.nodes[-1]
        planned = PrivateALS.planned(budget, ratings.domain, n_users)
        times = run(agreed(planned, budget, ratings.domain, n_nodes), ratings, None).seconds
        print(f"\nFull training, {n_nodes} nodes, {len(times)} releases: {sum(times):.1f} s")


def load(path: str | None) -> Ratings:
    """Ratings in a file, its catalogue taken for public, or generated ones."""
    if path is None:
        return realistic(*SHAPE, seed=0)
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    column = next(name for name in table.column_names if "item" in name or "movie" in name)
    items = tuple(sorted(set(table[column].to_pylist())))
    return Ratings.read(path, Domain(items, rating_range=(1, 5)))


def agreed(estimator: Estimator, budget: Budget, domain: Domain, n_nodes: int) -> Agreement:
    """One node in twenty may collude, one in three drop out."""
    return Agreement(
        estimator=estimator, budget=budget, domain=domain, n_nodes=n_nodes, colluding=n_nodes // 20
    )


class Run(NamedTuple):
    """Seconds of each release, from the last one's total to its own; its numbers; CPU seconds of all."""

    seconds: list[float]
    sizes: list[int]
    work: float


def run(agreement: Agreement, ratings: Ratings, drop: int | None) -> Run:
    """One training on the loopback address; a third of the nodes drop out in a release."""
    context = multiprocessing.get_context("spawn")
    address = context.Queue()
    seconds = context.Queue()
    work = context.Queue()
    server = context.Process(target=serve, args=(agreement, address, seconds, work))
    server.start()
    url = address.get()
    n_nodes = agreement.n_nodes
    parts = [
        ratings.rows(np.arange(ratings.n_users) % n_nodes == node, keyed=True) for node in range(n_nodes)
    ]
    shares = [
        [(node, parts[node]) for node in range(start, n_nodes, PROCESSES)] for start in range(PROCESSES)
    ]
    workers = [context.Process(target=nodes, args=(url, agreement, share, drop, work)) for share in shares]
    for worker in workers:
        worker.start()
    times, sizes = seconds.get(timeout=900)
    for process in (*workers, server):
        process.join(timeout=60)
        process.kill()
    return Run(times, sizes, sum(work.get(timeout=10) for _ in range(PROCESSES + 1)))


def warm_up(agreement: Agreement, ratings: Ratings) -> None:
    """Load what is compiled: nodes and server run for long, and a round does not wait for their start."""
    agreement.train(ratings, lambda index, label, integers, noise_sd: integers)


def serve(
    agreement: Agreement,
    address: multiprocessing.Queue,
    seconds: multiprocessing.Queue,
    work: multiprocessing.Queue,
) -> None:
    """The server's process."""
    warm_up(agreement, Ratings.from_any(([], [], []), agreement.domain))
    start = time.process_time()
    aggregation = AggregationServer(agreement, quiet=1.0)
    n_nodes = agreement.n_nodes
    limits = Limits(connections=2 * n_nodes + 16, requests_per_second=1e6, idle_seconds=600)
    times: list[float] = []
    sizes: list[int] = []

    def total(index: int, label: str, integers: np.ndarray, noise_sd: float) -> np.ndarray:
        values = aggregation._total(index).values
        times.append(time.perf_counter())
        sizes.append(len(values))
        return values

    with Service(aggregation.answer, limits=limits) as service:
        address.put(service.url)
        while len(aggregation._neighbours) < n_nodes:
            time.sleep(0.01)
        times.append(time.perf_counter())
        agreement.train(Ratings.from_any(([], [], []), agreement.domain), total)
        seconds.put((np.diff(times).tolist(), sizes))
        time.sleep(3)  # the nodes fetch their last answers
        work.put(time.process_time() - start)


def nodes(
    url: str,
    agreement: Agreement,
    parts: list[tuple[int, Ratings]],
    drop: int | None,
    work: multiprocessing.Queue,
) -> None:
    """A process of nodes, a thread each."""
    from hushrec.engines.secure import masks
    from hushrec.kernels import threads

    warm_up(agreement, parts[0][1])
    masks.pairwise_total = in_turn(masks.pairwise_total)
    start = time.process_time()

    def one(node: int, rows: Ratings) -> None:
        connection = Connection(url, timeout=600)
        if drop is not None and node % 3 == 2:
            connection.post = dropping(connection.post, drop)  # type: ignore[method-assign]
        with threads.limit(1):
            take_part(connection, agreement, rows, node=f"node {node}", ledger=None)

    running = [threading.Thread(target=one, args=part, daemon=True) for part in parts]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    work.put(time.process_time() - start)


def in_turn(function):
    """A function that one thread at a time runs: fighting over one interpreter is no work of a node."""
    turn = threading.Lock()

    def alone(*arguments):
        with turn:
            return function(*arguments)

    return alone


def dropping(post, release: int):
    """A connection's post that ends the node where it would send its masked values of a release."""

    def until(message, kind, *path, token=""):
        if isinstance(message, Masked) and path[1] == str(release):
            raise SystemExit
        return post(message, kind, *path, token=token)

    return until


if __name__ == "__main__":
    main()
