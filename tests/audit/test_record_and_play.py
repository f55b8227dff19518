"""An auditor records a training at the gate, plays it on a neighbour, and compares in units of the noise.

The method is that of Re:cord-play (arXiv 2602.17454), written from its description. Nothing here is from
`hushrec.testing`: users, neighbours and distances are the auditor's own.
"""

import math

import numpy as np
import pytest

from hushrec.data import Domain, Ratings
from hushrec.privacy import Accountant
from hushrec.privacy.testing import SeededNoise
from tests.models.cases import CASES

ITEMS = [f"i{number}" for number in range(24)]
DOMAIN = Domain(ITEMS, (1, 5))
BYSTANDER = {"i1": 5.0, "i2": 1.0, "i7": 4.0, "i9": 5.0}
SLACK = 1 + 1e-9
#: Cases whose lists have these parts.
PARTS = {
    "private-eigenrec, parts": {"words", "kind", "price"},
    "private-eigenrec, parts and pairs": {"words", "item pairs"},
    "private-eigenrec, parts of public likes": {"public likes"},
}


class Tape:
    """Noise that keeps what reached it, and plays what another tape released.

    The release `understated` counts as one with a quarter of its noise: a sensitivity planted wrong.
    """

    def __init__(self, played=None, understated=None):
        self.played, self.source, self.calls = played, SeededNoise(5), []
        self.understated = understated

    def draw(self, kind, value, amount, label):
        place = len(self.calls)
        if self.played:
            known = self.played.calls[place]
            assert known[:3] == (kind, label, value.shape), "the data decide what is released"
            output = known[-1].copy()
        else:
            method = "flip" if kind == "flip" else f"add_{kind}"
            output = getattr(self.source, method)(value, amount, label)
        noise = np.asarray(amount, float) / (4 if label == self.understated else 1)
        self.calls.append((kind, label, value.shape, value.astype(float), noise, output.copy()))
        return output

    def add_gaussian(self, value, sd, label):
        return self.draw("gaussian", value, sd, label)

    def add_laplace(self, value, scale, label):
        return self.draw("laplace", value, scale, label)

    def flip(self, labels, probability, label):
        return self.draw("flip", labels, probability, label)


def users(rng):
    """Rows of a few users, and the first one's in further forms: loud, torn, terse, unusable, none."""
    rows = {}
    for number in range(7):
        own = rng.choice(ITEMS, int(rng.integers(1, 24)), replace=False)
        rows[f"u{number}"] = [(f"u{number}", str(item), float(rng.integers(1, 6))) for item in own]
    first = {
        "loud": [("u0", item, 5.0) for item in ITEMS],
        "torn": [("u0", item, (1.0, 5.0)[place % 2]) for place, item in enumerate(ITEMS)],
        "terse": [("u0", "i3", 5.0)],
        "few": [("u0", item, 1.0) for item in ITEMS[4:7]],
        "unusable": [("u0", "nowhere", 5.0), ("u0", "i1", math.nan), ("u0", "i2", 9.0)],
        "none": [],
    }
    return [rows, *({**rows, "u0": others} for others in first.values())]


def flipped(rng):
    """Ratings of the same cells, of which one has another value: neighbours of unit rating."""
    rows, *_ = users(rng)
    (user, item, rating), *others = rows["u1"]
    return [rows, {**rows, "u1": [(user, item, 1.0 if rating > 3 else 5.0), *others]}]


def ratings_of(rows):
    return Ratings.from_any(tuple(map(list, zip(*(row for own in rows.values() for row in own)))), DOMAIN)


def losses(one, other, charged, budget):
    """Return each release's distance in units of its noise over its charge, and that of all together."""
    found = {}
    for (kind, label, _, first, noise, _), (*_, second, _, _) in zip(one.calls, other.calls, strict=True):
        moved = np.abs(first - second)
        if kind == "gaussian":
            loss = (moved / noise) ** 2
        else:
            loss = moved * (1 / noise if kind == "laplace" else np.log((1 - noise) / noise))
        found[label] = found.get(label, 0.0) + float(np.sum(loss))
    pure = all(release.epsilon is not None for release in charged)
    assert pure or all(release.epsilon is None for release in charged)
    together = sum(found.values()) / (budget.epsilon if pure else budget.mu**2)
    charges = {release.label: release.epsilon if pure else release.mu**2 for release in charged}
    return {label: loss / charges[label] for label, loss in found.items()}, together


def audit(case, relation, understated=None):
    """Return the largest loss of each release over its charge, of all together, and the lists' parts."""
    budget = case.budget(relation)
    rows = (flipped if case.unit == "rating" else users)(np.random.default_rng(11))
    if relation == "add-remove":
        rows = [rows[-1], *rows[:-1]]  # the first lacks the user
    tapes, files, lists, worst, most = [], [], [], {}, 0.0
    for each in rows:
        tapes.append(Tape(tapes[0] if tapes else None, understated))
        accountant = Accountant(budget, noise=tapes[-1])
        model = case.estimator.fit(ratings_of(each), accountant, seed=1)
        files.append(model.to_bytes())
        if model.scores != "log-odds":
            liked = list(BYSTANDER) if model.scores == "likes" else list(BYSTANDER.items())
            lists.append(model.recommend(liked, 9, next=True))
        found, together = losses(tapes[0], tapes[-1], accountant.releases, budget)
        worst = {label: max(worst.get(label, 0.0), loss) for label, loss in found.items()}
        most = max(most, together)
    assert len(set(files)) == 1, "the model knows more than was released"
    assert all(each == lists[0] for each in lists), "another user's list depends on more than the model"
    return worst, most, {name for name, *_ in model.parts or ()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_release_exceeds_its_charge_and_a_wrong_sensitivity_is_found(case):
    for relation in ("add-remove", "replace") if case.unit == "user" else ("replace",):
        worst, together, parts = audit(case, relation)
        assert max(*worst.values(), together) <= SLACK
        label = max(worst, key=worst.get)
        assert audit(case, relation, label)[0][label] > SLACK
        assert PARTS.get(case.name, set()) <= parts
