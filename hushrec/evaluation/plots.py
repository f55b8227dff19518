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
_DASHES = "-", "--", ":", "-."
#: Grey, marker and dashes of the baselines.
_BASELINES: Any = {
    "item-bias": ("#5a5a5a", "|", "-"),
    "global-mean": ("#8a8a8a", "_", "-"),
    "popular": ("#5a5a5a", "x", "-"),
}
#: Dashes of the references without privacy.
_REFERENCE_DASHES = "--", ":", "-."
_STYLE: Any = {"font.family": ["DejaVu Sans"], "svg.fonttype": "none", "svg.hashsalt": "hushrec"}
#: Letters in a line below the panels.
_LETTERS = 120
#: Opacity of an interval, and its width in points at a single epsilon.
_SHADE, _BAR = 0.2, 8


def needs_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingPackageError("A plot", "plot") from None


def privacy_utility_plot(
    metrics: Mapping[str, list[dict[str, Any]]], *, unit: str, interval: str, stamp: str
) -> Figure:
    """Draw RMSE or recall against epsilon: one line per model, baselines in grey, no privacy dashed."""
    needs_matplotlib()
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        width, height = mpl.rcParamsDefault["figure.figsize"]
        figure = new_figure(figsize=(width, height * len(metrics)), layout="constrained")
        panels = figure.subplots(len(metrics), squeeze=False)[:, 0]
        drawn = [
            _draw_panel(axes, cells, name, interval)
            for axes, (name, cells) in zip(panels, metrics.items(), strict=True)
        ]
        panels[-1].set_xlabel(f"epsilon per {unit}, log scale")
        about = " ".join([stamp, *dict.fromkeys(note for notes in drawn for note in notes)])
        figure.supxlabel(textwrap.fill(about, _LETTERS), fontsize="x-small", color="#444444", x=0, ha="left")
    return figure


def _draw_panel(axes: Axes, cells: list[dict[str, Any]], metric: str, interval: str) -> list[str]:
    """Return remarks on shades and on models without a line."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    rows = [row for row in cells if not math.isnan(row["value"])]
    epsilons = sorted({row["epsilon"] for row in cells if math.isfinite(row["epsilon"])})
    lines = _styles(cells, rows)
    apart = [0.0] * len(lines) if len(epsilons) > 1 else np.linspace(-0.5, 0.5, len(lines) + 2)[1:-1]
    for (model, style), aside in zip(lines, apart, strict=True):
        _draw_line(axes, rows, model, style, aside)
    references = [row for row in rows if math.isinf(row["epsilon"])]
    for row, dashes in zip(references, cycle(_REFERENCE_DASHES)):
        name = f"{row['model']}, no privacy"
        axes.axhline(row["value"], color="black", linestyle=dashes, label=name, zorder=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(epsilons))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{epsilon:g}" for epsilon in epsilons]))
    axes.xaxis.set_minor_locator(NullLocator())
    if len(epsilons) == 1:
        axes.set_xlim(epsilons[0] / 2, epsilons[0] * 2)
    errors = metric == "rmse"
    axes.set_ylabel(
        "RMSE on held-out ratings (lower is better)"
        if errors
        else f"{metric.capitalize()} (higher is better)"
    )
    axes.grid(axis="y", color="#e4e4e4")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    lines_drawn: tuple[Any, list[str]] = axes.get_legend_handles_labels()
    handles, names = lines_drawn
    order = np.argsort([-float(np.asarray(line.get_ydata())[-1]) for line in handles])
    axes.legend(
        [handles[at] for at in order],
        [names[at] for at in order],
        loc="upper left",
        bbox_to_anchor=(1, 1),
        frameon=False,
    )
    drawn = {row["model"] for row in rows}
    absent = [name for name in dict.fromkeys(row["model"] for row in cells) if name not in drawn]
    why = "rank and predict no ratings" if errors else "have nothing to be measured by"
    shaded = any(_has_interval(row) for row in rows if math.isfinite(row["epsilon"]))
    return [f"Shaded: {interval}."] * shaded + [
        f"No line of {' and '.join(absent)} for {metric}: they {why}."
    ] * bool(absent)


def _has_interval(row: dict[str, Any]) -> bool:
    return bool(row["low"] < row["high"])


def new_figure(**options: Any) -> Figure:
    """Return a figure that a notebook shows without ``%matplotlib``."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    class Shown(Figure):
        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            with mpl.rc_context(_STYLE):
                self.savefig(buffer, format="png", bbox_inches="tight")
            return buffer.getvalue()

    return Shown(**options)


def save_plot(figure: Figure, path: Path, stamp: str) -> None:
    import matplotlib as mpl

    about = {"Description": stamp}
    with mpl.rc_context(_STYLE):
        svg = {"Date": None} if path.suffix == ".svg" else {}
        sharp = 2 * figure.dpi  # on paper
        figure.savefig(path, dpi=sharp, bbox_inches="tight", metadata={**about, **svg})


def _styles(
    cells: list[dict[str, Any]], rows: list[dict[str, Any]]
) -> list[tuple[str, tuple[str, str, Any]]]:
    """Return the models that have a line, with a style that is the same in every panel."""
    models = list(dict.fromkeys(row["model"] for row in cells if math.isfinite(row["epsilon"])))
    others = [model for model in models if model not in _BASELINES]
    looks = zip(others, cycle(_COLOURS), cycle(_MARKERS), cycle(_DASHES))
    styles = _BASELINES | {model: (colour, marker, dashes) for model, colour, marker, dashes in looks}
    drawn = {row["model"] for row in rows}
    return [(model, styles[model]) for model in models if model in drawn]


def _draw_line(
    axes: Axes, rows: list[dict[str, Any]], model: str, style: tuple[str, str, Any], aside: float
) -> None:
    """Points at one epsilon are shifted, so all are visible."""
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
        linewidth=1 if baseline else 2,
        marker=marker,
        linestyle=dashes,
        label=f"{model} (baseline)" if baseline else model,
    )
    if any(map(_has_interval, mine)) and len(mine) > 1:
        axes.fill_between(x, low, high, color=colour, alpha=_SHADE, linewidth=0, zorder=2)
    elif any(map(_has_interval, mine)):
        axes.vlines(x, low, high, color=colour, alpha=_SHADE, linewidth=_BAR, zorder=2)
