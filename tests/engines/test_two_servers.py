"""Two servers: the local gate's model, what a server sees, kills, lies, and refusals."""

import contextlib
import itertools
import math
import os
import shutil
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import hushrec
from hushrec.cli.agree import at_most, small
from hushrec.engines.two_servers import book, device, replay
from hushrec.engines.two_servers.agreement import Agreement, run_of
from hushrec.engines.two_servers.messages import Held, Sum
from hushrec.errors import HushrecError, InputError
from hushrec.kernels.threads import one_blas_thread
from hushrec.network.messages import Refusal
from hushrec.privacy import Accountant, Budget, Ledger
from hushrec.privacy.accounting import epsilon_of
from hushrec.training.gate import LocalGate
from hushrec.training.named import choose
from tests.engines.servers import PEER, KeptNoise, World, server

ALS = hushrec.PrivateALS(
    rank=3, iterations=1, bias_rounds=1, n_users=12, tuning=hushrec.PrivateALS.Tuning(start="spectral")
)
ESTIMATORS = {
    "item-bias": hushrec.ItemBias(),
    "popular": hushrec.Popular(),
    "private-als": ALS,
    "private-eigenrec": hushrec.PrivateEigenRec(
        rank=2, iterations=2, n_users=12, tuning=hushrec.PrivateEigenRec.Tuning(matrix_share=0.1)
    ),
    "both": hushrec.Both(
        ratings=ALS, lists=hushrec.PrivateEigenRec(rank=2, iterations=3, n_users=12), like_threshold=4.0
    ),
}


#: Five releases in three rounds.
BIASES = hushrec.PrivateALS(rank=0, features=False, bias_rounds=2, n_users=4)


@pytest.fixture(scope="module")
def ratings():
    return hushrec.realistic(12, 9, 70, seed=1)


@pytest.fixture(scope="module")
def few():
    return hushrec.realistic(4, 6, 15, seed=1)


class SumOfBoth:
    """The noise source of a local gate that is given what two servers drew, on their grids."""

    def __init__(self, world):
        totals, plan = world.lines[0].server._totals, world.agreement.plan
        self._steps = {
            release.label: world.agreement.next(totals[:number]).grid.steps
            for number, release in enumerate(plan.releases)
        }
        self._noises = world.noises

    def add_gaussian(self, value, sd, label):
        steps = self._steps[label]
        noise = sum(source.drawn[label] for source in self._noises)
        return ((np.ravel(value) / steps).astype(np.int64) + noise).reshape(value.shape) * steps.reshape(
            value.shape
        )


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_model_is_the_local_gates_with_the_noise_of_both(name, ratings):
    world = World(ESTIMATORS[name], ratings, noises=(KeptNoise(1), KeptNoise(2)))
    model = world.train(lost={3}, half={7})
    there = ratings.rows(~np.isin(np.arange(12), [3, 7]), keyed=True)
    accountant = Accountant(world.agreement.budget, noise=SumOfBoth(world))
    gate = LocalGate(accountant, world.agreement.both)
    estimator = world.agreement.estimator
    with one_blas_thread():
        parts = estimator.train(estimator.users(there.rated()), gate, world.agreement.seed)
    oracle = hushrec.Billboard.of(estimator, ratings.domain, parts, model.privacy)
    assert oracle.to_bytes() == model.to_bytes()
    assert not model.privacy.private  # the noise was injected


