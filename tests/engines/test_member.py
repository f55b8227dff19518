"""What a node refuses by itself: each lie of a server alone, everything else being right."""

from dataclasses import replace

import numpy as np
import pytest

from hushrec.algorithms import PrivateALS
from hushrec.data import realistic
from hushrec.engines.secure.agreement import Agreement
from hushrec.engines.secure.graph import Graph
from hushrec.engines.secure.messages import (
    Agreed,
    Envelopes,
    Masked,
    Neighbours,
    Prepared,
    Quorum,
    Sum,
    Survivors,
)
from hushrec.errors import BudgetError, HushrecError, InputError
from hushrec.network.messages import Refusal
from hushrec.privacy import Budget, Ledger
from hushrec.privacy.noise import SystemNoise
from hushrec.privacy.testing import SeededNoise

client = pytest.importorskip("hushrec.engines.secure.client", exc_type=ImportError)
identity = pytest.importorskip("hushrec.engines.secure.identity", exc_type=ImportError)
masks = client.masks

NAMES = [f"n{node}" for node in range(5)]
IDENTITIES = {name: identity.Identity(bytes([node]) * 32) for node, name in enumerate(NAMES)}
DOMAIN = realistic(20, 12, 120, seed=3).domain
SESSION, INDEX = "session", 0


def agreed(keys):
    model = PrivateALS(rank=2, iterations=1, bias_rounds=1, n_users=20)
    return Agreement(
        estimator=model, budget=Budget(5.0, 1e-6), domain=DOMAIN, n_nodes=5, dropouts=0.2, keys=keys
    )


SIGNED, UNSIGNED = agreed({name: one.public for name, one in IDENTITIES.items()}), agreed({})


class Lies:
    """A connection that answers each kind of message with what a test makes of the right answer."""

    def __init__(self, **answers):
        self.answers, self.sent = answers, []

    def post(self, message, kind, *path, token):
        self.sent.append(message)
        return self.answers[type(message).__name__]


def member(agreement, connection):
    made = client.Member(connection, agreement, "n0", SeededNoise(0), identity=IDENTITIES["n0"])
    made._session, made._names = SESSION, tuple(agreement.neighbours["n0"]) if agreement.keys else ("n1",)
    return made


def words(name, *said):
    return IDENTITIES[name].sign(SIGNED.fingerprint, SESSION, *map(str, said))


def survivors(everybody=NAMES, met=None):
    """What neighbours signed: with whom they share masks, by default with all."""
    met = {name: "1" * len(SIGNED.neighbours[name]) for name in NAMES} | (met or {})
    signatures = {name: words(name, "masked", INDEX, name, met[name]) for name in NAMES}
    return Survivors((), (), tuple(everybody), met, signatures)


def quorum(signers=NAMES, everybody=NAMES):
    return Quorum({name: words(name, "agreed", INDEX, *sorted(everybody)) for name in signers})


def ask(told, signed):
    connection = Lies(Agreed=signed)
    held = dict.fromkeys(SIGNED.neighbours["n0"], b"share")
    return member(SIGNED, connection)._agree_on(told, INDEX, held), connection.sent


def test_an_honest_server_is_believed():
    (alive, dropped), sent = ask(survivors(), quorum())
    assert alive == list(SIGNED.neighbours["n0"]) and dropped == []
    assert [type(message) for message in sent] == [Agreed]
    lost = SIGNED.neighbours["n0"][0]
    rest = [name for name in NAMES if name != lost]
    (alive, dropped), _ = ask(survivors(rest), quorum(rest, rest))
    assert dropped == [lost] and lost not in alive


def bits(name, other):
    """Who says that they share no mask with one neighbour."""
    return "".join("01"[each != other] for each in SIGNED.neighbours[name])


NEIGHBOUR = SIGNED.neighbours["n0"][0]
OTHER = next(name for name in SIGNED.neighbours[NEIGHBOUR] if name != "n0")
FEW = ["n0", *NAMES[-SIGNED.fewest + 2 :]]


