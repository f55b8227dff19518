"""hushrec: recommenders trained under differential privacy.

>>> import hushrec
>>> domain = hushrec.Domain(items, rating_range=(1, 5))
>>> ratings = hushrec.Ratings.read("ratings.parquet", domain)
>>> budget = hushrec.Budget(epsilon=5, delta=1e-6)
>>> model = hushrec.ItemBias().fit(ratings, hushrec.Accountant(budget))
>>> model.recommend({"item 1": 5.0})

The names are those of ``__init__.pyi``, each imported when it is first used, so that ``import hushrec`` costs
nothing.
"""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
