"""One algorithm = one file. A new one is a new file and a new row in :mod:`hushrec.registry`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushrec.algorithms.als import ALS
    from hushrec.algorithms.baselines import GlobalMean, ItemBias, Popular
    from hushrec.algorithms.both import Both
    from hushrec.algorithms.ease import EASE
    from hushrec.algorithms.one_bit_user import UserLevelOneBit
    from hushrec.algorithms.private_als import PrivateALS
    from hushrec.algorithms.private_eigenrec import PrivateEigenRec
    from hushrec.billboard import Billboard
    from hushrec.estimator import Estimator
    from hushrec.gate import Gate
    from hushrec.serving import UserState

    ESTIMATORS: Mapping[str, type[Estimator]]

_ROOM_OF = {
    "ALS": "hushrec.algorithms.als",
    "Both": "hushrec.algorithms.both",
    "EASE": "hushrec.algorithms.ease",
    "PrivateALS": "hushrec.algorithms.private_als",
    "PrivateEigenRec": "hushrec.algorithms.private_eigenrec",
    "UserLevelOneBit": "hushrec.algorithms.one_bit_user",
    "Billboard": "hushrec.billboard",
    "UserState": "hushrec.serving",
    "Estimator": "hushrec.estimator",
    "Gate": "hushrec.gate",
    "ESTIMATORS": "hushrec.registry",
    **dict.fromkeys(("GlobalMean", "ItemBias", "Popular"), "hushrec.algorithms.baselines"),
}

__all__ = [
    "ALS",
    "EASE",
    "ESTIMATORS",
    "Billboard",
    "Both",
    "Estimator",
    "Gate",
    "GlobalMean",
    "ItemBias",
    "Popular",
    "PrivateALS",
    "PrivateEigenRec",
    "UserLevelOneBit",
    "UserState",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'hushrec.algorithms' has no attribute {name!r}")
    return getattr(import_module(_ROOM_OF[name]), name)
