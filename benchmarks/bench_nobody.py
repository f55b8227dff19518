"""Training over two servers: what it reaches, what a node sends, what liars spoil, what it costs.

    python -m benchmarks.bench_nobody            holds the stored rows to the targets, and makes a sample anew
    python -m benchmarks.bench_nobody --rows     makes all rows anew (docs/data/nobody.json)

The tables need HUSHREC_DATA, the folder of real ratings. What a round of many nodes adds up to is computed
at once here: tests/engines/test_two_servers.py holds that to the protocol, to the last bit.
"""

import argparse
import contextlib
import hashlib
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.bench_both import of_errors, of_lists
from benchmarks.real import read
from hushrec.cli.servers_init import at_most, read_agreement, small
from hushrec.data import Domain, Ratings, realistic
from hushrec.engines.two_servers.agreement import Agreement, Wanted
from hushrec.engines.two_servers.book import Shares
from hushrec.engines.two_servers.messages import Held, State
from hushrec.engines.two_servers.node import Node, Public, contribute
from hushrec.engines.two_servers.server import CollectingServer, Settings
from hushrec.engines.two_servers.shares import ROLES, add_share, share_bytes, split
from hushrec.errors import HushrecError
from hushrec.network.messages import SHORT
from hushrec.network.service import Limits, Service, listen
from hushrec.network.transport import Connection
from hushrec.privacy import Accountant, Budget, Ledger
from hushrec.privacy.testing import SeededNoise
from hushrec.public import PublicRatings
from hushrec.serving.billboard import Billboard
from hushrec.training.gate import LocalGate
from hushrec.training.named import choose

ROWS = Path(__file__).parent.parent / "docs" / "data" / "nobody.json"
BUDGET = Budget(5.0, 1e-6)
ONLINE = (1.0, 0.6, 0.2, 0.05)
RANDOM = {"start": "random"}
#: Model and settings by job and number of rounds.
MODELS: dict[str, dict[int, tuple[str, dict[str, Any]]]] = {
    "RMSE": {
        1: ("item-bias", {}),
        2: ("private-als", {"rank": 0, "bias_rounds": 1, "features": False}),
        4: ("private-als", {"rank": 8, "bias_rounds": 1, "iterations": 1} | RANDOM),
        8: ("private-als", {"rank": 8, "bias_rounds": 1, "iterations": 3} | RANDOM),
    },
    "Recall@20": {
        1: ("popular", {}),
        2: ("private-eigenrec", {"iterations": 1, "matrix_share": 0.0}),
        4: ("private-eigenrec", {"iterations": 3, "matrix_share": 0.0}),
        8: ("private-eigenrec", {"iterations": 7, "matrix_share": 0.0}),
    },
}
#: Largest difference from a central training with the same noise.
CLOSE = 0.005
#: Largest bytes that a node sends in all, at 4,000 items: as planned here, and of any plan.
PLANNED, WORST = 2e6, 10e6
#: Seconds of 6,040 nodes over loopback.
LOOPBACK = 600.0


class Made(NamedTuple):
    """A training, and what a node that answered every round sent."""

    model: Billboard
    rounds: int
    bytes: int


def agreed(model: str, settings: dict[str, Any], domain: Domain, n_users: int) -> Agreement:
    estimator = choose(model, BUDGET, domain, n_users=max(1, n_users), settings=settings)
    return Agreement(estimator=estimator, budget=BUDGET, domain=domain)


