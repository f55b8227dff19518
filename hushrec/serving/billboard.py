"""The billboard: a trained model, which holds released values only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from hushrec import notebook
from hushrec.checks import check_kind, plural, settings_of
from hushrec.data import Domain, Ratings, Store
from hushrec.data.catalogue import pack, unpack
from hushrec.data.domain import check_domain
from hushrec.errors import InputError, ModelFileError
from hushrec.privacy import PrivacyStatement, SeasonAccountant
from hushrec.registry import ESTIMATORS
from hushrec.serving.extending import check_larger, grown
from hushrec.serving.int8 import BYTES, FACTORS, SCALE, Unpacked, packed
from hushrec.serving.judged import Judged
from hushrec.serving.lists import Algorithm, PublicPart, Recommender
from hushrec.serving.modelfile import (
    BAD_HEADER,
    Arrays,
    Expected,
    ModelFile,
    encode,
    other_version,
    read,
    write,
)
from hushrec.types import Parts

Model = TypeVar("Model", bound=Recommender)

#: What the arrays hold that every model may have; an estimator says the same of its own.
_SERVED = {
    "center": Expected(),
    "item_bias": Expected("f", ("items",)),
    FACTORS: Expected("f", ("learned", "rank")),
    BYTES: Expected("i", ("learned", "rank")),
    SCALE: Expected("f", ("learned",), 0.0, float(np.finfo(np.float32).max) / 128),
    "learned_items": Expected("iu", ("learned",), 0),
    "supported": Expected("iu", ("items",), 0, 1),
    "new": Expected("iu", ("items",), 0, 1),
    "regularization": Expected("f", (), 0.0),
    "bias_regularization": Expected("f", (), 0.0),
}


@dataclass(frozen=True, eq=False)
class Billboard(Recommender):
    """A trained model: released values, the declared domain, the settings and the privacy statement.

    Nothing in it was computed from private rows without passing the gate, so it may be printed,
    published and shipped to devices. It holds no user: whoever is served brings their own ratings
    (joint differential privacy), which is also how new users are served. What is computed for one
    user is for their eyes only; show it to nobody else and feed it into nothing shared.

    Attributes
    ----------
    estimator, domain, arrays, lists, state
        As of a :class:`~hushrec.serving.lists.Recommender`; the arrays are read-only.
    privacy : PrivacyStatement
        What was released, at what cost, under which assumptions.
    public, judged
        A model of public ratings that counts beside this one, and what donors said of it: one entry a job,
        as of `hushrec.public.Judged`. Both are public, and no release (docs/guides/public.md).

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> model = hushrec.ItemBias().fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> first, second, *others = ratings.domain.items
    >>> len(model.recommend({first: 5}, n=3))                     # anybody's own ratings
    3
    >>> len(model.predict({first: 5}, [first, second]))
    2
    >>> lists = model.recommend_batch(ratings, n=3)               # a table: private, like the ratings
    >>> model.privacy.private
    True
    >>> model.save("model.hush")                                  # released values: may be published
    """

    privacy: PrivacyStatement
    judged: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.arrays, Arrays | Unpacked):  # read-only, and perhaps not yet read
            return
        for name in ("arrays", "state"):
            object.__setattr__(self, name, _read_only(getattr(self, name)))

    @classmethod
    def of(
        cls, estimator: Any, domain: Domain, found: Parts | Mapping[str, Any], privacy: PrivacyStatement
    ) -> Billboard:
        """Put together what a training returned; no model but a season's keeps a state to go on from."""
        parts, lists = Parts.of(found), None
        weekly = privacy.week is not None
        if parts.lists is not None:
            served, state = _read_only(parts.lists.serve), _read_only(parts.lists.state if weekly else {})
            lists = _beside(Recommender(estimator.lists, domain, served, state=state), parts.lists)
        state = parts.state if weekly else {}
        return _beside(cls(estimator, domain, parts.serve, privacy, lists=lists, state=state), parts)

    def __repr__(self) -> str:
        return f"Billboard({self.estimator!r}, {self.domain!r}, {self.privacy!r})"

    def _repr_html_(self) -> str:
        """Show the model, its settings and its promise in a notebook; released values only."""
        settings = [
            (key, f"{value:g}" if isinstance(value, float) else str(value))
            for key, value in settings_of(self.estimator).items()
        ]
        heading = f"{self.estimator.name}, {plural(self.domain.n_items, 'item')}"
        return notebook.table(heading, [("setting", "value"), *settings]) + self.privacy._repr_html_()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the model file, hexadecimal: it tells this model from every other, edited ones too."""
        return encode(*self._stored(int8=False))[-1].hex()

    def similar_items(self, item: Any, n: int = 10) -> list[tuple[Any, float]]:
        """Return the items most like one, or like several; refused where noise may be all that items share.

        That is so of private models that do not say how many of their ``directions`` stand out of it.
        """
        served = (self.lists or self).arrays
        if self.directions is None and self.privacy.private and "learned_items" not in served:
            raise InputError(
                "This model cannot tell what it learned of people's tastes from noise, so items cannot be"
                " compared; train for lists, or for both."
            )
        return super().similar_items(item, n)

    def continue_training(
        self,
        ratings: Ratings | Store,
        accountant: SeasonAccountant,
        *,
        since: Any = None,
        retire: bool = False,
        progress: bool = False,
        public: Any = None,
    ) -> Billboard:
        """The next week's model of a season, for this week's slice of its budget.

        Parameters
        ----------
        ratings : Ratings or Store
            The private rows as they are now: users may have come and gone. Their catalogue may have grown.
        accountant : SeasonAccountant
            ``SeasonAccountant.following(model.privacy, ledger=...)``.
        since : date, datetime, ISO 8601 text or number, optional
            Only ratings given since this declared date count; they must have been read with their times
            (docs/guides/time.md). It follows what changes, and gives no budget back.
        retire : bool
            Items that the catalogue lacks are dropped; else they are an error.
        progress : bool
            Show a bar with the number of releases made and the time, nothing else.
        public : PublicRatings, optional
            As of a first training: this week's public model is made anew.

        Raises
        ------
        InputError, BudgetError
            The model is of another season or data set, the week was run already, the season is closed or
            spent, or the catalogue lacks items: nothing is spent.
        """
        estimator = cast(Any, self.estimator)
        options = {"since": since, "retire": retire, "progress": progress, "public": public}
        return cast(Billboard, estimator.next_week(self, ratings, accountant, **options))

    @property
    def new_items(self) -> tuple[Any, ...]:
        """The items that :meth:`with_items` added, which no rating of anybody has touched yet."""
        fresh = self.arrays.get("new", np.zeros(0))
        return tuple(self.domain.items[place] for place in np.flatnonzero(fresh).tolist())

    def with_items(self, domain: Domain) -> Billboard:
        """Return the model with new items, which what is publicly known of them places among the others.

        Nothing is trained or charged; the others keep their bias and factors. A week's model that was grown
        serves users; the next week goes on from the model as it was trained.

        Parameters
        ----------
        domain : Domain
            The model's catalogue and more, with ``item_features`` of old items and new ones.

        Returns
        -------
        Billboard
            Its ``new_items`` are ranked like any other (docs/guides/item-features.md).

        Raises
        ------
        InputError
            The catalogue lacks an item of the model's, has none that is new, or new items have no features.

        Privacy
        -------
        Costs nothing: a function of released values and public features.
        """
        check_larger(self.domain, check_domain(domain))
        found = grown(self, domain)
        beside: dict[str, Any] = {"lists": found.lists, "public": found.public}
        return Billboard(self.estimator, domain, found.arrays, self.privacy, judged=self.judged, **beside)

    def save(self, path: str | Path, *, int8: bool = False) -> None:
        """Write the model file (docs/reference/format.md), whole or not at all.

        Parameters
        ----------
        path : str or Path
        int8 : bool
            Store item factors in one byte each, with a scale an item: a quarter of the size, a small loss.
        """
        check_kind(path, (str, os.PathLike), "path", "pass the name of a file, for example 'model.hush'")
        write(path, *self._stored(int8))

    def to_bytes(self, *, int8: bool = False) -> bytes:
        """Return the bytes that :meth:`save` writes."""
        return b"".join(encode(*self._stored(int8)))

    @staticmethod
    def load(path: str | Path, *, memory_map: bool = False) -> Billboard:
        """Read a model file.

        Parameters
        ----------
        path : str or Path
            A file that :meth:`save` wrote.
        memory_map : bool
            Leave the arrays in the file and read each when it is first used.

        Raises
        ------
        ModelFileError
            If the file is missing, is no model file, is damaged, or was written by a newer version.
        """
        check_kind(path, (str, os.PathLike), "path", "pass the name of a model file")
        return _model(str(path), read(path, memory_map=memory_map))

    @staticmethod
    def from_bytes(content: bytes) -> Billboard:
        """Read what :meth:`to_bytes` gave."""
        return _model("in memory", read(content))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled, copied and sent to other processes as the bytes of its model file."""
        return Billboard.from_bytes, (self.to_bytes(),)

    def _stored(self, int8: bool) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The header and the arrays of a model file."""
        declared, ids = pack(self.domain)
        estimator: Any = self.estimator
        sections, states = {"serve": _entry(estimator)}, {"state": self.state}
        served: dict[str, Mapping[str, NDArray[Any]]] = {"serve": self.arrays}
        if self.lists is not None:
            lists = _entry(estimator.lists) | {"share": estimator.lists_share}
            sections = {"serve": _entry(estimator.ratings), "lists": lists}
            served["lists"], states["state/lists"] = self.lists.arrays, self.lists.state
        for name, model in (("public", self), ("public/lists", self.lists)):
            if model is not None and model.public is not None:
                public = model.public
                sections[name] = _entry(public.model.estimator) | {"weight": public.weight}
                served[name] = public.model.arrays
        arrays = _flat(served)
        for key in [key for key in arrays if int8 and key.endswith(f"/{FACTORS}")]:
            section = key.removesuffix(FACTORS)
            arrays |= {f"{section}{name}": array for name, array in packed(arrays.pop(key)).items()}
        if self.state:
            sections["state"] = {}
        header: dict[str, Any] = {"sections": sections, "domain": declared, "privacy": self.privacy.to_dict()}
        if self.judged:
            header["judged"] = list(self.judged)
        return header, arrays | _flat(states | {"catalogue": ids})


def load(path: str | Path, *, memory_map: bool = False) -> Billboard:
    """Read a model file, as :meth:`Billboard.load` does.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> model = hushrec.ItemBias().fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> model.save("model.hush")
    >>> hushrec.load("model.hush").to_bytes() == model.to_bytes()
    True
    """
    return Billboard.load(path, memory_map=memory_map)


def _read_only(arrays: Mapping[str, Any]) -> Mapping[str, NDArray[Any]]:
    """Copies that cannot be written to."""
    found = {name: np.array(value) for name, value in arrays.items()}
    for array in found.values():
        array.setflags(write=False)
    return MappingProxyType(found)


def _beside(model: Model, parts: Parts) -> Model:
    """The model, with the other one that a training returned where that counts."""
    if not parts.weight:
        return model
    other = Recommender(model.estimator, model.domain, _read_only(parts.beside))
    return replace(model, public=PublicPart(other, parts.weight))


def _flat(sections: Mapping[str, Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The arrays of several sections as a file names them."""
    return {f"{section}/{name}": each for section, held in sections.items() for name, each in held.items()}


