"""``python -m benchmarks.bench_int8``: what item factors of one byte lose, in predictions and lists.

Each model is trained once on generated ratings of 6,000 users and 2,000 items, without privacy and with it;
the same held-out ratings are then predicted, and lists made, from its file of floats and from that of bytes.
"""

from __future__ import annotations

import math

from hushrec.data import realistic, split_ratings
from hushrec.evaluation import evaluate
from hushrec.models import ESTIMATORS, Billboard
from hushrec.privacy import Accountant, Budget

_USERS, _ITEMS, _RATINGS = 6000, 2000, 400_000
_MODELS = (("als", math.inf), ("private-als", 5.0), ("private-eigenrec", 5.0), ("ease", math.inf))


def main() -> None:
    """Print a row of a table for each model."""
    train, test = split_ratings(realistic(_USERS, _ITEMS, _RATINGS, seed=0), (0.8, 0.2), seed=0)
    print("| model | epsilon | file, bytes | int8 | RMSE | int8 | nDCG@20 | int8 |")
    print("|---|---|---|---|---|---|---|---|")
    for name, epsilon in _MODELS:
        budget = Budget(epsilon, 1e-6)
        model = ESTIMATORS[name].planned(budget, train.domain, _USERS)
        whole = model.fit(train, Accountant(budget))
        files = [whole.to_bytes(), whole.to_bytes(int8=True)]
        cells = [f"{len(each):,}" for each in files]
        found = [evaluate(Billboard.from_bytes(each), train, test, resamples=10) for each in files]
        for metric in ("rmse", "ndcg@20"):
            values = [each.metrics.get(metric) for each in found]
            cells += [
                "–" if value is None or math.isnan(value.value) else f"{value.value:.4f}" for value in values
            ]
        epsilons = "none" if math.isinf(epsilon) else f"{epsilon:g}"
        print("|", " | ".join([f"`{name}`", epsilons, *cells]), "|", flush=True)


if __name__ == "__main__":
    main()