def train(
    agreement: Agreement,
    ratings: Ratings,
    online: float = 1.0,
    seed: int = 0,
    liars: int = 0,
    lie: float = 0.0,
    copies: int = 1,
    public: PublicRatings | None = None,
) -> Made:
    """The training of the protocol, where in each round a random part of the nodes is online.

    ``liars`` of them send, in every entry, up to ``lie`` standard deviations of one server's noise. There are
    ``copies`` of everybody. Ratings that are ``public`` are weighed into the model at the end.
    """
    generator, noise = np.random.default_rng(seed), SeededNoise(seed)
    totals: list[Any] = []
    rounds: list[Any] = []
    while isinstance(wanted := agreement.next(totals, public=public), Wanted):
        first = int(wanted.question.min())
        if not rounds or rounds[-1][0].stop <= first:
            which = agreement.round_for(totals, first)
            opened = agreement.opened(totals, which)
            there = ratings.rows(generator.random(ratings.n_users) < online, keyed=True)
            ends = np.array([0, *np.cumsum([len(each) for each in opened.steps])])
            answers = agreement.answer(opened, there.rated()) * np.uint64(copies)
            rounds.append((which, opened.size, ends, answers))
        which, _, ends, sums = rounds[-1]
        label = agreement.plan.releases[wanted.release].label
        total = sums[ends[wanted.question - which.first] + wanted.place]
        total = total * wanted.grid.coarse.astype(np.uint64)
        for _ in ROLES:
            total = total + noise.rounded_gaussian(wanted.grid.noise_sd, label).view(np.uint64)
        for _ in range(liars):
            words = lie * wanted.grid.noise_sd * generator.uniform(-1, 1, len(total))
            total = total + words.astype(np.int64).view(np.uint64)
        totals.append(total)
    return Made(wanted, len(rounds), sum(8 * size + 32 for _, size, _, _ in rounds))


def central(agreement: Agreement, ratings: Ratings, seed: int) -> Billboard:
    """The ordinary training, with the noise of both servers."""
    accountant = Accountant(agreement.budget, noise=SeededNoise(seed))
    users = agreement.estimator.users(ratings.rated())
    parts = agreement.estimator.train(users, LocalGate(accountant, agreement.both), agreement.seed)
    return Billboard.of(agreement.estimator, ratings.domain, parts, accountant.statement())


def quality(job: str, ratings: Ratings, rounds: int, online: float) -> dict[str, Any]:
    task = {"RMSE": of_errors, "Recall@20": of_lists}[job](ratings, False)
    model, settings = MODELS[job][rounds]
    made = train(
        agreed(model, settings, ratings.domain, int(online * task.train.n_users)), task.train, online
    )
    return {"figure": task.figure(made.model), "rounds": made.rounds, "bytes": made.bytes, "model": model}


def with_public(job: str, ratings: Ratings, rounds: int, online: float) -> dict[str, Any]:
    """The same with a model into which the ratings of 300 others are weighed, who have published them."""
    task = {"RMSE": of_errors, "Recall@20": of_lists}[job](ratings, False)
    order = np.random.default_rng(0).permutation(task.train.n_users)
    known, others = (task.train.rows(np.sort(rows), keyed=True) for rows in (order[:PUBLIC], order[PUBLIC:]))
    model, settings = MODELS[job][rounds]
    agreement = agreed(model, settings, ratings.domain, int(online * others.n_users))
    made = train(agreement, others, online, public=PublicRatings(same=known))
    alone = replace(made.model, public=None)
    return {"figure": task.figure(made.model), "without": task.figure(alone), "rounds": made.rounds}


def against_central(job: str, ratings: Ratings) -> dict[str, Any]:
    """Mean of three draws of noise, over two servers and centrally."""
    task = {"RMSE": of_errors, "Recall@20": of_lists}[job](ratings, False)
    model, settings = MODELS[job][4]
    agreement, draws = agreed(model, settings, ratings.domain, task.train.n_users), range(3)
    ours = np.mean([task.figure(train(agreement, task.train, seed=draw).model) for draw in draws])
    theirs = np.mean([task.figure(central(agreement, task.train, 100 + draw)) for draw in draws])
    return {"two servers": float(ours), "central": float(theirs)}


def in_rounds(ratings: Ratings, copies: int, which: str) -> dict[str, Any]:
    """Mean Recall of four draws with copies of everybody: as ever, as planned, or with the least that is."""
    task = of_lists(ratings, False)
    domain, n_users = ratings.domain, copies * task.train.n_users
    settings = {"matrix_share": 0.0} | (LEAST if which == "least" else {})
    agreement = agreed("private-eigenrec", settings, domain, n_users)
    if which == "planned":  # so many rounds as keep to the most bytes at 4,000 items
        agreement = replace(agreement, estimator=small(agreement.estimator, {"matrix_share": 0.0}, 4000))
    made = [train(agreement, task.train, seed=draw, copies=copies) for draw in range(4)]
    figure = float(np.mean([task.figure(each.model) for each in made]))
    worst = at_most(agreement.estimator, 4000)[1]
    return {"figure": figure, "nodes": n_users, "rounds": made[0].rounds, "bytes at 4,000 items": worst}


