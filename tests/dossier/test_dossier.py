"""Dossiers: two verifiers without shared code accept true dossiers and no others."""

import copy
import hashlib
import importlib.util
import json
import math
import re
import shutil
import sqlite3
import subprocess
from collections import Counter
from contextlib import closing, suppress
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from dp_accounting import gaussian_mechanism
from markdown_it import MarkdownIt
from scipy.optimize import brentq
from scipy.stats import norm
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

import hushrec
from hushrec import Accountant, Budget, Ledger, Release, Season, SeasonAccountant
from hushrec.dossier import (
    attacks,
    bounds,
    canonical,
    certify,
    check,
    form,
    model_card,
    render,
    sign,
    to_sign,
    unsigned,
)
from hushrec.dossier.bounds import learned
from hushrec.dossier.certifying import booked
from hushrec.dossier.ledger_page import overview
from hushrec.dossier.page import paged, plain
from hushrec.dossier.wording import amount, chance, percent, said, worded
from hushrec.errors import InputError
from hushrec.models import ItemBias, Popular
from hushrec.papers.one_bit import OneBitCompletion
from hushrec.privacy import Attendance, Laplace, RepeatAndSelect, epsilon_of, mu_of
from hushrec.registry import ESTIMATORS
from hushrec.training.run import statement
from tests.command_line import invoke
from tests.engines.servers import World

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("verify_dossier", ROOT / "examples/verify_dossier.py")
second = importlib.util.module_from_spec(spec)
spec.loader.exec_module(second)
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
EMPTY = {"model": {"name": "", "sha256": ""}, "page": ""}
#: What facts that cannot be true raise.
WRONG_FACTS = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, InputError)
ORDER = 2**252 + 27742317777372353535851937790883648493  # of Ed25519's group


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One ledger with a data set a case, "people" and its name, each with a model; two servers have two."""
    folder = tmp_path_factory.mktemp("confidential")
    ledger = Ledger(folder / "team.sqlite")
    ratings = hushrec.realistic(200, 30, 3000, seed=0)
    five = Budget(5, 1e-6, failure=5e-7)
    ledger.open_dataset("people budget", five)

    def accountant(dataset, budget):
        return Accountant(budget, ledger=ledger, dataset=f"people {dataset}")

    chosen = RepeatAndSelect(0.3, 1e-7, 4.0)
    ledger.charge("people budget", "tuning", Release("choice", chosen, 1.0, "user", "add-remove"))
    models = {"budget": ItemBias().fit(ratings, accountant("budget", Budget(2, 1e-6)))}
    models["season"] = five_weeks(ledger, ratings, folder / "people")
    Popular().fit(ratings, accountant("open", Budget(1, 1e-5)))
    donors = hushrec.PublicRatings(donors=list(ratings.users[:20]))
    features = np.random.default_rng(0).standard_normal((30, 2))
    informed = replace(ratings, domain=replace(ratings.domain, item_features=features))
    models["open"] = hushrec.PrivateALS().fit(informed, accountant("open", Budget(1, 1e-5)), public=donors)
    pure = Budget(1, 1e-6, unit="rating", relation="replace")
    models["rating"] = OneBitCompletion().fit(ratings, accountant("rating", pure))
    pair = [Ledger(folder / f"{role}.sqlite") for role in ("first", "second")]
    models["servers"] = World(ItemBias(), hushrec.realistic(6, 8, 30, seed=1), ledgers=pair).train()
    for name, model in models.items():
        model.save(folder / f"{name}.hush")
    return SimpleNamespace(folder=folder, ledger=ledger, pair=pair, ratings=ratings, names=list(models))


def five_weeks(ledger, ratings, attendance):
    """Return the fifth model of a season, the third week of which cost little."""
    ledger.open_season("people season", Season(Budget(4, 1e-6), 0.5, 0.5))
    given = {"ledger": ledger, "dataset": "people season", "attendance": Attendance(attendance)}
    season = ledger.season("people season", "1").season
    model = hushrec.PrivateALS().fit(ratings, SeasonAccountant(season, **given))
    for week in range(1, 5):
        following = SeasonAccountant(season, model.privacy, **given)
        if week == 2:
            model = hushrec.PrivateALS().fit(ratings, following, budget_fraction=0.1)
        else:
            model = model.continue_training(ratings, following)
    return model


def made(world, name, **words):
    path = world.folder / f"{name}.hush"
    words = {"controller": "ACME GmbH", "attacks": False, **words}
    return certify(path, book_of(world, name), **words), path


def written(facts, page=True) -> bytes:
    """The file that the owner of the key writes of any facts, with the digest of their own page."""
    if page:
        with suppress(WRONG_FACTS):  # else they have no page
            facts = {**facts, "page": paged(facts)}
    return canonical(sign(facts, KEY))


def book_of(world, name):
    return world.pair[0] if name == "servers" else world.ledger


def failed(checks) -> list[str]:
    return [what for what, passed, *_ in checks if passed is False]


def accepted(content, octets, path):
    """Whether the first verifier accepts, and the second."""
    try:
        first = all(each.passed is not False for each in check(content, path))
    except InputError as error:  # it is not a dossier any more
        first = "This is not a dossier" not in str(error)
    return first, not failed(second.verify(content, octets))


@pytest.mark.parametrize("name", ["budget", "season", "open", "rating", "servers"])
def test_both_verifiers_accept_what_is_true(world, name):
    dossier, path = made(world, name)
    content = written(dossier)
    assert accepted(content, path.read_bytes(), path) == (True, True)
    assert not failed(check(content, path, ledger=book_of(world, name)))
    parts = (dossier["not_covered"], dossier["deletion"], dossier["criteria"])
    assert {bool(re.search("have (not )?published", str(part))) for part in parts} == {
        name == "open"
    }  # who has no privacy there
    page = render(sign(dossier, KEY)).decode()
    assert ("Against everybody else epsilon = 3.38" in page) == (name == "servers")
    assert ("Both servers together" in str(dossier["not_covered"])) == (name == "servers")
    statement = hushrec.load(path).privacy
    for promise in (statement.text(brief=True), statement.joint_dp, page[:9000]):
        said = " ".join(promise.split())
        assert bool(
            re.search("(everybody but|all users except) those who have|Donors: not protected", said)
        ) == (name == "open")
    # the most that can be learned is no certainty; for Gaussian noise it agrees with draws
    levels = dossier["learned"]
    assert len(levels) == (3 if name in ("budget", "season") else 2)
    for level in levels:
        for alarms, found in level["found"]:
            by_epsilon = level["delta"] + math.exp(level["epsilon"]) * alarms
            assert alarms < found <= min(1, by_epsilon) + 1e-12
    if name == "open":
        mu = levels[1]["mu"]
        draws = np.random.default_rng(0).normal(size=10**6)
        threshold = np.quantile(draws, 0.99)
        assert levels[1]["found"][0][1] == pytest.approx((draws + mu > threshold).mean(), abs=2e-3)
        assert levels[1]["epsilon"] == pytest.approx(hushrec.privacy.epsilon_of(mu, 1e-5), rel=1e-9)


def places(thing, path=()):
    """Where values, lists and dictionaries are in a dossier; in a long list those of the first and last."""
    pairs = thing.items() if isinstance(thing, dict) else enumerate(thing) if isinstance(thing, list) else ()
    for key, value in pairs:
        if isinstance(thing, list) and len(thing) > 3 and len(path) != 3 and 0 < key < len(thing) - 1:
            continue
        yield (*path, key)
        yield from places(value, (*path, key))


def changes(inside, key):
    """Yield functions that change the value at a key, drop it, add to it, double or reorder it."""
    value = inside[key]

    def put(new):
        return lambda within, key: within.__setitem__(key, new)

    if isinstance(value, bool) or value is None:
        yield put(not value)
        yield put(0.5)
    elif isinstance(value, int | float):
        yield from (put(new) for new in (value * 0.9 - 1e-3, value * 1.1 + 1, str(value), None))
        yield put(float(value) if type(value) is int else int(value))
    elif isinstance(value, str):
        yield from (put(new) for new in (value + " ", value.upper() + "X", "", 7))
    elif isinstance(value, list):
        yield put([*value, value[-1] if value else "more"])
        yield put(value[::-1])
        yield put([])
    else:
        yield put({**value, "more": 1})
        yield put({})
    yield lambda within, key: within.pop(key)
    if isinstance(inside, list):
        yield lambda within, key: within.insert(key, copy.deepcopy(within[key]))


def rehashed(dossier):
    """The dossier with hashes, sums and sentences that fit its charges, where they can be made to fit."""
    book, previous, count = dossier["ledger"], {0: "0" * 64}, 0
    try:
        for row in book["charges"]:
            row[-2] = previous.get(row[0] - 1, row[-2])
            row[-1] = hashlib.sha256(json.dumps(row[:-1]).encode()).hexdigest()
            previous[count := row[0]] = row[-1]
        if book["head"]["count"] == count:
            book["head"]["hash"] = previous[count]
        dossier["learned"][1:] = bounds.together(book, dossier["promise"]["delta"])
        dossier.update(worded(dossier))
        written(dossier)
    except WRONG_FACTS:
        return {}  # there are none
    return dossier


def forged(dossier, path, change):
    """The dossier with one change, signed by the owner of the key."""
    lie = copy.deepcopy(dossier)
    inside = lie
    for key in path[:-1]:
        inside = inside[key]
    change(inside, path[-1])
    return lie


def verdicts(content, path, octets, ledger):
    """Return lines of both verifiers; `ledger` may be None."""
    try:
        first = check(content, path, ledger=ledger)
    except InputError as error:
        assert "This is not a dossier" in str(error)
        first = [("form", False, "", ())]
    return first, second.verify(content, octets, None, ledger and ledger.path)


def shown(lines, part) -> bool:
    """Return whether a line fails, or reports that a part of the dossier was compared with nothing."""
    return bool(failed(lines)) or any(part in parts for _, passed, _, parts in lines if passed is None)


def signed_or_not(facts, page) -> bytes:
    """Return the file of these facts; another form is used if they name no model."""
    try:
        return written(facts, page)
    except (LookupError, TypeError):
        payload = form.encoded(canonical({"predicate": facts}))
        return canonical({**sign(EMPTY, KEY), "payload": payload})


def every_change_is_refused_or_shown(world, name, at_most) -> int:
    """Change, drop, double, reorder or add to each value, list and dictionary, at most so often each."""
    dossier, path = made(world, name)
    octets, ledger, tried = path.read_bytes(), book_of(world, name), 0
    for number, place in enumerate(places(dossier)):
        inside = dossier
        for key in place[:-1]:
            inside = inside[key]
        possible = list(changes(inside, place[-1]))
        for turn in range(min(at_most, len(possible))):
            lie = forged(dossier, place, possible[(number + turn) % len(possible)])
            lies = [lie]
            if place[0] == "ledger" and len(place) > 1:
                lies += [whole] if (whole := rehashed(copy.deepcopy(lie))) else []
            contents = {signed_or_not(lie, place[0] != "page") for lie in lies}
            for content in contents - {written(dossier)}:
                for book in (None, ledger) if place[0] == "ledger" else (ledger,):
                    for lines in verdicts(content, path, octets, book):
                        assert shown(lines, place[0]), (place, lines)
                        if place[0] in ("model", "promise", "learned", "ledger"):
                            assert failed(lines) or (book is None and place[0] == "ledger"), (place, lines)
                tried += 1
    return tried


@pytest.mark.parametrize("name", ["season", "servers"])
def test_a_change_of_any_part_is_refused_or_shown_as_not_checked(world, record_property, name):
    record_property("forgeries refused", every_change_is_refused_or_shown(world, name, 1))


@pytest.mark.full
@pytest.mark.parametrize("name", ["budget", "season", "open", "servers"])
def test_every_change_is_refused_or_shown_as_not_checked(world, record_property, name):
    record_property("forgeries refused", every_change_is_refused_or_shown(world, name, 99))


def test_a_part_changed_by_somebody_without_the_key_fails_at_the_signature(world):
    """The signature alone protects parts that are compared with nothing else."""
    dossier, path = made(world, "budget")
    declared = {**dossier["declared"], "controller": "Somebody else"}
    payload = form.encoded(form.payload_of({**dossier, "declared": declared}))
    lie = canonical({**sign(dossier, KEY), "payload": payload})
    for lines in verdicts(lie, path, path.read_bytes(), None):
        assert "signature" in failed(lines), lines


def test_a_charge_with_its_own_hash_that_no_later_one_follows_fails_at_the_chain(world):
    """A charge is edited and hashed again; the next one still has the former hash."""
    dossier, path = made(world, "budget")
    lie = copy.deepcopy(dossier)
    row = lie["ledger"]["charges"][0]
    row[-2] = "0" * 63 + "1"
    row[-1] = hashlib.sha256(json.dumps(row[:-1]).encode()).hexdigest()
    assert len(lie["ledger"]["charges"]) > 1 and lie["ledger"]["charges"][1][0] == row[0] + 1
    for lines in verdicts(written(lie), path, path.read_bytes(), None):
        assert "chain" in failed(lines), lines


@pytest.mark.parametrize("with_ledger", [False, True])
def test_no_dossier_leaves_out_a_season_or_earlier_charges(world, with_ledger):
    """All other fields are made consistent, for any possible time of creation."""
    for name in ("season", "open", "budget"):
        dossier, path = made(world, name)
        ledger = book_of(world, name) if with_ledger else None
        lies = []
        for drop in (lambda rows: rows.pop(0), lambda rows: rows.pop(-1), lambda rows: rows.clear()):
            lie = copy.deepcopy(dossier)
            drop(lie["ledger"]["charges"])
            rows = lie["ledger"]["charges"]
            last = rows[-1] if rows else [0, *[""] * 14, "0" * 64]
            lie["ledger"].update(head={"count": last[0], "hash": last[-1]})
            lie["ledger"]["runs"] = [run for run in lie["ledger"]["runs"] if run in {row[2] for row in rows}]
            lies.append(lie)
        without = copy.deepcopy(dossier)
        without["ledger"]["seasons"] = []
        without["ledger"]["budget"] = None
        lies += [without, *({**lie, "made": "2099-01-01T00:00:00+00:00"} for lie in [*lies, dossier])]
        for lie in lies:
            if lie["ledger"] == dossier["ledger"] and lie["made"] == dossier["made"]:
                continue
            content = written(rehashed(copy.deepcopy(lie)) or lie)
            for lines in verdicts(content, path, path.read_bytes(), ledger):
                assert failed(lines), lie["ledger"]["head"]


def test_a_dossier_reserves_what_an_open_season_had_left_at_the_training(tmp_path):
    """Week 0 spent a part of a season; another model was trained then. The lie: a season with less left.

    The owner of the key makes all else consistent: the season is smaller, and week 0 had a larger part.
    """
    ledger, ratings = Ledger(tmp_path / "l.sqlite"), hushrec.realistic(60, 9, 400, seed=0)
    given = {"ledger": ledger, "dataset": "people"}
    ledger.open_season("people", Season(Budget(4, 1e-6)))
    ItemBias().fit(ratings, SeasonAccountant(ledger.season("people", "1").season, **given))
    accountant = Accountant(Budget(1, 1e-6), allow_composition=True, **given)
    Popular().fit(ratings, accountant).save(path := tmp_path / "m.hush")
    facts = certify(path, ledger, controller="ACME", attacks=False)
    whole = second.mu_of(4, 1e-6) ** 2
    for part in (0.999, 0.8, 0.51):
        lie = copy.deepcopy(facts)
        (season,) = lie["ledger"]["seasons"]
        season.update(epsilon=epsilon_of((part * whole) ** 0.5, 1e-6))
        content = written(rehashed(lie))
        for lines in verdicts(content, path, path.read_bytes(), None):
            assert "model" in failed(lines), (part, lines)
    content = written(facts)
    for lines in verdicts(content, path, path.read_bytes(), ledger):
        assert failed(lines) == []


def test_charges_of_before_a_dossier_cannot_be_left_out_of_it(tmp_path):
    """After two trainings, a dossier of the first one alone shows less than the charges."""
    ledger, ratings = Ledger(tmp_path / "l.sqlite"), hushrec.realistic(60, 9, 400, seed=0)
    for model in ("one", "two"):
        accountant = Accountant(Budget(1, 1e-6), ledger=ledger, dataset="people")
        Popular().fit(ratings, accountant).save(path := tmp_path / f"{model}.hush")
        if model == "one":
            early = certify(path, ledger, controller="ACME", attacks=False)
    late = certify(tmp_path / "one.hush", ledger, controller="ACME", attacks=False)
    path = tmp_path / "one.hush"
    for lines in verdicts(written(late), path, path.read_bytes(), ledger):
        assert not failed(lines)
    content = written({**early, "made": late["made"]})
    for lines in verdicts(content, path, path.read_bytes(), ledger):
        assert failed(lines) == ["ledger"]


def test_no_verifier_takes_a_model_that_is_not_private(world, tmp_path):
    """Its dossier is that of a private model in all else."""
    dossier, path = made(world, "budget")
    private = hushrec.load(path)
    for reasons in (("the budget is infinite",), ("the noise came from an injected source",)):
        forged = tmp_path / "not.hush"
        replace(private, privacy=replace(private.privacy, reasons=reasons)).save(forged)
        with pytest.raises(InputError, match="NOT PRIVATE"):
            certify(forged, world.ledger, controller="ACME", attacks=False)
        octets = forged.read_bytes()
        named = {"sha256": hashlib.sha256(octets).hexdigest(), "bytes": len(octets)}
        content = written({**dossier, "model": {**dossier["model"], **named}})
        for lines in verdicts(content, forged, octets, world.ledger):
            [words] = [words for what, passed, words, _ in lines if what == "model" and passed is False]
            assert "NOT PRIVATE" in words


#: Bytes of true JSON written in another way.
REWRITTEN = [
    lambda text: text.replace("2.0,", "2.00,", 1),
    lambda text: text.replace(": 1e-06", ": 0.000001", 1),
    lambda text: text.replace(": 1e-06", ": 1E-6", 1),
    lambda text: text.replace("ACME", "\\u0041CME", 1),
    lambda text: text.replace("{\n", '{\n "_type": 1,\n', 1),
    lambda text: text.replace('"mu": ', '"mu":  ', 1),
    lambda text: text.replace(": 1e-06", ": NaN", 1),
    lambda text: text.replace(": 1e-06", ": 1" + "0" * 5000, 1),
    lambda text: text.rstrip(),
    lambda text: text + "\n",
    lambda text: "\ufeff" + text,
    lambda text: text.replace("\n", "\r\n"),
    lambda text: json.dumps(json.loads(text), indent=1),
    lambda text: "[" * 100_000 + text,
    lambda text: "",
]


def signed_payload(envelope, payload) -> bytes:
    """The file of an envelope with another payload, signed by the owner of the key."""
    entry = {**envelope["signatures"][0], "sig": form.encoded(KEY.sign(form.signed_part(payload)))}
    return canonical({**envelope, "payload": form.encoded(payload), "signatures": [entry]})


def forgeries(dossier, octets, generator):
    """(content, model bytes) of dossiers that are not to be believed."""
    envelope, content = sign(dossier, KEY), written(dossier)
    payload = form.decoded(envelope["payload"])
    for rewrite in REWRITTEN:
        if (text := rewrite(content.decode())) != content.decode():
            yield text.encode(), octets
        if (text := rewrite(payload.decode())) != payload.decode():  # by the owner of the key
            yield signed_payload(envelope, text.encode()), octets
    (entry,) = envelope["signatures"]
    value = form.decoded(entry["sig"])
    late = (int.from_bytes(value[32:], "little") + ORDER).to_bytes(32, "little")
    for key, other in [
        ("sig", form.encoded(value[:32] + late)),
        ("sig", form.encoded(value[:-1])),
        ("sig", form.encoded(bytes(64))),
        ("sig", entry["sig"][:-3] + chr(ord(entry["sig"][-3]) + 1) + "=="),  # bits that base64 leaves out
        ("keyid", "01" + "00" * 31),
        ("keyid", entry["keyid"].upper()),
    ]:
        yield canonical({**envelope, "signatures": [{**entry, key: other}]}), octets
    yield canonical({**envelope, "signatures": []}), octets
    yield canonical({**envelope, "signatures": [entry, entry]}), octets
    for rewrite in (lambda text: text + b"\n", lambda text: text.replace(b" 28 ", b" 28  ", 1)):
        yield rewrite(to_sign(envelope)), octets
    yield canonical({**envelope, "payloadType": "application/json"}), octets
    yield canonical({key: part for key, part in envelope.items() if key != "signatures"}), octets
    for change in (
        {"_type": "https://in-toto.io/Statement/v0.1"},
        {"predicateType": "https://slsa.dev/provenance/v1"},
        {"subject": [{"name": "item-bias.hush", "digest": {"sha256": "0" * 64}}]},
        {"more": 1},
    ):
        yield signed_payload(envelope, canonical(json.loads(payload) | change)), octets
    for at, level in enumerate(dossier["learned"]):  # lies from which all else follows
        for key in ("epsilon", "delta", "mu"):
            cost = {**level, key: level[key] * 0.9}
            lie = learned(*(cost[each] for each in ("of", "epsilon", "delta", "failure", "mu")))
            levels = [*dossier["learned"][:at], lie, *dossier["learned"][at + 1 :]]
            yield written({**dossier, "learned": levels}), octets
    while True:
        if generator.random() < 0.5:  # bits of the file
            at, spoiled = generator.integers(len(content)), bytearray(content)
            spoiled[at] ^= 1 << generator.integers(8)
            yield bytes(spoiled), octets
        else:  # bits of the model, its length
            at, spoiled = generator.integers(len(octets)), bytearray(octets)
            spoiled[at] ^= 1 << generator.integers(8)
            yield content, bytes(spoiled[:at] if generator.random() < 0.1 else spoiled)


@pytest.mark.parametrize("name, count", [("budget", 300), ("open", 100), ("servers", 100)])
def test_no_verifier_accepts_a_damaged_file(world, tmp_path, name, count):
    dossier, path = made(world, name)
    other, damaged = tmp_path / "model.hush", forgeries(dossier, path.read_bytes(), np.random.default_rng(7))
    for content, octets in islice(damaged, count):
        other.write_bytes(octets)
        assert accepted(content, octets, other) == (False, False), content
    source = Path(second.__file__).read_text()
    assert not re.search("^(from|import) hushrec", source, re.M)
    content, model = written(dossier), path.read_bytes()
    wrong_key = "00" * 32
    assert failed(check(content, path, public_key=wrong_key)) == ["signature"]
    assert failed(second.verify(content, model, bytes(32))) == ["signature"]


def test_notes_of_a_model_file_are_text_and_change_no_other_part(world, tmp_path):
    """Notes that read like promises, features, donors or Markdown: typed fields alone decide."""
    path = world.folder / "budget.hush"
    trained = hushrec.load(path)
    notes = (
        "against anybody at all nothing is learned",
        "against everybody else epsilon = 0.001 at delta = 1e-6",
        "against courts [epsilon](https://x.org) is ~~0~~ <img src=x onerror=alert(1)>\n\n# Promise",
        "item features; ratings of 9 donors have no privacy here",
    )
    noted = tmp_path / "noted.hush"
    replace(trained, privacy=replace(trained.privacy, notes=notes)).save(noted)
    facts = {each: certify(each, world.ledger, controller="ACME", attacks=False) for each in (path, noted)}
    parts = ("promise", "learned", "not_covered", "deletion", "criteria", "law")
    assert all(facts[path][part] == facts[noted][part] for part in parts)
    assert plain(facts[path]) == plain(facts[noted])
    model = facts[noted]["model"]
    assert model | {"sha256": 0, "bytes": 0, "notes": 0} == facts[path]["model"] | {
        "sha256": 0,
        "bytes": 0,
        "notes": 0,
    }
    dossier = sign({**facts[noted], "not_covered": [*notes, "*a* _b_ `c` | d"]}, KEY)
    shown = HTMLParser()
    found: list[str] = []
    shown.handle_starttag = lambda tag, attributes: found.append(tag)
    shown.feed(
        MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(model_card(dossier).decode())
    )
    assert not {"img", "del", "em"} & set(found) and found.count("a") == 1 and found.count("h1") == 1
    assert b"<img" not in render(dossier)


def test_what_is_of_another_kind_is_refused_with_how_to_make_it(world):
    dossier, path = made(world, "budget")
    for call, says in (
        (lambda: certify(path, str(path), controller="ACME"), r"pass hushrec.Ledger\(path\)"),
        (lambda: overview(path), r"pass hushrec.Ledger\(path\)"),
        (lambda: check(str(path), path), "read_bytes"),
        (lambda: sign(dossier, "officer.pem"), "Ed25519PrivateKey"),
        (lambda: certify(path, world.ledger, controller="ACME", language="fr"), "pass one of 'en', 'de'"),
    ):
        with pytest.raises(InputError, match=says):
            call()


def test_the_ledger_tells_what_the_dossier_alone_cannot(world):
    """The head where charges of others come last; charges that came later; another ledger."""
    dossier, path = made(world, "season")

    def shut(lie):  # with all that follows from it
        lie["ledger"]["seasons"][0]["closed"] = True
        del lie["learned"][2:]
        lie.update(worded(lie))

    lies = [
        (lambda lie: lie["ledger"]["seasons"][0].update(gap=5.0), "ledger"),
        (lambda lie: lie["ledger"]["head"].update(hash="0" * 64), "ledger"),
        (shut, "ledger"),
        (lambda lie: lie["not_covered"].clear(), "sentences"),  # by the owner of the key
        (lambda lie: lie.update(approved="by the regulator"), "form"),
        (lambda lie: lie["declared"].update(approved="by the regulator"), "form"),
    ]
    for tell, what in lies:
        lie = copy.deepcopy(dossier)
        tell(lie)
        found = check(written(lie), path, ledger=world.ledger)
        assert what in failed(found)
    dossier, path = made(world, "open")
    Popular().fit(world.ratings, Accountant(Budget(1, 1e-5), ledger=world.ledger, dataset="people open"))
    found = check(written(dossier), path, ledger=world.ledger)
    assert not failed(found) and "for a newer dossier: 1" in str(found)


def test_what_is_published_holds_nothing_private(world, tmp_path):
    """No path, no other data set, nothing to load, no claim that the law alone can make."""
    for name in world.names:
        facts, _ = made(world, name, controller="<b>ACME</b> & `Söhne`")
        dossier = sign(facts, KEY)
        page, card, stored = (make(dossier).decode() for make in (render, model_card, canonical))
        assert page.encode() == render(json.loads(stored)) and "<b>ACME" not in page + card
        for text in (page, card, json.dumps(facts)):
            assert str(world.folder) not in text and "confidential" not in text
            assert not re.search("anonym|complian|<script|src=|@import|url\\(", text, re.I)
            others = {f"people {each}" for each in world.names} - {f"people {name}"}
            assert not any(other in text for other in others)
        assert not re.search("https?:", page)
        metadata = yaml.safe_load(card.split("---")[1])
        assert metadata["library_name"] == "hushrec" and metadata["differential_privacy"]["unit"] in page


def test_attacks_are_made_on_the_configuration_and_end_in_time():
    budget = Budget(5, 1e-6)
    canary, membership = attacks.run(Popular(), budget)
    assert 0 <= canary["reached"] <= canary["claim"] == 5 and 0 < canary["mu_reached"] < canary["mu_claim"]
    draws = np.random.default_rng(0).normal(size=(2, 10**6))
    assert membership["claim"] == pytest.approx((draws[0] + budget.mu > draws[1]).mean(), abs=2e-3)
    assert 0.4 < membership["reached"] < membership["claim"] < 0.8 < membership["without_privacy"]
    domain = hushrec.Domain(range(40), rating_range=(1, 5))
    settled = hushrec.Both.planned(budget, domain, 300)  # settings of models within it, and of their tuning
    assert 0.4 < attacks._membership(settled, budget)["reached"] < membership["claim"]
    assert all(each["not_run"] == "time" for each in attacks.run(Popular(), budget, limit=0.01))
    assert attacks.run(Popular(), Budget(1, 1e-6, unit="rating"))[0]["not_run"] == "unit"


def test_an_overview_has_each_data_set_with_what_is_spent_reserved_and_free(world, tmp_path):
    page = overview(world.ledger).decode()
    assert str(world.folder) not in page and not re.search("https?:|<script|src=", page)
    cut = re.split("<h2>", page)[1:]
    assert [each.split("</h2>")[0] for each in cut] == sorted(f"people {name}" for name in world.names[:-1])
    for part, name in zip(cut, sorted(world.names[:-1])):
        rows = world.ledger.chain(f"people {name}")[1]
        spent = math.fsum(row[7] ** 2 for row in rows)
        assert f"<h3>Trainings: {len({row[2] for row in rows})}</h3>" in part
        if name == "budget":
            whole = second.mu_of(5, 5e-7) ** 2  # what is reserved for failures is not for mu
            assert f"spent {spent / whole:.1%}, reserved 0.0%, free {1 - spent / whole:.1%} of the" in part
        if name == "season":
            whole = second.mu_of(4, 1e-6) ** 2
            spent, slice_of = dearest(squares := slices(world.ledger.path)), math.sqrt(max(squares))
            assert f"spent {spent / whole:.1%}, reserved {1 - spent / whole:.1%} of what" in part
            assert f'<td>5</td><td></td><td class="number">{slice_of:.4g}</td>' in part
    alone = Ledger(tmp_path / "alone.sqlite")
    assert "No data set yet" in overview(alone).decode()
    Popular().fit(world.ratings, Accountant(Budget(math.inf, 1e-6), ledger=alone, dataset="ours"))
    assert "NOT PRIVATE" in overview(alone).decode()


#: A fault, and words of its error.
WRONG = {
    "certify MODEL --out d.pdf": "ends in .html",
    "certify MODEL --out d.json": "ends in .html",
    "certify MODEL --out no/such/d.html": "in a folder that exists",
    "certify MODEL --out fresh.html": "'fresh.html' exists already",
    "certify MODEL --out d.html --model-card there.json": "exists already",
    "certify MODEL --out d.html --model-card d.tosign": "another name for the model card",
    "certify MODEL --out d.html --ledger twin.sqlite --model-card twin.sqlite": "is one of the inputs",
    "certify MODEL --out d.html --dataset season": "--dataset",
    "certify MODEL --out d.html --ledger other.sqlite": 'no data set "people budget"',
    "certify MODEL --out d.html --ledger twin.sqlite": "no run that released what",
    "certify MODEL --out d.html --ledger damaged.sqlite": "hash chain",
    "certify public.hush --out d.html": "NOT PRIVATE (the data were declared public)",
    "certify infinite.hush --out d.html": "NOT PRIVATE (the budget is infinite)",
    "certify alone.hush --out d.html": "trained without a ledger",
    "certify officer.pem --out d.html": "is not a hushrec model file",
    "certify MODEL --out d.html --key officer.pem": "--key",
    "sign fresh.tosign right.sig --public-key officer.pem": "keep it secret",
    "sign fresh.tosign right.sig --public-key x25519.pub": "is not an Ed25519 public key",
    "sign fresh.tosign right.sig --public-key other.pub": "is not this key's signature of this dossier",
    "sign fresh.tosign cut.sig --public-key officer.pub": "has 63 bytes; pass the 64 that openssl",
    "sign fresh.tosign nowhere.sig --public-key officer.pub": "check the path",
    "sign fresh.tosign there.sig --public-key officer.pub": "is not this key's signature of this dossier",
    "sign there.json right.sig --public-key officer.pub": "is signed already",
    "sign done.tosign right.sig --public-key officer.pub": "'done.json' exists already",
    "sign fresh.html right.sig --public-key officer.pub": "This is a page; pass its .tosign",
    "sign officer.pem right.sig --public-key officer.pub": "This is not a dossier",
    "sign cut.json right.sig --public-key officer.pub": "The dossier was changed",
    "verify nowhere.json MODEL": "check the path",
    "verify there.json nowhere.hush": "check the path",
    "verify there.json MODEL --page nowhere.html": "check the path",
    "verify there.json MODEL --public-key officer.pem": "is not an Ed25519 public key",
    "verify there.json alone.hush": "failed these checks: model",
    "verify there.json MODEL --public-key other.pub": "failed these checks: signature",
    "verify fresh.tosign MODEL --public-key officer.pub": "failed these checks: signature",
    "verify done.json MODEL": "failed these checks: form",
    "verify there.json MODEL --page fresh.html": "failed these checks: page",
    "verify there.json MODEL --page there.json": "failed these checks: page",
    "verify there.json MODEL --ledger twin.sqlite": "failed these checks: ledger",
    "verify there.json MODEL --ledger damaged.sqlite": "hash chain",
    "verify there.json MODEL --ledger officer.pem": "is not a ledger",
    "verify officer.pem MODEL": "pass the .tosign of hushrec certify, or the .json of hushrec sign.",
    "verify fresh.html MODEL": "This is a page; pass its .tosign or .json, and the page with --page.",
    "verify cut.json MODEL": "failed these checks: form",
    "ledger show --ledger twin.sqlite --html no/such/o.html": "in a folder that exists",
    "ledger show --ledger twin.sqlite --html twin.sqlite --force": "is one of the inputs",
    "ledger show --ledger nowhere.sqlite --html o.html": "There is no ledger at",
    "ledger show --ledger twin.sqlite --html o.pdf": "must end in .html",
    "ledger show --ledger damaged.sqlite --html o.html": "hash chain",
}
#: Arguments of the second verifier, and words of its error; its exit code is 2.
WRONG_FOR_THE_SECOND = {
    "nowhere.json MODEL": "the dossier nowhere.json cannot be read",
    "there.json nowhere.hush": "the model nowhere.hush cannot be read",
    "fresh.html MODEL": "fresh.html is a page; pass its .tosign or .json, and --page fresh.html",
    "model.sig MODEL": "the dossier model.sig cannot be read",
    "officer.pem MODEL": "officer.pem is no dossier",
    "there.json MODEL officer.pem": "officer.pem is no Ed25519 public key",
    "there.json MODEL x25519.pub": "x25519.pub is no Ed25519 public key",
    "there.json MODEL nowhere.pub": "the key nowhere.pub cannot be read",
    "there.json MODEL --page nowhere.html": "the page nowhere.html cannot be read",
    "there.json MODEL --ledger nowhere.sqlite": "the ledger nowhere.sqlite cannot be read",
    "there.json MODEL --ledger officer.pem": "officer.pem is no ledger",
}


def test_an_overview_shows_names_as_text_and_what_weeks_to_come_can_cost(tmp_path):
    ledger, budget, name = Ledger(tmp_path / "l.sqlite"), Budget(1, 1e-6), '<img src=x onerror="alert(1)">'
    ledger.charge(name, "run", Release("<i>", budget.share(1.0), 1.0, "user", "add-remove"))
    season = Season(Budget(2, 1e-6), name="<b>1</b>")
    ledger.open_season(name, season, allow_composition=True)
    page = overview(ledger).decode()
    assert not re.search("<(img|b|i)[ >]", page)
    text = text_of(page)
    assert name in text and season.name in text
    both = epsilon_of(math.hypot(budget.mu, season.budget.mu), 1e-6)
    assert f"With weeks to come epsilon = {both:.6g} at delta" in text


def test_wrong_inputs_are_one_sentence_and_write_nothing(world, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    public = serialization.PublicFormat.SubjectPublicKeyInfo
    other, exchange = Ed25519PrivateKey.generate(), X25519PrivateKey.generate()
    Path("officer.pem").write_bytes(KEY.private_bytes(encoding, form, serialization.NoEncryption()))
    for name, key in (("officer", KEY), ("other", other), ("x25519", exchange)):
        Path(f"{name}.pub").write_bytes(key.public_key().public_bytes(encoding, public))
    Ledger("other.sqlite").open_dataset("others", Budget(1, 1e-6))
    twin, budget = Ledger("twin.sqlite"), Budget(2, 1e-6)
    Popular().fit(world.ratings, Accountant(budget, ledger=twin, dataset="people budget"))
    ItemBias().fit(world.ratings, Accountant(budget)).save("alone.hush")
    ItemBias().fit(world.ratings, Accountant(budget, data_is_public=True)).save("public.hush")
    ItemBias().fit(world.ratings, Accountant(Budget(math.inf, 1e-6))).save("infinite.hush")
    damaged = sqlite3.connect(shutil.copy("twin.sqlite", "damaged.sqlite"))
    damaged.execute("UPDATE charges SET mu = 0.01")
    damaged.commit()
    damaged.close()
    facts, path = made(world, "budget")
    fresh = unsigned({**facts, "made": "2026-01-01T00:00:00+00:00"})
    for name, content in {
        "there.json": written(facts),
        "cut.json": written(facts)[:-100],
        "there.sig": form_of_signature(sign(facts, KEY)),
        "done.json": canonical(fresh),
        "done.tosign": to_sign(fresh),
        "fresh.html": render(fresh),
        "fresh.tosign": to_sign(fresh),
        "right.sig": KEY.sign(to_sign(fresh)),
        "cut.sig": KEY.sign(to_sign(fresh))[:-1],
    }.items():
        Path(name).write_bytes(content)
    before = {each: each.read_bytes() for each in Path().iterdir() if each.is_file()}
    wrong = []
    for line, says in WRONG.items():
        words = line.replace("MODEL", str(path)).split()
        if words[0] == "certify":
            words += ["--controller", "ACME", "--attacks", "none"]
            words += [] if "--ledger" in words else ["--ledger", str(world.ledger.path)]
        done = invoke(*words)
        one = done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1 and len(done.stderr) < 450
        code = 1 if "failed these checks" in says else 2
        if done.exit_code != code or not one or says not in done.stderr:
            wrong.append(f"{line}\n  -> {done.exit_code} {done.output}  (expected: {says})")
    for line, says in WRONG_FOR_THE_SECOND.items():
        monkeypatch.setattr("sys.argv", ["verify_dossier.py", *line.replace("MODEL", str(path)).split()])
        with pytest.raises(SystemExit) as ended:
            second.main()
        said = capsys.readouterr().err
        if ended.value.code != 2 or says not in said:
            wrong.append(f"{line}\n  -> {said}  (expected: {says})")
    assert not wrong, "\n".join(wrong)
    assert {each: each.read_bytes() for each in Path().iterdir() if each.is_file()} == before


def form_of_signature(envelope) -> bytes:
    return form.decoded(envelope["signatures"][0]["sig"])


def test_an_officer_signs_the_page_with_openssl_and_both_verifiers_see_an_edited_one(
    world, tmp_path, monkeypatch, capsys
):
    """The page's steps. The private key has a password, and no command of ours gets it."""
    monkeypatch.chdir(tmp_path)

    def run(*words, code=0):
        if words[0] == "openssl":
            done = subprocess.run(words, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        elif words[0] == "hushrec":
            done = invoke(*words[1:])
            assert done.exit_code == code, done.output
        else:
            monkeypatch.setattr("sys.argv", [*map(str, words)])
            with pytest.raises(SystemExit) as ended:
                second.main()
            assert ended.value.code == code
            return capsys.readouterr().out
        return done.stdout

    path, ledger = world.folder / "budget.hush", world.ledger.path
    password = ("pass:word", "-out", "officer.pem")
    run("openssl", "genpkey", "-algorithm", "ed25519", "-aes256", "-pass", *password)
    key = ("-inkey", "officer.pem", "-passin", "pass:word")
    run("openssl", "pkey", "-in", "officer.pem", "-passin", "pass:word", "-pubout", "-out", "o.pub")
    words = f"--ledger {ledger} --controller ACME --attacks none --out d.html --model-card README.md".split()
    files = json.loads(run("hushrec", "certify", path, *words, "--json"))["files"]
    assert files == ["d.html", "d.tosign", "README.md"]
    second_line, given = ("verify_dossier.py", "d.json", path), ("--page", "d.html", "--ledger", ledger)
    before = ("d.tosign", path, *given)
    for lines in (run("hushrec", "verify", *before), run("verify_dossier.py", *before)):
        assert lines.count("NOT CHECKED  signature:  nobody has signed it yet") == 1 and "key:" not in lines
    run("openssl", "pkeyutl", "-sign", "-rawin", *key, "-in", "d.tosign", "-out", "d.sig")
    run("hushrec", "sign", "d.tosign", "d.sig", "--public-key", "o.pub")
    first, other = ("--public-key", "o.pub", *given), ("o.pub", *given)
    lines = run("hushrec", "verify", "d.json", path, *first)
    assert (lines.count("ok "), lines.count("NOT CHECKED")) == (9, 1)
    lines = run(*second_line, *other)
    assert (lines.count("ok "), lines.count("NOT CHECKED")) == (8, 2)
    page = tmp_path / "d.html"
    text = page.read_bytes()
    for edited in (
        text.replace(b"epsilon = 2 ", b"epsilon = 1 "),
        text + b"\n",
        text.replace(b"\n", b"\r\n"),
    ):
        assert edited != text
        page.write_bytes(edited)
        assert "FAILED       page:" in run("hushrec", "verify", "d.json", path, *first, code=1)
        assert "FAILED       page:" in run(*second_line, *other, code=1)
    told = run("verify_dossier.py", "--help")
    assert all(word in told for word in ("hushrec sign", ".tosign", "Ed25519", "--ledger", "--page"))


def test_a_page_that_does_not_follow_from_the_facts_is_refused(world):
    """The owner of the key signs the digest of a page with a smaller epsilon."""
    facts, path = made(world, "budget")
    lie = render(sign(facts, KEY)).replace(b"epsilon = 2 ", b"epsilon = 1 ")
    content = written({**facts, "page": hashlib.sha256(lie).hexdigest()}, page=False)
    assert failed(check(content, path, page=lie)) == ["sentences"]
    assert any("page" in parts for _, _, _, parts in second.verify(content, path.read_bytes(), page=lie))


#: A value of each type of JSON, of which whole numbers are another than others.
KINDS = (None, True, 0, 0.0, "x", ["x"], {"x": 1})
#: Leaves that may be null, and their other type.
NULLABLE = dict.fromkeys(("purpose", "period", "contact", "review", 12), str) | {13: int}
NULLABLE |= dict.fromkeys(("mu", "odds", "training_mu_squared", "epsilon_of_both_servers", 8), float)
NULLABLE |= dict.fromkeys(("consent", "budget", "week"), type(None))


@pytest.mark.parametrize("name", ["season", "servers"])
def test_a_leaf_of_another_type_fails_at_the_form_of_both_verifiers(world, name):
    """Null, true, 1, 1.0, texts, lists and objects are never taken for one another."""
    facts, path = made(world, name, purpose="Films")
    facts["attacks"] = [
        {"attack": "canaries", "not_run": "time"},
        {"attack": "membership", "users": 9, "measure": "area", "reached": 0.5, "claim": 0.9}
        | {"margin": 0.1, "without_privacy": 1.0},
        {"attack": "canaries", "users": 9, "measure": "epsilon", "reached": 0.0, "claim": 2.0}
        | {"mu_reached": 0.0, "mu_claim": 1.0, "wrong_with_chance": 0.001},
    ]
    octets, tried = path.read_bytes(), 0
    for place in places(facts):
        inside = facts
        for key in place[:-1]:
            inside = inside[key]
        old, in_charges = inside[place[-1]], place[:2] == ("ledger", "charges")
        free = place[:2] == ("model", "settings") or (in_charges and place[2:3] > (0,))
        if free or (isinstance(old, list | dict) and old):
            continue
        nullable = place[-1] in NULLABLE and (in_charges or isinstance(place[-1], str))
        legal = {type(old), type(None), NULLABLE[place[-1]]} if nullable else {type(old)}
        wrong = [new for new in KINDS if type(new) not in legal]
        for new in (wrong[tried % len(wrong)], wrong[(tried + 1) % len(wrong)]):
            lie = forged(facts, place, lambda within, key, new=new: within.__setitem__(key, new))
            content = written(lie, page=False)
            for lines in (check(content, path), second.verify(content, octets)):
                assert failed(lines) == ["form"], (place, old, new, lines)
        tried += 1
    assert tried > 100


def test_the_file_is_an_in_toto_statement_that_another_library_verifies(world):
    """securesystemslib, the reference implementation of DSSE, with a right and with a wrong key."""
    facts, path = made(world, "open")
    envelope = Envelope.from_dict(json.loads(written(facts)))
    public = KEY.public_key().public_bytes_raw().hex()
    keyid = json.loads(written(facts))["signatures"][0]["keyid"]
    right = SSlibKey(keyid, "ed25519", "ed25519", {"public": public})
    assert list(envelope.verify([right], threshold=1)) == [keyid]
    wrong = SSlibKey(keyid, "ed25519", "ed25519", {"public": "00" * 32})
    with pytest.raises(VerificationError):
        envelope.verify([wrong], threshold=1)
    statement = json.loads(envelope.payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    page = hashlib.sha256(render(sign(facts, KEY))).hexdigest()
    assert [each["digest"] for each in statement["subject"]] == [{"sha256": digest}, {"sha256": page}]
    assert statement["predicate"] == json.loads(json.dumps(facts))


def test_consent_is_kept_as_digests_that_openssl_gives_too(world, tmp_path):
    files = {"text": b"I agree.\n", "list": b"ann\nbob\n", "key": bytes(range(32)), "short": b"secret"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    paths = [tmp_path / name for name in ("text", "list", "key")]
    facts, _ = made(world, "open", consent=paths)
    line = ["openssl", "dgst", "-sha256", "-mac", "HMAC", "-macopt", f"hexkey:{files['key'].hex()}", paths[1]]
    shown = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert shown.split()[-1] == facts["consent"]["list"]
    assert facts["consent"]["text"] == hashlib.sha256(files["text"]).hexdigest()
    page, asked = render(sign(facts, KEY)).decode(), "Whether the donors consented"
    assert facts["consent"]["list"] in page and asked not in page
    assert asked in render(sign(made(world, "open")[0], KEY)).decode()
    assert not re.search("ann|bob", written(facts).decode() + json.dumps(facts["consent"]))
    for wrong, says in (
        ((*paths[:2], tmp_path / "short"), "fewer than 32 bytes; make one with: openssl rand"),
        ((*paths[:2], tmp_path / "nowhere"), "cannot be read"),
    ):
        with pytest.raises(InputError, match=says):
            made(world, "open", consent=wrong)
    with pytest.raises(InputError, match="used no donors' ratings"):
        made(world, "budget", consent=paths)


SKIPPED = {"attack": "canaries", "not_run": "time"}
#: Claims that no dossier may make, in either language.
CLAIMS = {
    "en": "anonym|complian|guarantees that|fulfil|no leak|is lawful|safe",
    "de": "anonym|konform|gewährleistet|erfüllt|kein Leck|rechtmäßig|sicher ist",
}


@pytest.mark.true("D5")
@pytest.mark.parametrize("language", ["en", "de"])
def test_the_page_says_what_was_checked_in_either_language(world, language):
    """A text for every gap, the same figures, and no claim that the law alone can make."""
    declared = {"purpose": "Films", "period": "2026", "contact": "dpo@acme.example", "review": "2027"}
    for name in world.names:
        facts, path = made(world, name, language=language, **declared)
        page = render(sign(facts, KEY)).decode()
        text = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", page.partition("<body>")[2]))
        assert not re.search(r"\{\w*\}|None|not_run", text) and not re.search(CLAIMS[language], text)
        assert all(value in text for value in declared.values())
        assert failed(check(written(facts), path)) == []
        law = {"en": "GDPR", "de": "DSGVO"}[language]
        assert all(re.search(rf"{law} {article}\b", text) for article in (5, 17, 22, 25, 32))
        assert re.search(r"DSA 27\b", text)
        whom = "(for|für) (one|eine) ([Pp]erson|rating|Bewertung)[^.:;]*(absent|other|nicht|andere)"
        for after in text.split("epsilon = ")[1:]:  # never without delta, unit and relation
            assert re.match(rf"[\d.,]+ (at|bei) delta = \S+, {whom}", after), after[:99]
    other, _ = made(world, "budget")
    assert other["learned"] == made(world, "budget", language=language)[0]["learned"]


def text_of(page, until="</html>") -> str:
    return unescape(
        re.sub("[ \n]+", " ", re.sub("<[^>]*>", " ", page.partition("<body>")[2].partition(until)[0]))
    )


@pytest.mark.true("D5")
def test_german_pages_have_the_numbers_of_the_english_ones_in_german(world):
    """1,400 is one thousand four hundred in English and 1.4 in German; no number and no term is left over."""
    for name in world.names:
        counts = []
        for language in ("en", "de"):
            facts, _ = made(world, name, language=language)
            facts["model"] |= {"items": 1400, "bytes": 1234567, "rating_range": [0.5, 5.0]}
            facts["attacks"] = [
                {"attack": "membership", "users": 1000, "measure": "area", "reached": 0.5784, "claim": 0.7}
                | {"margin": 0.0693, "without_privacy": 1.0}
            ]
            text = text_of(render(sign(facts | worded(facts), KEY)).decode())
            if language == "de":
                words = r".{20}\b(items?|ratings|likes at|gramian|released|hide|users)\b.{20}"
                left = re.search(words, text.replace(facts["model"]["name"], ""))
                assert left is None, left
            text = re.sub(r"\d+\.\d+\.\d+|[0-9a-f]{8,}", "", text)
            counts.append(Counter(re.findall(r"\d+[.,\u202f][\d.,\u202f]*\d", text)))
        swap = str.maketrans(",.", "\u202f,")
        assert Counter({each.translate(swap): count for each, count in counts[0].items()}) == counts[1]
        assert {"1\u202f400", "1\u202f234\u202f567", "0,578", "0,07"} <= counts[1].keys()


def test_all_texts_of_the_library_are_there_in_german(world):
    """Labels of releases, notes, public data and mechanisms, as estimators write them."""
    german, found = form.words("de"), {"Gaussian", "Laplace", "RandomizedResponse", "RepeatAndSelect"}
    for name in world.names:
        found |= {*hushrec.load(world.folder / f"{name}.hush").privacy.notes}
    features, budget = np.random.default_rng(0).standard_normal((40, 2)), Budget(5, 1e-6)
    for domain in (
        hushrec.Domain(range(40), rating_range=(1, 5), item_features=features),
        hushrec.Domain(range(40), likes=True, item_features=features),
    ):
        for kind in ESTIMATORS.values():
            try:
                estimator = kind.planned(budget, domain, 300) if kind.uses_user_count else kind()
                labels = {release.label for release in estimator.plan(budget, domain).releases}
            except InputError:  # it has no privacy, or predicts no likes
                continue
            stems = {re.sub(r",? ?\d+$", "", label) for label in labels}
            found |= {part for stem in stems for part in stem.split(": ")}
            rows = SimpleNamespace(domain=domain, by_position=True)
            said_of_it = statement(estimator, rows, Accountant(budget))
            found |= {*said_of_it.notes, *said_of_it.public}
    assert len(found) > 20 and {text for text in found if said(text, german) == text} == {"Laplace"}


@pytest.mark.true("D5")
@pytest.mark.parametrize("language", ["en", "de"])
def test_the_first_page_has_no_label_and_no_word_of_python(world, language):
    for name in world.names:
        facts, _ = made(world, name, language=language)
        first = text_of(render(sign(facts, KEY)).decode(), "<h2>1. ")
        labels = {row[4] for row in facts["ledger"]["charges"]} - {"level", "weights", "step"}
        assert not [label for label in labels if label in first]
        words = "None|True|False|add-remove|replace\\b|_|unit:|relation:|e-0"
        assert not re.search(f"{words}|{facts['model']['name']}", first)
        assert first.count("1 in ") >= 2 or language == "de"  # the two small probabilities


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
def test_what_is_learned_of_a_value_follows_from_twice_the_distance(mu):
    """Oracle: dp-accounting at half the noise, and draws of a likelihood-ratio test."""
    level = learned("model", epsilon_of(mu, 1e-6), 1e-6, 0.0, mu)
    of_values = bounds.valued(level, "add-remove")
    epsilon = gaussian_mechanism.get_epsilon_gaussian(1 / (2 * mu), 1e-6)
    assert of_values["belief"][0][1] == pytest.approx(1 / (1 + math.exp(-epsilon)))
    draws = np.random.default_rng(0).normal(size=10**6)
    found = (draws + 2 * mu > np.quantile(draws, 0.99)).mean()
    assert of_values["found"][0][1] == pytest.approx(found, abs=2e-3)
    assert bounds.valued(level, "replace") is None


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.2), (1.0, 1e-3), (3.0, 0.05)])
def test_no_test_finds_more_than_that_of_the_worst_mechanism(epsilon, delta):
    """With chance delta it shows who is there, else it answers by randomized response (Kairouz 2015)."""
    odds = math.exp(epsilon)
    there = np.array([delta, (1 - delta) * odds / (1 + odds), (1 - delta) / (1 + odds), 0])
    for alarms, most in learned("model", epsilon, delta, 0.0, None)["found"]:
        found, left = 0.0, alarms
        for here, away in zip(there, there[::-1], strict=True):  # by their ratio, the largest first
            part = 1.0 if away == 0 else min(1.0, left / away)
            found, left = found + part * here, left - part * away
        assert most == pytest.approx(found, rel=1e-12)