@pytest.mark.parametrize("name", ["lists", "both"])
def test_public_ratings_are_weighed_in_as_beside_a_training_with_the_noise_of_both(name, tmp_path):
    """The oracle is the ordinary training at the epsilon of both noises, given what was drawn."""
    everybody = hushrec.realistic(90, 12, 700, seed=3)
    ratings, published = (everybody.rows(range(*ends), keyed=True) for ends in ((0, 50), (50, 90)))
    lists = hushrec.PrivateEigenRec(rank=2, iterations=1, n_users=50)
    estimator = {"lists": lists, "both": hushrec.Both(ratings=ALS, lists=lists, like_threshold=4.0)}[name]
    published.to_arrow().to_pandas().to_csv(tmp_path / "published.csv", index=False)
    public = hushrec.PublicRatings(same=str(tmp_path / "published.csv"))
    world = World(estimator, ratings, noises=(KeptNoise(1), KeptNoise(2)))
    plain = world.train()
    for place in (0, 1):
        world.start(place, public=public)
    model = world.train()
    budget = Budget(epsilon_of(world.agreement.both.mu, 1e-6), 1e-6)
    accountant = Accountant(budget, noise=SumOfBoth(world))
    oracle = estimator.fit(ratings, accountant, seed=world.agreement.seed, public=public)
    assert model.judged == oracle.judged and any(each["weight"] for each in model.judged)
    history = published.rows([0], keyed=True)
    one, other = (each.recommend_batch(history, n=5).to_pandas() for each in (model, oracle))
    pd.testing.assert_frame_equal(one, other, rtol=1e-5)
    assert model.privacy.public_ratings
    assert model.privacy.releases == plain.privacy.releases
    assert "Ratings of 40 users are public and have no privacy here" in " ".join(model.privacy.text().split())


def test_the_statement_has_both_promises(ratings):
    model = World(hushrec.Popular(), ratings).train()
    budget, text = Budget(5, 1e-6), " ".join(model.privacy.text().split())
    everybody = epsilon_of(budget.mu / math.sqrt(2), 1e-6)
    assert model.privacy.private
    assert "against both servers together nothing is promised" in text
    for who, epsilon in (("either server", 5), ("everybody else", everybody)):
        line = next(each for each in model.privacy.against if f"against {who}" in each)
        assert f"epsilon = {epsilon:.6g} at delta = 1e-06 (unit: user, relation: add-remove)" in line


def view_of_the_first(world):
    """What the first server makes of what it has: the sum of all answers with the second one's noise."""
    release = world.agreement.plan.releases[0].label
    first, second = (line.server for line in world.lines)
    source, wanted = first._collected[0], world.agreement.next([])
    places = np.array([0, *source.ends])[wanted.question - source.which.first] + wanted.place
    own = source.total[places] * wanted.grid.coarse.astype(np.uint64)
    noisy = np.frombuffer(second._book.get("noisy-0"), np.uint64)
    return (own + noisy).view(np.int64), wanted.grid, release


def test_a_servers_view_of_neighbours_has_the_claimed_mu(ratings):
    """The other's noise is N(0, sd^2) on the sum, which one user moves by mu sds at most, and so far."""
    fewer = ratings.rows(np.arange(12) != 5, keyed=True)
    noises = []
    for seed in range(12):
        with_user, without = (
            World(hushrec.Popular(), rows, noises=(KeptNoise(99), KeptNoise(seed)))
            for rows in (ratings, fewer)
        )
        views = []
        for world in (with_user, without):
            world.train()
            view, grid, label = view_of_the_first(world)
            views.append((view - world.noises[1].drawn[label]) / grid.noise_sd)
            noises.append(world.noises[1].drawn[label] / grid.noise_sd)
        mu = np.linalg.norm(views[0] - views[1])
        assert mu <= with_user.agreement.plan.mu * (1 + 1e-6)
        assert mu >= 0.99 * with_user.agreement.plan.mu
    drawn = np.ravel(noises[::2])
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    assert 1e-4 < stats.chi2(len(drawn)).cdf(drawn @ drawn) < 1 - 1e-4
    assert with_user.agreement.both.mu == pytest.approx(with_user.agreement.plan.mu / math.sqrt(2))


def test_a_share_alone_does_not_depend_on_the_ratings(ratings):
    """The bits of what the first server gets are fair coins, the second's is a seed; together they answer."""
    world = World(ALS, ratings)
    world.settle()
    world.answer(0)
    (path, rest), (_, seed) = (line.said[-1] for line in world.lines)
    assert path[:3] == ("share", "device 0", "0") and len(seed) == 32
    ones = np.unpackbits(np.frombuffer(rest, np.uint8))
    assert abs(ones.mean() - 0.5) < 6 * 0.5 / math.sqrt(ones.size)


