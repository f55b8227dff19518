"""A node's own ledger and keys: nothing a server says makes a node's users pay more than the node allows."""

import itertools
import math
import os
import threading
from dataclasses import replace

import numpy as np
import pytest

from hushrec.algorithms import PrivateALS
from hushrec.data import realistic
from hushrec.engines.secure.agreement import Agreement
from hushrec.engines.secure.graph import FAILURE, choose_graph
from hushrec.engines.secure.messages import Envelopes, Masked, Prepared, Quorum, Sum, Survivors, Unmasking
from hushrec.errors import BudgetError, HushrecError, InputError
from hushrec.network.messages import Refusal, from_json
from hushrec.privacy import Budget, Ledger

client = pytest.importorskip("hushrec.engines.secure.client", exc_type=ImportError)
server = pytest.importorskip("hushrec.engines.secure.server", exc_type=ImportError)
identity = pytest.importorskip("hushrec.engines.secure.identity", exc_type=ImportError)

N_NODES = 5
NAMES = [f"n{node}" for node in range(N_NODES)]
RATINGS = realistic(20, 12, 120, seed=3)
PARTS = {name: RATINGS.rows(np.arange(20) % N_NODES == node, keyed=True) for node, name in enumerate(NAMES)}
IDENTITIES = {name: identity.Identity(bytes([node]) * 32) for node, name in enumerate(NAMES)}
OWN = Budget(8.0, 1e-6, failure=1e-10)
ATTACKS = ("none", "victim", "fewer", "omit", "keys", "same list", "foreign", "lonely", "session", "quorum")


def agreed(**changes):
    settings = {
        "estimator": PrivateALS(rank=2, iterations=1, bias_rounds=1, n_users=20),
        "budget": Budget(5.0, 1e-6),
        "domain": RATINGS.domain,
        "n_nodes": N_NODES,
        "dropouts": 0.2,
        "keys": {name: one.public for name, one in IDENTITIES.items()},
    }
    return Agreement(**(settings | changes))


AGREED = agreed()