@pytest.mark.parametrize("failure", [0.0, 4e-7])
def test_a_belief_exceeds_its_bound_where_a_choice_fails_or_noise_is_large(failure):
    """Oracle: the likeliest of the events that are e^2 times as likely with somebody as without."""
    mu = mu_of(2.0, 1e-6 - failure)
    level = learned("budget", 2.0, 1e-6, failure, mu)
    at = brentq(lambda at: norm.sf(at - mu) / norm.sf(at) - math.exp(2.0), 0, 30)
    assert bounds.exception(level) == pytest.approx(failure + norm.sf(at - mu), rel=1e-6)
    assert bounds.exception(learned("budget", 2.0, failure, failure, 0.0)) == failure


def test_a_budget_of_pure_releases_bounds_tests_by_its_epsilon(tmp_path):
    """Randomized response may still spend all of it: its mu is larger than the budget's."""
    ledger, budget = Ledger(tmp_path / "l.sqlite"), Budget(2.0, 1e-6)
    ledger.open_dataset("shop", budget)
    ledger.charge("shop", "run", Release("pure", Laplace(1.0), 1.0, "user", "add-remove"))
    *_, row = bounds.together(booked(ledger, "shop", ["run"]), 1e-6)
    assert row["of"] == "budget" and row["mu"] is None
    told = math.exp(2) / (1 + math.exp(2))  # of the one answer, and of the other where nobody is there
    for alarms, most in row["found"]:
        assert most >= alarms / (1 - told) * told


