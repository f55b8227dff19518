"""hushrec: recommenders trained under differential privacy.

>>> import hushrec
>>> domain = hushrec.Domain(items, rating_range=(1, 5))
>>> ratings = hushrec.Ratings.read("ratings.parquet", domain)
>>> budget = hushrec.Budget(epsilon=5, delta=1e-6)
>>> model = hushrec.ItemBias().fit(ratings, hushrec.Accountant(budget))
>>> model.recommend({"item 1": 5.0})

Every name below is imported when it is first used, so that ``import hushrec`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushrec.algorithms import ALS, Billboard, GlobalMean, ItemBias, Popular, PrivateALS
    from hushrec.billboard import load
    from hushrec.data import Domain, Ratings
    from hushrec.errors import BudgetError, HushrecError, InputError, LedgerError, ModelFileError
    from hushrec.evaluation import compare, evaluate
    from hushrec.papers.dpals import DPALS
    from hushrec.privacy import Accountant, Budget, Ledger, Plan

__version__ = "0.1.0"

_ROOM_OF = {
    **dict.fromkeys(
        ("ALS", "Billboard", "GlobalMean", "ItemBias", "Popular", "PrivateALS"), "hushrec.algorithms"
    ),
    **dict.fromkeys(("Domain", "Ratings"), "hushrec.data"),
    **dict.fromkeys(
        ("BudgetError", "HushrecError", "InputError", "LedgerError", "ModelFileError"), "hushrec.errors"
    ),
    **dict.fromkeys(("compare", "evaluate"), "hushrec.evaluation"),
    **dict.fromkeys(("Accountant", "Budget", "Ledger", "Plan"), "hushrec.privacy"),
    "DPALS": "hushrec.papers.dpals",
    "load": "hushrec.billboard",
}

__all__ = [
    "ALS",
    "DPALS",
    "Accountant",
    "Billboard",
    "Budget",
    "BudgetError",
    "Domain",
    "GlobalMean",
    "HushrecError",
    "InputError",
    "ItemBias",
    "Ledger",
    "LedgerError",
    "ModelFileError",
    "Plan",
    "Popular",
    "PrivateALS",
    "Ratings",
    "compare",
    "evaluate",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'hushrec' has no attribute {name!r}")
    value = getattr(import_module(_ROOM_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