class Trial:
    """A server that may lie, its nodes in threads, and a record of all that they sent it."""

    def __init__(
        self, ledgers, attack="none", seed=0, session=None, stopped=(), late=(), patience=20.0, quiet=5.0
    ):
        self.rng = np.random.default_rng(seed)
        self.ledgers, self.attack = ledgers, attack
        self.victim = NAMES[self.rng.integers(N_NODES)]
        self.server = server.AggregationServer(AGREED, quiet=quiet, patience=patience, enrolment=5, hold=1.0)
        self.server.session = session or self.server.session
        self.forged = client.masks.public_part(client.masks.new_secret())
        self.stopped = dict(stopped)  # nodes that are started anew where they would first send this
        self.late, self.over = dict(late), {}  # nodes whose message comes when the others have their total
        self.sent, self.given, self.uncharged, self.results = [], {}, 0, {}
        threads = [threading.Thread(target=self.node, args=(name,)) for name in NAMES]
        for thread in threads:
            thread.start()
        try:
            self.billboard = self.server.train()
        except HushrecError as error:
            self.billboard = error
        for thread in threads:
            thread.join()

    def node(self, name):
        while True:
            try:
                self.results[name] = client.take_part(
                    Direct(self, name), AGREED, PARTS[name], node=name, ledger=self.ledgers[name],
                    identity=IDENTITIES[name],
                )  # fmt: skip
            except HushrecError as error:
                self.results[name] = error
            except SystemExit:
                continue
            return

    def ask(self, name, method, message, path, token):
        body = b"" if message is None else message.to_json()
        if message is not None and path[1:]:
            if self.stopped.get(name) == (type(message), path[1]):
                del self.stopped[name]
                raise SystemExit
            key = (self.server.session, path[1], name)
            self.sent.append((key, message))
            if isinstance(message, Masked):
                run = client.run_of(AGREED, key[0])
                self.uncharged += not self.ledgers[name].charged("default", run, int(key[1]))
            if self.late.get(name) == (type(message), path[1]):
                assert self.over.setdefault(path[1], threading.Event()).wait(20)
        while True:
            try:
                reply = self.server.answer(method, list(path), token, body)
                break
            except Refusal as refusal:
                if refusal.status != 202:
                    raise Refusal(refusal.status, str(refusal)) from None
            except InputError as error:
                raise Refusal(400, str(error)) from None
        reply = self.told(name, reply)
        if isinstance(reply, Sum):
            self.over.setdefault(path[1], threading.Event()).set()
        if isinstance(reply, Envelopes):
            self.given[self.server.session, path[1], name] = reply.mask_keys
        return reply

    def told(self, name, reply):
        """What the server makes of an answer."""
        if isinstance(reply, Envelopes) and name == self.victim:
            if self.attack in ("omit", "lonely"):
                kept = set(list(reply.mask_keys)[:1])
                return Envelopes(*({k: v for k, v in part.items() if k in kept} for part in vars_of(reply)))
            if self.attack == "keys":
                return replace(reply, mask_keys=dict.fromkeys(reply.mask_keys, self.forged))
        if isinstance(reply, Survivors):
            gone = set()
            if self.attack in ("victim", "quorum", "same list") and name != self.victim:
                gone = {self.victim}
            if self.attack == "fewer":
                gone = {other for other in NAMES[:2] if other != name}
            if self.attack == "lonely":
                reply = replace(reply, met={k: "1" * len(v) for k, v in reply.met.items()})
            alive = tuple(other for other in reply.alive if other not in gone)
            dropped = (*reply.dropped, *(other for other in reply.alive if other in gone))
            everybody = tuple(other for other in reply.everybody if other not in gone)
            everybody += ("ghost",) * (self.attack == "foreign")
            return replace(reply, alive=alive, dropped=dropped, everybody=everybody)
        if isinstance(reply, Sum) and self.attack == "totals" and name == self.victim:
            return Sum(reply.values + np.uint64(1 << 40))
        if isinstance(reply, Quorum) and self.attack == "quorum":
            return Quorum(dict.fromkeys(NAMES, reply.signatures.get(name, b"")))
        return reply

    def overspent(self):
        """What must not happen: contributions made twice, or uncharged, or too few opened at once."""
        masked = [key for key, message in self.sent if isinstance(message, Masked)]
        wrong = self.uncharged + len(masked) - len(set(masked))
        for name in NAMES:
            wrong += self.ledgers[name].summary("default", 1e-6).epsilon > OWN.epsilon if masked else 0
        for release in {key[:2] for key in masked}:
            fewest = self.fewest_opened(release)
            wrong += fewest is not None and fewest < AGREED.fewest - AGREED.colluding
        return wrong

    def fewest_opened(self, release):
        """Nodes whose noise hides the smallest sum that the server can compute of what it was sent."""
        here = [(key[2], message) for key, message in self.sent if key[:2] == release]
        masked = {name for name, message in here if isinstance(message, Masked)}
        keys, states = {}, {}
        for name, message in here:
            if isinstance(message, Prepared):
                keys.setdefault(name, set()).add(message.mask_key)
                states[name] = message.state
        told = [message for _, message in here if isinstance(message, Unmasking)]
        seeds = {name for name, message in here if isinstance(message, Unmasking)}
        seeds |= {name for name in NAMES if sum(name in m.seeds for m in told) >= AGREED.graph.threshold}
        opened = {name for name in NAMES if sum(name in m.keys for m in told) >= AGREED.graph.threshold}
        free, sums = set(masked & seeds), []
        while free:
            part, queue, hidden = set(), [free.pop()], False
            while queue:
                one = queue.pop()
                part.add(one)
                for other, key in self.given[(*release, one)].items():
                    if one in opened or other in opened or key not in keys.get(other, ()):
                        continue  # the server knows this mask
                    back = self.given.get((*release, other), {}).get(one)
                    if other not in masked & seeds or back not in keys[one] or states[one] != states[other]:
                        hidden = True
                    elif other in free:
                        free.discard(other)
                        queue.append(other)
            sums += [] if hidden else [len(part)]
        return min(sums, default=None)


def vars_of(message):
    return message.mask_keys, message.shares, message.signatures