def test_each_run_is_listed_with_the_cost_of_all_up_to_it(world):
    page = render(sign(made(world, "open")[0], KEY)).decode()
    rows = [re.findall("<td[^>]*>(.*?)</td>", row) for row in re.findall("<tr>(.*?)</tr>", page)]
    found = [
        (float(row[-2]), float(row[-1]))
        for row in rows
        if re.search("[0-9]{4}-[0-9]{2}-[0-9]{2} ", row[0] if row else "")
    ]
    card = model_card(sign(made(world, "open")[0], KEY)).decode()
    assert f"| trainings of this data set in this ledger | {len(found)} |" in card
    mu = Budget(1, 1e-5).mu
    for count, (spent, epsilon) in enumerate(found, 1):
        assert spent == pytest.approx(math.sqrt(count) * mu, rel=2e-3)
        assert epsilon == pytest.approx(epsilon_of(math.sqrt(count) * mu, 1e-5), rel=2e-3)
    assert len(found) >= 2  # other tests may have trained on these people too


@pytest.mark.true("D5")
def test_several_ids_can_cost_more_than_as_many_times_epsilon(world):
    """Under Gaussian noise two ids are two distances apart, and the page says so."""
    assert gaussian_mechanism.get_epsilon_gaussian(1 / (2 * mu_of(3, 1e-6)), 1e-6) > 2 * 3
    page = render(sign(made(world, "open")[0], KEY)).decode()
    assert "up to k times as large, and with Gaussian noise it can be more" in page


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_without_gaussian_noise_a_value_costs_twice_epsilon(epsilon):
    """Randomized response that shows one value, the other, or nobody: as far apart as the bound says."""
    odds = math.exp(epsilon)
    one, nobody = np.array([odds, 1 / odds, 1]), np.array([1.0, 1, 1])
    other = one[[1, 0, 2]]
    level = learned("model", epsilon, 1e-9, 0.0, None)
    ratios = [np.log(a / b).max() for a, b in ((one, nobody), (nobody, one), (other, nobody))]
    assert max(ratios) == pytest.approx(epsilon)
    of_values = bounds.valued(level, "add-remove")
    assert of_values["epsilon"] == pytest.approx(np.log(one / other).max())
    assert of_values["delta"] == pytest.approx(1e-9 * (1 + odds))
    chosen = bounds.valued(learned("model", epsilon, 2e-9, 1e-9, 0.3), "add-remove")  # mu may not hold
    assert (chosen["epsilon"], chosen["mu"]) == (2 * epsilon, None)
    assert chosen["delta"] == pytest.approx(2e-9 * (1 + odds))


