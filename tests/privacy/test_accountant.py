"""A7 (charges = releases = noise drawn) and the rules of the gate."""

import contextlib
import itertools
import math
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from statistics import NormalDist

import numpy as np
import pytest

from hushrec.errors import BudgetError, InputError
from hushrec.privacy import (
    Accountant,
    Bounded,
    Budget,
    Gaussian,
    Laplace,
    Ledger,
    Plan,
    RandomizedResponse,
    Release,
    RepeatAndSelect,
    SystemNoise,
    counted,
    schema,
    signed,
)
from hushrec.privacy.testing import RecordingNoise, ReplayNoise, SeededNoise

BUDGET = Budget(1.0, 1e-6)


def user(value, sensitivity=1.0, **others):
    return Bounded(value, counted(sensitivity), **others)


def test_every_release_is_charged_once_and_drawn_once():
    """A7, over 200 random runs: the calls of the noise source, from their sd, add up to the charges.

    Killed: a release that is not appended, noise divided by the sensitivity, a stream charged per block.
    """
    generator = np.random.default_rng(0)
    for _ in range(200):
        budget = Budget(float(generator.uniform(0.1, 20)), 1e-6)
        noise = RecordingNoise(SeededNoise(0))
        accountant = Accountant(budget, noise=noise)
        fractions = generator.dirichlet(np.ones(generator.integers(1, 12))).tolist()
        spent = []
        for number, fraction in enumerate(fractions):
            sensitivity = float(10 ** generator.uniform(-3, 3))
            scale = generator.uniform(0.5, 2, 3)
            noisy = accountant.release(
                user(np.zeros((2, 3)), sensitivity, weight=scale), budget.share(fraction), f"release {number}"
            )
            assert noisy.shape == (2, 3) and noise.calls[-1].label == f"release {number}"
            spent.append(np.mean(sensitivity / (noise.calls[-1].amount * scale)) ** 2)
        charged = math.fsum(release.mu**2 for release in accountant.releases)
        assert charged == pytest.approx(math.fsum(spent), rel=1e-13)
        assert accountant.spent_mu == pytest.approx(math.sqrt(charged), rel=1e-15)
        assert len(accountant.releases) == len(fractions)
        with pytest.raises(BudgetError):
            accountant.release(user(0.0), budget.share(1e-6), "one more")


