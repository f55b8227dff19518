"""What a node refuses by itself: each lie of a server alone, everything else being right."""

from dataclasses import replace

import pytest

from hushrec.algorithms import Popular
from hushrec.data import realistic
from hushrec.engines.secure.messages import (
    Agreed,
    Envelopes,
    Masked,
    Neighbours,
    Prepared,
    Quorum,
    Survivors,
)
from hushrec.errors import InputError
from hushrec.network.messages import Refusal
from tests.engines.nodes import Session, agreement_of, client, identity, names_of, parts_of

NAMES = names_of(5)
IDENTITIES = {name: identity.Identity(bytes([node]) * 32) for node, name in enumerate(NAMES)}
KEYS = {name: one.public for name, one in IDENTITIES.items()}
RATINGS = realistic(20, 12, 120, seed=3)
PARTS = parts_of(RATINGS, 5)
UNSIGNED = agreement_of(Popular(), RATINGS, 5, dropouts=0.2)
SIGNED = replace(UNSIGNED, keys=KEYS)
AROUND = SIGNED.neighbours["n0"]
FEW = ["n0", *NAMES[-SIGNED.fewest + 2 :]]
OWN = client.masks.public_part(bytes([99]) * 32)


def told(agreement, lies):
    """Run a session whose server lies to node n0, by kind of answer; return it, n0's end and what n0 sent."""

    def lie(session, name, reply):
        make = lies.get(type(reply))
        return reply if name != "n0" or make is None else make(reply, session)

    session = Session(agreement, PARTS, told=lie, identities=IDENTITIES)
    sent = [type(message) for key, message in session.sent if key[2] == "n0"]
    return session, str(session.results["n0"]), sent


def sign(session, name, *words):
    return IDENTITIES[name].sign(SIGNED.fingerprint, session.called, *map(str, words))


def listed(everybody):
    """Everybody in the total is somebody else; signed by all of them."""
    quorum = [name for name in NAMES if name in everybody]
    agree = lambda reply, session: Quorum(  # noqa: E731
        {name: sign(session, name, "agreed", 0, *sorted(everybody)) for name in quorum}
    )
    return {Survivors: lambda reply, session: replace(reply, everybody=tuple(everybody)), Quorum: agree}


def met(other, without):
    """A neighbour signed that it shares no mask with another."""

    def lie(reply, session):
        bits = "".join("01"[each != without] for each in SIGNED.neighbours[other]) if without else ""
        signature = sign(session, other, "masked", 0, other, bits)
        return replace(reply, met=reply.met | {other: bits}, signatures=reply.signatures | {other: signature})

    return {Survivors: lie}


def forged(kind, other, make=lambda session: b""):
    return {kind: lambda reply, session: replace(reply, signatures=reply.signatures | {other: make(session)})}


def other_key(other, by, release):
    """A key of the server's in the place of a neighbour's, signed by somebody or for some release."""

    def lie(reply, session):
        signature = (
            sign(session, by, "prepared", release, other, OWN.hex()) if by else reply.signatures[other]
        )
        return Envelopes(reply.mask_keys | {other: OWN}, reply.shares, reply.signatures | {other: signature})

    return {Envelopes: lie}


def test_an_honest_server_is_believed():
    for agreement, kinds in ((SIGNED, [Prepared, Masked, Agreed]), (UNSIGNED, [Prepared, Masked])):
        session, _, sent = told(agreement, {})
        assert sent[:-1] == kinds and session.results["n0"].arrays.keys() == session.billboard.arrays.keys()


@pytest.mark.parametrize(
    ("lies", "words", "last"),
    [
        (listed([*NAMES, "ghost"]), "not registered, or not this", Masked),
        (listed(NAMES[1:]), "not registered, or not this one", Masked),
        (listed(FEW), "fewer nodes than was agreed", Masked),
        (met(AROUND[0], AROUND[1]), "shares no mask with a neighbour", Masked),
        (
            {Quorum: lambda reply, _: Quorum(dict(list(reply.signatures.items())[: SIGNED.quorum - 1]))},
            "Too few nodes agree",
            Agreed,
        ),
        ({Quorum: listed(NAMES[:-1])[Quorum]}, "is not signed by it", Agreed),
        ({Quorum: lambda *_: Quorum(dict.fromkeys(NAMES, b""))}, "is not signed by it", Agreed),
        (other_key(AROUND[0], None, 0), "is not signed by it", Prepared),
        (other_key(AROUND[0], AROUND[1], 0), "is not signed by it", Prepared),
        (other_key(AROUND[0], AROUND[0], 1), "is not signed by it", Prepared),
        (forged(Envelopes, AROUND[0]), "is not signed by it", Prepared),
    ],
)
def test_each_lie_alone_is_refused(lies, words, last):
    """Before anything more is sent. A key of the server's own could take every mask off."""
    session, said, sent = told(SIGNED, lies)
    assert words in said and sent[-1] is last, (said, sent)


