"""Measure a training over two servers: quality by rounds and nodes online, bytes a node sends, liars.

    python -m benchmarks.two_servers             judges the stored rows and makes a sample again
    python -m benchmarks.two_servers --rows      makes all rows again

The tables need HUSHREC_DATA, the folder of real ratings. The sums of a round of many nodes are computed at
once here; tests/engines/test_two_servers.py compares that with the protocol, bit for bit. The rows `costs`,
`memory`, `fresh` and `loopback` were made once by earlier code and are kept for the page.
"""

import argparse
import json
import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import (
    STORED,
    TOY,
    Targets,
    of_errors,
    of_lists,
    settings as settings_of,
    table,
    there,
)
from hushrec.cli.servers_init import at_most, small
from hushrec.data import Domain, Ratings, realistic
from hushrec.engines.two_servers.agreement import Agreement, Wanted
from hushrec.engines.two_servers.shares import ROLES
from hushrec.errors import HushrecError
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import SeededNoise
from hushrec.public import PublicRatings
from hushrec.serving.model import Model
from hushrec.training.gate import LocalGate
from hushrec.training.named import choose

ROWS = STORED / "nobody.json"
BUDGET = Budget(5.0, 1e-6)
ONLINE = (1.0, 0.6, 0.2, 0.05)
#: Model and settings by job and number of rounds.
MODELS: dict[str, dict[int, tuple[str, dict[str, Any]]]] = {
    "RMSE": {
        1: ("item-bias", {}),
        2: ("private-als", {"rank": 0, "bias_rounds": 1, "features": False}),
        4: ("private-als", {"rank": 8, "bias_rounds": 1, "iterations": 1}),
        8: ("private-als", {"rank": 8, "bias_rounds": 1, "iterations": 3}),
    },
    "Recall@20": {
        1: ("popular", {}),
        2: ("private-eigenrec", {"iterations": 1, "pairs": False}),
        4: ("private-eigenrec", {"iterations": 3, "pairs": False}),
        8: ("private-eigenrec", {"iterations": 7, "pairs": False}),
    },
}
#: Largest difference from a central training with the same noise.
CLOSE = 0.005
#: Largest bytes that a node sends in all, at 4,000 items: as planned here, and of any plan.
PLANNED, WORST = 2e6, 10e6


