"""Markdown tables and figures of the results."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frontier.cells import Row, interval
from benchmarks.frontier.data import DATASETS
from benchmarks.frontier.methods import Method, methods
from benchmarks.harness import DELTA

#: Marks of a part of a page that the command writes.
_BEGIN, _END = "<!-- {name}: written by the command -->", "<!-- end of {name} -->"
#: Lines stay apart in black and white: grey level, dashes and marker together.
_STYLES: dict[str, tuple[str, Any, str]] = {
    "private-als": ("#000000", "-", "o"),
    "private-eigenrec": ("#000000", "-", "o"),
    "dpals": ("#404040", (0, (5, 2)), "s"),
    "frank-wolfe": ("#8c8c8c", (0, (1, 1.2)), "v"),
    "private-svd": ("#8c8c8c", (0, (5, 2)), "D"),
    "cleansed-svd": ("#8c8c8c", (0, (4, 1.5, 1, 1.5)), "P"),
    "projected-gradient": ("#404040", (0, (4, 1.5, 1, 1.5)), "X"),
    "item-bias": ("#8c8c8c", "-", "|"),
    "user-mean": ("#8c8c8c", "-", ""),
    "popular": ("#8c8c8c", "-", "|"),
}
_NAMES = {
    "rmse": "test RMSE",
    "rmse random": "RMSE on randomly chosen songs",
    "recall@20": "Recall@20",
    "ndcg@20": "NDCG@20",
}

Curve = dict[float, tuple[float, float]]


def curves(rows: Sequence[Row], metric: str) -> dict[str, Curve]:
    """Mean and half interval of each method at each epsilon."""
    values: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        if not math.isnan(row[metric]):
            values.setdefault(row["method"], {}).setdefault(row["epsilon"], []).append(row[metric])
    return {
        method: {epsilon: interval(some) for epsilon, some in sorted(by.items())}
        for method, by in values.items()
    }


def spell(epsilon: float) -> str:
    """Return an epsilon as text."""
    return "∞" if math.isinf(epsilon) else f"{epsilon:g}"


def figure_of(cell: tuple[float, float] | None, digits: int = 4) -> str:
    """A mean and its interval."""
    if cell is None:
        return "–"
    mean, half = cell
    return f"{mean:.{digits}f}" + ("" if math.isnan(half) else f" ±{half:.{digits}f}".replace("±0.", "±."))


def markdown(data: str, rows: Sequence[Row], metric: str, own: Mapping[str, Method] | None = None) -> str:
    """One table: a line a method, a column an epsilon."""
    known, found = methods(data) | dict(own or {}), curves(rows, metric)
    if unknown := set(found) - set(known):
        raise ValueError(f"{sorted(unknown)[0]!r} is no method of {data}; it has {', '.join(known)}.")
    epsilons = sorted({epsilon for curve in found.values() for epsilon in curve})
    best = {
        epsilon: _best([found[name][epsilon][0] for name in found if epsilon in found[name]], metric)
        for epsilon in epsilons
    }
    lines = [
        f"| {_NAMES[metric]} | " + " | ".join(spell(epsilon) for epsilon in epsilons) + " |",
        "|---|" + "---|" * len(epsilons),
    ]
    for name, method in known.items():
        if name not in found:
            continue
        cells = []
        for epsilon in epsilons:
            cell = found[name].get(epsilon)
            text = figure_of(cell)
            private = method.role != "reference" and math.isfinite(epsilon)
            cells.append(f"**{text}**" if cell and private and cell[0] == best[epsilon] else text)
        lines.append(f"| {method.label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _best(values: Sequence[float], metric: str) -> float:
    return min(values) if metric.startswith("rmse") else max(values)


def footnote(data: str, rows: Sequence[Row]) -> str:
    """Print the source of the figures and the settings."""
    known = methods(data)
    present = list(dict.fromkeys(row["method"] for row in rows))
    counts = {
        name: max(row["draw"] for row in rows if row["method"] == name) + 1
        for name in known
        if name in present and known[name].role != "reference" and name != "user-mean"
    }
    draws = max(counts.values(), default=1)
    fewer = [f"{known[name].label} {count}" for name, count in counts.items() if count < draws]
    sources: dict[str, list[str]] = {}
    for name in known:
        if name in present:
            sources.setdefault(known[name].settings, []).append(known[name].label)
    settings = "; ".join(f"{', '.join(labels)}: {source}" for source, labels in sources.items())
    except_for = f" ({', '.join(fewer)})" if fewer else ""
    return (
        f"Columns: epsilon (unit: user, relation: add-remove, delta = {DELTA:g}). {DATASETS[data].about} Mean"
        f" of {draws} draws of noise and start{except_for}, ± half of Student's 95% interval over them (none"
        " for fewer than three draws, and one draw at ∞); the same test ratings throughout. Bold: the best"
        " private method."
        f" Hyper-parameters: {settings}."
    )


def write_part(page: Path, name: str, text: str) -> None:
    """Replace the text between a part's marks in a page, or add it at the end."""
    begin, end = _BEGIN.format(name=name), _END.format(name=name)
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    block = f"{begin}\n{text.strip()}\n{end}"
    if begin in old:
        head, rest = old.split(begin, 1)
        new = head + block + rest.split(end, 1)[1]
    else:
        new = f"{old.rstrip()}\n\n{block}\n"
    page.write_text(new, encoding="utf-8")