class Killed(Exception):
    """The process of a server is gone."""


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2, 3))])
def test_kills_release_nothing_twice_and_nothing_uncharged(seed, few, tmp_path, monkeypatch):
    """Killed 60 times, before or after anything is written, either server ends with the same model."""
    generator, kills = np.random.default_rng(seed), 0
    while kills < 60:
        ledgers = [Ledger(tmp_path / f"{kills}-{place}.sqlite") for place in (0, 1)]
        for ledger in ledgers:  # with room for one training, and no more
            ledger.open_dataset("default", Budget(5, 1e-6))
        world = World(BIASES, few, ledgers=ledgers)
        with monkeypatch.context() as patch:
            writing = (book.Book, "put"), (Ledger, "charge"), (Ledger, "keep"), (book.Shares, "take")
            for owner, name in writing:
                patch.setattr(owner, name, mortal(getattr(owner, name), generator))
            for _ in range(1000):
                try:
                    world.settle()
                    if None not in [line.server.billboard for line in world.lines]:
                        break
                    for number in range(4):
                        world.answer(number)
                except Killed:
                    kills += 1
                    if not kills % 9:
                        world.pass_time()
                    restarted(world, int(generator.integers(2)))
        boards = [line.server.billboard for line in world.lines]
        assert None not in boards and boards[0].to_bytes() == boards[1].to_bytes()
        releases = world.agreement.plan.releases
        for line, ledger in zip(world.peers, ledgers, strict=True):
            run = run_of(line.server._session, line.server.settings.role)
            charged = ledger.numbered("default", run)
            assert [entry.step for entry in charged] == list(range(len(releases)))
            said = {(path, raw) for path, raw in line.said if path[0] in ("noisy", "held")}
            assert len({path for path, _ in said}) == len(said)  # one value each, whoever asked when


def restarted(world, place):
    """Both servers again, in either order; a start can be killed too."""
    for each in (place, 1 - place):
        while True:
            try:
                world.start(each)
                break
            except Killed:
                continue


def mortal(method, generator):
    """A method that is killed now and then, before or after it did what it does."""

    def maybe(self, *given, **named):
        fate = generator.integers(6)
        if fate == 0:
            raise Killed
        found = method(self, *given, **named)
        if fate == 1:
            raise Killed
        return found

    return maybe


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 20))])
@pytest.mark.parametrize("honest", [0, 1])
def test_a_lying_server_gets_one_noisy_sum_of_a_release(honest, seed, few):
    """Whatever the other one says, an honest server publishes one sum of matching shares, once."""
    generator, published = np.random.default_rng([honest, seed]), 0
    for _ in range(25):
        noises = [KeptNoise(1), KeptNoise(2)]
        world = World(hushrec.Popular(), few, noises=noises)
        liar = Liar(world, honest, generator)
        liar.run()
        liar.check()
        published += len(liar.published)
    assert published > 5