def test_the_charge_is_durable_before_noise_is_drawn(tmp_path, monkeypatch):
    """Killed: noise drawn before `ledger.charge`."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    seen = []

    def spy(self, value, sd, label):
        seen.append((label, Ledger(tmp_path / "ledger.sqlite").summary("default", 1e-6).charges))
        return value

    monkeypatch.setattr(SystemNoise, "add_gaussian", spy)
    accountant = Accountant(BUDGET, ledger=ledger)
    accountant.release(user([1.0]), BUDGET.share(0.1), "a")
    accountant.release(user(np.ones(2)), BUDGET.share(0.1), "b")
    assert seen == [("a", 1), ("b", 2)]


def test_noise_has_the_promised_sd():
    accountant = Accountant(Budget(50.0, 1e-6))
    scale = np.array([1.0, 4.0])
    noisy = accountant.release(user(np.zeros((200_000, 2)), 3.0, weight=scale), Gaussian(2.0), "a")
    assert np.std(noisy, axis=0) == pytest.approx(6 / scale, rel=0.02)
    noisy = accountant.release(user(np.zeros((200_000, 2)), 3.0, weight=scale, norm="l1"), Laplace(2.0), "b")
    assert np.std(noisy, axis=0) == pytest.approx(6 * math.sqrt(2) / scale, rel=0.02)
    assert accountant.releases[1].noise_sd == pytest.approx(6 * math.sqrt(2))


def test_randomized_response():
    budget = Budget(2.0, 1e-6, "rating", "replace")
    labels = np.ones(200_000)
    one = Bounded(labels, counted(2), unit="rating", norm="labels")
    noisy = Accountant(budget).release(one, RandomizedResponse(2.0), "labels")
    assert np.mean(noisy == -1) == pytest.approx(1 / (1 + math.e), rel=0.03)


def test_a_budget_refuses_what_does_not_fit():
    """Killed: >= for >, a refused release that is recorded anyway."""
    accountant = Accountant(BUDGET)
    accountant.release(user(0.0), BUDGET.share(0.5), "a")
    with pytest.raises(BudgetError, match=r"delta = 1e-06 \(unit: user, relation: add-remove\)"):
        accountant.release(user(0.0), BUDGET.share(0.51), "b")
    for mechanism in (Gaussian(0.0), Gaussian(1e-320)):
        with pytest.raises(BudgetError):
            accountant.release(user(0.0), mechanism, "c")
    assert [release.label for release in accountant.releases] == ["a"]
    accountant.release(user(0.0), BUDGET.share(0.5), "d")


def test_a_refusal_says_what_the_total_would_be():
    """In epsilon at the budget's delta, by the analytic Gaussian formula (Balle and Wang 2018)."""
    accountant = Accountant(BUDGET)
    accountant.release(user(0.0), Gaussian(8.0), "a")
    with pytest.raises(BudgetError, match="bring the total to epsilon = ") as refused:
        accountant.check(Plan(BUDGET, [Release("b", Gaussian(2.0), 1.0, "user", "add-remove")]))
    epsilon, mu = float(str(refused.value).split("epsilon = ")[1].split()[0]), math.hypot(1 / 8, 1 / 2)
    normal = NormalDist().cdf
    delta = normal(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal(-mu / 2 - epsilon / mu)
    assert delta == pytest.approx(1e-6, rel=1e-4)


def test_what_is_left_of_a_budget():
    accountant = Accountant(BUDGET)
    assert accountant.remaining_fraction == 1.0
    accountant.release(user(0.0), BUDGET.share(0.3), "a")
    assert accountant.remaining_fraction == pytest.approx(0.7, rel=1e-12)
    accountant.release(user(0.0), BUDGET.share(accountant.remaining_fraction), "b")
    assert 0 <= accountant.remaining_fraction < 1e-12
    with pytest.raises(BudgetError, match="This accountant is used up"):
        accountant.part()
    over = Accountant(BUDGET)
    over.release(user(0.0), Gaussian(1 / (BUDGET.mu * (1 + 0.4e-12))), "a")  # within the filter's slack
    assert over.remaining_fraction == 0.0
    endless = Accountant(Budget(math.inf, 1e-6))
    endless.release(user(0.0), Gaussian(0.0), "a")
    assert (endless.remaining_fraction, endless.budget.private, BUDGET.private) == (1.0, False, True)


def test_a_part_is_of_what_is_left():
    """Killed: a share of the whole budget, and noise for what rounding leaves of one."""
    accountant = Accountant(BUDGET)
    assert (accountant.part(), accountant.part(0.5)) == (1.0, 0.5)
    accountant.release(user(0.0), BUDGET.share(0.4), "a")
    assert accountant.part(0.5) == pytest.approx(0.3, rel=1e-12)
    accountant.release(user(0.0), BUDGET.share(0.6 - 1e-8), "b")
    assert 0 < accountant.part() < 1.1e-8
    accountant.release(user(0.0), BUDGET.share(9.9e-9), "c")
    assert 0 < accountant.remaining_fraction < 1e-9
    with pytest.raises(BudgetError, match="used up"):
        accountant.part(0.5)


def test_a_billionth_is_left_and_less_is_rounding():
    for rest, used_up in ((1.2e-9, False), (0.8e-9, True)):
        accountant = Accountant(BUDGET)
        accountant.release(user(0.0), BUDGET.share(1 - rest), "a")
        assert accountant.remaining_fraction == pytest.approx(rest, rel=1e-3)
        if used_up:
            with pytest.raises(BudgetError, match="used up"):
                accountant.part()
        else:
            assert accountant.part(0.5) == pytest.approx(rest / 2, rel=1e-3)


def test_a_budget_of_which_all_is_reserved_is_used_up_by_a_selection():
    budget = Budget(3.0, 1e-6, failure=1e-6)
    accountant = Accountant(budget, noise=SeededNoise(0))
    assert accountant.remaining_fraction == 1.0
    accountant.select(RepeatAndSelect.within(budget, 5), "best", lambda inner: (None, 0.0))
    assert accountant.remaining_fraction == 0.0


@pytest.mark.parametrize("wrong", [{"ledger": "ledger.sqlite"}, {"dataset": ""}, {"dataset": "a\nb"}])
def test_what_no_accountant_is_made_of(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Accountant(BUDGET, **wrong)


def test_a_planned_sensitivity_may_be_off_by_rounding_only():
    """By a billionth; where there is no privacy, by anything."""
    accountant = Accountant(BUDGET)
    accountant.release(user(0.0), BUDGET.share(0.1), "a", sensitivity=1 + 0.8e-9)
    for off in (1.2e-9, -1.2e-9):
        with pytest.raises(InputError, match="bound times its scale"):
            accountant.release(user(0.0), BUDGET.share(0.1), "a", sensitivity=1 + off)
    assert [release.sensitivity for release in accountant.releases] == [1 + 0.8e-9]
    endless = Accountant(Budget(math.inf, 1e-6))
    endless.release(user(0.0), Gaussian(0.0), "a", sensitivity=5.0)
    assert endless.releases[0].sensitivity == 5.0


def test_what_cannot_be_resumed_is_refused_at_once(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    for budget, kept in ((Budget(math.inf, 1e-6), ledger), (BUDGET, None)):
        with pytest.raises(InputError, match="keeps a journal"):
            Accountant(budget, ledger=kept, resume=True)
    assert Accountant(BUDGET, ledger=ledger, resume=True).remaining_fraction == 1.0


def test_a_plan_is_checked_before_anything_is_spent(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_dataset("default", BUDGET)
    half = Release("half", BUDGET.share(0.5), 1.0, "user", "add-remove")
    accountant = Accountant(Budget(2.0, 1e-6), ledger=ledger)
    accountant.check(Plan(accountant.budget, [half, half]))
    with pytest.raises(BudgetError, match="^This would bring data set"):  # the ledger's, and nothing was lost
        accountant.check(Plan(accountant.budget, [half, half, half]))
    with pytest.raises(BudgetError):
        Accountant(BUDGET).check(Plan(BUDGET, [half, half, half]))
    with pytest.raises(BudgetError):
        Plan(BUDGET, [half, half, half]).check()
    assert accountant.releases == ()


def test_unit_relation_and_norm_must_match():
    """Killed: a user-level aggregate charged to a rating-level budget."""
    for unit, relation in (("rating", "add-remove"), ("user", "replace"), ("rating", "replace")):
        if unit == "rating":
            with pytest.raises(InputError):
                Accountant(BUDGET).release(user([1.0], unit=unit), BUDGET.share(0.1), "a")
        with pytest.raises(InputError):
            Plan(BUDGET, [Release("a", Gaussian(9), 1, unit, relation)]).check()
    with pytest.raises(InputError):
        Accountant(BUDGET).release(user([1.0]), Laplace(100), "a")
    with pytest.raises(InputError):
        Accountant(BUDGET).release(user([1.0], norm="l1"), Gaussian(100), "a")
    for wrong in ([1.0], None):
        with pytest.raises(InputError):
            Accountant(BUDGET).release(wrong, BUDGET.share(0.1), "a")
    with pytest.raises(InputError):
        Accountant((1.0, 1e-6))


def test_a_bound_is_that_of_the_relation_and_must_be_the_planned_one():
    """Killed: bounds of add-remove under replace; a scale that the plan does not know."""
    value = Bounded(np.zeros(1), signed(1.0))
    for relation, sensitivity in (("add-remove", 1.0), ("replace", 2.0)):
        budget = Budget(1.0, 1e-6, relation=relation)
        accountant = Accountant(budget)
        accountant.release(value, budget.share(0.1), "a")
        assert accountant.releases[0].sensitivity == sensitivity
        with pytest.raises(InputError, match="bound times its scale"):
            accountant.release(value, budget.share(0.1), "a", sensitivity=3 - sensitivity)
        with pytest.raises(InputError, match="bound times its scale"):
            scaled = Bounded(np.zeros(1), signed(1.0), scale=1e9)
            accountant.release(scaled, budget.share(0.1), "a", sensitivity=sensitivity)
    assert len(accountant.releases) == 1
    labels = Bounded(np.ones(1), counted(1), norm="labels")
    with pytest.raises(InputError, match="replace"):
        Accountant(BUDGET).release(labels, RandomizedResponse(0.1), "a")


def test_scale_that_drowns_the_noise_is_refused():
    accountant = Accountant(BUDGET)
    for scale in ([1.0, 1e300], [1.0, 1e-320]):
        with pytest.raises(InputError):
            accountant.release(user([1.0, 1.0], weight=scale), BUDGET.share(0.1), "a")
    assert accountant.releases == ()


def test_no_noise_leaves_every_bit():
    """Epsilon = inf: the same bits in a new array, also scaled, and NOT PRIVATE."""
    budget = Budget(math.inf, 1e-6)
    value = np.array([[1 / 3, -0.0, 5e-324]])
    accountant = Accountant(budget)
    for scale in (None, [1, math.sqrt(2), 3]):
        out = accountant.release(user(value, weight=scale), budget.share(0.2), "a")
        assert out.tobytes() == value.tobytes() and not np.shares_memory(out, value)
    assert not accountant.statement().private


def test_a_run_of_a_selection_is_in_the_unit_of_the_whole():
    budget = Budget(3.0, 1e-6, failure=5e-7)
    accountant = Accountant(budget)

    def run(inner):
        return inner.release(user(0.0, unit="rating"), Gaussian(1000.0), "a"), 0.0

    with pytest.raises(InputError, match="for unit 'rating'"):
        accountant.select(RepeatAndSelect.within(budget, 2), "best", run)


def test_a_statement_of_nothing_asks_no_ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    assert Accountant(BUDGET, ledger=ledger).statement().ledger is None


def in_order(ledger) -> list[str]:
    """Labels of all charges that are on the disk."""
    with Ledger(ledger.path)._transaction("DEFERRED") as connection:
        return [row[0] for row in connection.execute("SELECT label FROM charges ORDER BY id")]


@pytest.mark.parametrize("kept", ["nowhere", "in a ledger", "in a journal"])
def test_threads_cannot_pass_the_budget(tmp_path, monkeypatch, kept):
    """Eight threads race for ten shares while each charge takes its time to the disk.

    Killed: the check, or the ledger, outside of the lock; a draw before its charge; two orders.
    """
    ledger = None if kept == "nowhere" else Ledger(tmp_path / "ledger.sqlite")
    append, draw = schema.append, SystemNoise.add_gaussian
    drawn, unpaid, share = [], [], BUDGET.share(0.1)

    def slowly(connection, row):
        time.sleep(0.01)  # others come as far as the lock lets them
        head = append(connection, row)
        time.sleep(0.01)
        return head

    def drawing(self, value, sd, label):
        unpaid.extend([] if ledger is None or label in in_order(ledger) else [label])
        drawn.append(label)
        return draw(self, value, sd, label)

    monkeypatch.setattr(schema, "append", slowly)
    monkeypatch.setattr(SystemNoise, "add_gaussian", drawing)
    accountant, won, numbers = Accountant(BUDGET, ledger=ledger), [], itertools.count()

    def race(thread):
        with contextlib.suppress(BudgetError):
            while True:
                won.append(accountant.release(user(np.zeros(2)), share, f"{next(numbers)} of {thread}"))

    journaled = accountant.training(None) if kept == "in a journal" else contextlib.nullcontext()
    with journaled, ThreadPoolExecutor(8) as pool:
        list(pool.map(race, range(8)))
    charged = [release.label for release in accountant.releases]
    assert len(won) == len(charged) == 10 and sorted(drawn) == sorted(charged) and not unpaid
    assert np.unique(won).size == 20
    assert ledger is None or in_order(ledger) == charged


def spend_in_child(accountant, results):
    try:
        accountant.release(user(0.0), BUDGET.share(0.9), "a")
        results.put("released")
    except BudgetError:
        results.put("refused")


def test_a_fork_cannot_spend_the_same_budget_again():
    context = get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=spend_in_child, args=(Accountant(BUDGET), results))
    child.start()
    child.join()
    assert results.get() == "refused"


def test_in_another_process_nothing_is_charged_or_drawn(monkeypatch):
    noise = RecordingNoise(SeededNoise(0))
    accountant = Accountant(BUDGET, noise=noise)
    accountant.release(user(np.zeros(2)), BUDGET.share(0.1), "a")
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: -1)  # as in a child
        for spend in (
            lambda: accountant.release(user(0.0), BUDGET.share(0.1), "b"),
            lambda: accountant.select(RepeatAndSelect(0.1, 1e-9, 2.0), "d", lambda inner: (0, 1.0)),
        ):
            with pytest.raises(BudgetError, match="fork"):
                spend()
    assert [each.label for each in accountant.releases] == ["a"] and len(noise.calls) == 1


def test_injected_noise_is_stamped_and_refused_by_a_ledger(tmp_path):
    """D7. Killed: the source's own word (an attribute `secure = True`) taken for it."""

    class Liar(SystemNoise):
        secure = True

    ledger = Ledger(tmp_path / "ledger.sqlite")
    for noise in (SeededNoise(1), RecordingNoise(SystemNoise()), Liar()):
        statement = Accountant(BUDGET, noise=noise).statement()
        assert not statement.private
        assert not statement.secure_noise
        assert "NOT PRIVATE" in statement.text()
        with pytest.raises(InputError):
            Accountant(BUDGET, noise=noise, ledger=ledger)
    with pytest.raises(InputError):
        Accountant(BUDGET, data_is_public=True, ledger=ledger)


def run(accountant, value):
    first = accountant.release(user(value), BUDGET.share(0.3), "first")
    return np.r_[first, accountant.release(user(2 * value), BUDGET.share(0.3), "second")]


def test_replay_returns_what_was_recorded():
    """The tool of the replay test: other data, the same releases, the same bits."""
    noise = RecordingNoise(SeededNoise(5))
    recorded = run(Accountant(BUDGET, noise=noise), np.zeros(3))
    replay = ReplayNoise(noise.calls)
    assert run(Accountant(BUDGET, noise=replay), np.full(3, 9.0)).tobytes() == recorded.tobytes()
    assert replay.finished
    residuals = np.concatenate([call.residual for call in noise.calls])
    assert np.abs(residuals).max() < 5


def test_replay_notices_what_depends_on_the_data():
    noise = RecordingNoise(SeededNoise(5))
    run(Accountant(BUDGET, noise=noise), np.zeros(3))
    with pytest.raises(AssertionError):  # another shape
        run(Accountant(BUDGET, noise=ReplayNoise(noise.calls)), np.zeros(4))
    with pytest.raises(AssertionError):  # another sd
        Accountant(BUDGET, noise=ReplayNoise(noise.calls)).release(
            user(np.zeros(3)), BUDGET.share(0.2), "first"
        )
    with pytest.raises(AssertionError):  # another label
        Accountant(BUDGET, noise=ReplayNoise(noise.calls)).release(
            user(np.zeros(3)), BUDGET.share(0.3), "second"
        )
    with pytest.raises(AssertionError):  # one release too many
        run(Accountant(BUDGET, noise=ReplayNoise(noise.calls[:1])), np.zeros(3))


@pytest.mark.parametrize("value", [np.array([12345.5]), [12345.5], 12345.5])
def test_no_value_is_shown_where_it_has_no_bound(value):
    with pytest.raises(InputError, match="must be a Bounded") as caught:
        Accountant(Budget(1.0, 1e-6)).release(value, Gaussian(1.0), "sum")
    assert "12345" not in str(caught.value)


def test_steps_and_weights_are_kept_in_float64():
    """To the last digit, and where a float32 would be 0."""
    bounded = user([0.0, 0.0], weight=[0.1, 1 / 3], step=[2.0**-200, 1.0])
    assert bounded.weight.tolist() == [0.1, 1 / 3] and bounded.step.tolist() == [2.0**-200, 1.0]