@pytest.mark.parametrize("language", ["en", "de"])
def test_what_is_learned_is_rounded_up_and_by_little(language):
    """A reader who takes a number as it is written never takes it for less."""
    lang, mark = form.words(language), ".,"[language == "de"]

    def read(text: str) -> float:
        (shown,) = re.findall("[0-9][0-9.,\u202f]*(?=[^0-9]*$)", text)
        return float(
            "".join("." if sign == mark else sign for sign in shown if sign.isdigit() or sign == mark)
        )

    for value in np.exp(np.random.default_rng(0).uniform(-12, 9, 500)).tolist():
        assert value * (1 - 1e-8) <= read(amount(value, lang)) < value * 1.001
    for value in [0.0101, 0.0999, 0.1001, 0.5, 0.9851, 0.9989]:
        more = read(percent(value, lang)) - 100 * value
        assert -1e-9 <= more < (1 if 0.1 <= value <= 0.985 else 0.1)
    assert percent(0.9991, lang) == percent(1 - 1e-12, lang) == lang["nearly"]
    for value in [0.00999, 1 / 128, 1e-3, 1.234e-6, 9.99e-10, 1e-300]:
        assert value * (1 - 1e-8) <= 1 / read(chance(value, lang)) < value * 1.12
    assert chance(0.0101, lang) == percent(0.0101, lang) and chance(0.0, lang) == "0"


