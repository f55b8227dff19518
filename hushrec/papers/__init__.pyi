from .dpals import DPALS as DPALS
from .frank_wolfe import (
    FrankWolfe as FrankWolfe,
    PrivateFrankWolfe as PrivateFrankWolfe,
    PrivateProjectedGradient as PrivateProjectedGradient,
    PrivateSVD as PrivateSVD,
    ProjectedGradient as ProjectedGradient,
)
from .mcsherry_mironov import CleansedSVD as CleansedSVD
from .one_bit import OneBitCompletion as OneBitCompletion
