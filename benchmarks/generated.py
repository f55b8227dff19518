"""Compare generated tables with real ones: histories, popularity, and what models without privacy find.

Real tables come from the folder HUSHREC_DATA. PASS: a figure of `films` lies within 15% of those of
MovieLens, and one of `sparse` within 15% of those of Flixster, Yahoo! R3 and Coat.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from benchmarks.frontier.tables import write_part
from benchmarks.harness import DELTA, ROOT, TOY, Targets, rmse, single_thread, table, there
from hushrec.data import Ratings, lifelike, realistic, strong_generalization
from hushrec.evaluation import evaluate
from hushrec.models import ALS, EASE, ItemBias, Popular
from hushrec.privacy import Accountant, Budget

REAL = {"films": ("ml-100k", "ml-1m"), "sparse": ("flixster", "yahoo-r3", "coat")}
NEAR = 0.15
#: Digits of each figure. Errors and spreads are parts of the range of stars.
FIGURES = {
    "users": 0,
    "items": 0,
    "ratings a user": 0,
    "median of that, over the mean": 2,
    "part of the ratings on a tenth of the items": 2,
    "mean star": 2,
    "spread of stars": 3,
    "RMSE of item means": 3,
    "RMSE of als": 3,
    "Recall@20 of the most popular": 3,
    "Recall@20 of EASE": 3,
}
PAGE = ROOT / "docs" / "reference" / "generated-data.md"


def figures(ratings: Ratings) -> dict[str, float]:
    """Return all figures of a table."""
    lengths, counts = (np.diff(each.indptr) for each in (ratings.matrix, ratings.matrix.tocsc()))
    width, top = 2 * ratings.domain.half_width, np.sort(counts)[::-1][: math.ceil(len(counts) / 10)]
    stars = (ratings.matrix.data - ratings.domain.low) / width
    public = Accountant(Budget(math.inf, DELTA), data_is_public=True)
    part = float(np.clip(1_500 / ratings.n_users, 0.1, 0.25))
    upper_quarter = ratings.domain.low + 0.75 * width
    found = []
    for rows, models in ((ratings, (ItemBias(), ALS())), (ratings.liked(upper_quarter), (Popular(), EASE()))):
        parts = strong_generalization(rows.rated(), part, seed=0)
        for estimator in models:
            model = estimator.fit(parts.train, public, seed=0)
            if rows is ratings:
                found.append(rmse(model, parts.fold_in, parts.target) / width)
            else:
                judged = evaluate(model, parts.fold_in, parts.target, metrics=["capped-recall"], resamples=0)
                found.append(judged["capped-recall@20"].value)
    values = [ratings.n_users, ratings.n_items, lengths.mean(), np.median(lengths) / lengths.mean()]
    values += [top.sum() / counts.sum(), stars.mean(), stars.std(), *found]
    return dict(zip(FIGURES, map(float, values), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table of docs/reference")
    options, targets = parser.parse_args(), Targets()
    single_thread()
    users = 300 if TOY else 2_000
    made = {
        kind: lifelike(kind, n_users=users if TOY else None, seed=0) for kind in ("films", "sparse", "shop")
    }
    made["`realistic`"] = realistic(users, users, 140 * users, seed=0)
    found = {name: figures(rows) for name, rows in made.items()}
    for kind, names in REAL.items():
        found |= {name: figures(table(name)) for name in names if there(name)}
        for figure in list(FIGURES)[3:]:
            known = [found[name][figure] for name in names if name in found]
            if known:
                room, here = NEAR * max(known), found[kind][figure]
                near = min(known) - room <= here <= max(known) + room
                bounds = f"{min(known):.3f} to {max(known):.3f}"
                targets.line(near, f"{kind}, {figure}: {here:.3f} (real tables {bounds})")
    lines = ["| | " + " | ".join(found) + " |", "|---|" + "---:|" * len(found)]
    for figure, digits in FIGURES.items():
        lines.append(f"| {figure} | {' | '.join(f'{each[figure]:,.{digits}f}' for each in found.values())} |")
    print(*lines, sep="\n")
    if options.write:
        write_part(PAGE, "both side by side", "\n".join(lines))
    targets.exit()


if __name__ == "__main__":
    main()