@pytest.mark.parametrize("other", AROUND)
def test_a_neighbour_without_a_signature_is_refused(other):
    """Each neighbour is looked at: with whom it shares masks, and what it signed."""
    another = next(name for name in AROUND if name != other)
    for lies, words in (
        (met(other, "n0"), "shares no mask with a neighbour"),
        (met(other, None), "shares no mask with a neighbour"),
        (forged(Survivors, other), f"'{other}' is not signed by it"),
        (forged(Survivors, other, lambda session: sign(session, another, "masked", 0, another, "1111")),
         f"'{other}' is not signed by it"),
        (forged(Quorum, other), f"'{other}' is not signed by it"),
    ):  # fmt: skip
        assert words in told(SIGNED, lies)[1]


def without(reply, session):
    """The envelope of n1 did not come."""
    parts = reply.mask_keys, reply.shares, reply.signatures
    return Envelopes(*({name: each for name, each in part.items() if name != "n1"} for part in parts))


OPENS = "would open a node's contribution"


@pytest.mark.parametrize(
    ("lies", "words"),
    [
        ({Survivors: lambda reply, _: replace(reply, dropped=reply.alive)}, OPENS),
        ({Survivors: lambda reply, _: replace(reply, dropped=("n1",))}, OPENS),
        ({Envelopes: without}, OPENS),  # of a node that sent no shares there are none to give
        (
            {Envelopes: without, Survivors: lambda reply, _: Survivors(reply.alive[1:], reply.alive[:1])},
            OPENS,
        ),
        ({Survivors: lambda reply, _: Survivors((), reply.alive)}, "Too few neighbours"),
    ],
)
def test_shares_of_a_node_open_one_secret_only(lies, words):
    """Both would open its sum."""
    session, said, sent = told(UNSIGNED, lies)
    assert words in said and sent == [Prepared, Masked]


@pytest.mark.parametrize("agreement", [SIGNED, UNSIGNED], ids=["signed", "unsigned"])
def test_a_server_of_another_agreement_or_with_other_neighbours_is_refused(agreement):
    def neighbours(change):
        return lambda reply, _: (
            lambda keys: replace(reply, names=tuple(keys), envelope_keys=keys)
        )(change(reply.envelope_keys))  # fmt: skip

    another = {Neighbours: lambda reply, _: replace(reply, agreement="0" * 64)}
    session, said, sent = told(agreement, another)
    assert "another agreement than this node's" in said and not sent
    few = {Neighbours: neighbours(lambda keys: {each: key for each, key in keys.items() if each != "n3"})}
    twice = {Neighbours: neighbours(lambda keys: {each.replace("n3", "n0"): keys[each] for each in keys})}
    for lies in (few, twice):  # itself for one of the others
        session, said, sent = told(agreement, lies)
        if agreement.keys:  # who its neighbours are it knows by itself
            assert session.results["n0"].privacy.releases
        else:
            assert "another number of neighbours" in said and not sent


@pytest.mark.parametrize("status", [400, 403, 404, 408, client.LATE, 410, 500, 503])
def test_who_is_refused_and_not_late_asks_for_no_total(status):
    """Another refusal ends the node; to be late alone is mended by what the others got."""

    def refuse(reply, session):
        raise Refusal(status, "No.")

    session, said, _ = told(UNSIGNED, {Survivors: refuse})
    asked = ("n0", "total", "0", "n0") in session.paths
    assert asked == (status == client.LATE) and (said == "No.") != asked


@pytest.mark.parametrize("nodes", [5, 6, 9, 10])
@pytest.mark.parametrize("colluding", [0, 1, 2])
def test_no_two_lists_of_nodes_have_a_quorum(nodes, colluding):
    """Colluding nodes sign both and each honest one a single list: the least number at which two fail."""
    made = replace(UNSIGNED, n_nodes=nodes, colluding=colluding)
    assert 2 * made.quorum - colluding > nodes >= 2 * (made.quorum - 1) - colluding


@pytest.mark.parametrize("name", [NAMES[0], NAMES[-1]])
def test_each_registered_name_and_key_is_looked_at(name):
    other = next(each for each in NAMES if each != name)
    for keys, words in (
        (KEYS | {name: KEYS[name][:-1]}, f"What node '{name}' registered has 63 bytes and not 64"),
        ({"a\nb" if each == name else each: KEYS[each] for each in KEYS}, "1 to 200 printable characters"),
        (KEYS | {name: KEYS[other]}, "keys must hold 5 nodes with a key of its own each"),
        ({each: KEYS[each] for each in KEYS if each != name}, "keys must hold 5 nodes"),
    ):
        with pytest.raises(InputError, match=words):
            replace(UNSIGNED, keys=keys)
    with pytest.raises(InputError, match="the others cannot agree"):  # two of five may go, four must sign
        replace(SIGNED, dropouts=0.4, colluding=1)