class Liar:
    """One server that does as it likes; it reads all that it was sent, and knows the agreement."""

    def __init__(self, world, honest, generator):
        self.world, self.honest, self.generator = world, honest, generator
        self.line, self.own, self.peer = world.lines[honest], world.lines[1 - honest], world.peers[1 - honest]
        self.published, self.shares = set(), {}

    def run(self):
        world, one = self.world, self.line.server
        world.settle()  # the liar keeps to the protocol until a round is open
        moves = [self.replay, self.other_values, self.choose_set, self.second_run, self.withhold, self.ask]
        for number in self.generator.permutation(4):
            self.lie(moves)
            try:
                world.answer(number)
            except HushrecError:
                continue
        world.pass_time()
        for _ in range(6):
            self.lie(moves)
            with contextlib.suppress(HushrecError):  # where the liar's values are none that can be
                one.step()

    def lie(self, moves):
        moves[self.generator.integers(len(moves))]()

    def post(self, *path, content=b"x" * 32, token=""):
        try:
            return self.line.post_bytes(content, server.Taken, *path, token=token)
        except (Refusal, InputError):
            return None

    def replay(self):
        """Send a device's share again, changed, as another device, or for another round."""
        for path, raw in [each for each in self.own.said + self.line.said if each[0][0] == "share"][-3:]:
            for name in (path[1], "device 3", "nobody"):
                for token in ("", self.world.token(path[1], self.honest)):
                    self.post("share", name, path[2], path[3][::-1], content=raw, token=token)
                    self.post("share", name, "1", path[3], content=raw, token=token)

    def other_values(self):
        """Tell devices of another round, of other totals."""
        state = self.own.server._state()
        changes = {"digest": "0" * 64} if self.generator.integers(2) and state.round else {"totals": 1}
        lie = replace(state, **changes)
        self.own.server._state = lambda: lie

    def second_run(self):
        """Begin anew under the same name, with the nonce that was before."""
        folder = self.world.folder / f"again {self.generator.integers(1 << 60)}"
        if self.generator.integers(2):
            shutil.copytree(self.own.server._book.path, folder)
            (folder / "session").unlink(missing_ok=True)
        self.world.start(1 - self.honest, folder)

    def choose_set(self):
        """Say that it has the shares of some devices alone, or of devices that there are not."""
        chosen = tuple(name for name in [*self.world.names, "ghost"] if self.generator.integers(2))

        def told(kind, *path, token="", most=None):
            return Held(chosen) if kind is Held else self._sum(path)

        self.peer.get = told

    def _sum(self, path):
        size = self.line.server._wanted.question.size
        return Sum(self.generator.integers(0, 1 << 63, size).astype(np.uint64))

    def withhold(self):
        def away(kind, *path, token="", most=None):
            raise Refusal(404, "This is not there yet.")

        self.peer.get = away

    def ask(self):
        """Ask for everything, in any order."""
        for path in (("held", "0"), ("noisy", "0"), ("total", "0"), ("noisy", "7"), ("nonce",), ("state",)):
            try:
                answer = self.line.server.answer("GET", list(path), PEER, b"")
            except Refusal:
                continue
            if path == ("noisy", "0"):
                self.published.add(answer.to_json())

    def check(self):
        """One value at most, and it is one sum of answers, each of a device once, with all of its noise."""
        self.ask()
        assert len(self.published) <= 1
        if not self.published:
            return
        world, source = self.world, self.line.server._collected[0]
        grid, opened = world.agreement.next([]).grid, world.agreement.opened([], source.which)
        digest = world.agreement.state(self.line.server._session, source.which, opened)
        assert all(path[3] == digest for path, _ in self.line.taken)
        sent = {path[1]: raw for path, raw in self.line.taken}
        assert len({(path[1], raw) for path, raw in self.line.taken}) == len(sent)
        noisy = np.frombuffer(self.line.server._book.get("noisy-0"), np.uint64)
        noise = world.noises[self.honest].drawn["item weights"].view(np.uint64)
        role, sums = server.ROLES[self.honest], []
        for bits in range(1 << len(sent)):
            total = np.zeros(opened.size, np.uint64)
            for number, name in enumerate(sorted(sent)):
                if bits >> number & 1:
                    server.add_share(total, sent[name], role)
            sums.append(total * grid.coarse.astype(np.uint64))
        assert any(np.array_equal(each, noisy - noise) for each in sums)


def test_a_folder_goes_on_with_its_ledger_and_data_set_alone(few, tmp_path):
    """A ledger that was not charged for what is released, or none, would let it be released for nothing."""
    (tmp_path / "own").mkdir()
    ledgers = Ledger(tmp_path / "own" / "first.sqlite"), Ledger(tmp_path / "second.sqlite")
    world = World(BIASES, few, ledgers=ledgers)
    one = world.lines[0].server

    def start(ledger, settings=one.settings):
        server.CollectingServer(one.agreement, settings, one._book.path, ledger, world.peers[1])

    def refused(*given):
        with pytest.raises(InputError, match="began with another ledger or data set"):
            start(*given)

    world.settle()  # a round is open, and nothing is released yet
    other = Ledger(tmp_path / "other.sqlite")
    other.charge("default", "another run", one.agreement.plan.releases[0])
    shutil.copytree(tmp_path / "own", tmp_path / "early copy")
    for number in range(4):
        world.answer(number)
        for ledger in (other, Ledger(tmp_path / "new.sqlite"), None):
            refused(ledger)
        refused(ledgers[0], replace(one.settings, dataset="elsewhere"))
    start(Ledger(tmp_path / "early copy" / "first.sqlite"))
    world.settle()
    refused(Ledger(tmp_path / "early copy" / "first.sqlite"))
    shutil.copytree(tmp_path / "own", tmp_path / "moved")
    start(Ledger(tmp_path / "moved" / "first.sqlite"))


