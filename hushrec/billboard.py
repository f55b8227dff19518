"""The billboard: a trained model, which holds released values only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hushrec.data.catalogue import pack, unpack
from hushrec.errors import ModelFileError
from hushrec.modelfile import BAD_HEADER, Arrays, ModelFile, encode, other_version, read, write
from hushrec.privacy import PrivacyStatement
from hushrec.registry import ESTIMATORS
from hushrec.serving import Recommender

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, eq=False)
class Billboard(Recommender):
    """A trained model: released values, the declared domain, the settings and the privacy statement.

    Nothing in it was computed from private rows without passing the gate, so it may be printed,
    published and shipped to devices. It holds no user: whoever is served brings her own ratings
    (joint differential privacy), which is also how new users are served. What is computed for one
    user is for her eyes only; show it to nobody else and feed it into nothing shared.

    Attributes
    ----------
    estimator, domain, arrays
        As of a :class:`~hushrec.serving.Recommender`; the arrays are read-only.
    privacy : PrivacyStatement
        What was released, at what cost, under which assumptions.
    """

    privacy: PrivacyStatement

    def __post_init__(self) -> None:
        if isinstance(self.arrays, Arrays):  # read-only, and perhaps not yet read
            return
        frozen = {}
        for key, value in self.arrays.items():
            array = np.array(value)
            array.setflags(write=False)
            frozen[key] = array
        object.__setattr__(self, "arrays", MappingProxyType(frozen))

    def __repr__(self) -> str:
        return f"Billboard({self.estimator!r}, {self.domain!r})"

    def save(self, path: str | Path) -> None:
        """Write the model file (docs/format.md), whole or not at all."""
        write(path, *self._stored())

    def to_bytes(self) -> bytes:
        """What :meth:`save` writes."""
        return b"".join(encode(*self._stored()))

    @staticmethod
    def load(path: str | Path, *, memory_map: bool = False) -> Billboard:
        """Read a model file.

        Parameters
        ----------
        path : str or Path
            A file that :meth:`save` wrote, or hushrec 0.1.
        memory_map : bool
            Leave the arrays in the file and read each when it is first used.

        Raises
        ------
        ModelFileError
            If the file is missing, is no model file, is damaged, or was written by a newer version.
        """
        stored = read(path, memory_map=memory_map)
        try:
            return _of_stored(stored)
        except BAD_HEADER as error:
            if isinstance(error, ModelFileError):
                raise
            other_version(path, error)

    def _stored(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The header and the arrays of a model file."""
        declared, ids = pack(self.domain)
        estimator = self.estimator
        serve = {"model": estimator.name, "settings": estimator.hyper_parameters(), "scores": self.scores}
        header = {"sections": {"serve": serve}, "domain": declared, "privacy": self.privacy.to_dict()}
        arrays = {f"serve/{name}": array for name, array in self.arrays.items()}
        return header, arrays | {f"catalogue/{name}": array for name, array in ids.items()}


def load(path: str | Path, *, memory_map: bool = False) -> Billboard:
    """Read a model file, as :meth:`Billboard.load` does."""
    return Billboard.load(path, memory_map=memory_map)


def _of_stored(stored: ModelFile) -> Billboard:
    """The model that a file's section ``serve`` holds; BAD_HEADER's errors where it holds none."""
    header, arrays = stored.header, stored.arrays.section("serve")
    domain = unpack(header["domain"], stored.arrays.section("catalogue"))
    with_factors = domain.n_items
    if "learned_items" in arrays:
        learned = np.asarray(arrays["learned_items"], dtype=np.int64)
        with_factors = len(learned)
        if (np.diff(learned, prepend=-1, append=domain.n_items) < 1).any():
            raise ValueError("the learned items do not fit the catalogue")
    shapes = [arrays.shape("center"), arrays.shape("item_bias"), arrays.shape("item_factors")[:-1]]
    if shapes != [(), (domain.n_items,), (with_factors,)]:
        raise ValueError("the arrays do not fit the catalogue")
    serve = header["sections"]["serve"]
    settings = {key: tuple(v) if isinstance(v, list) else v for key, v in serve["settings"].items()}
    estimator = ESTIMATORS[serve["model"]](**settings)
    if stored.version > 1 and serve["scores"] != estimator.scores:
        raise ValueError(f"scores of {serve['model']} that are {serve['scores']!r}")
    privacy = PrivacyStatement.from_dict(header["privacy"])
    return Billboard(estimator=estimator, domain=domain, arrays=arrays, privacy=privacy)
