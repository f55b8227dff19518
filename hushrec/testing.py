"""The contract of a private estimator, as checks that anybody's passes or fails: ours are held to the same.

    from hushrec.testing import check_estimator
    check_estimator(MyEstimator(clip=0.1), Budget(3, 1e-5))

A gate refuses what is not bounded as planned, but it cannot see whether a bound is true. That is what these
checks look for, on hostile users and on data sets that differ by one of them:

* `check_plan`: what is released, charged and drawn is the plan, and nothing else.
* `check_sensitivity`: no release moves by more than its declared sensitivity between neighbours; and, unless
  it is listed as loose, each of them attains it.
* `check_replay`: fed with the noisy releases of a run, a training on any other data gives the same bytes.
* `check_two_processes`: the same of a process that started before the rows existed, and never sees one: it
  also builds the statement, writes the model file and prints.

A check that fails raises AssertionError, in words. Passing is evidence; the proof is written down.
"""

from __future__ import annotations

import io
import math
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from fractions import Fraction
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from hushrec.billboard import Billboard
from hushrec.data import Domain, Ratings
from hushrec.errors import HushrecError
from hushrec.estimator import Estimator
from hushrec.gate import LocalGate
from hushrec.kernels.threads import one_blas_thread
from hushrec.privacy import Accountant, Budget, Laplace, Plan, Release
from hushrec.privacy.noise import NoiseSource
from hushrec.privacy.testing import NoiseCall, RecordingNoise, ReplayNoise, SeededNoise

#: A small catalogue, so that few users give every release something to do.
DOMAIN = Domain(tuple(f"i{number}" for number in range(7)), (1, 5), max_ratings_per_user=6)
#: float64 tells from the sensitivity what is further from it than this.
_TELLS = 1e-12
#: What whoever is on the public side learns of a failure on the private one.
PRIVATE_FAILURE = "The training failed on the private side; what failed is told there only."

Rows = list[tuple[Any, Any, Any]]


# ---------------------------------------------------------------------- users who mean harm


def hostile_rows(user: str, rng: np.random.Generator, kind: int, domain: Domain = DOMAIN) -> Rows:
    """Rows of one user: ordinary (kind 0), at the ends of the range (1, 2), or not usable (3, 4)."""
    low, high = domain.low, domain.high
    most = min(domain.n_items, 7)
    chosen = rng.permutation(domain.n_items)[: int(rng.integers(1, most + 1))]
    items = [domain.items[number] for number in chosen]
    if kind == 0:
        return [(user, item, float(rng.uniform(low, high))) for item in items]
    if kind == 1:
        end = high if rng.random() < 0.5 else low
        return [(user, item, end) for item in domain.items]
    if kind == 2:
        return [(user, item, (low, high)[number % 2]) for number, item in enumerate(items)]
    bad = [math.nan, math.inf, -math.inf, 1e308, np.nextafter(high, math.inf) + 1e-6 * abs(high), None]
    rows: Rows = [(user, item, bad[int(rng.integers(len(bad)))]) for item in items]
    if kind == 3:
        rows += [(user, "unknown", low), (user, None, low), (user, items[0], high), (user, items[0], low)]
    return rows


def hostile_users(rng: np.random.Generator, n_users: int = 6, domain: Domain = DOMAIN) -> dict[str, Rows]:
    """Users by id, of all kinds."""
    return {
        f"u{number}": hostile_rows(f"u{number}", rng, int(rng.integers(0, 5)), domain)
        for number in range(n_users)
    }


def ratings_of(users: Mapping[str, Rows], domain: Domain = DOMAIN) -> Ratings:
    """Ratings of some users, through the same door as a person's file."""
    rows = [row for rows in users.values() for row in rows]
    columns = [list(column) for column in zip(*rows)] if rows else [[], [], []]
    return Ratings.from_any(tuple(columns), domain)


