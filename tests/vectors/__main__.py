"""Write the parity vectors: ``python -m tests.vectors``.

Trains the small models again (their noise is the operating system's, so every file differs) and writes
Python's answers from each, with the histories, to ``vectors.json``. `tests/vectors/test_vectors.py`
holds Python to it, and `make test-web` the client of ``web/``.
"""

import base64
import json
import math
import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hushrec import Accountant, Budget, Domain, PublicRatings, Ratings
from hushrec.data import realistic
from hushrec.models import (
    ALS,
    EASE,
    Both,
    Estimator,
    GlobalMean,
    ItemBias,
    Model,
    Popular,
    PrivateALS,
    PrivateEigenRec,
    UserLevelOneBit,
)
from hushrec.papers.dpals import DPALS
from hushrec.public.ratings_model import ratings_model
from hushrec.serving.modelfile import read as decode
from hushrec.serving.recommend import PublicPart
from tests.vectors.answers import answers, is_json, next_lists, rules_of, similar_to
from tests.vectors.random_conditions import random_cases

PATH = Path(__file__).with_name("vectors.json")

DOMAIN = realistic(2, 30, 4, seed=0).domain
#: Ids of every kind that a catalogue can hold, some of which are written in several ways.
HOSTILE_IDS = (
    *(7, -3, 2.5, 1e-5, True, "Ünï côdé", "a b", " edges ", "12.0", "007", "0.10", "\ud800 lone"),
    *("\ufffdmark", uuid.UUID(int=5), b"bytes", b"\xff\xfe", 2**60, "x" * 300, "日本", "e\u0301", '"quoted"'),
    *("-0.0", "+5", *(f"i{number}" for number in range(7))),
)

#: Models that get rules, and the history of their user.
RULED = ("item-bias", "als", "private-eigenrec", "both without privacy")
HISTORY_OF_RULES = [(DOMAIN.items[3], 5.0), (DOMAIN.items[8], 2.0)]

PRIVATE = {"rank": 4, "iterations": 2, "bias_rounds": 2, "n_users": 120}
LIKES = {"rank": 3, "iterations": 2, "n_users": 120}
DPALS_SMALL = {"rank": 3, "iterations": 2, "max_ratings_per_user": 8, "regularization": 0.1}


def trained(
    estimator: Estimator[Any], domain: Domain = DOMAIN, epsilon: float = 20.0, *, seed: int = 1
) -> Model:
    """A model of generated ratings over a domain, private or not."""
    drawn = realistic(120, domain.n_items, 1500, rating_range=(domain.low, domain.high), seed=seed)
    cells = drawn.matrix.tocoo()
    items = [domain.items[column] for column in cells.coords[1]]
    ratings = Ratings.from_any(([f"u{row}" for row in cells.coords[0]], items, cells.data), domain)
    return estimator.fit(ratings, Accountant(Budget(epsilon, 1e-5)))


def of_table(estimator: PrivateEigenRec) -> Model:
    """Return a model with a table of articles, of users who like what is of one kind."""
    kinds, names = np.arange(DOMAIN.n_items) % 3, ("wool sock", "tea pot", "steel pan")
    titles = [f"{names[kind]} n{item // 6}" for item, kind in enumerate(kinds)]
    table = {"item": list(DOMAIN.items), "kind": [f"kind {kind}" for kind in kinds], "title": titles}
    drawn = realistic(300, DOMAIN.n_items, 3000, seed=1)
    users, items = drawn.matrix.tocoo().coords
    stars = np.where(kinds[items] == users % 3, 5.0, drawn.matrix.data)
    rows = [f"u{user}" for user in users], [DOMAIN.items[item] for item in items], stars
    ratings = Ratings.from_any(rows, replace(DOMAIN, item_features=table))
    return estimator.fit(ratings, Accountant(Budget(20.0, 1e-5)))


def of_public_likes(estimator: PrivateEigenRec | Both) -> Model:
    """Return a model with public likes."""
    rows = realistic(120, DOMAIN.n_items, 1500, seed=1)
    public = PublicRatings(same=realistic(40, DOMAIN.n_items, 500, seed=5))
    return estimator.fit(rows, Accountant(Budget(20.0, 1e-5)), public=public)


def beside(model: Model) -> Model:
    """Return the model with a public one of ratings."""
    rows = realistic(40, DOMAIN.n_items, 500, seed=5)
    part = PublicPart(ratings_model(rows, None, None, {}), 0.3)
    figures = {name: {"value": 0.1, "low": 0.0, "high": 1.0} for name in ("private", "public", "together")}
    used: dict[str, Any] = {"donors": 40, "external": True, "features": True, "agreement": 1.0, **figures}
    return replace(model, public=part, judged={"weight": 0.3, **used})


