"""One plot an audit. Matplotlib is imported when a plot is drawn."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from hushrec.audit.canaries import CanaryAudit
from hushrec.audit.distinguish import Distinguishing
from hushrec.audit.membership import Membership
from hushrec.evaluation.plots import needs_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_IN, _OUT = "#0072B2", "#D55E00"
#: Colour of the overlap of the two.
_BOTH = "#a98259"
#: The violation that is drawn for comparison: so many times less noise; and the largest mu drawn.
_LESS_NOISE, _LARGEST_MU = 4.0, 10.0


def save_plot(result: Distinguishing | CanaryAudit | Membership, path: Path) -> None:
    """Write an audit's plot as PNG or SVG, by the path's suffix."""
    needs_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 4.4), dpi=200, layout="constrained")
    if isinstance(result, Membership):
        _areas(figure.add_subplot(), result)
    else:
        good, bad = figure.subplots(1, 2, sharey=True)
        if isinstance(result, CanaryAudit):
            pair, names = (result.members, result.others), ("canaries that were in", "canaries that were out")
            measured = f"epsilon >= {result.epsilon_bound:.3g} and mu >= {result.mu_bound:.3g}"
        else:
            pair, names = (result.with_user, result.without_user), ("data set", "neighbour")
            measured = f"mu >= {result.lower_bound:.3g}"
        found = "the claim is refuted" if result.violated else "no violation found"
        _histograms(good, *pair, names)
        good.set_title(f"{result.model}, as measured: {measured}\n{found}", fontsize=9)
        good.set_ylabel("number")
        _histograms(bad, *_violation(*pair, result.claimed_mu), names)
        bad.set_title(
            "for comparison: what a model would show\nthat adds a quarter of the noise it claims", fontsize=9
        )
        figure.supxlabel(f"Claimed: {result.budget}, mu <= {result.claimed_mu:.3g}", fontsize=8)
    figure.savefig(path)


def _violation(first: np.ndarray, second: np.ndarray, claimed_mu: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores as far apart as four times the claimed mu allows: no draw, the quantiles of normal laws."""
    apart = _LESS_NOISE * min(claimed_mu, _LARGEST_MU)
    one, other = (apart * ndtri((np.arange(len(each)) + 0.5) / len(each)) for each in (first, second))
    return one + apart**2 / 2, other - apart**2 / 2


def _histograms(axes: Axes, first: np.ndarray, second: np.ndarray, names: tuple[str, str]) -> None:
    both = np.concatenate([first, second])
    edges = np.linspace(both.min(), both.max(), 41)
    for values, name, colour in zip((first, second), names, (_IN, _OUT)):
        axes.hist(values, edges.tolist(), alpha=0.55, color=colour, label=f"{name} ({len(values):,})")
    axes.fill_between([], [], [], color=_BOTH, label="both: they look the same")
    axes.set_xlabel("attacker's score: log-likelihood ratio")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    axes.margins(y=0.3)


def _areas(axes: Axes, result: Membership) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    private = sorted((e, np.mean(areas), areas) for _, e, areas in result.curves if math.isfinite(e))
    name = next(model for model, e, _ in result.curves if math.isfinite(e))
    axes.plot([e for e, _, _ in private], [mean for _, mean, _ in private], "o-", color=_IN, label=name)
    for epsilon, _, areas in private:
        if len(areas) > 1:
            axes.plot([epsilon] * len(areas), areas, ".", color=_IN, alpha=0.5)
    axes.axhline(result.area(math.inf), color=_OUT, linestyle="--", label="no privacy: a bad result")
    axes.axhline(0.5, color="#8a8a8a", linewidth=1, label="guessing: the best result")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([e for e, _, _ in private]))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{e:g}" for e, _, _ in private]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0.45, 1.03)
    axes.set_xlabel(f"epsilon per user ({result.relation}, delta = {result.delta:g}), log scale")
    axes.set_ylabel("attacker's chance to rank a member above\nanother user (AUC)")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.set_title(
        f"Who was in the training data? Half of {result.n_planted:,} planted users were.\n{result.note}.",
        fontsize=9,
    )