def neighbours(
    relation: str, pairs: int, seed: int, domain: Domain = DOMAIN
) -> Iterator[tuple[Ratings, list[Ratings], int]]:
    """Data sets and their neighbours: each of their users left out, or replaced by another row."""
    rng = np.random.default_rng(seed)
    done = 0
    while done < pairs:
        users = hostile_users(rng, domain=domain)
        others = []
        for name in users:
            changed = {key: rows for key, rows in users.items() if key != name}
            if relation == "replace":
                changed = users | {name: hostile_rows(name, rng, int(rng.integers(0, 5)), domain)}
            others.append(ratings_of(changed, domain))
        yield ratings_of(users, domain), others, int(rng.integers(2**31))
        done += len(others)


# ---------------------------------------------------------------------- the checks


def check_estimator(
    estimator: Estimator,
    budget: Budget,
    *,
    domain: Domain = DOMAIN,
    pairs: int = 60,
    loose: Iterable[str] = (),
) -> None:
    """Every check below, at moderate length.

    Parameters
    ----------
    estimator : Estimator
        With clips small enough that hostile users reach them.
    budget : Budget
        Finite; both relations are tried where the unit is "user".
    domain : Domain
    pairs : int
        Neighbouring pairs a relation.
    loose : iterable of str
        Beginnings of the labels of releases whose sensitivity is known not to be attained.

    Examples
    --------
    >>> from hushrec.testing import check_estimator
    >>> check_estimator(hushrec.Popular(), hushrec.Budget(3, 1e-5), pairs=4)      # raises where it is not
    """
    for relation in ("add-remove", "replace") if budget.unit == "user" else (budget.relation,):
        one = Budget(budget.epsilon, budget.delta, budget.unit, relation)
        check_plan(estimator, one, domain=domain)
        check_sensitivity(estimator, one, domain=domain, pairs=pairs, loose=loose)
        check_replay(estimator, one, domain=domain, pairs=pairs // 4)
    with PublicSide() as public:
        check_two_processes(public, estimator, budget, domain=domain)


def check_plan(estimator: Estimator, budget: Budget, *, domain: Domain = DOMAIN, seed: int = 0) -> None:
    """What is released, what is charged and what noise is drawn are the plan's, in its order."""
    noise = RecordingNoise(SeededNoise(seed))
    accountant = Accountant(budget, noise=noise)
    plan = estimator.plan(budget, domain)
    plan.check()
    estimator.fit(ratings_of(hostile_users(np.random.default_rng(seed), domain=domain), domain), accountant)
    assert accountant.releases == plan.releases, "what was charged is not what was planned"
    drawn = list(dict.fromkeys(call.label for call in noise.calls))
    assert drawn == [release.label for release in plan.releases], "noise was drawn for other releases"


def check_sensitivity(
    estimator: Estimator,
    budget: Budget,
    *,
    domain: Domain = DOMAIN,
    pairs: int = 60,
    seed: int = 7,
    loose: Iterable[str] = (),
) -> dict[str, float]:
    """No release moves by more than its sensitivity; under add-remove, each attains it (or is ``loose``).

    Returns
    -------
    dict
        The largest move of each release, in units of its sensitivity.
    """
    plan = estimator.plan(budget, domain)
    releases = {release.label: release for release in plan.releases}
    worst = dict.fromkeys(releases, 0.0)
    for ratings, others, noise_seed in neighbours(budget.relation, pairs, seed, domain):
        calls = transcript(estimator, plan, ratings, 1, SeededNoise(noise_seed))
        for other in others:
            again = replay(estimator, plan, other, 1, calls)
            for label, distance in moves(calls, again, releases).items():
                assert math.isfinite(distance), f"release {label!r} holds what is no number"
                if distance > 1 - _TELLS:
                    excess = exact_excess(calls, again, label, releases[label])
                    assert excess <= 0, f"release {label!r} moved by {distance:.9g} of its sensitivity"
                worst[label] = max(worst[label], distance)
    if budget.relation == "add-remove":
        for label, distance in worst.items():
            tight = not label.startswith(tuple(loose))
            assert distance >= 0.999 or not tight, (
                f"release {label!r} moved by {distance:.9f} of its sensitivity only: noise is wasted"
            )
    return worst


def check_replay(
    estimator: Estimator, budget: Budget, *, domain: Domain = DOMAIN, pairs: int = 15, seed: int = 3
) -> None:
    """The model is a function of the releases: other data, fed with them, give the same bytes."""
    rng = np.random.default_rng(seed)
    for number in range(pairs):
        noise = RecordingNoise(SeededNoise(number))
        first = ratings_of(hostile_users(rng, int(rng.integers(0, 7)), domain), domain)
        other = ratings_of(hostile_users(rng, int(rng.integers(0, 30)), domain), domain)
        model = estimator.fit(first, Accountant(budget, noise=noise), seed=1)
        with warnings.catch_warnings(action="error"):
            again = estimator.fit(other, Accountant(budget, noise=ReplayNoise(noise.calls)), seed=1)
        assert model.to_bytes() == again.to_bytes(), "the model knows more of the rows than was released"


def check_two_processes(
    public: PublicSide, estimator: Estimator, budget: Budget, *, domain: Domain = DOMAIN, seed: int = 5
) -> None:
    """A process without rows, given the noisy values, publishes the same; message sizes tell nothing more.

    They may depend on what was released before: for other rows the same values are released again.
    """
    recorded = RecordingNoise(SeededNoise(seed))
    sources = (lambda: recorded), (lambda: ReplayNoise(recorded.calls))
    sizes = []
    for users, source in zip((hostile_users(np.random.default_rng(seed), 9, domain), {}), sources):
        ratings = ratings_of(users, domain)
        public.begin(estimator, budget, domain)
        noise = Forwarding(source(), public)
        model = estimator.fit(ratings, Accountant(budget, noise=noise), seed=1)
        alone, here = public.end(), published(model, public.announce)
        assert alone.model == here.model, "the public side needs more than what was released"
        assert alone.printed == here.printed, "what is printed needs more than what was released"
        sizes.append([(call.label, call.output.shape, str(call.output.dtype)) for call in noise.calls])
    assert sizes[0] == sizes[1], "the number or size of what is released depends on the rows"


# ---------------------------------------------------------------------- two runs compared


def transcript(
    estimator: Estimator, plan: Plan, ratings: Ratings, seed: int, noise: NoiseSource
) -> list[NoiseCall]:
    """Every value that reached the gate in one run, with what came out."""
    recorder = RecordingNoise(noise)
    gate = LocalGate(Accountant(plan.budget, noise=recorder), plan)
    with one_blas_thread():
        estimator.train(estimator.users(ratings.rated()), gate, seed)
    return recorder.calls


def replay(
    estimator: Estimator, plan: Plan, ratings: Ratings, seed: int, calls: Sequence[NoiseCall]
) -> list[NoiseCall]:
    """What another data set would have sent to the gate, had the world seen the same releases."""
    return transcript(estimator, plan, ratings, seed, ReplayNoise(calls))


def moves(
    first: Sequence[NoiseCall], second: Sequence[NoiseCall], releases: Mapping[str, Release]
) -> dict[str, float]:
    """How far each release moved, in units of its sensitivity (streamed blocks taken together)."""
    powers: dict[str, float] = {}
    for one, other in zip(first, second, strict=True):
        assert (one.kind, one.label) == (other.kind, other.label), "releases differ in kind or order"
        change = np.abs(one.value.astype(np.float64) - other.value) * _weight(one, releases[one.label])
        powers[one.label] = powers.get(one.label, 0.0) + float((change ** _power(one)).sum())
    roots = {call.label: _power(call) for call in first}
    return {label: power ** (1 / roots[label]) for label, power in powers.items()}


def exact_excess(
    first: Sequence[NoiseCall], second: Sequence[NoiseCall], label: str, release: Release
) -> Fraction:
    """Norm of the move, to its power, less that of the sensitivity: in integers, without any rounding."""
    total = Fraction(0)
    for one, other in zip(first, second, strict=True):
        if one.label != label:
            continue
        power = _power(one)
        weight = np.broadcast_to(_weight(one, release) * release.sensitivity, one.value.shape)
        for before, after, factor in zip(one.value.flat, other.value.flat, weight.flat):
            if before != after:
                change = abs(Fraction(float(before)) - Fraction(float(after)))
                total += _simple(float(factor) ** power) * change**power
    return total - Fraction(release.sensitivity) ** (1 if isinstance(release.mechanism, Laplace) else 2)


def _power(call: NoiseCall) -> int:
    return 2 if call.kind == "gaussian" else 1


def _weight(call: NoiseCall, release: Release) -> np.ndarray:
    """What a move of an entry counts, in sensitivities: less where the entry gets more noise."""
    multiplier = getattr(release.mechanism, "noise_multiplier", 1.0)
    return np.asarray(multiplier / call.amount)


def _simple(square: float) -> Fraction:
    """A factor as it is meant: 1, 2 (an entry off the diagonal), or what was declared."""
    near = Fraction(square).limit_denominator(64)
    return near if abs(float(near) - square) < 1e-12 * square else Fraction(square)


# ---------------------------------------------------------------------- two processes


class Published(NamedTuple):
    """What the world gets of a training: the bytes of the model file, and what was printed."""

    model: bytes
    printed: str


def report(model: Billboard, file: Path) -> None:
    """Print the privacy statement of a model, and where it is."""
    print(f"{file}\n{model.privacy}")


def published(model: Billboard, announce: Callable[[Billboard, Path], None]) -> Published:
    """Write the model file and announce it, in a folder that goes when both are read."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        file = Path("model.hush")
        model.save(file)
        with redirect_stdout(io.StringIO()) as printed, redirect_stderr(printed):
            announce(model, file)
        return Published(file.read_bytes(), printed.getvalue())


class PublicSide:
    """A process that runs trainings without any row, from noisy values that arrive through a pipe.

    Start it before there are rows; it serves any number of trainings, one after the other.

    Parameters
    ----------
    announce : callable
        Prints what is to be said of a model and its file; a function of a module.
    """

    def __init__(self, announce: Callable[[Billboard, Path], None] = report) -> None:
        self.announce = announce

    def __enter__(self) -> Self:
        spawn = get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_public_side, args=(theirs, self.announce), daemon=True)
        self._process.start()
        theirs.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._process.join(timeout=5)
        self._process.kill()

    def begin(self, estimator: Estimator, budget: Budget, domain: Domain) -> None:
        """Start a training there: it knows plan, settings, domain and seed."""
        self._connection.send((estimator, budget, domain))

    def send(self, released: np.ndarray) -> None:
        """Hand over what was released."""
        self._connection.send(released)

    def fail(self) -> None:
        """Say that the private side cannot go on, and nothing else."""
        self._connection.send(None)

    def end(self) -> Published:
        """The model file that the public side wrote, and what it printed.

        Raises
        ------
        HushrecError
            The training failed there, in the words of that side.
        """
        if not self._connection.poll(60):
            raise AssertionError("the public side waits for a release that the private side did not make")
        found: Published | str = self._connection.recv()
        if isinstance(found, str):
            raise HushrecError(found)
        return found


class Forwarding(RecordingNoise):
    """A noise source that hands what it makes noisy to the public side."""

    def __init__(self, source: NoiseSource, public: PublicSide) -> None:
        super().__init__(source)
        self._public = public

    def _call(self, kind: str, value: np.ndarray, amount: Any, label: str) -> np.ndarray:
        released = super()._call(kind, value, amount, label)
        self._public.send(released)
        return released


class _Arriving:
    """A noise source on the public side: what was released there arrives here."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add_gaussian(self, value: np.ndarray, sd: npt.ArrayLike, label: str) -> np.ndarray:
        released: np.ndarray | None = self._connection.recv()
        if released is None:
            raise HushrecError(PRIVATE_FAILURE)
        if released.shape != value.shape:
            raise HushrecError(f"Release {label!r} has another shape than without rows.")
        return released

    add_laplace = flip = add_gaussian


def _public_side(connection: Connection, announce: Callable[[Billboard, Path], None]) -> None:
    while True:
        try:
            estimator, budget, domain = connection.recv()
        except EOFError:
            return
        try:
            accountant = Accountant(budget, noise=_Arriving(connection))
            model = estimator.fit(ratings_of({}, domain), accountant, seed=1)
            connection.send(published(model, announce))
        except HushrecError as error:
            connection.send(str(error))
