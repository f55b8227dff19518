"""One algorithm is a file or a folder. Name a new one here and in :mod:`hushrec.registry`."""

from typing import TYPE_CHECKING

import lazy_loader

from hushrec.registry import ESTIMATORS as ESTIMATORS
from hushrec.serving.model import Model as Model
from hushrec.serving.scoring import UserState as UserState
from hushrec.training.estimator import Estimator as Estimator
from hushrec.training.gate import Gate as Gate

if TYPE_CHECKING:
    from hushrec.models.als import ALS as ALS
    from hushrec.models.baselines import (
        GlobalMean as GlobalMean,
        ItemBias as ItemBias,
        Popular as Popular,
    )
    from hushrec.models.both import Both as Both
    from hushrec.models.ease import EASE as EASE
    from hushrec.models.one_bit_user import UserLevelOneBit as UserLevelOneBit
    from hushrec.models.private_als import PrivateALS as PrivateALS
    from hushrec.models.private_eigenrec import PrivateEigenRec as PrivateEigenRec

_NAMES = {
    "als": ["ALS"],
    "baselines": ["GlobalMean", "ItemBias", "Popular"],
    "both": ["Both"],
    "ease": ["EASE"],
    "one_bit_user": ["UserLevelOneBit"],
    "private_als": ["PrivateALS"],
    "private_eigenrec": ["PrivateEigenRec"],
}

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs=_NAMES)
