"""Vectors of items against lists: ``python -m benchmarks.bench_vectors``.

First whether inner products rank as models do, at lists of 1,000 items of 1,000 users; then recall and time
of indices (usearch, faiss; ``pip install "hushrec[ann]"``) at a million items of rank 32, or at `--items`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

import hushrec
from benchmarks import bench_serve
from hushrec.types import Array

USERS, LISTED = 1000, 1000
#: Users and length of their lists that indices are asked for.
ASKED, NEAREST = 200, 100


def exact() -> None:
    """Print how many lists of several models are those that their vectors give."""
    ratings = hushrec.realistic(3000, 3000, 200_000, seed=0)
    budget = hushrec.Budget(10, 1e-6)
    asked = ratings.rows(np.arange(USERS), keyed=True)
    print(f"{'model':18} dimensions  equal lists  equal places  largest gap of scores that changed places")
    for kind in (hushrec.Popular, hushrec.PrivateALS, hushrec.PrivateEigenRec, hushrec.Both):
        planned = kind.planned(budget, ratings.domain, n_users=ratings.n_users)
        model = planned.fit(ratings, hushrec.Accountant(budget))
        blocks = list(model.top_columns(asked, LISTED, exclude_seen=False))
        listed, scores = (np.concatenate(parts) for parts in zip(*blocks))
        products = model.query(asked) @ model.item_vectors().T
        found = np.argsort(-products, axis=1, kind="stable")[:, :LISTED]
        moved = found != listed
        ranked = np.full(products.shape, np.nan)
        np.put_along_axis(ranked, listed, scores, axis=1)
        gap = np.nanmax(np.abs(np.take_along_axis(ranked, found, axis=1) - scores)[moved], initial=0.0)
        equal, places = (~moved.any(axis=1)).mean(), 1 - moved.mean()
        print(f"{planned.name:18} {model.item_vectors().shape[1]:10}  {equal:11.1%}"
              f"  {places:12.3%}  {gap:.1e}")  # fmt: skip


def indices(n_items: int) -> None:
    """Print recall and time of indices, over random factors that are shorter in each further direction."""
    with tempfile.TemporaryDirectory() as folder:
        model = hushrec.load(bench_serve.model(n_items, Path(folder) / "model.hush"))
    shorter = model.item_factors / np.sqrt(np.arange(1, model.item_factors.shape[1] + 1, dtype=np.float32))
    model = replace(model, arrays={**model.arrays, "item_factors": shorter})
    rng = np.random.default_rng(1)
    items, stars = rng.integers(n_items, size=ASKED * 20), rng.integers(1, 6, size=ASKED * 20)
    users = np.repeat(np.arange(ASKED), 20)
    names = [model.domain.items[item] for item in items]
    history = hushrec.Ratings.from_any((users, names, stars.astype(float)), model.domain)
    vectors, asked = model.item_vectors(), model.query(history)
    began = time.perf_counter()
    blocks = model.top_columns(history, NEAREST, exclude_seen=False)
    wanted = np.concatenate([columns for columns, _ in blocks])
    took = (time.perf_counter() - began) / ASKED
    print(f"\n{n_items:,} items of {vectors.shape[1]} dimensions, lists of {NEAREST} of {ASKED} users")
    print(f"{'':28} built, s  ms a list  recall\n{'the model itself':28} {'':8}  {took * 1e3:9.2f}  {1:6.3f}")
    for name, build in (("faiss, inverted lists", _faiss), ("usearch, HNSW", _usearch)):
        began = time.perf_counter()
        try:
            search = build(vectors)
        except ImportError:
            print(f'{name:28} not installed: pip install "hushrec[ann]"')
            continue
        built, began = time.perf_counter() - began, time.perf_counter()
        found = np.stack([search(query) for query in asked])
        took = (time.perf_counter() - began) / ASKED
        hits = np.mean([len(np.intersect1d(one, other)) for one, other in zip(found, wanted)]) / NEAREST
        print(f"{name:28} {built:8.1f}  {took * 1e3:9.2f}  {hits:6.3f}", flush=True)


def _usearch(vectors: Array) -> Callable[[Array], Array]:
    from usearch.index import Index

    index = Index(ndim=vectors.shape[1], metric="ip", dtype="f32", connectivity=12, expansion_add=32)
    index.expansion_search = 512
    index.add(np.arange(len(vectors)), vectors)
    return lambda query: index.search(query, NEAREST).keys


def _faiss(vectors: Array) -> Callable[[Array], Array]:
    import faiss

    lists = int(np.sqrt(len(vectors)))
    index = faiss.index_factory(vectors.shape[1], f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(vectors[:: max(1, len(vectors) // (50 * lists))])
    index.add(vectors)
    index.nprobe = max(1, lists // 10)
    return lambda query: index.search(query[None], NEAREST)[1][0]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    given = parser.parse_args()
    exact()
    indices(given.items)


if __name__ == "__main__":
    main()
