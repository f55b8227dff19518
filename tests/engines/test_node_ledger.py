"""A node's own ledger and keys: nothing a server says makes a node's users pay more than the node allows."""

import itertools
import math
import os
from dataclasses import replace

import numpy as np
import pytest

from hushrec.algorithms import PrivateALS
from hushrec.data import realistic
from hushrec.engines.secure.graph import FAILURE
from hushrec.engines.secure.messages import (
    Enrolment,
    Envelopes,
    Masked,
    Prepared,
    Quorum,
    Sum,
    Survivors,
    Unmasking,
)
from hushrec.errors import BudgetError, HushrecError, InputError
from hushrec.network.messages import Refusal
from hushrec.privacy import Budget, Ledger
from hushrec.privacy.testing import SeededNoise
from tests.engines.nodes import (
    Session,
    agreement_of,
    assert_equal,
    client,
    identity,
    names_of,
    parts_of,
    server,
)

N_NODES = 5
NAMES = names_of(N_NODES)
RATINGS = realistic(20, 12, 120, seed=3)
PARTS = parts_of(RATINGS, N_NODES)
IDENTITIES = {name: identity.Identity(bytes([node]) * 32) for node, name in enumerate(NAMES)}
KEYS = {name: one.public for name, one in IDENTITIES.items()}
OWN = Budget(8.0, 1e-6, failure=1e-10)
ATTACKS = ("none", "victim", "fewer", "omit", "keys", "same list", "foreign", "lonely", "session", "quorum")
MODEL = PrivateALS(rank=2, iterations=1, bias_rounds=1, n_users=20)
AGREED = agreement_of(MODEL, RATINGS, N_NODES, dropouts=0.2, keys=KEYS)
RELEASES = len(AGREED.plan.releases)


def ledgers_at(folder):
    ledgers = {name: Ledger(folder / name / "ledger.sqlite") for name in NAMES}
    for ledger in ledgers.values():
        ledger.open_dataset("default", OWN)
    return ledgers


def lying(attack, victim):
    """Return what a server makes of its answers."""
    forged = client.masks.public_part(client.masks.new_secret())

    def told(session, name, reply):
        if isinstance(reply, Envelopes) and name == victim:
            if attack in ("omit", "lonely"):
                kept = set(list(reply.mask_keys)[:1])
                parts = reply.mask_keys, reply.shares, reply.signatures
                return Envelopes(*({k: v for k, v in part.items() if k in kept} for part in parts))
            if attack == "keys":
                return replace(reply, mask_keys=dict.fromkeys(reply.mask_keys, forged))
        if isinstance(reply, Survivors):
            gone = {victim} - {name} if attack in ("victim", "quorum", "same list") else set()
            gone = {*NAMES[:2]} - {name} if attack == "fewer" else gone
            if attack == "lonely":
                reply = replace(reply, met={k: "1" * len(v) for k, v in reply.met.items()})
            everybody = tuple(other for other in reply.everybody if other not in gone)
            return replace(reply, everybody=everybody + ("ghost",) * (attack == "foreign"))
        if isinstance(reply, Sum) and attack == "totals" and name == victim:
            return Sum(reply.values + np.uint64(1 << 40))
        if isinstance(reply, Quorum) and attack == "quorum":
            return Quorum(dict.fromkeys(NAMES, reply.signatures.get(name, b"")))
        return reply

    return told


def trained(ledgers, at=None, told=None, **options):
    return Session(AGREED, PARTS, at, told, ledgers=ledgers, identities=IDENTITIES, **options)


def overspent(session, ledgers):
    """Count what must not happen: contributions made twice, or uncharged, or too few opened at once."""
    masked = [key for key, message in session.sent if isinstance(message, Masked)]
    wrong = session.uncharged + len(masked) - len(set(masked))
    for name in NAMES:
        wrong += ledgers[name].summary("default", 1e-6).epsilon > OWN.epsilon if masked else 0
    for release in {key[:2] for key in masked}:
        fewest = session.fewest_opened(release)
        wrong += fewest is not None and fewest < AGREED.fewest - AGREED.colluding
    return wrong


