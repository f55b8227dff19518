"""Private training by nodes over secure aggregation: time of a round, and against the number of nodes.

Nodes are threads of two processes, the server is a third process, everything goes over the loopback address.

    python -m benchmarks.bench_secure_aggregation --ratings ml-100k.parquet --catalogue items.txt
"""

import argparse
import multiprocessing
import threading
import time

import numpy as np

from hushrec.algorithms import PrivateALS
from hushrec.data import Domain, Ratings, realistic
from hushrec.outsourcing.aggregation_client import take_part
from hushrec.outsourcing.aggregation_server import AggregationServer
from hushrec.outsourcing.agreement import Agreement
from hushrec.outsourcing.messages import Masked
from hushrec.outsourcing.service import Limits, Service
from hushrec.outsourcing.transport import Connection
from hushrec.privacy import Budget

SHAPE = (943, 1_682, 100_000)
PROCESSES = 2


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ratings", help="default: generated in MovieLens-100K's shape")
    parser.add_argument("--nodes", type=int, nargs="+", default=[200])
    parser.add_argument("--epsilon", type=float, default=5.0)
    parser.add_argument("--full", action="store_true", help="a full training too")
    options = parser.parse_args()
    ratings = load(options.ratings)
    n_users, budget = ratings.n_users, Budget(options.epsilon, 1e-6)
    print(
        "One round of private ALS (Gramian and item sums, rank 8), a third of the nodes dropping out in it.\n"
    )
    header = ["nodes", "neighbours", "threshold", "seconds", "without dropouts", "CPU seconds of 4 releases"]
    print("| " + " | ".join([*header, "largest upload, KB"]) + " |\n" + "|---:" * 7 + "|")
    for n_nodes in options.nodes:
        estimator = PrivateALS(rank=8, iterations=1, features=False, bias_rounds=0, n_users=n_users)
        agreement = agreed(estimator, budget, ratings.domain, n_nodes)
        first = len(agreement.plan.releases) - 2
        runs = [run(agreement, ratings, drop) for drop in (first, None)]
        spent = [f"{sum(seconds[first:]):.2f}" for seconds, _ in runs] + [f"{runs[0][1]:.1f}"]
        size = 8 * 8 * ratings.n_items * 4 // 3 // 1000
        graph = agreement.graph
        cells = [n_nodes, graph.degree, graph.threshold, *spent, size]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    if options.full:
        n_nodes = options.nodes[-1]
        estimator = PrivateALS.planned(budget, ratings.domain, n_users)
        times, _ = run(agreed(estimator, budget, ratings.domain, n_nodes), ratings, None)
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


def agreed(estimator: PrivateALS, budget: Budget, domain: Domain, n_nodes: int) -> Agreement:
    """One node in twenty may collude, one in three drop out."""
    return Agreement(
        estimator=estimator, budget=budget, domain=domain, n_nodes=n_nodes, colluding=n_nodes // 20
    )


def run(agreement: Agreement, ratings: Ratings, drop: int | None) -> tuple[list[float], float]:
    """Seconds of each release, from the last one's total to its own, and CPU seconds of all processes."""
    context = multiprocessing.get_context("spawn")
    address = context.Queue()
    seconds = context.Queue()
    work = context.Queue()
    server = context.Process(target=serve, args=(agreement, address, seconds, work))
    server.start()
    url = address.get()
    n_nodes = agreement.n_nodes
    parts = [ratings.rows(np.arange(ratings.n_users) % n_nodes == node) for node in range(n_nodes)]
    shares = [
        [(node, parts[node]) for node in range(start, n_nodes, PROCESSES)] for start in range(PROCESSES)
    ]
    workers = [context.Process(target=nodes, args=(url, agreement, share, drop, work)) for share in shares]
    for worker in workers:
        worker.start()
    result = seconds.get(timeout=900)
    for process in (*workers, server):
        process.join(timeout=60)
        process.kill()
    return result, sum(work.get(timeout=10) for _ in range(PROCESSES + 1))


def serve(
    agreement: Agreement,
    address: multiprocessing.Queue,
    seconds: multiprocessing.Queue,
    work: multiprocessing.Queue,
) -> None:
    """The server's process."""
    start = time.process_time()
    aggregation = AggregationServer(agreement, quiet=1.0)
    n_nodes = agreement.n_nodes
    limits = Limits(connections=2 * n_nodes + 16, requests_per_second=1e6, idle_seconds=600)
    times = []

    def total(index: int, label: str, integers: np.ndarray, noise_sd: float) -> np.ndarray:
        values = aggregation._total(index)
        times.append(time.perf_counter())
        return values

    with Service(aggregation.answer, limits=limits) as service:
        address.put(service.url)
        while len(aggregation._neighbours) < n_nodes:
            time.sleep(0.01)
        times.append(time.perf_counter())
        agreement.train(Ratings.from_triples([], [], [], agreement.domain), total)
        seconds.put(np.diff(times).tolist())
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
    from hushrec.kernels import threads

    start = time.process_time()

    def one(node: int, rows: Ratings) -> None:
        connection = Connection(url, timeout=600)
        if drop is not None and node % 3 == 2:
            connection.post = dropping(connection.post, drop)  # type: ignore[method-assign]
        with threads.limit(1):
            take_part(connection, agreement, rows, node=f"node {node}")

    running = [threading.Thread(target=one, args=part, daemon=True) for part in parts]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    work.put(time.process_time() - start)


def dropping(post, release: int):
    """A connection's post that ends the node where it would send its masked values of a release."""

    def until(message, kind, *path, token=""):
        if isinstance(message, Masked) and path[1] == str(release):
            raise SystemExit
        return post(message, kind, *path, token=token)

    return until


if __name__ == "__main__":
    main()
