"""One paper algorithm = one file. A new one is a new file and a new row in ``ESTIMATORS``."""

from hushrec.algorithms.als import ALS
from hushrec.algorithms.base import Billboard, Estimator, Gate, UserState
from hushrec.algorithms.baselines import GlobalMean, ItemBias, Popular
from hushrec.algorithms.cleansed_svd import CleansedSVD
from hushrec.algorithms.corrective_frank_wolfe import CorrectiveFrankWolfe
from hushrec.algorithms.dpals import DPALS
from hushrec.algorithms.frank_wolfe import FrankWolfe, PrivateFrankWolfe
from hushrec.algorithms.oja import private_pca
from hushrec.algorithms.one_bit import Completion, OneBitCompletion, randomize_labels
from hushrec.algorithms.one_bit_user import UserLevelOneBit
from hushrec.algorithms.private_als import PrivateALS
from hushrec.algorithms.private_eigenrec import PrivateEigenRec
from hushrec.algorithms.private_svd import PrivateSVD
from hushrec.algorithms.projected_gradient import PrivateProjectedGradient, ProjectedGradient

#: Every estimator by the name it has on the command line and in model files.
ESTIMATORS: dict[str, type[Estimator]] = {
    cls.name: cls
    for cls in (
        ALS,
        PrivateALS,
        DPALS,
        FrankWolfe,
        PrivateFrankWolfe,
        CorrectiveFrankWolfe,
        PrivateSVD,
        ProjectedGradient,
        PrivateProjectedGradient,
        CleansedSVD,
        OneBitCompletion,
        UserLevelOneBit,
        PrivateEigenRec,
        ItemBias,
        GlobalMean,
        Popular,
    )
}

__all__ = [
    "ALS",
    "DPALS",
    "ESTIMATORS",
    "Billboard",
    "CleansedSVD",
    "Completion",
    "CorrectiveFrankWolfe",
    "Estimator",
    "FrankWolfe",
    "Gate",
    "GlobalMean",
    "ItemBias",
    "OneBitCompletion",
    "Popular",
    "PrivateALS",
    "PrivateEigenRec",
    "PrivateFrankWolfe",
    "PrivateProjectedGradient",
    "PrivateSVD",
    "ProjectedGradient",
    "UserLevelOneBit",
    "UserState",
    "private_pca",
    "randomize_labels",
]