def spoiled(ratings: Ratings, liars: int, lie: float) -> dict[str, Any]:
    task = of_errors(ratings, False)
    model, settings = MODELS["RMSE"][4]
    agreement = agreed(model, settings, ratings.domain, task.train.n_users)
    try:
        return {"figure": task.figure(train(agreement, task.train, liars=liars, lie=lie).model)}
    except HushrecError:
        return {"figure": None}


def costs(n_nodes: int) -> dict[str, float]:
    """CPU seconds of a node's answer and of each server's share of it, and bytes; 500 items."""
    ratings = realistic(200, 500, 10_000, seed=0)
    agreement = agreed("item-bias", {}, ratings.domain, n_nodes)
    which = agreement.round_for([], 0)
    opened = agreement.opened([], which)
    rows = [ratings.rows(np.arange(200) == number, keyed=True).rated() for number in range(200)]
    shares, begun = [], time.process_time()
    for number in range(200):
        shares.append(split(agreement.answer(opened, rows[number])))
    found = {"node": (time.process_time() - begun) / 200, "bytes": 8.0 * opened.size + 32}
    folder = Path("/dev/shm" if Path("/dev/shm").is_dir() else ".")
    for place, role in enumerate(ROLES):
        path, begun = folder / f"bench-nobody-{role}", time.process_time()
        kept = Shares(path, share_bytes(role, opened.size), [f"node {number}" for number in range(n_nodes)])
        for number in range(n_nodes):
            kept.take(f"node {number}", shares[number % 200][place])
        total = np.zeros(opened.size, np.uint64)
        kept.each(set(kept.nodes), lambda share: add_share(total, share, role))  # noqa: B023
        found[role] = (time.process_time() - begun) / n_nodes
        kept.remove()
    return found


class Alone:
    """A second server without a share, which says that it has those of all nodes."""

    def __init__(self, server: CollectingServer, nodes: tuple[str, ...]) -> None:
        self._server, self._nodes, self.digest = server, nodes, "0" * 64

    def get(self, kind: Any, *path: str, token: str = "", most: int = SHORT) -> Any:
        if kind is Held:
            return Held(self.digest, self._nodes)
        return self._server.answer("GET", list(path), token, b"")


