"""One plot an audit. Matplotlib is imported when a plot is drawn."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hushrec.audit.canaries import CanaryAudit
from hushrec.audit.distinguish import Distinguishing
from hushrec.audit.membership import Membership
from hushrec.evaluation.plots import needs_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_IN, _OUT = "#0072B2", "#D55E00"


def save_plot(result: Distinguishing | CanaryAudit | Membership, path: Path) -> None:
    """Write an audit's plot as PNG or SVG, by the path's suffix."""
    needs_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), dpi=200, layout="constrained")
    axes = figure.add_subplot()
    if isinstance(result, Membership):
        _areas(axes, result)
    elif isinstance(result, CanaryAudit):
        _histograms(axes, result.members, result.others, ("canaries that were in", "canaries that were out"))
        axes.set_title(
            f"{result.model}: epsilon >= {result.epsilon_bound:.3g} measured, claimed:\n{result.budget}",
            fontsize=10,
        )
    else:
        _histograms(axes, result.with_user, result.without_user, ("data set", "neighbour"))
        axes.set_title(
            f"{result.model}: mu >= {result.lower_bound:.3g} measured, {result.claimed_mu:.3g} claimed"
            f"\n({result.budget})",
            fontsize=10,
        )
    figure.savefig(path)


def _histograms(axes: Axes, first: np.ndarray, second: np.ndarray, names: tuple[str, str]) -> None:
    both = np.concatenate([first, second])
    edges = np.linspace(both.min(), both.max(), 41)
    for values, name, colour in zip((first, second), names, (_IN, _OUT)):
        axes.hist(values, edges.tolist(), alpha=0.55, color=colour, label=f"{name} ({len(values):,})")
    axes.set_xlabel("attacker's score: log-likelihood ratio")
    axes.set_ylabel("number")
    axes.legend(frameon=False)


def _areas(axes: Axes, result: Membership) -> None:
    private = sorted((e, np.mean(areas), areas) for _, e, areas in result.curves if math.isfinite(e))
    axes.plot([e for e, _, _ in private], [mean for _, mean, _ in private], "o-", color=_IN, label="private")
    for epsilon, _, areas in private:
        axes.plot([epsilon] * len(areas), areas, ".", color=_IN, alpha=0.5)
    axes.axhline(result.area(math.inf), color="black", linestyle="--", label="no privacy (control)")
    axes.axhline(0.5, color="#8a8a8a", linewidth=1, label="guessing")
    axes.set_xscale("log")
    axes.set_xlabel(f"epsilon per user ({result.relation}, delta = {result.delta:g}), log scale")
    axes.set_ylabel("AUC of membership inference")
    axes.legend(frameon=False)
    axes.set_title(result.note, fontsize=8)
