"""Each idea of private ALS on and off."""

from __future__ import annotations

from typing import Any

from benchmarks.frontier.cells import DELTA, Cell
from benchmarks.frontier.data import split
from benchmarks.frontier.tables import curves
from hushrec.models import PrivateALS
from hushrec.papers.dpals import DPALS
from hushrec.privacy import Budget

#: Where it is measured.
PLACES = (
    ("ml-1m", 1.0),
    ("ml-1m", 5.0),
    ("ml-1m", 20.0),
    ("jester", 1.0),
    ("yahoo-r3", 1.0),
    ("synthetic", 5.0),
)

_NO_BIASES = {"bias_rounds": 0, "features": False}
#: What is off: settings, or a change of the code by its name.
OFF: dict[str, dict[str, Any] | str] = {
    "biases first": _NO_BIASES,
    "one clip a user (a clip a rating, same noise)": "rating clip",
    "units of the released spread": "units declared",
    "residual variance released anew": "residual variance declared",
    "spread of the biases fitted": "bias spread declared",
    "pull to the popularity regression": "no popularity",
    "gains from known noise": "no Wiener gain",
    "users' uncertainty in the Gramian": "users certain",
    "two factors for nothing": {"features": False},
    "factors (biases alone)": {"iterations": 0},
    "four iterations (one)": {"iterations": 1},
    "adaptive weights": {"weight_exponent": 0.0},
    "falling factor clip": {"factor_clip_decay": 1.0},
    "falling bias clip": "bias clip does not fall",
    "spectral start": {"start": "random"},
}
_SHARED = "one Gramian for all items (DPALS: an item's own, joint clip, adaptive weights)"


def cells(draws: int, places: tuple[tuple[str, float], ...] = PLACES) -> list[Cell]:
    """Every run."""
    planned = []
    for data, epsilon in places:
        parts, budget = split(data), Budget(epsilon, DELTA)
        size = (parts.train.domain, parts.train.n_users)
        base = PrivateALS.planned(budget, *size)
        variants: list[tuple[str, Any, str]] = [("", base, "")]
        for idea, change in OFF.items():
            settings = {} if isinstance(change, str) else change
            estimator = PrivateALS.planned(budget, *size, **settings)
            if estimator != base or isinstance(change, str):
                variants.append((idea, estimator, change if isinstance(change, str) else ""))
        itemwise = DPALS.of(
            rank=2,
            clipping="user",
            clip=0.03,
            user_norm=0.2,
            sampling="weights",
            weights_share=0.1,
            center="user" if data != "synthetic" else "middle",
            regularization=10.0,
        )
        variants.append((_SHARED, itemwise, ""))
        planned += [
            Cell("ablation", data, idea, epsilon, draw, estimator, patch)
            for idea, estimator, patch in variants
            for draw in range(draws)
        ]
    return planned


def table(rows: list[dict[str, Any]], draws: int) -> str:
    """One line an idea: how much worse the model is without it."""
    places = [place for place in PLACES if any((row["data"], row["epsilon"]) == place for row in rows)]
    heads = [f"{data}, {epsilon:g}" for data, epsilon in places]
    lines = [f"| without | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    found = {
        place: curves([row for row in rows if (row["data"], row["epsilon"]) == place], "rmse")
        for place in places
    }
    full = [found[place][""][place[1]] for place in places]
    lines.append("| *nothing: RMSE* | " + " | ".join(f"{mean:.4f}" for mean, _ in full) + " |")
    for idea in [*OFF, _SHARED]:
        cells = []
        for place, (mean, _) in zip(places, full):
            cell = found[place].get(idea, {}).get(place[1])
            cells.append("as planned" if cell is None else f"{cell[0] - mean:+.4f}")
        lines.append(f"| {idea} | " + " | ".join(cells) + " |")
    return "\n".join(
        [
            *lines,
            "",
            f"Test RMSE less that of the planned model (unit: user, add-remove, delta = {DELTA:g}; data set"
            f" and epsilon at the head), mean of {draws} draws. Each line leaves one idea out, with no new"
            " choice of the other settings; a positive number is what the idea is worth.",
        ]
    )
