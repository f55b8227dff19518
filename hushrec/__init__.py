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

import importlib
import sys
import warnings
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import lazy_loader

__version__ = "0.4.0"

#: Where names are that 0.2 had here; the old ones work until 0.4.
_MOVED = {
    "models": "GlobalMean UserLevelOneBit",
    "data": "k_folds paired_likes sample_per_user",
    "evaluation": "Comparison Estimate Evaluation",
    "papers": (
        "CleansedSVD CorrectiveFrankWolfe DPALS FrankWolfe OneBitCompletion PrivateFrankWolfe"
        " PrivateProjectedGradient PrivateSVD ProjectedGradient"
    ),
    "privacy": (
        "Laplace LedgerSummary Mechanism NoiseSource RandomizedResponse RepeatAndSelect SeasonSummary"
        " SystemNoise Week default_path delta_of epsilon_of jointly mu_of mu_of_pure together total_mu"
    ),
    "registry": "ESTIMATORS",
    "serving": "UserState",
}
#: Rooms of the modules that pages of 0.2 imported from; the old paths work until 0.4.
_ROOMS = {
    "hushrec.estimator": "training",
    "hushrec.gate": "training",
    "hushrec.modelfile": "serving",
    "hushrec.partitioned": "training",
    "hushrec.users": "training",
}
_attached, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    for room, names in _MOVED.items():
        if name in names.split():
            warnings.warn(
                f"hushrec.{name} is hushrec.{room}.{name} now; the old name goes with 0.4.",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(importlib.import_module(f"hushrec.{room}"), name)
    return _attached(name)


class _Moved:
    """Finds a module by the path that it had in 0.2."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, _Moved) if name in _ROOMS else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Leave it to Python: what is loaded takes the new module's place."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        old = module.__name__
        new = old.replace(".", f".{_ROOMS[old]}.")
        warnings.warn(f"{old} is {new} now; the old path goes with 0.4.", DeprecationWarning, stacklevel=2)
        sys.modules[old] = importlib.import_module(new)


sys.meta_path.append(_Moved)  # type: ignore[arg-type]
