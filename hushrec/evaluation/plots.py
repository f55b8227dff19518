"""The privacy-utility plot of a comparison. Matplotlib is imported when a plot is drawn."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushrec.errors import MissingPackageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hushrec.evaluation.compare import Comparison

#: Colours that stay apart for colour-blind readers and in grey (Okabe and Ito); the first are the models'.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_BASELINE_COLOURS = {"item-bias": "#5a5a5a", "global-mean": "#8a8a8a", "popular": "#5a5a5a"}
_DASHES = ((6, 3), (2, 2))
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


def privacy_utility_plot(comparison: Comparison, metric: str | None = None) -> Figure:
    """Error against epsilon: one line a model, the baselines in grey, references without privacy dashed.

    Parameters
    ----------
    comparison : Comparison
        What to draw.
    metric : str, optional
        A column of its table; by default its main metric.

    Returns
    -------
    matplotlib.figure.Figure
    """
    needs_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    metric = metric or comparison.main_metric
    rows = [row for row in comparison.summary(metric) if not math.isnan(row["value"])]
    epsilons = sorted({row["epsilon"] for row in rows if math.isfinite(row["epsilon"])})
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.6, 4.8), dpi=200, layout="constrained")
        axes = figure.add_subplot()
        labels = [_draw_line(axes, rows, model, colour) for model, colour in _colours(rows)]
        references = [row for row in rows if math.isinf(row["epsilon"])]
        for row, dashes in zip(references, _DASHES):
            axes.axhline(row["value"], color="black", linewidth=1.2, linestyle=(0, dashes), zorder=1)
            labels.append((row["value"], f"{row['model']}, no privacy", "black"))
        axes.set_xscale("log")
        if epsilons:
            axes.xaxis.set_major_locator(FixedLocator(epsilons))
            axes.xaxis.set_major_formatter(FixedFormatter([f"{epsilon:g}" for epsilon in epsilons]))
            axes.xaxis.set_minor_locator(NullLocator())
            pad = 1.08 if len(epsilons) > 1 else 2.0
            axes.set_xlim(epsilons[0] / pad, epsilons[-1] * pad)
        axes.set_xlabel(
            f"epsilon per {comparison.unit} ({comparison.relation}, delta = {comparison.delta:g}), log scale"
        )
        axes.set_ylabel(_TITLES[metric.split("@")[0]].format(k=comparison.k))
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.margins(y=0.08)
        _label_lines(axes, labels)
        shade = "one noise draw, shaded: 95% bootstrap interval over users"
        if rows and rows[0]["draws"] > 1:
            shade = f"mean of {rows[0]['draws']} noise draws, shaded: smallest to largest"
        about = textwrap.fill(f"{comparison.stamp} {shade.capitalize()}.", 120)
        figure.supxlabel(about, fontsize=7.5, color="#444444", x=0.01, ha="left")
    return figure


def save_plot(comparison: Comparison, path: Path) -> None:
    """Write the plot as PNG or SVG, by the path's suffix; text in an SVG stays text."""
    import matplotlib as mpl

    about = {"Description": comparison.stamp}
    figure = privacy_utility_plot(comparison)
    with mpl.rc_context(_STYLE):
        svg = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, bbox_inches="tight", metadata={**about, **svg})


def _colours(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    models = list(dict.fromkeys(row["model"] for row in rows if math.isfinite(row["epsilon"])))
    others = [model for model in models if model not in _BASELINE_COLOURS]
    palette = {model: _COLOURS[i % len(_COLOURS)] for i, model in enumerate(others)}
    return [(model, palette.get(model) or _BASELINE_COLOURS[model]) for model in models]


def _draw_line(axes: Axes, rows: list[dict[str, Any]], model: str, colour: str) -> tuple[float, str, str]:
    """A model's line with its interval; returns where and how to label it."""
    mine = sorted(
        (row for row in rows if row["model"] == model and math.isfinite(row["epsilon"])),
        key=lambda row: row["epsilon"],
    )
    x = np.array([row["epsilon"] for row in mine])
    y = np.array([row["value"] for row in mine])
    low, high = np.array([row["low"] for row in mine]), np.array([row["high"] for row in mine])
    baseline = model in _BASELINE_COLOURS
    axes.plot(
        x,
        y,
        color=colour,
        linewidth=1.3 if baseline else 2.2,
        marker="o",
        markersize=4 if baseline else 6,
        zorder=3 if baseline else 4,
    )
    axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0, zorder=2)
    return float(y[-1]), f"{model} (baseline)" if baseline else model, colour


def _label_lines(axes: Axes, labels: list[tuple[float, str, str]]) -> None:
    """Write each line's name at its right end, moved apart where two would touch."""
    low, high = axes.get_ylim()
    gap = 0.055 * (high - low)
    placed = -math.inf
    for value, text, colour in sorted(labels):
        at = max(value, placed + gap)
        placed = at
        axes.annotate(
            text,
            xy=(1, value),
            xycoords=("axes fraction", "data"),
            xytext=(1.025, at),
            textcoords=("axes fraction", "data"),
            color=colour,
            va="center",
            ha="left",
            fontsize=9.5,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 0},
            annotation_clip=False,
        )
