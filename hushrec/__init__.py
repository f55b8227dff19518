"""hushrec: recommenders trained under differential privacy.

>>> import hushrec
>>> domain = hushrec.Domain(["matrix", "alien", "titanic"], rating_range=(1, 5))     # declared
>>> table = {"user": ["ann", "ann", "bob"], "item": ["matrix", "alien", "alien"], "rating": [5, 4, 2]}
>>> ratings = hushrec.Ratings.from_any(table, domain)
>>> budget = hushrec.Budget(epsilon=5, delta=1e-6)
>>> model = hushrec.ItemBias().fit(ratings, hushrec.Accountant(budget))
>>> len(model.recommend({"matrix": 5.0}))
2

The names are those of ``__init__.pyi``, each imported when it is first used, so that ``import hushrec`` costs
nothing.
"""

from __future__ import annotations

import lazy_loader

__version__ = "0.4.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
