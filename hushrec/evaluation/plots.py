"""The privacy-utility plot of a comparison. Matplotlib is imported when a plot is drawn."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushrec.errors import MissingPackageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colours for colour-blind readers (Okabe and Ito). Markers and dashes distinguish twelve models in grey too.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = "os^DvPX*<p>h"
_DASHES: Any = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
#: Grey, marker and dashes of the baselines.
_BASELINES: Any = {
    "item-bias": ("#5a5a5a", "|", "-"),
    "global-mean": ("#8a8a8a", "_", "-"),
    "popular": ("#5a5a5a", "x", "-"),
}
#: Dashes of the references without privacy.
_REFERENCE_DASHES: Any = ((0, (8, 3)), (0, (2, 2)), (0, (8, 2, 2, 2)))
_STYLE: Any = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "hushrec",
}
_TITLES = {
    "rmse": "RMSE on held-out ratings (lower is better)",
    "mae": "mean absolute error on held-out ratings (lower is better)",
    "recall": "Recall@{k} (higher is better)",
    "ndcg": "NDCG@{k} (higher is better)",
    "coverage": "share of the catalogue recommended, k = {k}",
}


def needs_matplotlib() -> None:
    """Refuse to go on where matplotlib is not installed: to be asked before anything is spent."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingPackageError("A plot", "plot") from None


def privacy_utility_plot(
    metrics: Mapping[str, list[dict[str, Any]]], *, k: int, unit: str, interval: str, stamp: str
) -> Figure:
    """Draw metrics against epsilon: a line a model, baselines in grey, references without privacy dashed.

    Parameters
    ----------
    metrics : mapping from name to rows
        One panel each, with rows as of `hushrec.evaluation.Comparison.summary`.
    k, unit, interval, stamp
        Length of lists; words on epsilon's unit, on the shades, and on the comparison.

    Returns
    -------
    matplotlib.figure.Figure
    """
    needs_matplotlib()
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        figure = new_figure(figsize=(7.6, 0.6 + 4.2 * len(metrics)), dpi=200, layout="constrained")
        panels = figure.subplots(len(metrics), squeeze=False)[:, 0]
        drawn = [
            _draw_panel(axes, cells, name, k, interval)
            for axes, (name, cells) in zip(panels, metrics.items())
        ]
        panels[-1].set_xlabel(f"epsilon per {unit}, log scale")
        about = " ".join([stamp, *dict.fromkeys(note for notes in drawn for note in notes)])
        figure.supxlabel(textwrap.fill(about, 120), fontsize=7.5, color="#444444", x=0.01, ha="left")
    return figure


def _draw_panel(axes: Axes, cells: list[dict[str, Any]], metric: str, k: int, interval: str) -> list[str]:
    """Draw one metric against epsilon; return the remarks on shades and on models without a line."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    rows = [row for row in cells if not math.isnan(row["value"])]
    epsilons = sorted({row["epsilon"] for row in cells if math.isfinite(row["epsilon"])})
    lines = _styles(cells, rows)
    apart = [0.0] * len(lines) if len(epsilons) > 1 else np.linspace(-0.5, 0.5, len(lines) + 2)[1:-1]
    labels = [_draw_line(axes, rows, model, style, aside) for (model, style), aside in zip(lines, apart)]
    references = [row for row in rows if math.isinf(row["epsilon"])]
    for row, dashes in zip(references, cycle(_REFERENCE_DASHES)):
        axes.axhline(row["value"], color="black", linewidth=1.2, linestyle=dashes, zorder=1)
        labels.append((row["value"], f"{row['model']}, no privacy", "black"))
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(epsilons))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{epsilon:g}" for epsilon in epsilons]))
    axes.xaxis.set_minor_locator(NullLocator())
    if epsilons:
        pad = 1.08 if len(epsilons) > 1 else 2.0
        axes.set_xlim(epsilons[0] / pad, epsilons[-1] * pad)
    axes.set_ylabel(_TITLES[metric.split("@")[0]].format(k=k))
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.margins(y=0.08)
    _label_lines(axes, labels)
    drawn = {row["model"] for row in rows}
    absent = [name for name in dict.fromkeys(row["model"] for row in cells) if name not in drawn]
    why = "rank and predict no ratings" if metric in ("rmse", "mae") else "have nothing to be measured by"
    shaded = any(_has_interval(row) for row in rows if math.isfinite(row["epsilon"]))
    return [f"Shaded: {interval}."] * shaded + [
        f"No line of {' and '.join(absent)} for {metric}: they {why}."
    ] * bool(absent)


def _has_interval(row: dict[str, Any]) -> bool:
    return bool(row["low"] < row["high"])


def new_figure(**options: Any) -> Figure:
    """Return a matplotlib figure that a notebook shows without ``%matplotlib``."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    class Shown(Figure):
        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            with mpl.rc_context(_STYLE):
                self.savefig(buffer, format="png", dpi=100, bbox_inches="tight")
            return buffer.getvalue()

    return Shown(**options)