class Made(NamedTuple):
    """A training, and the bytes of a node that answered every round."""

    model: Model
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
    ``copies`` of every user. Ratings that are ``public`` are a part of it.
    """
    generator, noise = np.random.default_rng(seed), SeededNoise(seed)
    totals: list[Any] = []
    rounds: list[Any] = []
    agreement = replace(agreement, public=public)
    while isinstance(wanted := agreement.next(totals), Wanted):
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


def central(agreement: Agreement, ratings: Ratings, seed: int) -> Model:
    """The ordinary training, with the noise of both servers."""
    accountant = Accountant(agreement.budget, noise=SeededNoise(seed))
    users = agreement.estimator.users(ratings.rated())
    parts = agreement.estimator.train(users, LocalGate(accountant, agreement.both), agreement.seed)
    return Model.of(agreement.estimator, ratings.domain, parts, accountant.statement())


def with_public(job: str, ratings: Ratings, rounds: int, online: float) -> dict[str, Any]:
    """The same with the ratings of 300 others, who have published them, and without."""
    task = {"RMSE": of_errors, "Recall@20": of_lists}[job](ratings)
    order = np.random.default_rng(0).permutation(task.train.n_users)
    known, others = (task.train.rows(np.sort(rows), keyed=True) for rows in (order[:PUBLIC], order[PUBLIC:]))
    model, settings = MODELS[job][rounds]
    agreement = agreed(model, settings, ratings.domain, int(online * others.n_users))
    made = train(agreement, others, online, public=PublicRatings(same=known))
    alone = train(agreement, others, online)
    return {"figure": task.figure(made.model), "without": task.figure(alone.model), "rounds": made.rounds}


def against_central(job: str, ratings: Ratings) -> dict[str, Any]:
    """Mean of three draws of noise, over two servers and centrally."""
    task = {"RMSE": of_errors, "Recall@20": of_lists}[job](ratings)
    model, settings = MODELS[job][4]
    agreement, draws = agreed(model, settings, ratings.domain, task.train.n_users), range(3)
    ours = np.mean([task.figure(train(agreement, task.train, seed=draw).model) for draw in draws])
    theirs = np.mean([task.figure(central(agreement, task.train, 100 + draw)) for draw in draws])
    return {"two servers": float(ours), "central": float(theirs)}


def in_rounds(ratings: Ratings, copies: int, which: str) -> dict[str, Any]:
    """Mean Recall of four draws with copies of all users: with all rounds, as planned, or the fewest."""
    task = of_lists(ratings)
    domain, n_users = ratings.domain, copies * task.train.n_users
    settings = {"pairs": False} | (LEAST if which == "least" else {})
    agreement = agreed("private-eigenrec", settings, domain, n_users)
    if which == "planned":  # so many rounds as keep to the most bytes at 4,000 items
        agreement = replace(agreement, estimator=small(agreement.estimator, {"pairs": False}, 4000))
    made = [train(agreement, task.train, seed=draw, copies=copies) for draw in range(4)]
    figure = float(np.mean([task.figure(each.model) for each in made]))
    worst = at_most(agreement.estimator, 4000)[1]
    return {"figure": figure, "nodes": n_users, "rounds": made[0].rounds, "bytes at 4,000 items": worst}


def spoiled(ratings: Ratings, liars: int, lie: float) -> dict[str, Any]:
    task = of_errors(ratings)
    model, settings = MODELS["RMSE"][4]
    agreement = agreed(model, settings, ratings.domain, task.train.n_users)
    try:
        return {"figure": task.figure(train(agreement, task.train, liars=liars, lie=lie).model)}
    except HushrecError:
        return {"figure": None}


LIARS, LIES = (1, 10, 100), (1.0, 100.0, 1e9)
USERS = 6040
#: Number of donors, a twentieth of the users.
PUBLIC = 300
PLANS = ("private-eigenrec", "private-als", "both")
#: Copies of every user, with which the usual plan would send too much.
COPIES = (18, 74)
#: The fewest iterations and learned items that are planned for lists (`hushrec.cli.servers_init.small`).
LEAST = {"iterations": 3, "learned_items": 3000}
#: Rows that every check makes again.
SAMPLE = ("quality/RMSE/4/0.2", "quality/Recall@20/4/1.0")
NAMES = [
    *(f"quality/{job}/{rounds}/{online}" for job in MODELS for rounds in (1, 2, 4, 8) for online in ONLINE),
    *(f"public/{job}/{rounds}/{online}" for job in MODELS for rounds in (1, 2, 4, 8) for online in ONLINE),
    *(f"central/{job}" for job in MODELS),
    *(f"spoiled/{liars}/{lie}" for liars in LIARS for lie in LIES),
    *(f"bytes/{job}/{rounds}" for job in MODELS for rounds in (1, 2, 4, 8)),
    *(f"bytes/{model}/{count}" for model in PLANS for count in (USERS, 100_000)),
    *(f"in rounds/{copies}/{which}" for copies in COPIES for which in ("all", "planned", "least")),
]


def quality(job: str, ratings: Ratings, rounds: int, online: float) -> dict[str, Any]:
    task = {"RMSE": of_errors, "Recall@20": of_lists}[job](ratings)
    agreement = agreed(*MODELS[job][rounds], ratings.domain, int(online * task.train.n_users))
    made = train(agreement, task.train, online)
    figure, used = task.figure(made.model), settings_of(agreement.estimator)
    return {"figure": figure, "rounds": made.rounds, "bytes": made.bytes, "settings": used}


def bytes_sent(job: str, number: int) -> dict[str, Any]:
    """Rounds, and bytes that a node sends, at 4,000 items."""
    domain = realistic(9, 4000, 99, seed=0).domain
    if job not in MODELS:
        model = small(agreed(job, {}, domain, number).estimator, {}, domain.n_items)
        return dict(zip(("rounds", "bytes"), at_most(model, domain.n_items), strict=True))
    sizes = agreed(*MODELS[job][number], domain, USERS).rehearsed()
    return {"rounds": len(sizes), "bytes": sum(8 * opened.size + 32 for _, opened in sizes)}


def made_again(name: str, ratings: Ratings) -> Any:
    """A row by its name."""
    kind, *words = name.split("/")
    if kind == "bytes":
        return bytes_sent(words[0], int(words[1]))
    if kind == "quality":
        return quality(words[0], ratings, int(words[1]), float(words[2]))
    if kind == "public":
        return with_public(words[0], ratings, int(words[1]), float(words[2]))
    if kind == "in rounds":
        return in_rounds(ratings, int(words[0]), words[1])
    if kind == "central":
        return against_central(words[0], ratings)
    return spoiled(ratings, int(words[0]), float(words[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", nargs="*", help="make rows again: all, or those that begin so")
    options, targets = parser.parse_args(), Targets()
    rows = json.loads(ROWS.read_text())
    if options.rows is not None:
        for name in NAMES:
            if not options.rows or any(name.startswith(each) for each in options.rows):
                begun = time.time()
                rows[name] = made_again(name, table("ml-1m"))
                print(name, rows[name], f"{time.time() - begun:.0f} s", flush=True)
                ROWS.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
        return
    tables(rows)
    judge(targets, rows)
    for name in SAMPLE[:1] if TOY else SAMPLE:
        if there("ml-1m"):
            again, stored = made_again(name, table("ml-1m"))["figure"], rows[name]["figure"]
            targets.at_most(
                abs(again - stored), 0.002, f"{name} made again: {again:.4f}, stored {stored:.4f}"
            )
    targets.exit()


def tables(rows: dict[str, Any]) -> None:
    """Print the stored figures."""
    print(
        "MovieLens-1M, epsilon = 5 at delta = 1e-6 (unit: user, relation: add-remove) against either server."
    )
    heads = " | ".join(f"{online:.0%} online" for online in ONLINE)
    for kind, title in (("quality", ""), ("public", f"with {PUBLIC} donors")):
        print(f"| {title} | rounds | {heads} | KB a node sends |\n|---|---:{'|---:' * (len(ONLINE) + 1)}|")
        for job in MODELS:
            for rounds in MODELS[job]:
                cells = [rows[f"{kind}/{job}/{rounds}/{online}"] for online in ONLINE]
                figures = " | ".join(f"{cell['figure']:.4f}" for cell in cells)
                sent = f"{cells[0]['bytes'] / 1e3:,.0f}" if "bytes" in cells[0] else ""
                print(f"| {job} | {cells[0]['rounds']} | {figures} | {sent} |")
    heads = " | ".join(f"by {lie:g} sd of the noise" for lie in LIES)
    print(f"| nodes that lie, of 6,040 | {heads} |\n|---:{'|---:' * len(LIES)}|")
    for liars in LIARS:
        found = [rows[f"spoiled/{liars}/{lie}"]["figure"] for lie in LIES]
        cells = ["refused, the training stops" if each is None else f"RMSE {each:.4f}" for each in found]
        print(f"| {liars} | {' | '.join(cells)} |")


def judge(targets: Targets, rows: dict[str, Any]) -> None:
    """Print a line for each target."""
    for job in MODELS:
        ours, theirs = (rows[f"central/{job}"][each] for each in ("two servers", "central"))
        what = f"{job} {ours:.4f} over two servers and {theirs:.4f} centrally with the same noise, difference"
        targets.at_most(abs(ours - theirs), CLOSE, what)
    names = [f"{job}/{rounds}" for job in MODELS for rounds in MODELS[job]]
    most = max(rows[each]["bytes"] for name in names for each in (f"bytes/{name}", f"quality/{name}/1.0"))
    targets.at_most(most / 1e6, PLANNED / 1e6, "few rounds at 4,000 items: MB that a node sends")
    for model, count in ((model, count) for model in PLANS for count in (USERS, 100_000)):
        row = rows[f"bytes/{model}/{count}"]
        what = f"{model} as planned for {count:,} nodes and 4,000 items, {row['rounds']} rounds: MB"
        targets.at_most(row["bytes"] / 1e6, WORST / 1e6, what)
    for copies in COPIES:
        every, planned = (rows[f"in rounds/{copies}/{which}"] for which in ("all", "planned"))
        what = f"{every['nodes']:,} nodes, Recall@20 lost in {planned['rounds']} planned rounds,"
        lost = every["figure"] - planned["figure"]
        targets.at_most(lost, CLOSE, f"{what} against {every['rounds']}")


if __name__ == "__main__":
    main()
