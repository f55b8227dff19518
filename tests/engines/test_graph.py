"""The neighbour graph against counting and simulation."""

import math
from fractions import Fraction

import numpy as np
import pytest

from hushrec.engines.secure.graph import CORRECTNESS, FAILURE, SECURITY, choose_graph, circle
from hushrec.errors import InputError


def connected(nodes, neighbours):
    reached, open_ = set(), [next(iter(nodes))]
    while open_:
        node = open_.pop()
        if node not in reached:
            reached.add(node)
            open_ += [other for other in neighbours[node] if other in nodes]
    return reached == set(nodes)


def by_counting(n_nodes, dropouts, colluding, releases, active):
    """Degree and threshold from their definitions, in whole numbers; None where nothing is safe."""
    others = n_nodes - 1

    def at_least(least, marked, degree):
        hits = range(max(least, 0), min(marked, degree) + 1)
        ways = sum(math.comb(marked, k) * math.comb(others - marked, degree - k) for k in hits)
        return Fraction(ways, math.comb(others, degree))

    for degree in (*range(2, others, 2), others):
        gone, reach = dropouts + colluding, degree // 2
        if degree < others:
            gap = Fraction(math.comb(gone, reach), math.comb(n_nodes, reach))
            if degree <= gone if active else releases * n_nodes * gap > Fraction(SECURITY):
                continue
        kept = degree
        while n_nodes * at_least(degree - kept + 1, dropouts, degree) > RARE:
            kept -= 1
        threshold = max(kept, degree - min(dropouts, degree))
        opened = n_nodes * at_least(threshold, colluding, degree) > Fraction(SECURITY)
        if threshold >= 2 and not (threshold <= colluding if active else opened):
            return degree, threshold
    return None


RARE = Fraction(1, 2**20)


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("n_nodes", [3, 4, 5, 8, 9, 20, 60])
def test_the_graph_is_the_smallest_that_is_safe(n_nodes, active):
    """Against a server that chooses who stands where nothing is left to chance."""
    assert Fraction(SECURITY) == Fraction(2**20 - 1, 2**60) and Fraction(CORRECTNESS) == RARE
    assert Fraction(FAILURE) == Fraction(1, 2**39)
    for dropouts in {0, 1, n_nodes // 4, n_nodes // 3, (n_nodes - 1) // 2}:
        for colluding in {0, 1, 2, n_nodes // 10, n_nodes // 3}:
            for releases in (1, 40):
                case = (n_nodes, dropouts, colluding, releases)
                wanted = by_counting(*case, active)
                if wanted is not None:
                    assert choose_graph(*case, active=active) == wanted, case
                    continue
                with pytest.raises(InputError, match=f"{n_nodes} nodes are too few"):
                    choose_graph(*case, active=active)


def test_what_is_left_stays_connected():
    """At a small degree simulated gaps are as frequent as the bound says, or rarer."""
    generator = np.random.default_rng(0)
    names = [str(node) for node in range(40)]
    neighbours = circle(names, 6)
    apart = 0
    for _ in range(2000):
        left = set(generator.choice(names, 28, replace=False))
        apart += not connected(left, neighbours)
    assert apart / 2000 <= 40 * math.comb(12, 3) / math.comb(40, 3)


def test_what_does_not_fit_says_what_would() -> None:
    with pytest.raises(
        InputError, match="it would do with 11 nodes, or with 4 dropouts, or with 3 colluding"
    ) as e:
        choose_graph(10, 5, 4, 20)
    assert str(e.value).count("10 nodes are too few") == 1
    for case in ((11, 5, 4, 20), (10, 4, 4, 20), (10, 5, 3, 20)):
        choose_graph(*case)
