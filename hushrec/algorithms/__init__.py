"""One paper algorithm = one file. A new one is a new file and a new row in ``ESTIMATORS``."""

from hushrec.algorithms.als import ALS
from hushrec.algorithms.base import Billboard, Estimator, Gate, UserState
from hushrec.algorithms.baselines import GlobalMean, ItemBias, Popular
from hushrec.algorithms.dpals import DPALS

#: Every estimator by the name it has on the command line and in model files.
ESTIMATORS: dict[str, type[Estimator]] = {
    cls.name: cls for cls in (ALS, DPALS, ItemBias, GlobalMean, Popular)
}

__all__ = [
    "ALS",
    "DPALS",
    "ESTIMATORS",
    "Billboard",
    "Estimator",
    "Gate",
    "GlobalMean",
    "ItemBias",
    "Popular",
    "UserState",
]