def test_servers_that_do_not_fit_are_both_told_before_a_device_is_charged(few, tmp_path):
    """A training of theirs would never end; of the devices' names neither is told any."""
    ledgers = [Ledger(tmp_path / f"{place}.sqlite") for place in (0, 1)]
    world, own = World(BIASES, few, ledgers=ledgers), Ledger(tmp_path / "own.sqlite")
    devices = dict.fromkeys(world.names[1:], "")
    wrong = {
        "the second one, too; check --peer": {"role": "second"},
        "other names of devices; give the same list": {"devices": devices},
        "another agreement; give the same file": {"agreement": replace(world.agreement, seed=5)},
        "does not know this one's token; give the same": {"peer_token": "q" * 32},
    }
    for number, (words, changes) in enumerate(wrong.items()):
        world.start(0, world.folder / f"{number}", **changes)
        for line in world.lines:
            with pytest.raises(InputError, match=words):
                line.server.step()
        with contextlib.suppress(HushrecError):  # which finds two servers of one role
            assert world.answer(0, ledger=own) == "waiting"
        assert not any(ledger.datasets() for ledger in (*ledgers, own))
    heard = b"".join(raw for line in world.peers for _, raw in line.said).decode()
    assert heard and not any(name in heard for name in world.names)
    world.start(0)  # and with what fits the same second server goes on
    world.settle()
    assert world.answer(0, ledger=own) == "answered"
    world.start(0, world.folder / "lost")
    with pytest.raises(InputError, match="begin anew, with new folders at both"):
        world.lines[0].server.step()


@pytest.mark.parametrize("name", ["private-als", "private-eigenrec", "both"])
def test_a_device_sends_what_was_planned_at_most(name):
    """Counted in the rounds of so many users that all is learned; at 4,000 items within 10 MB in any plan."""
    ratings, budget, copies = hushrec.realistic(60, 12, 500, seed=0), Budget(5, 1e-6), 20_000
    model = small(choose(name, budget, ratings.domain, n_users=60 * copies), {}, 12)
    agreement, totals, sizes = Agreement(estimator=model, budget=budget, domain=ratings.domain), [], []
    which = SimpleNamespace(stop=0)
    while isinstance(wanted := agreement.next(totals), replay.Wanted):
        if (first := int(wanted.question.min())) >= which.stop:
            which = agreement.round_for(totals, first)
            opened = agreement.opened(totals, which)
            sums = agreement.answer(opened, ratings.rated()) * np.uint64(copies)
            ends = np.array([0, *np.cumsum([len(each) for each in opened.steps])])
            sizes.append(opened.size)
        entries = ends[wanted.question - which.first] + wanted.place
        totals.append(sums[entries] * wanted.grid.coarse.astype(np.uint64))
    rounds, sent = at_most(model, 12)
    saved = rounds - len(sizes)  # both models' first questions are one round
    assert saved == (name == "both") and sent == sum(8 * size + 32 for size in sizes) + 32 * saved
    domain = hushrec.Domain(range(4000), rating_range=(1, 5))
    for epsilon, users in itertools.product((0.5, 5, 100), (1000, 10**5, 10**8)):
        chosen = choose(name, Budget(epsilon, 1e-6), domain, n_users=users)
        assert at_most(small(chosen, {}, 4000), 4000)[1] <= 1e7
    few_devices = choose("private-eigenrec", budget, domain, n_users=6040)
    assert small(few_devices, {}, 4000).iterations == few_devices.iterations == 8


