"""The sparse graph of secure aggregation: who shares masks and secrets with whom (Bell et al. 2020).

Nodes stand on a circle in random order and each is the neighbour of the nearest ``degree / 2`` on both
sides. The chances below are exact hypergeometric ones, added up over the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb
from typing import NamedTuple

from scipy.stats import hypergeom

from hushrec.errors import InputError

#: Chance that colluding nodes hold enough shares of anybody's secrets, and that the graph falls apart in any
#: release of a training. What it lacks of 2^-40 pays for rounding, here and of the nodes' noise.
SECURITY = 2.0**-40 * (1 - 2.0**-20)
#: Both together: an agreement reserves it from delta.
FAILURE = 2.0**-39
#: Chance that so many of a node's neighbours drop out that the training stops.
CORRECTNESS = 2.0**-20


class Graph(NamedTuple):
    """Neighbours of every node, and how many of their shares open its secrets."""

    degree: int
    threshold: int


def choose_graph(
    n_nodes: int, dropouts: int, colluding: int, releases: int, *, active: bool = False
) -> Graph:
    """The fewest neighbours that are safe, and then the largest threshold that survives the dropouts.

    Parameters
    ----------
    n_nodes, dropouts, colluding : int
        Nodes, and how many of them may drop out or collude with the server.
    releases : int
        Of the training: others may drop out of each, on one circle.
    active : bool
        Whether the server may choose who drops out and who stands where: then nothing is left to chance.

    Returns
    -------
    Graph
        Complete where the number of nodes is small.
    """
    found = _graph(n_nodes, dropouts, colluding, releases, active)
    if found is not None:
        return found
    ways = [f"{n:,} nodes" for n in _more(n_nodes) if _graph(n, dropouts, colluding, releases, active)][:1]
    fewer = range(dropouts - 1, -1, -1)
    ways += [f"{d} dropouts" for d in fewer if _graph(n_nodes, d, colluding, releases, active)][:1]
    fewer = range(colluding - 1, -1, -1)
    ways += [f"{c} colluding" for c in fewer if _graph(n_nodes, dropouts, c, releases, active)][:1]
    enough = f"it would do with {', or with '.join(ways)}" if ways else "lower both, or take more nodes"
    raise InputError(
        f"{n_nodes} nodes are too few for {dropouts} dropouts and {colluding} colluding ones; {enough}."
    )


def _more(n_nodes: int) -> Iterator[int]:
    """Larger numbers of nodes to suggest, up to a hundred times as many."""
    number = n_nodes + 1
    while number <= 100 * n_nodes:
        yield number
        number += max(1, number // 10)


def _graph(n_nodes: int, dropouts: int, colluding: int, releases: int, active: bool) -> Graph | None:
    others = n_nodes - 1
    for degree in [*range(2, others, 2), others]:
        removed = dropouts + colluding
        falls_apart = degree <= removed if active else releases * _apart(n_nodes, removed, degree) > SECURITY
        if degree < others and falls_apart:
            continue
        threshold = _threshold(n_nodes, dropouts, degree)
        if active:
            opened = threshold <= colluding
        else:
            opened = n_nodes * _at_least(threshold, others, colluding, degree) > SECURITY
        if threshold >= 2 and not opened:
            return Graph(degree, threshold)
    return None


def circle(nodes: Sequence[str], degree: int) -> dict[str, list[str]]:
    """Neighbours of every node; ``nodes`` are in random order."""
    n_nodes = len(nodes)
    if degree >= n_nodes - 1:
        return {node: [other for other in nodes if other != node] for node in nodes}
    steps = [step for reach in range(1, degree // 2 + 1) for step in (-reach, reach)]
    return {node: [nodes[(place + step) % n_nodes] for step in steps] for place, node in enumerate(nodes)}


def _threshold(n_nodes: int, dropouts: int, degree: int) -> int:
    """Largest number of neighbours that every node keeps, but for a chance of CORRECTNESS."""
    lost = 0  # no more than drop out can be lost, so this ends
    while n_nodes * _at_least(lost + 1, n_nodes - 1, dropouts, degree) > CORRECTNESS:
        lost += 1
    return degree - lost


def _at_least(least: int, population: int, marked: int, drawn: int) -> float:
    """Chance that at least so many of the drawn are marked."""
    return float(hypergeom(population, marked, drawn).sf(least - 1))


def _apart(n_nodes: int, removed: int, degree: int) -> float:
    """Bound on the chance that the circle falls apart: somewhere degree / 2 nodes in a row are removed."""
    reach = degree // 2
    return n_nodes * comb(removed, reach) / comb(n_nodes, reach)
