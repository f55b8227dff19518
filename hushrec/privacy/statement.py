"""The privacy statement: the promise as text and as JSON."""

import html
import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hushrec import __version__, notebook
from hushrec.errors import InputError
from hushrec.privacy.accounting import epsilon_of, total_mu
from hushrec.privacy.budget import Budget, composed_epsilon, guarantee, meaning, pure_epsilon
from hushrec.privacy.ledger_records import LedgerSummary
from hushrec.privacy.release import Release
from hushrec.privacy.season import Week
from hushrec.privacy.selection import RepeatAndSelect
from hushrec.progress import width

#: Reason why a model of public data is not private.
PUBLIC_DATA = "the data were declared public"

_PROMISE = ("unit", "relation", "epsilon", "delta")

_CHANGE = {
    ("user", "add-remove"): "all ratings of any one user were added or removed",
    ("user", "replace"): "all ratings of any one user were replaced by any others",
    ("rating", "add-remove"): "any one rating were added or removed",
    ("rating", "replace"): "any one rating were replaced by another",
}
_FLAGS = ("public_ratings", "item_features", "two_servers")
_PUBLISHED = " It holds for everybody but those who have published their ratings."


@dataclass(frozen=True)
class PrivacyStatement:
    """The promise and all facts behind it; made by `Accountant.statement`.

    Attributes
    ----------
    budget : Budget
        The promise.
    public : tuple of str
        Data that the promise takes as public.
    reasons : tuple of str
        Why the result is NOT PRIVATE, if it is not.
    secure_noise : bool
        Whether all noise came from the operating system's cryptographic generator.
    ledger : LedgerSummary or None
        Summary of all runs on the data set, with this one.
    exact_arithmetic : bool
        Whether sums have no rounding.
    exact_noise : bool
        Whether the noise is an exact sample of its law, rounded after it was added.
    week : Week or None
        The budget is then of all weeks of its season, and the releases are of this week.
    public_ratings : bool
        Whether donors have published their ratings.
    item_features : bool
        Whether this or an earlier week used item features.
    two_servers : bool
        Whether each of two servers added the noise of the releases.

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> model = hushrec.ItemBias().fit(ratings, hushrec.Accountant(hushrec.Budget(5, 1e-6)))
    >>> statement = model.privacy
    >>> statement.private, statement.budget.epsilon, len(statement.releases)
    (True, 5.0, 1)
    >>> print(statement.text())                                   # doctest: +ELLIPSIS
    PRIVACY STATEMENT...
    """

    budget: Budget
    releases: tuple[Release, ...]
    public: tuple[str, ...]
    reasons: tuple[str, ...]
    secure_noise: bool
    ledger: LedgerSummary | None
    version: str
    notes: tuple[str, ...] = ()
    exact_arithmetic: bool = False
    exact_noise: bool = False
    week: Week | None = None
    public_ratings: bool = False
    item_features: bool = False
    two_servers: bool = False

    @property
    def private(self) -> bool:
        """Whether there are no `reasons` against a guarantee."""
        return not self.reasons

    @property
    def spent_mu(self) -> float:
        """Mu of the releases together."""
        return total_mu(release.mu for release in self.releases)

    @property
    def spent_epsilon(self) -> float:
        """Epsilon of the releases together at the budget's delta."""
        return composed_epsilon(self.releases, self.budget.delta)

    @property
    def pure_epsilon(self) -> float | None:
        """Epsilon at delta 0; None if a release is not pure."""
        pure = self.releases and not any(release.failure for release in self.releases)
        return pure_epsilon(self.releases) if pure else None

    @property
    def joint_dp(self) -> str:
        """The promise in one sentence."""
        if not self.private:
            return "NOT PRIVATE: " + "; ".join(self.reasons) + "."
        return (
            "Joint differential privacy: the probability of anything that others are shown changes by a"
            " factor of at most e^epsilon, and delta, if"
            f" {_CHANGE[self.budget.unit, self.budget.relation]}. A user's list follows from released values,"
            " public tables of items and that user's own ratings."
            + _PUBLISHED * self.public_ratings
            + self._broken
        )

    @property
    def against(self) -> tuple[str, ...]:
        """The promises by opponent, where two servers trained."""
        return two_servers_promise(self.budget, self.spent_mu) if self.two_servers and self.private else ()

    @property
    def _broken(self) -> str:
        if not self.private or self.ledger is None or self.ledger.mu < math.inf:
            return ""
        return (
            f' NOT PRIVATE together with the other runs on data set "{self.ledger.dataset}", which were'
            " charged an infinite epsilon."
        )

    @property
    def stamp(self) -> str:
        """``"NOT PRIVATE, "`` or empty; other runs count."""
        return "" if self.private and not self._broken else "NOT PRIVATE, "

    def __repr__(self) -> str:
        return f"PrivacyStatement({self.stamp}{self.budget.spell_spent(self.releases)})"

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        head, values = zip(*[(name, str(value)) for name, value in self.budget.promise.items()], strict=True)
        brief = notebook.table("Privacy statement", [head, values], self.joint_dp)
        return f"{brief}<details><summary>all of it</summary><pre>{html.escape(self.text())}</pre></details>"

    def text(self, brief: bool = False) -> str:
        """Return the statement for a terminal; if `brief`, without releases, public data and arithmetic."""
        budget, unit, relation = self.budget, self.budget.unit, self.budget.relation
        lines = ["PRIVACY STATEMENT" if self.private else "PRIVACY STATEMENT: NOT PRIVATE"]
        lines += [] if brief and self.private else _wrapped(self.joint_dp)
        mu = "" if budget.failure or brief else f", mu = {budget.mu:.6g}"
        lines += _field("Promise", f"{budget}{mu}{self._broken and ' for this run alone.'}{self._broken}")
        if self.private and not self._broken:
            of_all = " (all models of the data set together)" * (self._together > budget.epsilon)
            lines += _field("Meaning", meaning(self._together, budget.delta, unit, relation) + of_all)
        if self.week is not None:
            lines += _field("Season", f"{self.week}; the promise covers all its models, past and future")
        spent = budget.spell(self.spent_epsilon)
        if self.releases and not (brief and spent == budget.spell(budget.epsilon)):
            lines += _field("Charged", spent + ("" if brief else f", mu = {self.spent_mu:.6g}"))
        if self.pure_epsilon is not None:
            lines += _field(
                "Pure",
                f"{guarantee(self.pure_epsilon, 0.0, unit, relation)}, every release being pure,"
                " unless the noise's cipher is broken",
            )
        for release in self.releases:
            if isinstance(release.mechanism, RepeatAndSelect):
                lines += _field("Choice", _choice(release.mechanism))
        if self.public_ratings:
            lines += _field("Donors", "not protected; the promise holds for all other users")
        for text in self.against:
            lines += _field("Note", text)
        if not brief:
            lines += self._details() + [line for note in self.notes for line in _field("Note", note)]
        if self.ledger is None:
            lines += _field("Ledger", "none: other trainings on these users are not counted here")
        else:
            same = self.ledger.budget is None and self.ledger.delta == budget.delta
            lines += _field("Ledger", f"{self.ledger}{', so delta is that of this run' * same}")
        return "\n".join(lines + ([] if brief else _field("Version", f"hushrec {self.version}")))

    @property
    def _together(self) -> float:
        book = self.ledger
        if book is None:
            return self.budget.epsilon
        limit = [] if book.budget is None else [book.budget.epsilon]
        return max(self.budget.epsilon, book.promised or 0.0, book.epsilon, *limit)

    def _details(self) -> list[str]:
        public = "; ".join(self.public) if self.public else "nothing is assumed to be public"
        lines = _table(self.releases) + _field("Public", public)
        source = "operating system's cryptographic generator" if self.secure_noise else "INJECTED, not secure"
        lines += _field("Noise", source)
        noise = "exact (ideal law, rounded)" if self.exact_noise else "floating point, not exact"
        sums = "exact integers" if self.exact_arithmetic else "floating point, not exact"
        return lines + _field("Arithmetic", f"noise: {noise}; sums: {sums}")

    def to_dict(self) -> dict[str, Any]:
        """Return the statement for JSON; infinity is the string "inf"."""
        result = {
            "private": self.private,
            "not_private_because": list(self.reasons),
            **{word: getattr(self.budget, word) for word in (*_PROMISE, "failure", "mu")},
            "joint_dp": self.joint_dp,
            "charged": {
                **self.budget.promise,
                "epsilon": self.spent_epsilon,
                "mu": self.spent_mu,
                "pure_epsilon": self.pure_epsilon,
            },
            "releases": [release.to_dict() for release in self.releases],
            "public": list(self.public),
            "notes": list(self.notes),
            "secure_noise": self.secure_noise,
            "exact_arithmetic": self.exact_arithmetic,
            "exact_noise": self.exact_noise,
            "ledger": None if self.ledger is None else self.ledger.to_dict(),
            "version": self.version,
            "season": None if self.week is None else self.week.to_dict(),
            **{flag: getattr(self, flag) for flag in _FLAGS},
        }
        entry: dict[str, Any] = _replaced(result, math.inf, "inf")
        return entry

    @classmethod
    def from_dict(cls, entry: dict[str, Any]) -> "PrivacyStatement":
        """Inverse of `to_dict`. Every key is needed; derived values are computed again."""
        try:
            entry = _replaced(entry, "inf", math.inf)
            budget = Budget(**{word: entry[word] for word in (*_PROMISE, "failure")})
            statement = cls(
                budget=budget,
                releases=tuple(Release.from_dict(release) for release in entry["releases"]),
                public=_strings(entry["public"]),
                notes=_strings(entry["notes"]),
                reasons=_strings(entry["not_private_because"]),
                secure_noise=_boolean(entry["secure_noise"]),
                ledger=None if entry["ledger"] is None else LedgerSummary.from_dict(entry["ledger"]),
                version=_strings([entry["version"]])[0],
                exact_arithmetic=_boolean(entry["exact_arithmetic"]),
                exact_noise=_boolean(entry["exact_noise"]),
                week=Week.from_dict(entry["season"], budget),
                **{flag: _boolean(entry[flag]) for flag in _FLAGS},
            )
            if _keys(_replaced(statement.to_dict(), "inf", math.inf)) != _keys(entry):
                raise TypeError("other keys")
            return statement
        except (KeyError, TypeError, AttributeError, RecursionError, InputError) as error:
            raise InputError(
                f"This is not a privacy statement of hushrec: {type(error).__name__}."
            ) from error


