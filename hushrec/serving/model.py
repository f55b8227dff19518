"""A trained model, which holds released values only."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, Unpack, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushrec import notebook
from hushrec.checks import check_kind, plural, settings_of, shown
from hushrec.data import Domain, Ratings, Store
from hushrec.data.catalogue import pack, unpack
from hushrec.data.domain import check_domain
from hushrec.errors import ModelFileError
from hushrec.privacy import PrivacyStatement, SeasonAccountant
from hushrec.registry import ESTIMATORS
from hushrec.serving.item_rows import ItemRows, compact, without_rows_of_zeros
from hushrec.serving.judged import Judged
from hushrec.serving.modelfile import (
    BAD_HEADER,
    ModelFile,
    encode,
    other_version,
    read,
    write_atomically,
)
from hushrec.serving.new_items import check_larger, grown
from hushrec.serving.recommend import Algorithm, PublicPart, Recommender, RuleOptions
from hushrec.serving.similar import Similar, similar_batch, similar_items
from hushrec.serving.stored_arrays import check_arrays, from_stored, to_stored
from hushrec.types import ModelArrays, Part

Served = TypeVar("Served", bound=Recommender)


@dataclass(frozen=True, eq=False)
class Model(Recommender):
    """A trained model: released values, the declared domain, the settings and the privacy statement.

    It may be printed, published and shipped to devices. It holds no user: users, new ones too, supply their
    own ratings (joint differential privacy). The result for one user is private: show it to that user only.

    Attributes
    ----------
    estimator, domain, arrays, lists, state, public
        As in a :class:`~hushrec.serving.recommend.Recommender`; the arrays are read-only.
    privacy : PrivacyStatement
    judged
        The donors' judgement of ``public``, as a `hushrec.serving.judged.Judged`; None without.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> model = hushrec.ItemBias().fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> first, second, *others = ratings.domain.items
    >>> len(model.recommend({first: 5}, n=3))                     # a user's own ratings
    3
    >>> len(model.predict({first: 5}, [first, second]))
    2
    >>> lists = model.recommend_batch(ratings, n=3)               # a table: private, like the ratings
    >>> model.privacy.private
    True
    >>> model.save("model.hush")                                  # released values: may be published
    """

    privacy: PrivacyStatement
    judged: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("arrays", "state"):
            object.__setattr__(self, name, _read_only(getattr(self, name)))
        if self.public is not None and (held := self.public.model.arrays) is not _read_only(held):
            model = replace(self.public.model, arrays=_read_only(held))
            object.__setattr__(self, "public", replace(self.public, model=model))

    @classmethod
    def of(
        cls, estimator: Any, domain: Domain, parts: ModelArrays | Mapping[str, Any], privacy: PrivacyStatement
    ) -> Model:
        """Build the model of a training; it keeps its state in a season only."""
        parts, weekly, lists = ModelArrays.of(parts), privacy.week is not None, None
        if parts.lists is not None:
            state = _read_only(parts.lists.state if weekly else {})
            served = _read_only(parts.lists.serve)
            lists = Recommender(estimator.lists, domain, served, state=state, parts=parts.lists.parts)
        state = parts.state if weekly else {}
        return cls(estimator, domain, parts.serve, privacy, lists=lists, state=state, parts=parts.parts)

    def __repr__(self) -> str:
        return f"Model({self.privacy.stamp}{self.privacy.budget}, {self.estimator!r}, {self.domain!r})"

    def _repr_html_(self) -> str:
        settings = [
            (key, f"{value:g}" if isinstance(value, float) else str(value))
            for key, value in settings_of(self.estimator).items()
        ]
        heading = f"{self.estimator.name}, {plural(self.domain.n_items, 'item')}"
        return notebook.table(heading, [("setting", "value"), *settings]) + self.privacy._repr_html_()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the model file, hexadecimal."""
        return encode(*self._stored(int8=False))[-1].hex()

    def similar_items(self, item: Any, n: int = 10, **rules: Unpack[RuleOptions]) -> list[Similar]:
        """Return at most n items that go together with an item, or with a list of them; public.

        They are ranked as in the list of a user who likes only the given ones.

        Parameters
        ----------
        item : item id or list of them
        n : int
        **rules
            ``attributes``, ``where``, ``at_most`` and ``boost`` as in :meth:`recommend`.

        Raises
        ------
        InputError
            An item is not in the catalogue, or the model knows nothing of any of them.
        """
        return similar_items(self, item, n, rules)

    def similar_batch(self, n: int = 10, **rules: Unpack[RuleOptions]) -> pa.Table:
        """Return the lists of :meth:`similar_items` for every item of the catalogue; public.

        Items that the model knows nothing of have no list.

        Returns
        -------
        pyarrow.Table
            Columns ``item``, ``similar``, ``rank`` (from 1), ``score``, ``by`` (the sources, as text) and,
            where it exists, the ``title`` of the similar item.
        """
        return similar_batch(self, n, rules)

    def continue_training(
        self,
        ratings: Ratings | Store,
        accountant: SeasonAccountant,
        *,
        since: Any = None,
        drop_missing_items: bool = False,
        progress: bool = False,
        public: Any = None,
    ) -> Model:
        """Return the next week's model of a season, for this week's slice of its budget.

        Parameters
        ----------
        ratings : Ratings or Store
            The current private rows. Their catalogue may have grown.
        accountant : SeasonAccountant
            ``SeasonAccountant.following(model.privacy, ledger=...)``.
        since : date, datetime, ISO 8601 text or number, optional
            Only ratings since this declared date count; read them with their times (docs/guides/time.md).
        drop_missing_items : bool
            Items that the catalogue lacks are dropped; else they are an error.
        progress : bool
        public : PublicRatings, optional
            As in a first training.

        Raises
        ------
        InputError, BudgetError
            The model is of another season or data set, the week was run already, the season is closed or
            spent, or the catalogue lacks items. Nothing is spent.

        Privacy
        -------
        Unit: user. Relation: add-remove. The season's budget covers all weeks (docs/proofs/seasons.md).
        """
        estimator: Any = self.estimator
        options: Any = {"since": since, "drop_missing_items": drop_missing_items, "public": public}
        return cast(Model, estimator.next_week(self, ratings, accountant, progress=progress, **options))

    @property
    def new_items(self) -> tuple[Any, ...]:
        """The items that :meth:`with_items` added."""
        fresh = self.arrays.get("new", np.zeros(0))
        return tuple(self.domain.items[place] for place in np.flatnonzero(fresh).tolist())

    def with_items(self, domain: Domain) -> Model:
        """Return the model with new items, placed by their public features (docs/guides/article-table.md).

        The other items keep their bias and factors. In a season, the next week continues from the model as it
        was trained.

        Parameters
        ----------
        domain : Domain
            The model's catalogue and more, with ``item_features`` of old items and new ones.

        Privacy
        -------
        No cost: a function of released values and public features.
        """
        check_larger(self.domain, check_domain(domain))
        larger = grown(self, domain)
        others: dict[str, Any] = {"lists": larger.lists, "public": larger.public, "parts": self.parts}
        return Model(self.estimator, domain, larger.arrays, self.privacy, judged=self.judged, **others)

    def save(self, path: str | Path, *, int8: bool = False) -> None:
        """Write the model file (docs/reference/format.md), whole or not at all.

        With ``int8``, item factors have one byte each: a quarter of the size.
        """
        check_kind(path, (str, os.PathLike), "path", "pass the name of a file, for example 'model.hush'")
        write_atomically(Path(path), encode(*self._stored(int8)))

    def to_bytes(self, *, int8: bool = False) -> bytes:
        """Return the file's bytes."""
        return b"".join(encode(*self._stored(int8)))

    @staticmethod
    def from_bytes(content: bytes) -> Model:
        """Read the file's bytes."""
        return _model(read(content))

    def __reduce__(self) -> tuple[Any, ...]:
        return Model.from_bytes, (self.to_bytes(),)

    def _stored(self, int8: bool) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        declared, ids = pack(self.domain)
        estimator: Any = self.estimator
        sections, states = {"serve": _entry(estimator, self.parts)}, {"state": self.state}
        served: dict[str, Mapping[str, NDArray[Any]]] = {"serve": self.arrays}
        if self.lists is not None:
            lists = _entry(estimator.lists, self.lists.parts) | {"share": estimator.lists_share}
            sections = {"serve": _entry(estimator.ratings), "lists": lists}
            served["lists"], states["state/lists"] = self.lists.arrays, self.lists.state
        if self.public is not None:
            sections["public"] = _entry(self.public.model.estimator) | {"weight": self.public.weight}
            served["public"] = self.public.model.arrays
        arrays = _flat({name: to_stored(held, int8) for name, held in served.items()})
        if self.state:
            sections["state"] = {}
        header: dict[str, Any] = {"sections": sections, "domain": declared, "privacy": self.privacy.to_dict()}
        if self.judged is not None:
            header["judged"] = self.judged
        return header, arrays | _flat(
            {name: _stored_state(held) for name, held in states.items()} | {"catalogue": ids}
        )