class Direct:
    """A connection without a network."""

    def __init__(self, trial, name):
        self.trial, self.name = trial, name

    def post(self, message, kind, *path, token=""):
        return from_json(kind, self.trial.ask(self.name, "POST", message, path, token).to_json())

    def get(self, kind, *path, token=""):
        return from_json(kind, self.trial.ask(self.name, "GET", None, path, token).to_json())


def ledgers_at(folder):
    ledgers = {name: Ledger(folder / name / "ledger.sqlite") for name in NAMES}
    for ledger in ledgers.values():
        ledger.open_dataset("default", OWN)
    return ledgers


def test_a_training_is_charged_at_every_node(tmp_path):
    ledgers = ledgers_at(tmp_path)
    trial = Trial(ledgers)
    assert trial.overspent() == 0 and not isinstance(trial.billboard, HushrecError)
    releases = AGREED.plan.releases
    for name in NAMES:
        summary = ledgers[name].summary("default")
        assert (summary.charges, summary.runs) == (len(releases), 1)
        assert summary.mu == pytest.approx(AGREED.plan.mu)
        assert trial.results[name].privacy.ledger == summary
        assert "trusted: all but 0 nodes" in " ".join(trial.results[name].privacy.text().split())
        np.testing.assert_array_equal(trial.results[name].item_factors, trial.billboard.item_factors)
    assert trial.fewest_opened((trial.server.session, "0")) == N_NODES


def test_a_node_refuses_beyond_its_own_budget(tmp_path):
    """Killed: a ledger that is not asked, charges of the last training only, the graph's 2^-39 left out."""
    ledgers = ledgers_at(tmp_path)
    ledgers["n2"].open_dataset("default", Budget(6.0, 1e-6, failure=1e-10))
    assert not isinstance(Trial(ledgers).billboard, HushrecError)
    again = Trial(ledgers, patience=3, quiet=0.5)
    assert isinstance(again.results["n2"], BudgetError) and "its budget of" in str(again.results["n2"])
    assert not any(isinstance(message, Masked) for key, message in again.sent if key[2] == "n2")


def test_the_chance_of_failure_is_reserved_whatever_the_session_is_called(tmp_path):
    """Killed: a run that is named by the server, which knows the runs of a season; a check without 2^-39."""
    ledgers, release = ledgers_at(tmp_path), AGREED.plan.releases[0]
    tight = Ledger(tmp_path / "tight" / "ledger.sqlite")
    tight.open_dataset("default", Budget(8.0, 1e-6))
    for ledger in (tight, ledgers["n0"]):
        ledger.charge("default", "a week", release)
    for session in (None, "a week"):
        trial = Trial(ledgers | {"n1": tight}, patience=2, quiet=0.3, session=session)
        refused = trial.results["n1"]
        assert isinstance(refused, BudgetError) and f"{FAILURE:g}" in str(refused)
        assert not any(key[2] == "n1" for key, _ in trial.sent)  # before the first release
    assert ledgers["n0"].summary("default").runs == 3  # the week and two trainings


@pytest.mark.parametrize("kind", [Prepared, Masked, Unmasking])
def test_a_node_that_is_started_anew_is_itself_again(tmp_path, kind):
    """It makes no release again, comes back, and ends with the model. Killed: a name that is taken."""
    ledgers = ledgers_at(tmp_path)
    trial = Trial(ledgers, stopped={"n3": (kind, "1")}, quiet=1.0)
    assert trial.overspent() == 0 and not trial.stopped
    np.testing.assert_array_equal(trial.results["n3"].item_factors, trial.billboard.item_factors)
    masked = [key[1] for key, message in trial.sent if key[2] == "n3" and isinstance(message, Masked)]
    assert {"0", str(len(AGREED.plan.releases) - 1)} <= set(masked) and len(set(masked)) == len(masked)