def _entry(estimator: Algorithm) -> dict[str, Any]:
    """Return what a section of a model file says of its model."""
    return {"model": estimator.name, "settings": settings_of(estimator), "scores": estimator.scores}


def _model(place: str, stored: ModelFile) -> Billboard:
    """The model of a file; refused where its header makes no sense."""
    try:
        return _of_stored(stored)
    except BAD_HEADER as error:
        if isinstance(error, ModelFileError):
            raise
        other_version(place, error)


def _of_stored(stored: ModelFile) -> Billboard:
    """The model that a file's sections hold; BAD_HEADER's errors where they hold none."""
    header, sections = stored.header, stored.header["sections"]
    domain = unpack(header["domain"], stored.arrays.section("catalogue"))
    served, lists = _with_public(stored, "serve", "public", "state", domain), None
    estimator: Any = served.estimator
    if "lists" in sections:
        lists = _with_public(stored, "lists", "public/lists", "state/lists", domain)
        both: Any = {"ratings": estimator, "lists": lists.estimator}
        both |= {"lists_share": sections["lists"]["share"], "like_threshold": both["lists"].like_threshold}
        estimator = ESTIMATORS["both"](**both)
    privacy = PrivacyStatement.from_dict(header["privacy"])
    judged = tuple(Judged.from_dict(entry).to_dict() for entry in header.get("judged", ()))
    if judged and not privacy.public_ratings:
        raise ValueError("donors judged a model that used no public ratings")
    more: dict[str, Any] = {"state": served.state, "public": served.public}
    board = Billboard(estimator, domain, served.arrays, privacy, judged, lists=lists, **more)
    board.__dict__["digest"] = stored.digest  # of the file as it is, whoever wrote it
    return board