def load(path: str | Path) -> Model:
    """Read a model file.

    Raises
    ------
    ModelFileError
        The file is missing, damaged, no model file, or of another version.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> model = hushrec.ItemBias().fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> model.save("model.hush")
    >>> hushrec.load("model.hush").to_bytes() == model.to_bytes()
    True
    """
    check_kind(path, (str, os.PathLike), "path", "pass the name of a model file")
    return _model(read(path))


def _read_only(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(arrays, MappingProxyType):  # already read-only
        return arrays
    copies = without_rows_of_zeros(
        {name: value if isinstance(value, ItemRows) else np.array(value) for name, value in arrays.items()}
    )
    for array in copies.values():
        for part in (array.rows, array.items) if isinstance(array, ItemRows) else (array,):
            part.setflags(write=False)
    return MappingProxyType(copies)


def _stored_state(state: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    by_item = {name: compact(array) for name, array in state.items() if name.startswith("item_")}
    return to_stored({**state, **by_item}, int8=False)


def _flat(sections: Mapping[str, Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    return {f"{section}/{name}": array for section, held in sections.items() for name, array in held.items()}


def _entry(estimator: Algorithm, parts: Sequence[Part] = ()) -> dict[str, Any]:
    entry = {"model": estimator.name, "settings": settings_of(estimator), "scores": estimator.scores}
    return entry | ({"parts": [list(part) for part in parts]} if parts else {})


def _model(stored: ModelFile) -> Model:
    try:
        return _of_stored(stored)
    except ModelFileError:
        raise
    except BAD_HEADER as error:
        other_version(stored.place, error)


def _of_stored(stored: ModelFile) -> Model:
    """Raises one of BAD_HEADER where the header makes no sense."""
    header, sections = stored.header, stored.header["sections"]
    domain = unpack(header["domain"], stored.section("catalogue"))
    served, public, lists = _section(stored, "serve", "state", domain), None, None
    estimator: Any = served.estimator
    if "lists" in sections:
        lists = _section(stored, "lists", "state/lists", domain)
        both: Any = {"ratings": estimator, "lists": lists.estimator}
        both |= {"lists_share": sections["lists"]["share"], "like_threshold": both["lists"].like_threshold}
        estimator = ESTIMATORS["both"](**both)
    if "public" in sections:
        other = _section(stored, "public", "state/public", domain)
        weight = float(sections["public"]["weight"])
        if not 0 < weight <= 1 or {served.scores, other.scores} != {"ratings"}:
            raise ValueError("the public model does not fit the private one")
        public = PublicPart(other, weight)
    privacy = PrivacyStatement.from_dict(header["privacy"])
    judged = Judged.from_dict(header["judged"]).to_dict() if "judged" in header else None
    if judged is not None and not privacy.public_ratings:
        raise ValueError("donors judged a model that used no public ratings")
    more: dict[str, Any] = {"state": served.state, "public": public, "parts": served.parts}
    model = Model(estimator, domain, served.arrays, privacy, judged, lists=lists, **more)
    model.__dict__["digest"] = stored.digest  # of the file as it is, whoever wrote it
    return model


def _section(stored: ModelFile, name: str, state: str, domain: Domain) -> Recommender:
    entry, n_items = stored.header["sections"][name], domain.n_items
    settings = {key: tuple(v) if isinstance(v, list) else v for key, v in entry["settings"].items()}
    if entry["model"] not in ESTIMATORS:
        raise ModelFileError(
            f"The model file is of {shown(entry['model'])}, which is not among the models here; if it is your"
            " own, import the module that calls hushrec.registry.register."
        )
    estimator = ESTIMATORS[entry["model"]].of(settings)
    if entry["scores"] != estimator.scores:
        raise ValueError(f"scores of {entry['model']} that are {entry['scores']!r}")
    expected = ModelArrays.of(estimator.expected)
    weekly = "state" in stored.header["sections"] and name in ("serve", "lists")
    check_arrays(stored, name, state, expected if weekly else ModelArrays(expected.serve), n_items)
    states = from_stored(stored.section(state), n_items, whole=True) if weekly else {}
    parts = tuple(
        Part(str(part), float(weight), int(count)) for part, weight, count in entry.get("parts", ())
    )
    return Recommender(
        estimator, domain, from_stored(stored.section(name), n_items), state=states, parts=parts
    )