@pytest.mark.true("D5")
def test_sentences_on_deletion_seasons_likes_and_declarations_contradict_nothing(world):
    facts, _ = made(world, "season")
    page = text_of(render(sign(facts, KEY)).decode())
    assert "No budget limits" not in page and "outside the open seasons" in page
    assert "only that of its open seasons" in page
    shut = copy.deepcopy(facts)
    shut["ledger"]["seasons"][0]["closed"] = True
    assert "No budget limits this data set" in text_of(render(sign(shut | worded(shut), KEY)).decode())
    assert "After the controller has deleted the person's, later trainings do not use them" in page
    assert "vary from run to run" in text_of(render(sign({**facts, "attacks": [SKIPPED]}, KEY)).decode())
    controller, officer = page.partition("For the data protection officer")[::2]
    assert "no other trainings used" in controller and "no other trainings used" not in officer
    assert "I cannot confirm the declaration of the controller" in officer
    likes = {**facts, "model": {**facts["model"], "likes": True}}
    assert "are likes: the items that a person bought" in text_of(render(sign(likes, KEY)).decode())
    assert "are likes" not in page


@pytest.mark.true("D5")
def test_a_cap_above_the_catalogue_is_no_minimisation_and_a_failed_attack_no_evidence(world):
    facts, _ = made(world, "budget")
    page = render(sign(facts, KEY)).decode()
    assert "A person may rate all 30 items, so no cap limits" in page and "10,000" not in page
    capped = copy.deepcopy(facts)
    capped["model"]["ratings_per_user"] = 20
    assert "At most 20 ratings of a person count." in render(sign(capped, KEY)).decode()
    capped["model"]["ratings_per_user"] = 30  # all of them
    assert "At most 30 ratings of a person" not in render(sign(capped, KEY)).decode()
    attack = {"attack": "canaries", "users": 9, "reached": 0.0, "claim": 2.0, "wrong_with_chance": 0.001}
    member = {"attack": "membership", "users": 9, "claim": 0.9, "margin": 0.1, "without_privacy": 1.0}
    for outcome, says in (
        (attack, "found nothing: no evidence either way"),
        (attack | {"reached": 0.5}, "below the claim"),
        (attack | {"reached": 2.5}, "ABOVE THE CLAIM"),
        (member | {"reached": 0.55}, "found nothing: no evidence either way"),
        (attack | {"reached": 1.5, "mu_reached": 0.9, "mu_claim": 0.8}, "ABOVE THE CLAIM"),
        (member | {"reached": 0.7}, "below the claim"),
        (member | {"reached": 0.95}, "below the claim"),  # by more than the margin only it is above
        (member | {"reached": 1.01, "margin": 0.1}, "ABOVE THE CLAIM"),
        ({"attack": "canaries", "not_run": "time"}, "NOT RUN: it did not finish in time"),
    ):
        page = render(sign({**facts, "attacks": [outcome]}, KEY)).decode()
        assert f">{says}</td>" in page


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs the browser chromium to print")
def test_it_prints_on_six_pages_the_first_of_which_is_signed(world, tmp_path):
    """The fullest page there is: 60 trainings, each sentence, and every field of full length."""
    facts, _ = made(
        world, "season", language="de", **dict.fromkeys(("purpose", "period"), "Lorem ipsum " * 16)
    )
    servers = made(world, "servers", language="de")[0]
    facts["model"] |= {
        "epsilon_of_both_servers": 2.1,
        "exact_noise": False,
        "notes": servers["model"]["notes"],
    }
    rows = facts["ledger"]["charges"]
    facts["ledger"]["charges"] = [[*row[:2], f"{row[2]}{n}", *row[3:]] for n in range(12) for row in rows]
    facts["ledger"]["budget"] = None
    facts.update(worded(facts))
    (tmp_path / "d.html").write_bytes(render(sign(facts, KEY)))
    line = "chromium --headless --no-sandbox --disable-gpu --no-pdf-header-footer --print-to-pdf=d.pdf d.html"
    subprocess.run(line.split(), cwd=tmp_path, check=True, capture_output=True, timeout=120)
    pages = len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "d.pdf").read_bytes()))
    assert 3 <= pages <= 6
    first = (tmp_path / "d.html").read_text().partition("<h2>1. ")[0]
    assert first.endswith("</div>\n") and 'class="signed"' in first.partition('class="first"')[2]