def _with_public(stored: ModelFile, name: str, public: str, state: str, domain: Domain) -> Recommender:
    """The model of a section, with the public one beside it where there is one."""
    model = _section(stored, name, state, domain)
    if public not in stored.header["sections"]:
        return model
    beside = _section(stored, public, f"state/{public}", domain)
    weight = float(stored.header["sections"][public]["weight"])
    if not 0 < weight <= 1 or beside.scores != model.scores:
        raise ValueError("the public model does not go with the private one")
    return replace(model, public=PublicPart(beside, weight))


def _section(stored: ModelFile, name: str, state: str, domain: Domain) -> Recommender:
    """The model of a section; its arrays fit the catalogue, as those of its state do."""
    entry, arrays = stored.header["sections"][name], stored.arrays.section(name)
    with_factors = domain.n_items
    if "learned_items" in arrays:
        learned = np.asarray(arrays["learned_items"], dtype=np.int64)
        with_factors = len(learned)
        if (np.diff(learned, prepend=-1, append=domain.n_items) < 1).any():
            raise ValueError("the learned items do not fit the catalogue")
    factors = BYTES if BYTES in arrays else FACTORS
    settings = {key: tuple(v) if isinstance(v, list) else v for key, v in entry["settings"].items()}
    estimator = ESTIMATORS[entry["model"]].of(settings)
    if entry["scores"] != estimator.scores:
        raise ValueError(f"scores of {entry['model']} that are {entry['scores']!r}")
    rank = (*arrays.shape(factors), 0, 0)[1]
    sizes = {"items": domain.n_items, "learned": with_factors, "rank": rank}
    own, known = rank, f"{state}/item_factor_variance"
    if known in stored.arrays:  # columns of item features have none
        own = min(rank, (*stored.arrays.shape(known), 0, 0)[1])
    sizes |= {
        "own rank": own,
        "gramian": own * (own + 1) // 2 + 1,
        "pairs": with_factors * (with_factors + 1) // 2,
    }
    if f"{state}/item_components" in stored.arrays:
        sizes["components"] = (*stored.arrays.shape(f"{state}/item_components"), 0, 0)[1]
    needed = ["center", "item_bias", factors, *([SCALE] if factors == BYTES else [])]
    expected = Parts.of(estimator.expected)
    for section, held in ((name, {**_SERVED, **expected.serve}), (state, expected.state)):
        for each, what in held.items():
            if f"{section}/{each}" in stored.arrays or (section == name and each in needed):
                stored.arrays.expect(f"{section}/{each}", what, sizes)
    kept = stored.arrays.section(state) if "state" in stored.header["sections"] else {}
    return Recommender(estimator, domain, Unpacked(arrays) if factors == BYTES else arrays, state=kept)