@pytest.mark.parametrize(
    ("told", "signed", "words"),
    [
        (survivors([*NAMES, "ghost"]), quorum(everybody=[*NAMES, "ghost"]), "not registered, or not this"),
        (survivors(NAMES[1:]), quorum(NAMES[1:], NAMES[1:]), "not registered, or not this one"),
        (survivors(FEW), quorum(FEW, FEW), "fewer nodes than was agreed"),
        (survivors(met={NEIGHBOUR: bits(NEIGHBOUR, OTHER)}), quorum(), "shares no mask with a neighbour"),
        (survivors(met={NEIGHBOUR: bits(NEIGHBOUR, "n0")}), quorum(), "shares no mask with a neighbour"),
        (survivors(met={NEIGHBOUR: ""}), quorum(), "shares no mask with a neighbour"),
        (survivors(), quorum(NAMES[: SIGNED.quorum - 1]), "Too few nodes agree"),
        (survivors(), quorum(everybody=NAMES[:-1]), "is not signed by it"),
        (survivors(), Quorum(dict.fromkeys(NAMES, b"")), "is not signed by it"),
    ],
)
def test_each_lie_alone_is_refused(told, signed, words):
    with pytest.raises(HushrecError, match=words):
        ask(told, signed)


@pytest.mark.parametrize("other", SIGNED.neighbours["n0"])
def test_every_neighbour_is_looked_at(other):
    """Each with whom it shares masks, and what each signed."""
    honest, agreement = survivors(), quorum()
    for told, signed, said in (
        (survivors(met={other: bits(other, "n0")}), agreement, "shares no mask with a neighbour"),
        (survivors(met={other: ""}), agreement, "shares no mask with a neighbour"),
        (replace(honest, signatures=honest.signatures | {other: b""}), agreement, "is not signed by"),
        (honest, Quorum(agreement.signatures | {other: b""}), "is not signed by"),
    ):
        with pytest.raises(HushrecError, match=said):
            ask(told, signed)


def state_after(*totals, steps=1.0):
    """What a node says of the past as it prepares its next release."""
    connection = Lies()
    node = member(UNSIGNED, connection)
    node._sealing = {"n1": bytes(32)}
    with pytest.MonkeyPatch.context() as patch:
        told = iter(totals)
        patch.setattr(client.Member, "_add", lambda *_: np.array([next(told)], np.uint64))
        for index in range(len(totals)):
            node.total(index, "sums", np.zeros(1, np.uint64), np.ones(1), np.ones(1))
    node._names = tuple(NAMES[1:])
    node._sealing = {name: bytes(32) for name in NAMES[1:]}
    with pytest.raises(KeyError):  # there is no answer
        node._add(len(totals), "sums", np.zeros(1, np.uint64), np.ones(1), np.full(1, steps))
    return connection.sent[0].state


@pytest.mark.parametrize("status", [400, 403, 404, 408, 410, 500, 503])
def test_who_is_refused_and_not_late_asks_for_no_total(status, monkeypatch):
    """Another refusal ends the node; to be late alone is mended by what the others got."""
    node = member(UNSIGNED, connection := Lies())
    connection.get = lambda *_, **__: Sum(np.array([7], np.uint64))
    one = np.zeros(1, np.uint64), np.ones(1), np.ones(1)

    def refusing(answer):
        def add(*_):
            raise Refusal(answer, "No.")

        monkeypatch.setattr(client.Member, "_add", add)
        return node.total(0, "sums", *one)

    assert refusing(client.LATE).tolist() == [7]
    with pytest.raises(Refusal, match="No[.]"):
        refusing(status)


def test_masks_cancel_among_nodes_alone_that_were_told_the_same():
    """All totals so far, in order, and the units of this one."""
    assert state_after(1, 2) == state_after(1, 2)
    states = [state_after(1, 2), state_after(2, 1), state_after(3, 2), state_after(1, 3), state_after()]
    states += [state_after(1), state_after(1, 2, steps=0.5)]
    assert len(set(states)) == len(states)