def epsilon_of_both(budget: Budget, mu: float) -> float:
    """Return epsilon by the noise of two servers, each of `mu`."""
    less = math.nextafter(budget.delta - budget.failure, 0.0)  # the sum of two noises is rounded
    return epsilon_of(mu / math.sqrt(2), less)


def two_servers_promise(budget: Budget, mu: float) -> tuple[str, str, str]:
    """Return the promises against both servers, either one, and all others; `mu` is of one server's noise."""
    others = guarantee(epsilon_of_both(budget, mu), budget.delta, budget.unit, budget.relation)
    return (
        "against both servers together nothing is promised: one of them must keep to the protocol",
        f"against either server, with any nodes, {budget}, by the other server's noise alone",
        f"against everybody else {others}, by the noise of both",
    )


def library_version() -> str:
    return __version__


def _wrapped(text: str, indent: int = 0, first: str = "") -> list[str]:
    return textwrap.wrap(first + text, width(), subsequent_indent=" " * indent, break_on_hyphens=False)


def warning_of_publishing(statement: PrivacyStatement, path: str) -> str:
    if statement.private or PUBLIC_DATA in statement.reasons:
        return ""
    return (
        f"Warning: {path} is NOT PRIVATE ({'; '.join(statement.reasons)}): anyone with the file may learn "
        "ratings that it was trained on."
    )