def slices(path):
    """The mu squared of each training, from the noise in the ledger's mechanisms."""
    with closing(sqlite3.connect(path)) as ledger:
        query = "SELECT run, mechanism FROM charges WHERE dataset = 'people season' ORDER BY id"
        squares = dict[str, float]()
        for run, mechanism in ledger.execute(query):
            multiplier = float(re.fullmatch(r"Gaussian\(noise_multiplier=(.+)\)", mechanism)[1])
            squares[run] = squares.get(run, 0.0) + multiplier**-2
    return list(squares.values())


def dearest(squares):
    """The largest cost of one user: the third week, a tenth of the others, is left out."""
    weights = [math.isqrt(int(1024 * 0.5**k)) / 32 for k in range(5)]
    others = [squares[place] for place in (0, 1, 3, 4)]
    return sum(weight**2 * square for weight, square in zip(weights, others, strict=False))


@pytest.mark.true("D5")
@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", ("first training costs at most", "from the third on about 0.5 times the one before")),
        ("de", ("Das erste Training einer Kennung kostet höchstens", "ab dem dritten etwa das 0,5-Fache")),
    ],
    ids=["en", "de"],
)
def test_a_seasons_dossier_states_what_its_trainings_cost_one_user(world, language, words):
    """Oracle: noise multipliers and dp-accounting. Of five trainings the third cost a tenth."""
    squares = slices(world.ledger.path)
    assert len(squares) == 5 and squares[2] == pytest.approx(0.1 * squares[0], rel=1e-6)
    facts, _ = made(world, "season", language=language)
    (season,) = facts["ledger"]["seasons"]
    whole = gaussian_mechanism.get_sigma_gaussian(4, 1e-6) ** -2
    every = sum(math.isqrt(1024 >> k) ** 2 / 1024 for k in range(11))
    assert season["training_mu_squared"] == pytest.approx(max(squares)) == pytest.approx(whole / every)
    assert (season["first"], season["decay"]) == (0.5, 0.5)
    assert [level["of"] for level in facts["learned"]] == ["season", "so far", "weeks"]
    assert facts["model"]["week"] == ["1", 4]
    for level, square in zip(facts["learned"], (whole, dearest(squares), whole), strict=True):
        assert level["mu"] ** 2 == pytest.approx(square, rel=1e-6)
        epsilon = gaussian_mechanism.get_epsilon_gaussian(1 / level["mu"], 1e-6)
        assert level["epsilon"] == pytest.approx(epsilon, rel=1e-5)
    page, card = render(sign(facts, KEY)).decode(), model_card(sign(facts, KEY)).decode()
    text = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", page))
    assert all(word in text for word in words) and words[0] in card
    assert re.search("week 4 of season “1”|Woche 4 der Saison „1“", text)
    most = 1e-4 * math.ceil(1e4 * max(squares))
    assert f"{most:.4f}".replace(".", "." if language == "en" else ",") in text


