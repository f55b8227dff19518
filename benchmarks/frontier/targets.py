"""Targets of the comparison against the stored rows, and a sample made again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.frontier.cells import Cell, Row, interval
from benchmarks.frontier.data import DATASETS, available, kind_of, split
from benchmarks.frontier.methods import methods
from benchmarks.frontier.tables import Curve, curves, spell
from benchmarks.harness import DELTA
from hushrec.privacy import Budget

#: Whether a target holds, and the measured figure.
Check = tuple[bool, str]
#: Test RMSE that private ALS must reach.
_GOALS = {
    "ml-1m": {1.0: 0.915, 5.0: 0.884, 10.0: 0.876, 20.0: 0.866},
    "synthetic": {1.0: 0.08, 5.0: 0.010, 10.0: 0.006, 20.0: 0.006},
}
#: Recall@20 that private EigenRec must reach.
_LIKES = {
    "ml-1m-likes": dict(zip((0.5, 1.0, 2.0, 5.0, 10.0, 20.0), (0.219, 0.245, 0.276, 0.303, 0.316, 0.332))),
    "ml-100k-likes": dict(zip((0.5, 1.0, 2.0, 5.0, 10.0, 20.0), (0.185, 0.250, 0.295, 0.352, 0.364, 0.372))),
}
#: Small data: splits that Recall, and errors without privacy, are the mean over; and draws of each of likes.
_SPLITS, _DRAWS = dict.fromkeys(("ml-100k-likes", "ml-100k", "coat", "flixster", "restaurant"), 5), 20
#: Without privacy: test RMSE of ALS at most, Recall@20 of EASE at least.
_NO_PRIVACY = {"ml-1m": 0.846}
_NO_PRIVACY_LIKES = {"ml-1m-likes": 0.352, "ml-100k-likes": 0.403}
#: RMSE of the model for both jobs over that of private ALS, at most.
_BOTH = {1.0: 1.015, 5.0: 1.01, 20.0: 1.01}
#: How much worse than a baseline is no worse (on a scale of 1 to 5), and the error to which that is known.
_MARGIN, _PRECISE = 0.002, 0.0007
#: One split with fewer held-out ratings is too noisy: `make bench PART=never_loses` judges over many.
_LEAST_TARGET = 500
_BASELINES = ("item-bias", "user-mean")
_WALKS = ("frank-wolfe", "frank-wolfe-biases", "oja")
#: New draws may differ from the stored ones by this many standard deviations, plus this much.
_STRAYS, _ROUNDING = 5.0, 5e-4


def more_cells(names: Sequence[str]) -> Iterator[Cell]:
    """Runs that the targets need in addition to those of the tables: small data on other splits."""
    for name in names:
        likes = kind_of(name) == "items"
        kinds = ("private-eigenrec",) if likes else ("als", "private-als")
        for seed, kind in itertools.product(range(_SPLITS.get(name, 0)), kinds):
            place = f"{name}/{seed}"
            for epsilon in _LIKES[name] if likes else (math.inf,):
                model = methods(name)[kind].make(Budget(epsilon, DELTA), name, split(place), {})
                for draw in range(_DRAWS if likes else 1):
                    yield Cell("targets", place, kind, epsilon, draw, model)


def checks(rows: Sequence[Row], names: Sequence[str]) -> list[Check]:
    """Every target; a target without a row falls short."""
    done: list[Check] = []
    for name in names:
        here = [row for row in rows if row["data"] == name and row["part"] == "frontier"]
        splits = [row for row in rows if row["data"].startswith(f"{name}/")]
        if kind_of(name) == "items":
            done += _of_likes(name, here, splits)
            continue
        found = curves(here, "rmse")
        ours = found.get("private-als", {})
        medians = _medians(here)
        for epsilon, goal in _GOALS.get(name, {}).items():
            middle = medians.get(epsilon) if name == "synthetic" else ours.get(epsilon, (None,))[0]
            kind = "median" if name == "synthetic" else "mean"
            done.append(_at_most(middle, goal, f"{name}, RMSE, epsilon {epsilon:g}: {kind}"))
        judged = curves(splits, "rmse") if name in _SPLITS else found
        value, beside = (judged.get(each, {}).get(math.inf, (None,))[0] for each in ("als", "private-als"))
        if name in _NO_PRIVACY:
            done.append(_at_most(value, _NO_PRIVACY[name], f"{name}, RMSE, no privacy: als"))
        if beside is not None:
            done.append(_at_most(value, beside, f"{name}, RMSE, no privacy: als beside private-als,"))
        for metric in DATASETS[name].metrics:
            done += _against_baselines(name, metric, here)
        if name == "jester":
            done += _against_walks(found)
        if name == "ml-1m":
            done += _of_both(found)
        done += _against_tuned(name, found)
    return done


def _at_most(value: float | None, goal: float, what: str) -> Check:
    if value is None:
        return False, f"{what}: no stored row of these settings"
    short = "" if value <= goal else f", short by {value - goal:.4f}"
    return value <= goal, f"{what} {value:.4f}, at most {goal:.4f}{short}"


def _at_least(value: float | None, goal: float, what: str) -> Check:
    if value is None:
        return False, f"{what}: no stored row of these settings"
    short = "" if value >= goal else f", short by {goal - value:.4f}"
    return value >= goal, f"{what} {value:.4f}, at least {goal:.4f}{short}"


def _of_likes(name: str, here: Sequence[Row], splits: Sequence[Row]) -> list[Check]:
    """Recall@20, against goals and `popular`; of small data over several splits."""
    found = curves(here, "recall@20")
    judged = curves(splits, "recall@20") if name in _SPLITS else found
    done = []
    for epsilon, goal in _LIKES[name].items():
        value = judged.get("private-eigenrec", {}).get(epsilon, (None,))[0]
        done.append(_at_least(value, goal, f"{name}, Recall@20, epsilon {epsilon:g}:"))
    value = found.get("ease", {}).get(math.inf, (None,))[0]
    done.append(_at_least(value, _NO_PRIVACY_LIKES[name], f"{name}, Recall@20, no privacy: ease"))
    for epsilon in sorted(found.get("private-eigenrec", {})):
        ours, popular = (_draws(here, "recall@20", each, epsilon) for each in ("private-eigenrec", "popular"))
        if math.isfinite(epsilon) and popular:
            done.append(_no_worse(f"{name}, Recall@20", epsilon, popular, "popular", ours, _MARGIN))
    return done


def _of_both(found: dict[str, Curve]) -> list[Check]:
    done = []
    for epsilon, most in _BOTH.items():
        ours, both = (found.get(each, {}).get(epsilon) for each in ("private-als", "both"))
        ratio = both[0] / ours[0] if ours and both else None
        done.append(_at_most(ratio, most, f"ml-1m, epsilon {epsilon:g}: RMSE of both over private-als"))
    return done


def _medians(rows: Sequence[Row]) -> dict[float, float]:
    values: dict[float, list[float]] = {}
    for row in rows:
        if row["method"] == "private-als":
            values.setdefault(row["epsilon"], []).append(row["rmse"])
    return {epsilon: float(np.median(some)) for epsilon, some in values.items()}


def _draws(rows: Sequence[Row], metric: str, method: str, epsilon: float) -> list[float]:
    """A method's figures; of users' means, which release nothing, those of any epsilon."""
    return [
        row[metric]
        for row in rows
        if row["method"] == method and (method == "user-mean" or row["epsilon"] == epsilon)
    ]


def _against_baselines(name: str, metric: str, rows: Sequence[Row]) -> list[Check]:
    done: list[Check] = []
    low, high = split(name).train.domain.rating_range
    if split(name).targets[metric].n_ratings < _LEAST_TARGET:
        return done
    for epsilon in sorted({row["epsilon"] for row in rows if row["method"] == "private-als"}):
        values = {each: _draws(rows, metric, each, epsilon) for each in _BASELINES}
        known = {each: some for each, some in values.items() if some}
        if math.isfinite(epsilon) and known:
            best = min(known, key=lambda each: float(np.mean(known[each])))
            ours, margin = _draws(rows, metric, "private-als", epsilon), _MARGIN * (high - low) / 4
            what = f"{name}, {metric}"
            done.append(_no_worse(what, epsilon, ours, best, known[best], margin))
    return done


def _no_worse(
    what: str, epsilon: float, more: Sequence[float], best: str, less: Sequence[float], margin: float
) -> Check:
    """Mean of ``more`` less that of ``less`` is at most a margin: itself if known well, or its lower end."""
    gap = float(np.mean(more) - np.mean(less))
    error = math.sqrt(sum(np.var(some, ddof=1) / len(some) for some in (more, less) if len(some) > 1))
    least = gap if error <= _PRECISE else gap - 1.96 * error
    text = f"{what}, epsilon {epsilon:g}: {gap:+.4f} ± {error:.4f} to {best}, at most {margin:+.4f}"
    return least <= margin, text


def _against_walks(found: dict[str, Curve]) -> list[Check]:
    done = []
    for epsilon, (ours, _) in found.get("private-als", {}).items():
        if 0.1 <= epsilon <= 5:
            values = {each: found.get(each, {}).get(epsilon, (math.inf,))[0] for each in _WALKS}
            best = min(values, key=lambda each: values[each])
            what = f"jester, epsilon {epsilon:g}: {ours:.4f}, best Frank-Wolfe ({best}) {values[best]:.4f}"
            done.append((ours < values[best], what))
    return done


def _against_tuned(name: str, found: dict[str, Curve]) -> list[Check]:
    """Planned and tuned; where both errors are close to nothing, in units of the ratings' spread (1)."""
    done = []
    for epsilon, (ours, _) in found.get("private-als", {}).items():
        tuned = found.get("private-als-tuned", {}).get(epsilon)
        if tuned and math.isfinite(epsilon):
            ratio = (ours - tuned[0]) / (1.0 if DATASETS[name].low_rank else tuned[0])
            unit = " of the spread" if DATASETS[name].low_rank else ""
            what = f"{name}, epsilon {spell(epsilon)}: planned {ours:.4f}, tuned {tuned[0]:.4f}"
            done.append((ratio <= 0.01, f"{what} ({ratio:+.2%}{unit}, at most +1%)"))
    return done


# ---------------------------------------------------------------------- a sample trained again


def sample(cells: Sequence[Cell], count: int, seed: int) -> list[Cell]:
    """Cells of a seeded choice, to be made again with another start and fresh noise."""
    known = [cell for cell in cells if available(cell.data.partition("/")[0])]
    chosen = np.random.default_rng(seed).choice(len(known), min(count, len(known)), replace=False)
    return [known[each] for each in sorted(chosen)]


def as_stored(cell: Cell, row: Row, stored: Sequence[Row]) -> Check:
    """Check that a run made again agrees with the stored draws of the same settings."""
    metric = "recall@20" if kind_of(cell.data) == "items" else "rmse"
    draws = [each[metric] for each in stored]
    mean, _ = interval(draws)
    spread = float(np.std(draws, ddof=1)) if len(draws) > 1 else 0.0
    # two draws show little of their spread
    room = _STRAYS * spread * math.sqrt(1 + 1 / len(draws)) * (3 if len(draws) < 4 else 1) + _ROUNDING
    what = f"{cell.data}, {cell.method}, epsilon {spell(cell.epsilon)}, made anew:"
    return abs(row[metric] - mean) <= room, f"{what} {row[metric]:.4f}, stored {mean:.4f}, room {room:.4f}"
