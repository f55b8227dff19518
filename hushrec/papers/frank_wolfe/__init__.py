"""Jain, Thakkar and Thakurta 2018, with its constants corrected; and Frank-Wolfe with local refits."""

from hushrec.papers.frank_wolfe.corrective import CorrectiveFrankWolfe
from hushrec.papers.frank_wolfe.eigensolvers import private_pca
from hushrec.papers.frank_wolfe.frank_wolfe import FrankWolfe, PrivateFrankWolfe
from hushrec.papers.frank_wolfe.private_svd import PrivateSVD
from hushrec.papers.frank_wolfe.projected_gradient import PrivateProjectedGradient, ProjectedGradient

__all__ = [
    "CorrectiveFrankWolfe",
    "FrankWolfe",
    "PrivateFrankWolfe",
    "PrivateProjectedGradient",
    "PrivateSVD",
    "ProjectedGradient",
    "private_pca",
]