@pytest.mark.parametrize("nodes", [5, 6, 9, 10])
@pytest.mark.parametrize("colluding", [0, 1, 2])
def test_no_two_lists_of_nodes_have_a_quorum(nodes, colluding):
    """Colluding nodes sign both and each honest one a single list: the least number at which two fail."""
    made = replace(UNSIGNED, n_nodes=nodes, colluding=colluding)
    assert 2 * made.quorum - colluding > nodes >= 2 * (made.quorum - 1) - colluding


@pytest.mark.parametrize("name", [NAMES[0], NAMES[-1]])
def test_each_registered_name_and_key_is_looked_at(name):
    keys = dict(SIGNED.keys)
    with pytest.raises(InputError, match=f"What node '{name}' registered has 63 bytes and not 64"):
        agreed(keys | {name: keys[name][:-1]})
    with pytest.raises(InputError, match="1 to 200 printable characters"):
        agreed({f"a{chr(10)}b" if each == name else each: key for each, key in keys.items()})
    other = next(each for each in NAMES if each != name)
    for wrong in (keys | {name: keys[other]}, {each: key for each, key in keys.items() if each != name}):
        with pytest.raises(InputError, match="keys must hold 5 nodes with a key of its own each"):
            agreed(wrong)


def test_a_quorum_that_cannot_stay_is_refused_beforehand():
    """Of five nodes two may go, and with one that colludes four would have to sign."""
    with pytest.raises(InputError, match="the others cannot agree"):
        replace(SIGNED, dropouts=0.4, colluding=1)


def test_a_neighbour_without_a_signature_is_refused():
    told = survivors()
    for forged in (b"", told.signatures[OTHER]):
        with pytest.raises(HushrecError, match=f"'{NEIGHBOUR}' is not signed by it"):
            ask(Survivors((), (), tuple(NAMES), told.met, told.signatures | {NEIGHBOUR: forged}), quorum())


@pytest.mark.parametrize(
    ("alive", "dropped", "refused"),
    [
        (("n1",), (), None),
        (("n1",), ("n1",), "would open a node's contribution"),
        (("n1", "n2"), (), "would open a node's contribution"),
        (("n1",), ("n2",), "would open a node's contribution"),
        ((), ("n1",), "Too few neighbours"),
    ],
)
def test_shares_of_a_node_open_one_secret_only(alive, dropped, refused, monkeypatch):
    """Both would open its sum; of a node that sent no shares there are none to give."""
    mine, theirs = masks.new_secret(), masks.new_secret()
    public = masks.public_part
    envelope = masks.pair_keys(theirs, "n1", {"n0": public(mine)}, "hushrec envelope", SESSION)["n0"]
    shares = [masks.split(masks.new_secret(), 1, 1)[0] for _ in range(2)]
    sealed = masks.seal(envelope, INDEX, "n1", "n0", b"".join(shares))
    connection = Lies(
        Prepared=Envelopes({"n1": public(masks.new_secret())}, {"n1": sealed}),
        Masked=Survivors(alive, dropped),
        Unmasking=Sum(np.zeros(3, dtype=np.uint64)),
    )
    node = member(UNSIGNED, connection)
    node._names = ("n1", "n2") if "n2" in (*alive, *dropped) else ("n1",)
    node._sealing = masks.pair_keys(
        mine, "n0", {name: public(theirs) for name in node._names}, "hushrec envelope", SESSION
    )
    monkeypatch.setitem(UNSIGNED.__dict__, "graph", Graph(1, 1))
    zeros = np.zeros(3, dtype=np.uint64), np.ones(3), np.ones(3)
    if refused is None:
        assert node._add(INDEX, "label", *zeros).tolist() == [0, 0, 0]
        unmasking = connection.sent[-1]
        assert unmasking.seeds == {"n1": shares[0]} and not unmasking.keys
        return
    with pytest.raises(HushrecError, match=refused):
        node._add(INDEX, "label", *zeros)
    assert {type(message) for message in connection.sent} == {Prepared, Masked}


