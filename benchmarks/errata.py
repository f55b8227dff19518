"""Print the figures of docs/papers/errata.md: the true cost of the papers' noise, and the audit that shows
it.

``python -m benchmarks.errata`` prints the block; ``python -m benchmarks.errata --write`` puts it into the
document. The audits run on seeded noise, so all runs print the same figures.
"""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hushrec.audit.distinguish import distinguish
from hushrec.models import Estimator, GlobalMean
from hushrec.papers.dpals import DPALS
from hushrec.privacy import Bound, Bounded, Budget, Plan, counted, epsilon_of, mu_of
from hushrec.privacy.testing import SeededNoise
from hushrec.training.trainable import Round, plan_of
from hushrec.training.users import Users

DOCUMENT = Path(__file__).parents[1] / "docs" / "papers" / "errata.md"
START, END = "<!-- figures: python -m benchmarks.errata -->\n", "<!-- end of figures -->\n"
RUNS = 20_000
EPSILONS = (1, 5, 10, 20)


@dataclass(frozen=True, kw_only=True)
class TheoremOne(DPALS):
    """Algorithm 1 of DPALS charged as Theorem 1 has it: one of the two statistics."""

    @property
    def statistics_bound(self) -> Bound:
        return counted(math.sqrt(self._cells))


@dataclass(frozen=True, kw_only=True)
class PublishedMean(GlobalMean):
    """The global mean of DPALS, section 5.2: every rating counts, and sqrt(k) is charged for k."""

    def releases(self, budget: Budget, domain, fraction: float) -> Plan:
        return plan_of([Round("level", 1.0, counted(math.sqrt(2 * domain.n_items)))], budget, fraction)

    def users(self, ratings):
        return AllRatings(ratings)

    def train(self, users, gate, seed):
        return {"center": gate.release("level", users.all_ratings())}


class AllRatings(Users):
    """Users who count as often as they have ratings."""

    def all_ratings(self) -> Bounded:
        ratings, domain = self._ratings, self.domain
        deviations = (ratings.matrix.data - domain.midpoint) / domain.half_width
        sums = np.array([deviations.sum(), float(ratings.n_ratings)])
        return Bounded(sums, counted(math.sqrt(2 * domain.n_items)))


def dpals_mu(epsilon: float, delta: float) -> float:
    """sigma = sqrt(2 k T (epsilon + ln 1/delta)) / epsilon on 2 k T unit releases."""
    return epsilon / math.sqrt(epsilon + math.log(1 / delta))


def frank_wolfe_mu(epsilon: float, delta: float, sensitivity: float) -> float:
    """sigma = L^2 sqrt(64 T ln 1/delta) / epsilon on T releases of this sensitivity in units of L^2."""
    return sensitivity * epsilon / math.sqrt(64 * math.log(1 / delta))


def oja_mu(epsilon: float, delta: float, iterations: int, products: int = 100) -> float:
    """sigma = L^2 sqrt(256 Gamma ln 2/delta) / epsilon, rows bounded by 2 L, T (Gamma + 1) releases."""
    return 4 * epsilon * math.sqrt(iterations * (products + 1) / (256 * products * math.log(2 / delta)))


def accounting() -> list[str]:
    """Nominal epsilon of the printed noise, and the true one."""
    rows = [("DPALS, Theorem 1, both statistics", d, dpals_mu, ()) for d in (1e-5, 1e-6)]
    rows += [
        ("Frank-Wolfe, add-remove (4 L²)", 1e-6, frank_wolfe_mu, (4.0,)),
        ("Frank-Wolfe, replace (4√2 L²)", 1e-6, frank_wolfe_mu, (4 * math.sqrt(2),)),
        ("SVD, add-remove (L²)", 1e-6, frank_wolfe_mu, (1.0,)),
        ("Oja, T = 10, Γ = 100", 1e-6, oja_mu, (10,)),
        ("Oja, T = 50, Γ = 100", 1e-6, oja_mu, (50,)),
    ]
    lines = [
        "| printed noise, actual epsilon for nominal | δ | " + " | ".join(map(str, EPSILONS)) + " |",
        "|---|---|" + "---|" * len(EPSILONS),
    ]
    for name, delta, mu, arguments in rows:
        true = [epsilon_of(mu(epsilon, delta, *arguments), delta) for epsilon in EPSILONS]
        lines.append(f"| {name} | {delta:g} | " + " | ".join(f"{value:.3f}" for value in true) + " |")
    claimed, true = (epsilon_of(math.sqrt(2 * factor) / 10, 1e-5) for factor in (1, 50))
    lines.append("")
    lines.append(
        f"Mean of DPALS, section 5.2, k = 50, σ = 10, δ = 1e-05: claimed {claimed:.3f}, true {true:.3f}."
    )
    return lines


def audits() -> list[str]:
    """The distinguishing test on one release charged as printed, and as we charge it."""
    published = {
        "rank": 2, "iterations": 1, "max_ratings_per_user": 2, "user_norm": 0.05, "clip": 0.01,
        "regularization": 0.1,
    }  # fmt: skip
    cases: list[tuple[str, Estimator]] = [
        ("DPALS as Theorem 1 charges it", TheoremOne.of(**published)),
        ("DPALS as charged here", DPALS.of(**published)),
        ("mean as section 5.2 charges it (k = 8)", PublishedMean()),
        ("mean as charged here", GlobalMean()),
    ]
    lines = [
        f"| audit, {RUNS:,} runs, δ = 1e-06, wrong with chance 1e-06"
        " | ε claimed | μ claimed | μ at least | μ true | |",
        "|---|---|---|---|---|---|",
    ]
    for name, estimator in cases:
        for epsilon in (1, 5):
            budget = Budget(epsilon, 1e-6)
            found = distinguish(estimator, budget, runs=RUNS, noise=SeededNoise(epsilon))
            verdict = "**violated**" if found.violated else "stands"
            lines.append(
                f"| {name} | {epsilon} | {mu_of(epsilon, 1e-6):.3f} | {found.mu_bound:.3f} |"
                f" {found.figures['pair_mu']:.3f} | {verdict} |"
            )
    return lines


def block() -> str:
    """Return the text between the marks of the document."""
    return "\n".join([*accounting(), "", *audits(), ""])


def main() -> None:
    """Print the block, or write it into the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    if not parser.parse_args().write:
        print(block(), end="")
        return
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(START)
    DOCUMENT.write_text(before + START + block() + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