def save_plot(figure: Figure, path: Path, stamp: str) -> None:
    """Write a plot as PNG or SVG, by the path's suffix; text in an SVG stays text."""
    import matplotlib as mpl

    about = {"Description": stamp}
    with mpl.rc_context(_STYLE):
        svg = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, bbox_inches="tight", metadata={**about, **svg})


def _styles(
    cells: list[dict[str, Any]], rows: list[dict[str, Any]]
) -> list[tuple[str, tuple[str, str, Any]]]:
    """Return the models that have a line, with colour, marker and dashes: the same in every panel."""
    models = list(dict.fromkeys(row["model"] for row in cells if math.isfinite(row["epsilon"])))
    others = [model for model in models if model not in _BASELINES]
    styles = _BASELINES | dict(zip(others, zip(cycle(_COLOURS), cycle(_MARKERS), cycle(_DASHES))))
    drawn = {row["model"] for row in rows}
    return [(model, styles[model]) for model in models if model in drawn]


def _draw_line(
    axes: Axes, rows: list[dict[str, Any]], model: str, style: tuple[str, str, Any], aside: float
) -> tuple[float, str, str]:
    """A model's line with its interval, where there is one; returns where and how to label it.

    Points at one epsilon are shifted, so all are visible.
    """
    mine = sorted(
        (row for row in rows if row["model"] == model and math.isfinite(row["epsilon"])),
        key=lambda row: row["epsilon"],
    )
    x = np.array([row["epsilon"] for row in mine]) * 2**aside
    y = np.array([row["value"] for row in mine])
    low, high = np.array([row["low"] for row in mine]), np.array([row["high"] for row in mine])
    baseline, (colour, marker, dashes) = model in _BASELINES, style
    axes.plot(
        x,
        y,
        color=colour,
        linewidth=1.3 if baseline else 2.2,
        marker=marker,
        linestyle=dashes,
        markersize=4 if baseline else 6,
        zorder=3 if baseline else 4,
    )
    if any(map(_has_interval, mine)) and len(mine) > 1:
        axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0, zorder=2)
    elif any(map(_has_interval, mine)):
        axes.vlines(x, low, high, color=colour, alpha=0.25, linewidth=8, zorder=2)
    return float(y[-1]), f"{model} (baseline)" if baseline else model, colour


def _label_lines(axes: Axes, labels: list[tuple[float, str, str]]) -> None:
    """Write each line's name at its right end, those that would touch moved apart about their middle."""
    low, high = axes.get_ylim()
    gap = 0.055 * (high - low)
    groups: list[list[tuple[float, str, str]]] = []
    for label in sorted(labels):
        groups.append([label])
        while len(groups) > 1 and _start(groups[-1], gap) < _start(groups[-2], gap) + len(groups[-2]) * gap:
            groups[-2:] = [groups[-2] + groups[-1]]
    places = [(_start(group, gap) + at * gap, *label) for group in groups for at, label in enumerate(group)]
    for at, value, text, colour in places:
        axes.annotate(
            text,
            xy=(1, value),
            xycoords=("axes fraction", "data"),
            xytext=(1.04, at),
            textcoords=("axes fraction", "data"),
            color=colour,
            va="center",
            ha="left",
            fontsize=9.5,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.7,
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 0,
            },
            annotation_clip=False,
        )


def _start(group: list[tuple[float, str, str]], gap: float) -> float:
    """Return the position of the lowest name of a group."""
    return sum(value for value, *_ in group) / len(group) - gap * (len(group) - 1) / 2