def enrol(keys, neighbours):
    made = client.Member(Lies(Enrolment=neighbours), keys, "n0", SeededNoise(0), identity=IDENTITIES["n0"])
    made.enrol()
    return made


@pytest.mark.parametrize("agreement", [SIGNED, UNSIGNED], ids=["signed", "unsigned"])
def test_a_server_of_another_agreement_or_with_other_neighbours_is_refused(agreement):
    others = {name: masks.public_part(bytes([7]) * 32) for name in NAMES[1:]}
    right = Neighbours(SESSION, agreement.fingerprint, tuple(others), others)
    assert set(enrol(agreement, right)._names) == set(others)
    with pytest.raises(HushrecError, match="another agreement than this node's"):
        enrol(agreement, replace(right, agreement="0" * 64))
    few = {name: key for name, key in others.items() if name != "n3"}
    twice = {"n0": others["n1"], **few}  # itself for one of the others
    for told in (few, twice):
        lie = Neighbours(SESSION, agreement.fingerprint, tuple(told), told)
        if agreement.keys:  # who its neighbours are it knows by itself
            assert set(enrol(agreement, lie)._names) == set(others)
        else:
            with pytest.raises(HushrecError, match="another number of neighbours"):
                enrol(agreement, lie)


def test_a_budget_without_room_for_all_releases_is_refused_before_the_first(tmp_path):
    others = {name: masks.public_part(bytes([7]) * 32) for name in NAMES[1:]}
    told = Neighbours(SESSION, UNSIGNED.fingerprint, tuple(others), others)
    for number, (epsilon, fits) in enumerate(((4.9, False), (5.1, True))):
        ledger = Ledger(tmp_path / f"{number}.sqlite")
        ledger.open_dataset("default", Budget(epsilon, 1e-6, failure=1e-9))
        with pytest.raises(InputError, match="private runs only"):
            client.Member(Lies(), UNSIGNED, "n0", SeededNoise(0), ledger)
        node = client.Member(Lies(Enrolment=told), UNSIGNED, "n0", SystemNoise(), ledger)
        if fits:
            node.enrol()
        else:
            with pytest.raises(BudgetError):
                node.enrol()
        assert ledger.summary("default").charges == 0


def asked_to_mask(keys=None, signatures=None):
    """What a node sends after it was told the fresh keys of its neighbours."""
    names = SIGNED.neighbours["n0"]
    fresh = {name: masks.public_part(bytes([40 + place]) * 32) for place, name in enumerate(names)}
    signed = {name: words(name, "prepared", INDEX, name, key.hex()) for name, key in fresh.items()}
    shares = {name: masks.seal(bytes(32), INDEX, name, "n0", bytes(64)) for name in names}
    connection = Lies(Prepared=Envelopes(fresh | (keys or {}), shares, signed | (signatures or {})))
    node = member(SIGNED, connection)
    node._sealing = dict.fromkeys(names, bytes(32))
    with pytest.raises((HushrecError, KeyError)) as stopped:  # there is no answer to masked sums
        node._add(INDEX, "sums", np.zeros(2, np.uint64), np.ones(2), np.ones(2))
    return str(stopped.value), [type(message) for message in connection.sent]


def test_a_mask_is_shared_with_keys_alone_that_neighbours_signed():
    """A server that put keys of its own in their place could take every mask off."""
    said, sent = asked_to_mask()
    assert "Masked" in said and sent == [Prepared, Masked]
    own = masks.public_part(bytes([99]) * 32)
    for keys, signatures in (
        ({NEIGHBOUR: own}, {}),
        ({}, {NEIGHBOUR: b""}),
        ({NEIGHBOUR: own}, {NEIGHBOUR: words(OTHER, "prepared", INDEX, NEIGHBOUR, own.hex())}),
        ({NEIGHBOUR: own}, {NEIGHBOUR: words(NEIGHBOUR, "prepared", INDEX + 1, NEIGHBOUR, own.hex())}),
    ):
        said, sent = asked_to_mask(keys, signatures)
        assert f"'{NEIGHBOUR}' is not signed by it" in said and sent == [Prepared]