@pytest.mark.parametrize("kind", [Prepared, Masked, Unmasking])
def test_who_drops_out_gives_nothing_more_away(tmp_path, kind):
    """Of each node one secret a release can be opened, and none opens anything of another release.

    Killed: keys or seeds that last for a session, shares of both secrets, answers of who was left out.
    """
    trial = Trial(ledgers_at(tmp_path), late={"n3": (kind, "1")}, quiet=0.4)
    assert trial.overspent() == 0
    np.testing.assert_array_equal(trial.results["n3"].item_factors, trial.billboard.item_factors)
    for index in range(len(AGREED.plan.releases)):
        here = [(key[2], message) for key, message in trial.sent if key[1] == str(index)]
        told = {name: message for name, message in here if isinstance(message, Unmasking)}
        gone = {"n3"} if index == 1 and kind is not Unmasking else set()
        assert told.keys() == set(NAMES) - gone
        for name in NAMES:
            shares = [(name in message.seeds, name in message.keys) for message in told.values()]
            opened = tuple(map(sum, zip(*shares, strict=True)))
            dropped = (
                (0, len(told)) if kind is Masked else (0, 0)
            )  # of who prepared nothing there is no share
            assert opened == (dropped if name in gone else (len(told) - 1, 0)), (index, name)
    for wanted, secret in ((Prepared, "mask_key"), (Unmasking, "seed")):
        drawn = [getattr(message, secret) for _, message in trial.sent if isinstance(message, wanted)]
        assert len(set(drawn)) == len(drawn)
    shares = [share for _, each in trial.sent if isinstance(each, Prepared) for share in each.shares.values()]
    assert len(set(shares)) == len(shares)


def test_one_captured_share_too_few_opens_nothing(tmp_path):
    """Of every node and release: what all its neighbours hold, as if they had told the server."""
    trial, threshold = Trial(ledgers_at(tmp_path)), AGREED.graph.threshold
    masks, session, opened = client.masks, trial.server.session, 0
    seeds = {key: message.seed for key, message in trial.sent if isinstance(message, Unmasking)}
    for key, message in trial.sent:
        if not isinstance(message, Prepared):
            continue
        sender, index, held = key[2], int(key[1]), {}
        theirs = {sender: identity.envelope_part(IDENTITIES[sender].public)}
        for place, name in enumerate(AGREED.neighbours[sender], 1):
            mine = IDENTITIES[name].envelope_key
            sealing = masks.pair_keys(mine, name, theirs, "hushrec envelope", session)[sender]
            held[place] = masks.unseal(sealing, index, sender, name, message.shares[name])
        for count in (threshold - 1, threshold):
            for places in itertools.combinations(held, count):
                seed = masks.join({place: held[place][:32] for place in places})
                secret = masks.join({place: held[place][32:] for place in places})
                known = [seed == seeds[key], masks.public_part(secret) == message.mask_key]
                assert known == [count == threshold] * 2
                opened += 1
    assert opened == N_NODES * len(AGREED.plan.releases) * (
        math.comb(AGREED.graph.degree, threshold - 1) + math.comb(AGREED.graph.degree, threshold)
    )


def test_a_replayed_session_is_charged_and_made_once(tmp_path):
    ledgers = ledgers_at(tmp_path)
    first = Trial(ledgers)
    again = Trial(ledgers, session=first.server.session, patience=2, quiet=0.5)
    assert not any(isinstance(message, Masked) for _, message in again.sent)
    assert {ledger.summary("default").charges for ledger in ledgers.values()} == {len(AGREED.plan.releases)}


def attacked(folder, tries, first=0):
    """Overspends of so many tries, each node with a ledger that three of them share."""
    overspent, made, session = 0, {}, None
    for number in range(first, first + tries):
        if number % 3 == 0 or number == first:
            ledgers, session = ledgers_at(folder / str(number)), None
        attack = ATTACKS[number % len(ATTACKS)]
        rng = np.random.default_rng(number)
        kinds = [(kind, str(release)) for kind in (Prepared, Masked, Unmasking) for release in (0, 1)]
        stopped = (
            {NAMES[rng.integers(N_NODES)]: kinds[rng.integers(len(kinds))]} if rng.random() < 0.3 else {}
        )
        replayed = session if attack in ("session", "same list") else None
        trial = Trial(ledgers, attack, number, replayed, stopped, patience=1.5, quiet=0.2)
        session = trial.server.session
        overspent += trial.overspent()
        made[attack] = made.get(attack, 0) + isinstance(trial.billboard, HushrecError)
    return overspent, made