#: Rows of the page's first table: words, data set, method, and the reference without privacy.
_SUMMARY = (
    ("RMSE of `private-als`", "ml-1m", "private ALS", "ALS, no privacy"),
    ("RMSE of `item-bias`", "ml-1m", "user mean + item bias", "user mean + item bias"),
    ("Recall@20 of `private-eigenrec`", "ml-1m-likes", "private EigenRec", "EASE, no privacy"),
    ("Recall@20 of `popular`", "ml-1m-likes", "most popular", "most popular"),
)
_REFERENCES = {"ALS, no privacy": " (`als`)", "EASE, no privacy": " (`ease`)"}


def summary(data: Path) -> str:
    """Markdown: MovieLens-1M at three epsilons, from the file that :func:`keep` writes."""
    kept = json.loads(data.read_text(encoding="utf-8"))
    lines = [
        "| MovieLens-1M, one user protected, delta 1e-5 | epsilon 1 | epsilon 5 | epsilon 20 | no privacy |",
        "|---|---|---|---|---|",
    ]
    for words, part, method, reference in _SUMMARY:
        head, *rows = kept[part]
        of = {row[0]: row for row in reversed(rows)}  # of two tables the first one counts
        texts = [of[method][head.index(each)] for each in ("1", "5", "20")] + [of[reference][head.index("∞")]]
        figures = [f"{float(text.strip('*').split(' ')[0].strip('*')):.3f}" for text in texts]
        lines.append(f"| {words} | " + " | ".join(figures) + f"{_REFERENCES.get(reference, '')} |")
    return "\n".join(lines)


def keep(data: Path, name: str, text: str) -> None:
    """Keep a part in a file of data: a list of cells for each row of its tables, and the words between."""
    kept = json.loads(data.read_text(encoding="utf-8")) if data.exists() else {}
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("|---")]
    kept[name] = [line.strip("| ").split(" | ") if line.startswith("|") else line for line in lines]
    parts = [
        f"{json.dumps(part)}: [\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]"
        for part, rows in kept.items()
    ]
    data.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


# ---------------------------------------------------------------------- figures


def figure(data: str, rows: Sequence[Row], metric: str, path: Path) -> None:
    """Error against epsilon, made for print: labels at the lines, intervals, no need of colour."""
    known, found = methods(data), curves(rows, metric)
    lines = {name: found[name] for name in _STYLES if name in found}
    reference = found.get("als", {}).get(math.inf)
    draw(
        lines={known[name].label: (curve, _STYLES[name]) for name, curve in lines.items()},
        reference=("ALS, no privacy", reference[0]) if reference else None,
        best=next((known[name].label for name in lines if known[name].role == "ours"), ""),
        xlabel=f"epsilon (unit: user, add-remove, delta = {DELTA:g}), log scale",
        ylabel=_NAMES[metric],
        title=DATASETS[data].title,
        worst=_worst(found, metric),
        path=path,
        lower_is_better=metric.startswith("rmse"),
        log_y=DATASETS[data].low_rank,
    )


