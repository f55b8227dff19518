from .eigensolvers import private_pca as private_pca
from .frank_wolfe import FrankWolfe as FrankWolfe, PrivateFrankWolfe as PrivateFrankWolfe
from .private_svd import PrivateSVD as PrivateSVD
from .projected_gradient import (
    PrivateProjectedGradient as PrivateProjectedGradient,
    ProjectedGradient as ProjectedGradient,
)