def _field(word: str, text: str) -> list[str]:
    return _wrapped(text, indent=12, first=f"{word + ':':<12}")


def _choice(chosen: RepeatAndSelect) -> str:
    return (
        f"the best of a random number of runs, {chosen.mean_runs:g} on average, was released, and nothing of"
        f" the others. Each run alone keeps epsilon = {chosen.run_epsilon:.4g} at delta = {chosen.delta:g},"
        " and its noise is what the table shows; the choice costs the rest of the promise, which holds but"
        f" for a chance of {chosen.failure:g}. Beside other releases the choice counts as mu ="
        f" {chosen.mu:.4g}, far more than a training of the same epsilon: whatever else is trained on this"
        " data set makes its epsilon grow by more than its own, so use this model (docs/proofs/selection.md)"
    )


def _table(releases: Iterable[Release]) -> list[str]:
    """Return a line a release; numbered ones ("item counts 1", "item counts 2") share a line."""
    groups: dict[tuple[str, Release], int] = {}
    for release in releases:
        stem = release.label.rstrip("0123456789 ") or release.label
        twin = Release(stem, release.mechanism, release.sensitivity, release.unit, release.relation)
        groups[stem, twin] = groups.get((stem, twin), 0) + 1
    if not groups:
        return _field("Released", "nothing")
    lines = [f"{'Released:':<33}{'noise':<18}{'sensitivity':>11}{'noise sd':>10}{'mu':>8}"]
    for (stem, release), count in groups.items():
        label = stem if count == 1 else f"{stem} (each of {count})"
        head, *rest = textwrap.wrap(label, 30)
        kind = type(release.mechanism).__name__
        lines.append(
            f"  {head:<31}{kind:<18}{release.sensitivity:>11.4g}{release.noise_sd:>10.4g} {release.mu:>7.3g}"
        )
        lines += [f"    {line}" for line in rest]
    return lines


def _replaced(entry: Any, old: Any, new: Any) -> Any:
    if isinstance(entry, dict):
        return {key: _replaced(value, old, new) for key, value in entry.items()}
    if isinstance(entry, list):
        return [_replaced(value, old, new) for value in entry]
    return new if type(entry) is type(old) and entry == old else entry


def _keys(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {key: _keys(value) for key, value in entry.items()}
    return [_keys(value) for value in entry] if isinstance(entry, list) else None


def _strings(entry: Any) -> tuple[str, ...]:
    if not isinstance(entry, list) or not all(isinstance(word, str) for word in entry):
        raise TypeError("not a list of strings")
    return tuple(entry)


def _boolean(entry: Any) -> bool:
    if not isinstance(entry, bool):
        raise TypeError("not a boolean")
    return entry
