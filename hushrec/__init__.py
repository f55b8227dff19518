"""hushrec: recommenders trained under differential privacy.

>>> import hushrec
>>> table = {"user": ["ann", "ann", "bob"], "item": ["matrix", "alien", "alien"], "rating": [5, 4, 2]}
>>> model = hushrec.train(table, items=["matrix", "alien", "titanic"], rating_range=(1, 5),
...                       epsilon=5, delta=1e-6, n_users=2, ledger="ledger.sqlite")
>>> len(model.recommend({"matrix": 5.0}))
2

``__init__.pyi`` lists the names. Each is imported at first use, so ``import hushrec`` is fast.
"""

from __future__ import annotations

import lazy_loader

__version__ = "1.0.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