def test_what_is_refused(few, tmp_path):
    """Each in one sentence, before anything is sent or charged."""
    world = World(hushrec.Popular(), few, ledgers=[Ledger(tmp_path / f"{place}.sqlite") for place in (0, 1)])
    one, digest = world.lines[0].server, lambda: world.lines[0].server._state().digest
    world.settle()
    name, token = world.names[0], world.token(world.names[0], 0)
    post = partial(one.answer, "POST")
    edited = device.Public(replace(world.agreement, budget=Budget(4, 1e-6)))
    wrong = {
        "has no device of this name": lambda: post(["share", name, "0", digest()], "guess", b""),
        "other totals": lambda: post(["share", name, "0", "0" * 64], token, b""),
        "has 48 bytes": lambda: post(["share", name, "0", digest()], token, b"x" * 32),
        "not open": lambda: post(["share", name, "1", digest()], token, b""),
        "other server alone": lambda: one.answer("GET", ["held", "0"], token, b""),
        "answers for one user": lambda: world.answer(0, ratings=few),
        "another domain": lambda: world.answer(0, ratings=hushrec.realistic(1, 7, 3, seed=0)),
        "past its budget": lambda: world.answer(0, ledger=spent(tmp_path)),
        "the first server has no device": lambda: world.answer(0, ledger=own, tokens=["guess", "guess"]),
        "the second server has no device": lambda: world.answer(0, ledger=own, tokens=[token, token]),
        "in this order": lambda: world.answer(0, servers=world.lines[::-1]),
        "not the first and the second": lambda: world.answer(0, servers=world.lines[:1] * 2),
        "Another process": lambda: in_use(world, name),
        "answered under": lambda: world.answer(1, public=edited),
        "another device's": lambda: world.answer(0, folder=world.folder / world.names[1]),
        "use its folder": lambda: world.answer(1, folder=world.folder / "lost"),
    }
    own = Ledger(tmp_path / "own.sqlite")
    world.answer(1)
    for words, do in wrong.items():
        with pytest.raises(HushrecError, match=f"(?i){words}"):
            do()
    assert not own.datasets()
    posted = {path[1] for line in world.lines for path, _ in line.said if path[0] == "share"}
    assert posted <= {world.names[1]}
    world.train()
    shutil.copytree(one._book.path, world.folder / "copy")
    (world.folder / "copy" / "noisy-0").unlink()
    (world.folder / "copy" / "total-0").unlink()
    with pytest.raises(HushrecError, match="old copy"):
        world.start(0, world.folder / "copy")
    again = World(hushrec.Popular(), few)
    again.settle()
    with pytest.raises(HushrecError, match="another folder"):
        again.answer(0, folder=world.folder / name)


def in_use(world, name):
    """Two looks of one device at once would make two answers, of which each server may keep another."""
    with book.Book(world.folder / name).alone():
        world.answer(0)


def test_windows_which_has_no_fcntl_locks_a_folder_too(few, monkeypatch):
    """By the call that it has: of the C library, refused while another handle holds the byte."""
    held, world = set(), World(hushrec.Popular(), few)

    def locking(handle, mode, count):
        place = os.fstat(handle).st_ino
        if (mode, count) != (2, 1) or place in held:
            raise PermissionError(13, "Permission denied")
        held.add(place)

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(LK_NBLCK=2, locking=locking))
    with pytest.raises(InputError, match="Another process is at work"):
        in_use(world, world.names[0])


def spent(tmp_path):
    """A device's ledger without room."""
    ledger = Ledger(tmp_path / "device.sqlite")
    ledger.open_dataset("default", Budget(1, 1e-6))
    return ledger


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budget": Budget(5, 1e-6, relation="replace")}, "relation 'add-remove'"),
        ({"budget": Budget(math.inf, 1e-6)}, "epsilon of at most 100"),
        ({"budget": Budget(5, 1e-200)}, "delta of at least 1e-100"),
        ({"budget": Budget(1e-4, 1e-6)}, "declare a larger epsilon"),
        ({"estimator": hushrec.EASE()}, "cannot be trained over two servers"),
    ],
)
def test_an_agreement_that_cannot_be_kept_is_refused(changes, words, few):
    given = {"estimator": ALS, "budget": Budget(5, 1e-6), "domain": few.domain}
    with pytest.raises(InputError, match=words):
        Agreement(**(given | changes))