def test_a_training_is_charged_at_every_node(tmp_path):
    ledgers = ledgers_at(tmp_path)
    session = trained(ledgers)
    assert overspent(session, ledgers) == 0
    for name in NAMES:
        summary, found = ledgers[name].summary("default"), session.results[name]
        assert (summary.charges, summary.runs) == (RELEASES, 1)
        assert summary.mu == pytest.approx(AGREED.plan.mu)
        assert found.privacy.ledger == summary and found.privacy.releases == AGREED.plan.releases
        assert "trusted: all but 0 nodes" in " ".join(found.privacy.text().split())
        assert_equal(found, session.billboard)
    assert session.fewest_opened((session.called, "0")) == N_NODES
    again = trained(ledgers, called=session.called)  # a session that is replayed is made once
    assert not again.of(Masked)
    assert {ledger.summary("default").charges for ledger in ledgers.values()} == {RELEASES}


@pytest.mark.true("A4")
def test_a_ledger_takes_no_injected_noise(tmp_path):
    with pytest.raises(InputError, match="private runs only"):
        client.take_part(
            None, AGREED, PARTS["n0"], node="n0", ledger=ledgers_at(tmp_path)["n0"], noise=SeededNoise(0),
            identity=IDENTITIES["n0"],
        )  # fmt: skip


def test_a_node_refuses_beyond_its_own_budget(tmp_path):
    """Killed: a ledger that is not asked, charges of the last training only, the graph's 2^-39 left out."""
    ledgers = ledgers_at(tmp_path)
    ledgers["n2"].open_dataset("default", Budget(6.0, 1e-6, failure=1e-10))
    assert not isinstance(trained(ledgers).billboard, HushrecError)
    again = trained(ledgers)
    assert isinstance(again.results["n2"], BudgetError) and "its budget of" in str(again.results["n2"])
    assert not [key for key, _ in again.sent if key[2] == "n2"]  # refused before the first release


@pytest.mark.true("A3")
def test_the_chance_of_failure_is_reserved_whatever_the_session_is_called(tmp_path):
    """Killed: a run that is named by the server, which knows the runs of a season; a check without 2^-39."""
    ledgers, release = ledgers_at(tmp_path), AGREED.plan.releases[0]
    tight = Ledger(tmp_path / "tight" / "ledger.sqlite")
    tight.open_dataset("default", Budget(8.0, 1e-6))
    for ledger in (tight, ledgers["n0"]):
        ledger.charge("default", "a week", release)
    for called in (None, "a week"):
        session = trained(ledgers | {"n1": tight}, called=called)
        refused = session.results["n1"]
        assert isinstance(refused, BudgetError) and f"{FAILURE:g}" in str(refused)
        assert not [key for key, _ in session.sent if key[2] == "n1"]  # before the first release
    assert ledgers["n0"].summary("default").runs == 3  # the week and two trainings


@pytest.mark.parametrize("kind", [Prepared, Masked, Unmasking])
def test_a_node_that_is_started_anew_is_itself_again(tmp_path, kind):
    """It makes no release again and ends with the model. Killed: a name that is taken."""
    ledgers = ledgers_at(tmp_path)
    session = trained(ledgers, {"n3": (kind, "1", "anew")})
    assert overspent(session, ledgers) == 0 and not session.at
    assert_equal(session.results["n3"], session.billboard)
    masked = [key[1] for key, message in session.sent if key[2] == "n3" and isinstance(message, Masked)]
    assert {"0", str(RELEASES - 1)} <= set(masked) and len(set(masked)) == len(masked)


@pytest.mark.parametrize("kind", [Prepared, Masked, Unmasking])
def test_who_drops_out_gives_nothing_more_away(tmp_path, kind):
    """Of each node one secret a release can be opened, and none opens anything of another release.

    Killed: keys or seeds that last for a session, shares of both secrets, answers of who was left out.
    """
    ledgers = ledgers_at(tmp_path)
    trial = trained(ledgers, {"n3": (kind, "1", "late")})
    assert overspent(trial, ledgers) == 0
    assert_equal(trial.results["n3"], trial.billboard)
    for index in range(RELEASES):
        told = trial.of(Unmasking, index)
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
    """The threshold of a sender's shares opens its seed, whichever they are, and one fewer does not."""
    trial, threshold = trained(ledgers_at(tmp_path)), AGREED.graph.threshold
    masks, session, opened = client.masks, trial.called, 0
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