@pytest.mark.true("D5")
@pytest.mark.parametrize("lie", ["decay", "gap", "begun", "mu", "one week", "split", "dear"])
def test_no_verifier_accepts_another_promise_of_a_season(world, lie):
    """The owner of the key makes all other fields consistent; the ledger is not shown."""
    facts, path = made(world, "season")
    facts = copy.deepcopy(facts)
    (season,), charges, own = facts["ledger"]["seasons"], facts["ledger"]["charges"], facts["ledger"]["runs"]
    square = season["training_mu_squared"]
    if lie == "decay":  # the same epsilon over other trainings
        slice_of = Season(Budget(4, 1e-6), 0.5, 0.6).mu ** 2
        season.update(decay=0.6, training_mu_squared=slice_of)
    elif lie in ("gap", "begun"):
        season.update({lie: type(season[lie])(4)})
    elif lie == "mu":
        season.update(training_mu_squared=square / 2)
    elif lie == "one week":  # what this model's releases cost
        facts["learned"][0] = learned("season", epsilon_of(square**0.5, 1e-6), 1e-6, 0.0, square**0.5)
    elif lie == "split":  # two trainings of half the cost
        first = [row for row in charges if row[2] == charges[0][2]]
        for row in first[: len(first) // 2]:
            row[2] += "0"
        season.update(begun=6)
    elif lie == "dear":  # a later training that a user's slice has no room for
        charges += [[charges[-1][0] + 1, *charges[-1][1:2], own[0], *charges[-1][3:]]]
        facts["ledger"]["head"]["count"] += 1
    content = written(rehashed(copy.deepcopy(facts)) or facts)
    for lines in verdicts(content, path, path.read_bytes(), None):
        assert failed(lines), lines