def models() -> Iterable[tuple[str, Model, bool]]:
    """Small models by name; and whether in bytes."""
    likes = Domain(DOMAIN.items, likes=True)
    awkward = Domain(DOMAIN.items, rating_range=(0.1, 4.1))
    private_als = trained(PrivateALS.of(**PRIVATE))
    pairs = trained(PrivateEigenRec(rank=2, pairs=True, like_threshold=4.0))
    yield "item-bias", trained(ItemBias()), False
    yield "popular", trained(Popular()), False
    yield "private-als", private_als, False
    yield "private-als of one byte", private_als, True
    yield "private-als of biases", trained(PrivateALS(n_users=120)), False
    yield (
        "private-als of few ratings a user",
        trained(PrivateALS.of(**PRIVATE), replace(DOMAIN, max_ratings_per_user=6)),
        False,
    )
    yield "private-als of an awkward range", trained(PrivateALS.of(**PRIVATE), awkward), False
    yield "private-als of hostile ids", trained(PrivateALS.of(**PRIVATE), Domain(HOSTILE_IDS, (1, 5))), False
    yield (
        "private-eigenrec",
        trained(PrivateEigenRec.of(**LIKES, like_threshold=4.0, learned_items=12)),
        False,
    )
    without = PrivateEigenRec.of(**LIKES, like_threshold=4.0)
    yield "private-eigenrec without taste", trained(without, epsilon=0.01), False
    yield "private-eigenrec of likes", trained(PrivateEigenRec.of(**LIKES), likes), True
    yield "private-eigenrec of pairs", pairs, False
    yield "private-eigenrec of pairs of one byte", pairs, True
    words = of_table(PrivateEigenRec.of(**LIKES | {"n_users": 300}, like_threshold=4.0, parts_share=0.3))
    yield "private-eigenrec of words and features", words, False
    yield "private-eigenrec of words and features of one byte", words, True
    yield (
        "private-eigenrec of pairs, words and features",
        of_table(PrivateEigenRec.of(rank=3, pairs=True, n_users=300, like_threshold=4.0, parts_share=0.3)),
        False,
    )
    both = Both(ratings=PrivateALS.of(**PRIVATE), lists=PrivateEigenRec.of(**LIKES), like_threshold=4.0)
    yield "both", trained(both), False
    yield (
        "both without privacy",
        trained(Both(ratings=ALS(rank=3), lists=EASE(), like_threshold=4.0), epsilon=math.inf),
        False,
    )
    yield "both with public ratings", beside(of_public_likes(both)), False
    yield "both with public ratings of one byte", beside(of_public_likes(both)), True
    yield "one-bit-user", trained(UserLevelOneBit.of(**PRIVATE, threshold=3.0)), False
    yield "als", trained(ALS(rank=5), epsilon=math.inf), False
    yield "als of likes", trained(ALS(rank=5, unobserved_weight=0.1), epsilon=math.inf), True
    yield "dpals", trained(DPALS.of(**DPALS_SMALL, user_norm=0.5, clip=0.5)), False
    yield (
        "dpals of users' means",
        trained(DPALS.of(**DPALS_SMALL, user_norm=0.5, clip=0.5, center="user")),
        False,
    )
    yield (
        "dpals of likes",
        trained(DPALS.of(**DPALS_SMALL, user_norm=0.5, clip=0.5, unobserved_weight=0.1)),
        False,
    )


def histories(domain: Domain) -> dict[str, list[tuple[Any, Any]]]:
    """Return the users' histories by name: ordinary rows and hostile ones, as JSON can hold them."""
    rng = np.random.default_rng(3)
    ids = [item if is_json(item) else str(item) for item in domain.items]
    ids = [item for item in ids if domain.index([item])[0] >= 0]  # not bytes that are no text
    low, high = domain.low, domain.high
    grades = [low + (high - low) * part for part in (0, 0.25, 0.5, 0.75, 1)]
    one, two = ids[1], ids[2]

    def rated(count: int) -> list[tuple[Any, Any]]:
        chosen = rng.choice(len(ids), size=count, replace=False)
        return [(ids[place], grades[int(rng.integers(5))]) for place in chosen]

    return {
        "none": [],
        "one item": [(ids[3], high)],
        "some": rated(8),
        "all": rated(len(ids)),
        "all at the lowest": [(item, low) for item in ids],
        "duplicates": [(one, low), (two, grades[3]), (one, high), (one, grades[3]), (two, high)],
        "unknown ids": [(one, high), ("nowhere", high), (ids[5], low), (31.5, high), ("", low)],
        "out of range": [(one, high), (two, high + 1), (ids[3], low - 0.5), (ids[4], 1e308)],
        "purchases": [
            *((one, None), (two, low), (ids[4], high), (two, None), (ids[8], None)),
            *((ids[9], None), (ids[9], low)),
        ],
        "nothing usable": [("nowhere", high), ("elsewhere", low)],
        "ids as texts": [(f" {domain.item_texts[k].as_py()} ", high) for k in (0, 4, 9) if k < len(ids)],
    }


def main() -> None:
    """Write the file."""
    found = []
    for name, model, int8 in models():
        content = model.to_bytes(int8=int8)
        read = Model.from_bytes(content)
        rows = {
            key: answers(read, pairs) | {"ratings": pairs} for key, pairs in histories(read.domain).items()
        }
        similar = [similar_to(read, column) for column in range(0, read.domain.n_items, 4)]
        found.append(
            {"name": name, "file": base64.b64encode(content).decode(), "histories": rows}
            | {
                "similar": similar,
                "next": next_lists(read),
                "directions": read.directions,
                "digest": decode(content).digest,
            }
        )
    ruled = {
        entry["name"]: rules_of(Model.from_bytes(base64.b64decode(entry["file"])), HISTORY_OF_RULES)
        for entry in found
        if entry["name"] in RULED
    }
    refused = base64.b64encode(trained(GlobalMean()).to_bytes()).decode()
    vectors = {"models": found, "refused": {"name": "global-mean", "file": refused}, "rules": ruled}
    text = json.dumps(vectors | {"random": random_cases(1, DOMAIN.text_list, 20, 60)})
    PATH.write_text(text.replace('{"name"', '\n{"name"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