def peak() -> float:
    """Peak MB of this process; what getrusage tells begins at its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def memory_of_server(role: str, n_nodes: int) -> float:
    """Peak MB of this process as a server that adds up shares of 500 items from all nodes."""
    ratings, names = realistic(1, 500, 50, seed=0), [f"node {number}" for number in range(n_nodes)]
    agreement = agreed("item-bias", {}, ratings.domain, n_nodes)
    opened = agreement.opened([], agreement.round_for([], 0))
    share = split(agreement.answer(opened, ratings.rated()))[ROLES.index(role)]
    digests = {each: hashlib.sha256(each.encode()).hexdigest() for each in names}
    with tempfile.TemporaryDirectory() as home:
        (other,) = {*ROLES} - {role}
        settings = Settings(role=other, nodes=digests, peer_token="p" * 32)
        mute = Alone(None, ())  # type: ignore[arg-type]
        second = CollectingServer(agreement, settings, f"{home}/other", None, mute)
        peer = Alone(second, tuple(names))
        server = CollectingServer(agreement, replace(settings, role=role), f"{home}/own", None, peer)
        while server.step():
            pass
        state: Any = server.answer("GET", ["state"], "", b"")
        peer.digest = state.digest
        for each in names:
            server.answer("POST", ["share", each, "0", state.digest], each, share)
        while not Path(home, "own", "noisy-0").exists():
            server.step()
        server.answer("GET", ["held", "0"], "p" * 32, b"").to_json()
    return peak()


def memory_of_node(n_nodes: int) -> float:
    """Peak MB of this process as a node in the second round of lists of 4,000 items, as planned."""
    ratings = realistic(1, 4000, 200, seed=0)
    model = small(agreed("private-eigenrec", {}, ratings.domain, n_nodes).estimator, {}, 4000)
    agreement = Agreement(estimator=model, budget=BUDGET, domain=ratings.domain)
    wanted: Any = agreement.next([])
    weights = 1000 * wanted.grid.noise_sd * np.linspace(2, 1, 4000)  # such that all is learned
    totals = [weights.astype(np.int64).view(np.uint64)]
    wanted = agreement.next(totals)
    opened = agreement.opened(totals, agreement.round_for(totals, int(wanted.question.min())))
    split(agreement.answer(opened, ratings.rated()))
    return peak()


def memory(n_nodes: int) -> dict[str, float]:
    """Peak MB of either server and of a node, each in a process of its own."""
    asked = {role: (memory_of_server, role, n_nodes) for role in ROLES}
    found = {}
    for who, (make, *given) in {**asked, "node": (memory_of_node, n_nodes)}.items():
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            found[who] = alone.submit(make, *given).result()
    return found


class Kept:
    """A kept connection for many simulated nodes: a state is asked for once a round."""

    def __init__(self, url: str) -> None:
        self._line, self._state = Connection(url, patience=120.0), None

    def forget(self) -> None:
        self._state = None

    def get(self, kind: Any, *path: str, token: str = "", most: int = SHORT) -> Any:
        if kind is not State:
            return self._line.get(kind, *path, token=token, most=most)
        if self._state is None:
            self._state = self._line.get(State, "state")
        return self._state

    def post_bytes(self, *given: Any, **named: Any) -> Any:
        return self._line.post_bytes(*given, **named)


def loopback(n_nodes: int, lost: float) -> dict[str, Any]:
    """Two server processes, and nodes of this process, a part of which is lost in every round."""
    home = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    ratings, generator = realistic(n_nodes, 3706, 165 * n_nodes, seed=0), np.random.default_rng(0)
    names = [f"node {number}" for number in range(n_nodes)]
    deadline = 20 + n_nodes / 60 if lost else 86_400
    (home / "items.txt").write_text("\n".join(map(str, ratings.domain.items)))
    (home / "names.txt").write_text("\n".join(names))
    (home / "peer.txt").write_text("p" * 32)
    settings = "--rank 8 --bias-rounds 1 --iterations 1 --tuning.start random --epsilon 5 --delta 1e-6"
    words = f"servers init agreed.json --model private-als --users {n_nodes} {settings} --catalogue items.txt"
    words += " --rating-range 1 5"
    command = [sys.executable, "-W", "ignore", "-m", "hushrec"]
    subprocess.run([*command, *words.split()], cwd=home, check=True, stdout=subprocess.DEVNULL)
    servers = []
    for role, other, port in (("first", 8702, 8701), ("second", 8701, 8702)):
        words = f"servers run agreed.json --role {role} --nodes names.txt --folder {role} --out {role}.hush"
        words += (
            f" --peer http://127.0.0.1:{other} --peer-token peer.txt --port {port} --ledger {role}.sqlite"
        )
        words += f" --requests-per-second 1e6 --linger 1 --deadline {deadline / 86_400}d"
        servers.append(subprocess.Popen([*command, *words.split()], cwd=home, stdout=subprocess.DEVNULL))
    while not all((home / role / "session").exists() for role in ROLES):
        time.sleep(0.1)
    tokens = []
    for role in ROLES:
        lines = [line.rpartition(",") for line in (home / role / "tokens.csv").read_text().splitlines()]
        tokens.append({json.loads(name): token for name, _, token in lines})
    public, lines = (
        Public(read_agreement(str(home / "agreed.json"))),
        [Kept(f"http://127.0.0.1:{port}") for port in (8701, 8702)],
    )
    rows = [ratings.rows(np.arange(number, number + 1), keyed=True) for number in range(n_nodes)]
    begun, used, answered = time.time(), time.process_time(), 0
    over = False
    while not over:
        for line in lines:
            line.forget()
        there = [number for number in range(n_nodes) if generator.random() >= lost]
        said = "waiting"
        for number in there:
            name = names[number]
            keys = [each[name] for each in tokens]
            node = Node(name=name, tokens=keys, folder=home / name, ledger=None)
            said = contribute(lines, public, rows[number], node)
            answered += said == "answered"
            over = said == "over"
            if said != "answered":
                break
        if said != "answered":
            time.sleep(0.5)
    found = {"seconds": time.time() - begun, "nodes cpu": time.process_time() - used, "answers": answered}
    assert [each.wait() for each in servers] == [0, 0]
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    found["servers cpu"] = spent.ru_utime + spent.ru_stime
    found["same"] = (home / "first.hush").read_bytes() == (home / "second.hush").read_bytes()
    shutil.rmtree(home)
    return found


def fresh(n_nodes: int, secure: bool) -> dict[str, float]:
    """Seconds of a node that opens two connections of its own, answers, and charges a ledger of its own."""
    with tempfile.TemporaryDirectory() as name:
        home, ratings = Path(name), realistic(n_nodes, 500, 50 * n_nodes, seed=0)
        agreement = agreed("item-bias", {}, ratings.domain, n_nodes)
        names = [f"node {number}" for number in range(n_nodes)]
        digests = {each: hashlib.sha256(each.encode()).hexdigest() for each in names}
        key = home / "key.pem"
        words = (
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
        )
        words += f" -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {home}/chain.pem"
        subprocess.run(words.split(), check=True, capture_output=True)
        tls = {"certificate": f"{home}/chain.pem", "key": str(key)} if secure else {}
        sockets = [listen("127.0.0.1", 0) for _ in ROLES]
        urls = [f"http{'s' * secure}://127.0.0.1:{each.getsockname()[1]}" for each in sockets]
        ca = f"{home}/chain.pem" if secure else None
        with contextlib.ExitStack() as stack:
            servers = []
            for place, role in enumerate(ROLES):
                settings = Settings(role=role, nodes=digests, peer_token="p" * 32)
                ledger, peer = Ledger(home / f"{role}.sqlite"), Connection(urls[1 - place], ca=ca)
                servers.append(CollectingServer(agreement, settings, home / role, ledger, peer))
                limits = Limits(requests_per_second=1e6)
                service = Service(servers[-1].answer, listening=sockets[place], limits=limits, **tls)
                stack.enter_context(service)
            while sum(each.step() for each in servers):
                pass
            public, begun, used = Public(agreement), time.time(), time.process_time()
            for number, each in enumerate(names):
                lines = [Connection(url, ca=ca) for url in urls]
                book, rows = (
                    Ledger(home / f"{each}.sqlite"),
                    ratings.rows(np.arange(n_nodes) == number, keyed=True),
                )
                node = Node(name=each, tokens=[each, each], folder=home / each, ledger=book)
                assert contribute(lines, public, rows, node) == "answered"
                for line in lines:
                    line.close()
            spent = {"seconds": time.time() - begun, "cpu": time.process_time() - used}
    return {name: value / n_nodes for name, value in spent.items()}


def made_anew(name: str, ratings: Ratings | None) -> Any:
    """A row by its name."""
    kind, *words = name.split("/")
    if kind == "costs":
        return costs(int(words[0]))
    if kind == "memory":
        return memory(int(words[0]))
    if kind == "fresh":
        return fresh(int(words[0]), words[1] == "https")
    if kind == "loopback":
        return loopback(int(words[0]), float(words[1]))
    if kind == "bytes":
        job, number = words
        domain = realistic(9, 4000, 99, seed=0).domain
        if job not in MODELS:
            model = small(agreed(job, {}, domain, int(number)).estimator, {}, domain.n_items)
            return dict(zip(("rounds", "bytes"), at_most(model, domain.n_items), strict=True))
        sizes = agreed(*MODELS[job][int(number)], domain, USERS).rehearsed()
        return {"rounds": len(sizes), "bytes": sum(8 * opened.size + 32 for _, opened in sizes)}
    assert ratings is not None
    if kind == "quality":
        return quality(words[0], ratings, int(words[1]), float(words[2]))
    if kind == "public":
        return with_public(words[0], ratings, int(words[1]), float(words[2]))
    if kind == "in rounds":
        return in_rounds(ratings, int(words[0]), words[1])
    if kind == "central":
        return against_central(words[0], ratings)
    return spoiled(ratings, int(words[0]), float(words[1]))


LIARS, LIES = (1, 10, 100), (1.0, 100.0, 1e9)
USERS = 6040
#: Users whose ratings are public, a twentieth.
PUBLIC = 300
PLANS = ("private-eigenrec", "private-als", "both")
#: Times that everybody is there, so that what is planned would send too much.
COPIES = (18, 74)
#: The fewest iterations and learned items that are planned for lists (`hushrec.cli.servers_init.small`).
LEAST = {"iterations": 3, "learned_items": 3000}
#: Rows that every check makes anew.
SAMPLE = ("quality/RMSE/4/0.2", "quality/Recall@20/4/1.0")
NAMES = [
    *(f"quality/{job}/{rounds}/{online}" for job in MODELS for rounds in (1, 2, 4, 8) for online in ONLINE),
    *(f"public/{job}/{rounds}/{online}" for job in MODELS for rounds in (1, 2, 4, 8) for online in ONLINE),
    *(f"central/{job}" for job in MODELS),
    *(f"spoiled/{liars}/{lie}" for liars in LIARS for lie in LIES),
    *(f"bytes/{job}/{rounds}" for job in MODELS for rounds in (1, 2, 4, 8)),
    *(f"bytes/{model}/{count}" for model in PLANS for count in (USERS, 100_000)),
    *(f"in rounds/{copies}/{which}" for copies in COPIES for which in ("all", "planned", "least")),
    "fresh/100/http",
    "fresh/100/https",
    "loopback/6040/0.1",
    "loopback/6040/0.0",
    *(f"{what}/{count}" for what in ("costs", "memory") for count in (1000, 10_000, 100_000)),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", nargs="*", help="make rows anew: all, or those that begin so")
    options = parser.parse_args()
    rows = json.loads(ROWS.read_text()) if ROWS.exists() else {}
    if options.rows is not None:
        ratings = read("ml-1m")
        for name in NAMES:
            if not options.rows or any(name.startswith(each) for each in options.rows):
                begun = time.time()
                found = made_anew(name, ratings)
                print(name, found, f"{time.time() - begun:.0f} s", flush=True)
                stored = json.loads(ROWS.read_text()) if ROWS.exists() else {}
                ROWS.write_text(json.dumps(stored | {name: found}, indent=1, sort_keys=True) + "\n")
        return
    sys.exit(held(rows))


def held(rows: dict[str, Any]) -> bool:
    """Print the figures with their targets; whether any falls short."""
    short = False

    def line(what: str, good: bool) -> None:
        nonlocal short
        short |= not good
        print(f"{'PASS' if good else 'SHORT'}: {what}", flush=True)

    print(
        "MovieLens-1M, epsilon = 5 at delta = 1e-06 (unit: user, relation: add-remove) against either server."
    )
    print("| | rounds | " + " | ".join(f"{online:.0%} online" for online in ONLINE) + " | KB a node sends |")
    print("|---|---:" + "|---:" * (len(ONLINE) + 1) + "|")
    for job in MODELS:
        for rounds in MODELS[job]:
            cells = [rows[f"quality/{job}/{rounds}/{online}"] for online in ONLINE]
            figures = " | ".join(f"{cell['figure']:.4f}" for cell in cells)
            print(f"| {job} | {rounds} | {figures} | {cells[0]['bytes'] / 1e3:,.0f} |")
    print(f"| with {PUBLIC} others whose ratings are public | rounds |{' | ' * len(ONLINE)} |")
    for job in MODELS:
        for rounds in MODELS[job]:
            cells = [rows[f"public/{job}/{rounds}/{online}"] for online in ONLINE]
            figures = " | ".join(f"{cell['figure']:.4f}" for cell in cells)
            print(f"| {job} | {rounds} | {figures} | |")
    print("| nodes that lie, of 6,040 | " + " | ".join(f"by {lie:g} sd of the noise" for lie in LIES) + " |")
    print("|---:" * (1 + len(LIES)) + "|")
    for liars in LIARS:
        found = [rows[f"spoiled/{liars}/{lie}"]["figure"] for lie in LIES]
        cells = ["refused, the training stops" if each is None else f"RMSE {each:.4f}" for each in found]
        print(f"| {liars} | {' | '.join(cells)} |")
    for job in MODELS:
        ours, theirs = (rows[f"central/{job}"][each] for each in ("two servers", "central"))
        what = f"{job} {ours:.4f} over two servers and {theirs:.4f} centrally, with the same noise"
        line(f"{what}: within {CLOSE}", abs(ours - theirs) <= CLOSE)
    names = [f"{job}/{rounds}" for job in MODELS for rounds in MODELS[job]]
    most = max(rows[each]["bytes"] for name in names for each in (f"bytes/{name}", f"quality/{name}/1.0"))
    line(
        f"few rounds at 4,000 items: a node sends {most / 1e6:.2f} MB, at most {PLANNED / 1e6:g}",
        most <= PLANNED,
    )
    for model, count in ((model, count) for model in PLANS for count in (USERS, 100_000)):
        row = rows[f"bytes/{model}/{count}"]
        what = f"{model} as planned for {count:,} nodes and 4,000 items: {row['rounds']} rounds,"
        what += f" {row['bytes'] / 1e6:.1f} MB"
        line(f"{what}, at most {WORST / 1e6:g}", row["bytes"] <= WORST)
    for copies in COPIES:
        every, planned = (rows[f"in rounds/{copies}/{which}"] for which in ("all", "planned"))
        what = f"{every['nodes']:,} nodes, {copies} of everybody: Recall@20 {planned['figure']:.4f} in the"
        what += f" {planned['rounds']} rounds that are planned, {every['figure']:.4f} in {every['rounds']},"
        least = rows[f"in rounds/{copies}/least"]["figure"]
        what += f" {least:.4f} with the least that is planned beside a model of ratings"
        line(f"{what}: within {CLOSE}", every["figure"] - planned["figure"] <= CLOSE)
    row = rows["loopback/6040/0.0"]
    cpu = f"CPU: nodes {row['nodes cpu']:.0f} s, servers {row['servers cpu']:.0f} s"
    what = f"6,040 nodes over loopback, {row['answers']:,} answers: {row['seconds']:.0f} s ({cpu})"
    line(f"{what}, at most {LOOPBACK:.0f}", row["seconds"] <= LOOPBACK and row["same"])
    row = rows["loopback/6040/0.1"]
    what = f"6,040 nodes, 10% lost in every round: the same model at both servers, {row['answers']:,} answers"
    line(f"{what}, {row['seconds']:.0f} s", row["same"] and row["seconds"] <= LOOPBACK)
    plain, secure = (rows[f"fresh/100/{scheme}"]["cpu"] for scheme in ("http", "https"))
    print(
        f"A fresh node with its ledger: {1e3 * plain:.1f} ms of CPU at both ends,"
        f" {1e3 * (secure - plain):.1f} more with TLS."
    )
    few, many = rows["costs/1000"], rows["costs/100000"]
    for who in ROLES:
        what = f"the {who} server takes {1e6 * many[who]:.0f} us a node at 100,000"
        line(f"{what}, {1e6 * few[who]:.0f} at 1,000: linear", many[who] <= 1.5 * few[who])
    few, many = rows["memory/1000"], rows["memory/100000"]
    for who in ROLES:
        what = f"the {who} server has {many[who]:.0f} MB at its peak at 100,000 nodes of 500 items"
        line(f"{what}, {few[who]:.0f} at 1,000", many[who] <= few[who] + 100)
    print(f"A node has {many['node']:.0f} MB with 4,000 items, {few['node']:.0f} as planned for 1,000.")
    many = rows["costs/100000"]
    print(f"A node of 500 items: {1e3 * many['node']:.2f} ms of CPU, {many['bytes'] / 1e3:.1f} KB.")
    ratings = read("ml-1m")
    for name in SAMPLE if ratings is not None else ():
        again, stored = made_anew(name, ratings)["figure"], rows[name]["figure"]
        line(f"{name} made anew: {again:.4f}, stored {stored:.4f}", abs(again - stored) <= 0.002)
    made = made_anew("loopback/60/0.0", None)
    line(f"60 nodes over loopback made anew: {made['seconds']:.0f} s, the same model at both", made["same"])
    return short


if __name__ == "__main__":
    main()
