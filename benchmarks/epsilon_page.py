"""Meaning of epsilon: the tables and the picture of docs/understand/epsilon.md.

    python -m benchmarks.epsilon_page            # prints the table
        python -m benchmarks.epsilon_page --write    # writes all of them

Two bounds on the same attacker. *At worst* is the most that any single outcome can convince her; *on average*
is how often the best guess of all is right, for a release with Gaussian noise, which all of ours are.
"""

import argparse
import math
from pathlib import Path

from scipy.special import ndtr, ndtri

from benchmarks.frontier.tables import write_part
from hushrec.privacy import mu_of
from hushrec.privacy.budget import RANGES, belief, rounded_up

ROOT = Path(__file__).parents[1]
PAGE, FIGURE = ROOT / "docs/understand/epsilon.md", ROOT / "docs/figures/epsilon.svg"
EPSILONS, DELTA = (0.1, 0.5, 1, 2, 3, 5, 10, 20), 1e-6


def right(epsilon: float) -> float:
    """Return how often the best guess between two equally likely data sets is right."""
    return float(ndtr(mu_of(epsilon, DELTA) / 2))


def found(epsilon: float, false_alarms: float = 0.01) -> float:
    """Part of the members that a test finds which accuses ``false_alarms`` of all others."""
    return float(ndtr(mu_of(epsilon, DELTA) + ndtri(false_alarms)))


def table() -> str:
    """Markdown."""
    lines = [
        "| epsilon | odds change by at most | 50% becomes at most | 1% becomes at most | best guess is"
        " right | finds, with 1% false alarms |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for epsilon in EPSILONS:
        factor = math.exp(epsilon)
        odds = f"{factor:.2f}" if factor < 10 else f"{factor:,.0f}" if factor < 1e6 else f"{factor:.0e}"
        cells = (belief(0.5, epsilon), belief(0.01, epsilon), right(epsilon), found(epsilon))
        lines.append(f"| {epsilon:g} | × {odds} | " + " | ".join(rounded_up(cell) for cell in cells) + " |")
    return "\n".join(lines)


def words() -> str:
    """Markdown: what to call an epsilon."""
    lines, below = ["| epsilon | a guess of 50% becomes at most | call it |", "|---|---|---|"], 0.0
    for largest, word in RANGES:
        over = f"over {below:g}" * bool(below)
        name = over if largest == math.inf else ", ".join([*[over] * bool(over), f"up to {largest:g}"])
        lines.append(f"| {name} | {rounded_up(belief(0.5, min(largest, 700)))} | {word} |")
        below = largest
    return "\n".join(lines)


def draw() -> None:
    """The two curves."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt
    import numpy as np

    mpl.rcParams |= {"svg.hashsalt": "hushrec", "font.size": 10}
    levels = np.geomspace(0.1, 20, 80)
    figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
    axes.plot(levels, [100 * belief(0.5, each) for each in levels], color="#c0504d", linewidth=2)
    axes.plot(levels, [100 * right(each) for each in levels], color="#1f5a94", linewidth=2)
    axes.text(
        1.3, 92, "at worst: how sure one\noutcome can make her", color="#c0504d", ha="right", va="center"
    )
    axes.text(4.4, 60, "on average: how often\nher best guess is right", color="#1f5a94", va="center")
    axes.axhline(50, color="#888888", linewidth=0.8, linestyle=":")
    axes.text(20, 50.4, "a coin", color="#666666", va="bottom", ha="right")
    axes.set_xscale("log")
    axes.set_xticks(EPSILONS, [f"{each:g}" for each in EPSILONS])
    axes.minorticks_off()
    axes.set(xlabel="epsilon (delta 1e-6)", ylabel="probability of being right, percent", ylim=(48, 101.5))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        "Is this person in the data? The attacker thinks it as likely as not", loc="left", fontsize=10
    )
    figure.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        write_part(PAGE, "odds", table())
        write_part(PAGE, "words", words())
        draw()
    print(table())
