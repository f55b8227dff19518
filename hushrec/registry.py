"""Every estimator by name, imported when it is first asked for."""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from typing import Any

from hushrec.errors import InputError


class _Registry(UserDict[str, Any]):
    """Names are known at once; a class is imported when it is looked up."""

    def __getitem__(self, name: str) -> type[Any]:
        entry = self.data[name]
        if isinstance(entry, str):
            room, _, cls = entry.rpartition(".")
            entry = getattr(import_module(room), cls)
        return entry


ESTIMATORS = _Registry(
    {
        "both": "hushrec.models.both.Both",
        "private-als": "hushrec.models.private_als.PrivateALS",
        "private-eigenrec": "hushrec.models.private_eigenrec.PrivateEigenRec",
        "item-bias": "hushrec.models.baselines.ItemBias",
        "popular": "hushrec.models.baselines.Popular",
        "global-mean": "hushrec.models.baselines.GlobalMean",
        "one-bit-user": "hushrec.models.one_bit_user.UserLevelOneBit",
        "als": "hushrec.models.als.ALS",
        "ease": "hushrec.models.ease.EASE",
        "dpals": "hushrec.papers.dpals.DPALS",
        "frank-wolfe": "hushrec.papers.frank_wolfe.FrankWolfe",
        "private-frank-wolfe": "hushrec.papers.frank_wolfe.PrivateFrankWolfe",
        "private-svd": "hushrec.papers.frank_wolfe.PrivateSVD",
        "projected-gradient": "hushrec.papers.frank_wolfe.ProjectedGradient",
        "private-projected-gradient": "hushrec.papers.frank_wolfe.PrivateProjectedGradient",
        "cleansed-svd": "hushrec.papers.mcsherry_mironov.CleansedSVD",
        "one-bit": "hushrec.papers.one_bit.OneBitCompletion",
    }
)
"""The name that an estimator has on the command line and in model files -> its class.

Examples
--------
>>> hushrec.registry.ESTIMATORS["private-als"]
<class 'hushrec.models.private_als.model.PrivateALS'>
>>> "popular" in hushrec.registry.ESTIMATORS
True
"""


#: Job -> best model for it, with privacy and without.
_BEST = {
    "both": ("both", "both"),
    "ratings": ("private-als", "als"),
    "lists": ("private-eigenrec", "ease"),
}

#: Jobs of a model.
JOBS = tuple(_BEST)


def register(estimator: type[Any]) -> type[Any]:
    """Make an estimator from outside the package known by its name; usable as a decorator.

    Model files that it wrote can be read where it is registered.

    Examples
    --------
    >>> from hushrec.registry import register
    >>> @register
    ... class Mine(hushrec.Popular):
    ...     name = "mine"
    >>> hushrec.registry.ESTIMATORS["mine"] is Mine
    True
    """
    name = estimator.name
    if not isinstance(name, str) or not name.strip() or isinstance(ESTIMATORS.data.get(name), str):
        raise InputError(f"An estimator needs a unique name, not {name!r}; set the class's `name`.")
    ESTIMATORS[name] = estimator
    return estimator


def best(job: str, private: bool) -> str:
    """The model for ``"ratings"``, ``"lists"`` or ``"both"``, under privacy or without."""
    return _BEST[job][0 if private else 1]
