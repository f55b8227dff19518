"""Compare `both` and `--model lists` with `popular` at the same budget, on dense and wide tables.

Ratings are split 80/20 by row. Recall@20 (capped) over held-out likes; unit user, add-remove, delta 1e-5.
Every draw has its own split and noise, and the models of a draw share the split. The number of users is
declared. PASS: neither model is below `popular` by more than 0.002, and `both` has at least 0.93 of `lists`.
Two generated tables with wide catalogues are drawn again for each draw; no setting was tuned on them.

--pairs compares lists from rounds and from item pairs, and says which of them the plan takes.

--measured writes what the default training reaches on ten tables, whole and with 1,000 and 3,000 users, with
one user in twenty as a donor and without: hushrec/evaluation/measured.json, which `hushrec plan` prints, and
the table of docs/understand/how-many-users.md. Delta 1e-6; means of ten draws, of three from 100,000 ratings
up.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.frontier.tables import write_part
from benchmarks.harness import DELTA, OUTPUT, ROOT, TABLES, TOY, Targets, table, there
from hushrec.data import Ratings, lifelike, realistic, split_ratings
from hushrec.evaluation import evaluate
from hushrec.evaluation.baselines import popular_by_plan
from hushrec.evaluation.measured import TABLE
from hushrec.models import PrivateEigenRec
from hushrec.privacy import Accountant, Budget
from hushrec.public import PublicRatings
from hushrec.training.named import train

EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
MOST_LOST, LEAST_OF_LISTS = 0.002, 0.93
#: The tables that `hushrec plan` names.
TITLES = {
    "coat": "Coat (clothes)",
    "filmtrust": "FilmTrust (films)",
    "ml-latest-small": "MovieLens small",
    "ml-100k": "MovieLens-100K",
    "book-crossing": "Book-Crossing",
    "flixster": "Flixster (films)",
    "retailrocket": "RetailRocket (shop)",
    "ml-1m": "MovieLens-1M",
    "yahoo-r3": "Yahoo! R3 (songs)",
    "jester": "Jester (jokes)",
}
#: Generated tables with wide catalogues: a function of the seed, and whether they have ratings.
GENERATED: dict[str, tuple[Callable[[int], Ratings], bool]] = {
    "generated-films": (lambda seed: realistic(1_500, 12_000, 60_000, seed=seed), True),
    "generated-shop": (lambda seed: lifelike("shop", n_users=3_000, n_items=9_000, seed=seed), True),
}
#: Further ones for rounds and item pairs: many users with long, short, and very short histories.
MANY = {
    "generated-long": (lambda seed: lifelike("films", n_users=6_000, n_items=4_000, seed=seed), True),
    "generated-middle": (lambda seed: lifelike("films", n_users=5_000, n_items=2_000, seed=seed), True),
    "generated-short": (lambda seed: lifelike("sparse", n_users=20_000, n_items=3_000, seed=seed), True),
    "generated-large-shop": (lambda seed: lifelike("shop", n_users=12_000, n_items=2_000, seed=seed), True),
}
_FIRST_SEED = 5000
PAGE = ROOT / "docs" / "understand" / "how-many-users.md"


def recall(model: str, name: str, epsilon: float, draw: int, **settings: Any) -> float:
    """Capped Recall@20 of one training."""
    made = GENERATED | MANY
    ratings = made[name][0](_FIRST_SEED + draw) if name in made else table(name)
    rows, held = split_ratings(ratings, (0.8, 0.2), seed=draw)
    least = None if rows.domain.likes else rows.domain.like_threshold
    learned = rows.liked(least).rated() if model == "popular" and least is not None else rows
    accountant = Accountant(Budget(epsilon, DELTA), data_is_public=True)
    trained = train(model, learned, accountant, n_users=learned.n_users, seed=draw, settings=settings)
    found = evaluate(trained, rows, held, relevant_from=least, metrics=["capped-recall"], resamples=0)
    return found["capped-recall@20"].value


def pairs(names: list[str], draws: int) -> None:
    """Print Recall@20 of rounds and of item pairs at epsilon 1, 5 and 20, the taken one in bold."""
    print("| table | users / items | epsilon | rounds | item pairs |", "|---|---:|---:|---:|---:|", sep="\n")
    for name in names:
        ratings = MANY[name][0](_FIRST_SEED) if name in MANY else table(name)
        for epsilon in (1.0, 5.0, 20.0):
            taken = PrivateEigenRec.planned(Budget(epsilon, DELTA), ratings.domain, ratings.n_users).pairs
            cells = []
            for way in (False, True):
                found = [recall("private-eigenrec", name, epsilon, draw, pairs=way) for draw in range(draws)]
                cells.append(f"{'**' * (way == taken)}{np.mean(found):.3f}{'**' * (way == taken)}")
            shape = f"{ratings.n_users:,} / {ratings.n_items:,}"
            print(f"| {name} | {shape} | {epsilon:g} | {' | '.join(cells)} |", flush=True)


def default(rows: Ratings, epsilon: float, draw: int) -> dict[str, float]:
    """Recall@20 and RMSE of the default training, of baselines, and with one user in twenty as a donor."""
    part, held = split_ratings(rows, (0.8, 0.2), seed=draw)
    domain, n_users = rows.domain, part.n_users
    metrics = ["recall"] if domain.likes else ["recall", "rmse"]

    def judged(model: Any) -> dict[str, float]:
        least = None if domain.likes else domain.like_threshold
        found = evaluate(model, part, held, relevant_from=least, metrics=metrics, resamples=0).metrics
        return {name.split("@")[0]: each.value for name, each in found.items()}

    def trained(name: str, public: PublicRatings | None = None) -> Any:
        accountant = Accountant(Budget(epsilon, 1e-6), data_is_public=True)
        return train(name, part, accountant, n_users=n_users, seed=draw, public=public)

    name = "private-eigenrec" if domain.likes else "both"
    model = trained(name)
    figures = {"": judged(model), "_popular": judged(popular_by_plan(model, part, draw))}
    figures["_donors"] = judged(trained(name, PublicRatings(donors=list(part.users[::20]))))
    if not domain.likes:
        figures["_means"] = judged(trained("item-bias"))
    return {
        f"{metric}{kind}": found[metric]
        for metric, left in (("recall", "_means"), ("rmse", "_popular"))
        for kind, found in figures.items()
        if metric in found and kind != left
    }


def measure() -> None:
    """Write what `hushrec plan` prints of tables that are like a planned one."""
    found: list[dict[str, Any]] = []
    for name, title in TITLES.items():
        if not there(name):
            continue
        whole = table(name)
        for size in (*(size for size in (1000, 3000) if 2 * size < whole.n_users), whole.n_users):
            chosen = np.random.default_rng(0).permutation(whole.n_users)[:size]
            rows = whole.rows(np.isin(np.arange(whole.n_users), chosen))
            count = 1 if TOY else 10 if rows.n_ratings < 100_000 else 3
            shape = {"table": title, "n_users": size, "n_items": rows.n_items}
            shape |= {"ratings_per_user": round(rows.n_ratings / size, 1), "rating_range": TABLES[name][1]}
            for epsilon in (1.0, 3.0, 10.0):
                draws = [default(rows, epsilon, draw) for draw in range(count)]
                means = {key: round(float(np.mean([each[key] for each in draws])), 4) for key in draws[0]}
                found.append({**shape, "epsilon": epsilon, **means})
                print(json.dumps(found[-1]), flush=True)
    text = "[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n"
    if TOY:
        OUTPUT.mkdir(exist_ok=True)
        (OUTPUT / TABLE.name).write_text(text)
        return
    TABLE.write_text(text)
    write_part(PAGE, "measured", page(found))


def page(measured: list[dict[str, Any]]) -> str:
    """Return the table of the documentation: a line for each table and size."""
    epsilons = sorted({row["epsilon"] for row in measured})
    columns = [f"{metric}, epsilon {epsilon:g}" for metric in ("Recall", "RMSE") for epsilon in epsilons]
    columns.insert(len(epsilons), f"Recall with donors, epsilon {epsilons[0]:g}")
    lines = [f"| table | users | items | ratings per user | {' | '.join(columns)} |", "|---|" + "---:|" * 10]
    for start in range(0, len(measured), len(epsilons)):
        rows = measured[start : start + len(epsilons)]
        cells = [f"{row['recall']:.3f} ({row['recall_popular']:.3f})" for row in rows]
        cells.append(f"{rows[0]['recall_donors']:.3f}")
        cells += [f"{row['rmse']:.3f} ({row['rmse_means']:.3f})" if "rmse" in row else "–" for row in rows]
        shape = f"{rows[0]['n_users']:,} | {rows[0]['n_items']:,} | {rows[0]['ratings_per_user']:.0f}"
        lines.append(f"| {rows[0]['table']} | {shape} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--data", nargs="+", choices=[*GENERATED, *MANY, *TABLES], default=[*GENERATED, *TABLES]
    )
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS[:1] if TOY else EPSILONS)
    parser.add_argument("--draws", type=int, default=1 if TOY else 10)
    parser.add_argument("--measured", action="store_true")
    parser.add_argument("--pairs", action="store_true")
    options, targets = parser.parse_args(), Targets()
    if options.measured:
        return measure()
    if options.pairs:
        return pairs([name for name in options.data if name not in GENERATED], options.draws)
    for name in options.data:
        if name not in GENERATED and not there(name):
            continue
        rated = GENERATED[name][1] if name in GENERATED else TABLES[name][1] is not None
        models = ["popular", "private-eigenrec"] + ["both"] * rated
        for epsilon in options.epsilons:
            draws = range(options.draws)
            found = np.array([[recall(model, name, epsilon, draw) for model in models] for draw in draws])
            means, gains = found.mean(axis=0), found - found[:, :1]
            spread = gains.std(axis=0, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else 0 * means
            good = (gains.mean(axis=0) >= -MOST_LOST).all() and means[-1] >= LEAST_OF_LISTS * means[1]
            cells = [f"popular {means[0]:.4f}"]
            cells += [
                f"{model} {mean:.4f} ({mean - means[0]:+.4f} ± {error:.4f})"
                for model, mean, error in zip(models[1:], means[1:], spread[1:])
            ]
            targets.line(good, f"{name}, epsilon {epsilon:g}, Recall@20: {', '.join(cells)}")
    targets.exit()


if __name__ == "__main__":
    main()