def _worst(found: dict[str, Curve], metric: str) -> float | None:
    """Return the end of the axis: a little past the trivial model, which separates the good ones."""
    if not metric.startswith("rmse"):
        return None
    trivial = max(
        (mean for name in ("global-mean", "user-mean") for mean, _ in found.get(name, {}).values()),
        default=None,
    )
    return trivial


def draw(
    *,
    lines: dict[str, tuple[Curve, tuple[str, Any, str]]],
    xlabel: str,
    ylabel: str,
    title: str,
    path: Path,
    reference: tuple[str, float] | None = None,
    best: str = "",
    worst: float | None = None,
    lower_is_better: bool = True,
    log_x: bool = True,
    log_y: bool = False,
) -> None:
    """Curves with direct labels; the axis ends at ``worst``, beyond which lines are cut."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter, NullLocator

    style = {
        "font.family": ["DejaVu Sans"],
        "font.size": 9,
        "svg.fonttype": "none",
        "svg.hashsalt": "hushrec",
    }
    with mpl.rc_context(style):
        sheet = Figure(figsize=(7.0, 4.4), dpi=200, layout="constrained")
        axes = sheet.add_subplot()
        ends: list[tuple[float, str, str, bool]] = []
        ticks = sorted({x for curve, _ in lines.values() for x in curve if math.isfinite(x)})
        for label, (curve, (colour, dashes, marker)) in lines.items():
            x = [each for each in curve if math.isfinite(each)]
            mean = np.array([curve[each][0] for each in x])
            half = np.nan_to_num(np.array([curve[each][1] for each in x]))
            wide = label == best
            axes.errorbar(
                x,
                mean,
                half,
                color=colour,
                linestyle=dashes,
                marker=marker or None,
                markersize=5 if wide else 4,
                markerfacecolor=colour if wide else "white",
                linewidth=2.0 if wide else 1.1,
                elinewidth=0.8,
                capsize=2,
                zorder=5 if wide else 3,
            )
            ends.append((float(mean[-1]), label, colour, wide))
        if reference:
            axes.axhline(reference[1], color="black", linewidth=0.9, linestyle=(0, (8, 3)), zorder=1)
            ends.append((reference[1], reference[0], "#000000", False))
        axes.set_ylabel(f"{ylabel} ({'lower' if lower_is_better else 'higher'} is better)")
        axes.set_xlabel(xlabel)
        axes.set_title(title, fontsize=10, loc="left")
        if log_y:
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter(NullFormatter())
        if log_x:
            axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_major_formatter(FixedFormatter([f"{tick:,g}" for tick in ticks]))
        axes.xaxis.set_minor_locator(NullLocator())
        if worst is not None and lower_is_better:
            low = axes.get_ylim()[0]
            top = worst * 1.25 if log_y else worst + 0.06 * (worst - low)
            axes.set_ylim(low, min(axes.get_ylim()[1], top))
        axes.grid(axis="y", color="#e0e0e0", linewidth=0.6)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        _label(axes, ends)
        sheet.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {})


def _label(axes: Any, ends: list[tuple[float, str, str, bool]]) -> None:
    """Names at the right, in the order of the lines' ends and apart from each other."""
    place = axes.transData.transform
    height = axes.bbox.height
    at = [(place((1, value))[1] - axes.bbox.y0) / height for value, *_ in ends]
    order = np.argsort(at, kind="stable")
    spots = spread([min(max(at[i], 0.0), 1.0) for i in order], 0.052)
    for spot, i in zip(spots, order):
        value, text, colour, wide = ends[i]
        cut = at[i] > 1.0
        axes.annotate(
            textwrap.shorten(text, 40) + (f" ↑ {value:.3g}" if cut else ""),
            xy=(1.0, min(at[i], 1.0)),
            xycoords="axes fraction",
            xytext=(1.035, spot),
            textcoords="axes fraction",
            color=colour if colour != "#8c8c8c" else "#5c5c5c",
            fontweight="bold" if wide else "normal",
            fontsize=8.5,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0},
        )


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Ascending places moved as little as possible (in the least squares sense) to be ``gap`` apart."""
    blocks: list[list[float]] = []  # sum of (place - offset), number
    for number, place in enumerate(places):
        blocks.append([place - number * gap, 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    means = [total / count for total, count in blocks for _ in range(int(count))]
    return [mean + number * gap for number, mean in enumerate(means)]