def test_no_overspend_in_a_sample_of_attacks(tmp_path, record_property):
    """Killed: lists of survivors that are believed, contributions that are not charged."""
    overspent, made = attacked(tmp_path, len(ATTACKS))
    assert overspent == 0
    assert len(made) == len(ATTACKS)
    record_property("tries", len(ATTACKS))


@pytest.mark.full
def test_no_overspend_in_a_thousand_attacks(tmp_path, record_property):
    overspent, _ = attacked(tmp_path, 1000)
    assert overspent == 0
    record_property("tries", 1000)


def test_who_was_told_another_total_shares_no_mask(tmp_path):
    """Units and noise of a release follow from the totals so far; another's noise hides nothing of mine."""
    trial = Trial(ledgers_at(tmp_path), "totals", patience=2.0)
    assert "disagree about what was released before" in str(trial.billboard)
    releases = sorted({key[:2] for key, _ in trial.sent})
    assert trial.fewest_opened(releases[0]) == N_NODES
    assert len(releases) > 1 and all(trial.fewest_opened(each) is None for each in releases[1:])
    assert trial.overspent() == 0


def test_only_registered_nodes_enrol():
    """Killed: a name without its key, somebody else's enrolment with a token of one's own."""
    aggregation = server.AggregationServer(AGREED, enrolment=1.0, hold=0.1)
    stranger = identity.Identity(bytes([9]) * 32)
    with pytest.raises(InputError, match="another key for node 'n0'"):
        client.Member(None, AGREED, "n0", None, identity=stranger)
    with pytest.raises(InputError, match="another key for node 'n0'"):
        client.Member(None, AGREED, "n0", None)
    token = "t" * 32
    words = (AGREED.fingerprint, "", *identity.enrolment_words("n0", token))
    for who, name, used in (
        (stranger, "n0", token),
        (IDENTITIES["n0"], "n0", "u" * 32),
        (stranger, "x", token),
    ):
        message = client.Enrolment(name, AGREED.fingerprint, bytes(32), who.sign(*words))
        with pytest.raises(Refusal, match="not signed"):
            aggregation.answer("POST", ["enrolment"], used, message.to_json())


def test_an_identity_is_on_the_disk_before_it_is_registered(tmp_path, monkeypatch):
    """All of it, when the disk is asked to keep it."""
    kept = []
    monkeypatch.setattr(identity.os, "fsync", lambda file: kept.append(os.fstat(file).st_size))
    identity.Identity.of_file(tmp_path / "key")
    assert kept == [32]


def test_an_identity_is_kept_in_a_file(tmp_path):
    one = identity.Identity.of_file(tmp_path / "key")
    assert identity.Identity.of_file(tmp_path / "key").public == one.public and len(one.public) == 64
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert identity.Identity.of_file(tmp_path / "other").public != one.public
    (tmp_path / "short").write_bytes(b"x")
    for wrong in ("short", "no/folder", "."):
        with pytest.raises(InputError):
            identity.Identity.of_file(tmp_path / wrong)
    assert identity.signed(one.public, one.sign("a", "b"), "a", "b")
    for other in (("ab",), ("a", "b", ""), ("b", "a")):
        assert not identity.signed(one.public, one.sign("a", "b"), *other)


def test_registered_keys_leave_nothing_to_chance():
    """Killed: a graph for a server that draws at random, lists that two halves of the nodes could sign."""
    for n_nodes, dropouts, colluding in [(5, 1, 0), (50, 16, 2), (200, 66, 10), (400, 133, 20)]:
        graph = choose_graph(n_nodes, dropouts, colluding, 20, active=True)
        assert graph.threshold > colluding
        assert graph.degree == n_nodes - 1 or graph.degree > dropouts + colluding
    keys = {f"n{node}": identity.Identity(bytes([node]) * 32).public for node in range(9)}
    honest = agreed(n_nodes=9, dropouts=1 / 3, colluding=1, keys=keys)
    assert honest.fingerprint != agreed(n_nodes=9, dropouts=1 / 3, colluding=1, keys={}).fingerprint
