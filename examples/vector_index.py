"""Lists from an index of vectors (usearch, faiss) in place of the model's own. Docs: guides/vectors.md.

``pip install "hushrec[ann]"``; an index that is not installed is left out.
"""

from __future__ import annotations

import numpy as np

import hushrec

ratings = hushrec.realistic(2000, 500, 60_000, seed=0)  # generated
budget = hushrec.Budget(epsilon=5, delta=1e-6)
model = hushrec.PrivateALS.planned(budget, ratings.domain, n_users=2000).fit(
    ratings, hushrec.Accountant(budget)
)
items, vectors = (
    ratings.domain.items,
    model.item_vectors(),
)  # or: hushrec export model.hush --vectors items.parquet
history = {items[3]: 5.0, items[40]: 1.0, items[77]: 4.0}
query, more = model.query(history), 10 + len(history)  # what they know is listed too, and left out below
found = {}

try:
    from usearch.index import Index

    index = Index(ndim=vectors.shape[1], metric="ip", dtype="f32")
    index.add(np.arange(len(vectors)), vectors)
    found["usearch"] = index.search(query, more).keys
except ImportError:
    print("usearch is not installed")

try:
    import faiss

    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    found["faiss"] = flat.search(query[None], more)[1][0]
except ImportError:
    print("faiss is not installed")

listed = [each.item for each in model.recommend(history, n=10)]
for name, places in found.items():
    nearest = [items[place] for place in places if items[place] not in history][:10]
    same = len(set(nearest) & set(listed))
    print(f"{name}: {same} of the model's own 10 items, in the same order: {nearest == listed}")