def attacked(folder, tries):
    """Overspends of so many tries, each node with a ledger that three of them share."""
    wrong, made, called = 0, set(), None
    for number in range(tries):
        if number % 3 == 0:
            ledgers, called = ledgers_at(folder / str(number)), None
        attack, rng = ATTACKS[number % len(ATTACKS)], np.random.default_rng(number)
        kinds = [(kind, str(release), "anew") for kind in (Prepared, Masked, Unmasking) for release in (0, 1)]
        stopped = (
            {NAMES[rng.integers(N_NODES)]: kinds[rng.integers(len(kinds))]} if rng.random() < 0.3 else {}
        )
        replayed = called if attack in ("session", "same list") else None
        told = lying(attack, NAMES[rng.integers(N_NODES)])
        trial = trained(ledgers, stopped, told, called=replayed)
        called = trial.called
        wrong += overspent(trial, ledgers)
        made.add(attack)
    return wrong, made


@pytest.mark.parametrize(
    "tries", [len(ATTACKS), pytest.param(1000, marks=pytest.mark.full)], ids=["sample", "thousand"]
)
def test_no_overspend_in_a_sample_of_attacks(tmp_path, record_property, tries):
    """Killed: lists of survivors that are believed, contributions that are not charged."""
    assert attacked(tmp_path, tries) == (0, set(ATTACKS))
    record_property("tries", tries)


def test_who_was_told_another_total_shares_no_mask(tmp_path):
    """Units and noise of a release follow from the totals so far; another's noise hides nothing of mine."""
    ledgers = ledgers_at(tmp_path)
    trial = trained(ledgers, told=lying("totals", "n1"))
    assert "disagree about what was released before" in str(trial.billboard)
    releases = sorted({key[:2] for key, _ in trial.sent})
    assert trial.fewest_opened(releases[0]) == N_NODES
    assert len(releases) > 1 and all(trial.fewest_opened(each) is None for each in releases[1:])
    assert overspent(trial, ledgers) == 0


def test_only_registered_nodes_enrol():
    """Killed: a name without its key, somebody else's enrolment with a token of one's own."""
    aggregation = server.AggregationServer(AGREED, enrolment=1.0, hold=0.1)
    stranger = identity.Identity(bytes([9]) * 32)
    for mine in (stranger, None):
        with pytest.raises(InputError, match="another key for node 'n0'"):
            client.take_part(None, AGREED, PARTS["n0"], node="n0", ledger=None, identity=mine)
    token = "t" * 32
    words = (AGREED.fingerprint, "", *identity.enrolment_words("n0", token))
    for who, name, used in (
        (stranger, "n0", token),
        (IDENTITIES["n0"], "n0", "u" * 32),
        (stranger, "x", token),
    ):
        message = Enrolment(name, AGREED.fingerprint, bytes(32), who.sign(*words))
        with pytest.raises(Refusal, match="not signed"):
            aggregation.answer("POST", ["enrolment"], used, message.to_json())


def test_an_identity_is_kept_in_a_file(tmp_path, monkeypatch):
    kept, sync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: kept.append(os.fstat(file).st_size) or sync(file))
    one = identity.Identity.of_file(tmp_path / "key")
    assert identity.Identity.of_file(tmp_path / "key").public == one.public and len(one.public) == 64
    assert kept == [32]  # all of it, when the disk is asked to keep it
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert identity.Identity.of_file(tmp_path / "other").public != one.public
    (tmp_path / "short").write_bytes(b"x")
    for wrong in ("short", "no/folder", "."):
        with pytest.raises(InputError):
            identity.Identity.of_file(tmp_path / wrong)
    assert identity.signed(one.public, one.sign("a", "b"), "a", "b")
    for other in (("ab",), ("a", "b", ""), ("b", "a")):
        assert not identity.signed(one.public, one.sign("a", "b"), *other)
