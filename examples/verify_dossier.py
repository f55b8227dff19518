"""A second verifier of dossiers, without hushrec: it needs cryptography and SciPy.

    python verify_dossier.py dossier.json model.hush officer.pub.pem --page dossier.html --ledger team.sqlite

It prints a line for each check: ok, FAILED, or NOT CHECKED with the parts of the dossier that no check
compares. Epsilons are computed from the recorded mechanisms.
"""

import argparse
import base64
import hashlib
import json
import math
import re
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from scipy.special import expit, log_ndtr, ndtr, ndtri

#: Fields and their types, by the name of the part; ? is "or null", [] a list, () a list of that length.
RECORDS = {
    "dossier": "language:text made:text declared:declared consent:consent? model:model promise:promise"
    " ledger:ledger learned:level[] attacks:attack[] code:code page:hash not_covered:text[]"
    " criteria:(text,text,text)[] deletion:text[] law:(text,text)[]",
    "declared": "controller:text purpose:text? period:text? contact:text? review:text?",
    "consent": "text:hash list:hash",
    "model": "name:text settings:object sha256:hash bytes:int items:int rating_range:(float,float) likes:bool"
    " ratings_per_user:int trained_by:text public:text[] notes:text[] public_ratings:bool"
    " item_features:bool epsilon_of_both_servers:float? exact_noise:bool exact_arithmetic:bool"
    " week:(text,int)?",
    "promise": "epsilon:float delta:float failure:float unit:text relation:text",
    "ledger": "dataset:text unit:text relation:text closed:bool head:head charges:list[] runs:text[]"
    " budget:budget? seasons:season[]",
    "head": "count:int hash:hash",
    "charge": "id:int dataset:text run:text time:text label:text mechanism:text sensitivity:float mu:float"
    " epsilon:float? failure:float unit:text relation:text season:text? step:int? previous:hash hash:hash",
    "budget": "epsilon:float delta:float failure:float",
    "season": "name:text first:float decay:float gap:float epsilon:float delta:float"
    " unit:text relation:text begun:int closed:bool training_mu_squared:float",
    "level": "of:text epsilon:float delta:float failure:float mu:float? odds:float? belief:(float,float)[]"
    " found:(float,float)[]",
    "canaries": "attack:text users:int measure:text reached:float claim:float mu_reached:float mu_claim:float"
    " wrong_with_chance:float",
    "membership": "attack:text users:int measure:text reached:float claim:float margin:float"
    " without_privacy:float",
    "not run": "attack:text not_run:text",
    "code": "version:text sha256:hash",
    "signature": "keyid:hash sig:text",
    "envelope": "payload:text payloadType:text signatures:signature[]",
    "statement": "_type:text subject:object[] predicateType:text predicate:dossier",
}
FIELDS = {part: dict(field.split(":") for field in text.split()) for part, text in RECORDS.items()}
COLUMNS = list(FIELDS["charge"])
TYPES = {"text": str, "int": int, "float": float, "bool": bool, "list": list, "object": dict}
PAYLOAD = "application/vnd.in-toto+json"
FORMATS = ["https://in-toto.io/Statement/v1", "https://github.com/hushrec/hushrec/dossier/v1"]
#: Parts of the dossier that no check compares. The first three are compared if a public key, the page or the
#: ledger is passed.
NOT_CHECKED = {
    "key": ("signature",),
    "page": ("page",),
    "ledger": ("ledger",),
    "sentences": ("not_covered", "criteria", "deletion", "law", "page", "code"),
    "declared": ("declared", "consent", "made", "attacks", "language"),
}


class Wrong(Exception):
    """A check that fails."""


def need(holds, what):
    """Raise Wrong with this message unless the condition holds."""
    if not holds:
        raise Wrong(what)


def check_types(value, kind, place):
    """Raise Wrong unless a value has exactly the fields and types of its kind."""
    if kind.endswith("?"):
        if value is not None:
            check_types(value, kind[:-1], place)
    elif kind.endswith("[]"):
        need(type(value) is list, f"{place} is no list")
        for each in value:
            check_types(each, kind[:-2], place)
    elif kind.startswith("("):
        kinds = kind[1:-1].split(",")
        need(type(value) is list and len(value) == len(kinds), f"{place} has another length")
        for each, of in zip(value, kinds, strict=True):
            check_types(each, of, place)
    elif kind in FIELDS:
        need(type(value) is dict and value.keys() == FIELDS[kind].keys(), f"{place} has other fields")
        for name, of in FIELDS[kind].items():
            check_types(value[name], of, name)
    elif kind == "attack":
        need(type(value) is dict, f"{place} is no object")
        kinds = ("canaries", "membership", "not run")
        same_fields = [each for each in kinds if FIELDS[each].keys() == value.keys()]
        check_types(value, same_fields[0] if same_fields else "not run", place)
    elif kind == "hash":
        need(type(value) is str and re.fullmatch("[0-9a-f]{64}", value), f"{place} is no SHA-256 or key")
    else:
        need(type(value) is TYPES[kind], f"{place} is no {kind}")


def same(one, two):
    """Return whether two values are equal as JSON, where 1, 1.0 and true differ."""
    return json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)


def canonical(value):
    """Return the signed bytes: keys sorted, ASCII, one space per level, floats as Python writes them."""
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False).encode("ascii") + b"\n"


def decoded(text):
    """Return the bytes of a base64 text in canonical form."""
    octets = base64.b64decode(text, validate=True)
    need(base64.b64encode(octets).decode() == text, "base64 is written in another way")
    return octets


def read(content):
    """Return envelope (None before it is signed), payload and dossier of a file in canonical form."""
    envelope = None
    if content.startswith(b"DSSEv1 "):
        payload = content[content.find(b"{") :]
        need(pre_authenticated(payload) == content, "not the canonical form")
    else:
        envelope = json.loads(content)
        need(isinstance(envelope, dict) and canonical(envelope) == content, "not the canonical form")
        check_types(envelope, "envelope", "the envelope")
        need(envelope["payloadType"] == PAYLOAD and len(envelope["signatures"]) == 1, "another envelope")
        payload = decoded(envelope["payload"])
    statement = json.loads(payload)
    need(isinstance(statement, dict) and canonical(statement) == payload, "not the canonical form")
    check_types(statement, "statement", "the statement")
    dossier = statement["predicate"]
    need(dossier["language"] in ("en", "de"), "another language")
    charges_of(dossier["ledger"])
    model = dossier["model"]
    digests = {f"{model['name']}.hush": model["sha256"], "dossier.html": dossier["page"]}
    subject = [{"name": name, "digest": {"sha256": digest}} for name, digest in digests.items()]
    need(same(statement["subject"], subject), "the statement is about another model or page")
    need([statement["_type"], statement["predicateType"]] == FORMATS, "another format or version")
    return envelope, payload, dossier


def pre_authenticated(payload):
    """Return the bytes that are signed: DSSE's pre-authentication encoding of the payload and its type."""
    return f"DSSEv1 {len(PAYLOAD)} {PAYLOAD} {len(payload)} ".encode() + payload


def check_signature(envelope, payload, wanted=None):
    """Check the Ed25519 signature of the payload and its type, as DSSE encodes them; None without one."""
    if envelope is None:
        need(wanted is None, "nobody has signed it")
        return None
    (entry,) = envelope["signatures"]
    key = bytes.fromhex(entry["keyid"])
    need(wanted in (None, key), f"by another key, {key.hex()}")
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(decoded(entry["sig"]), pre_authenticated(payload))
    except InvalidSignature:
        raise Wrong("not that of the key in the dossier") from None
    return f"by key {key.hex()}"


def check_page(dossier, page):
    """Check that a page is the one of the dossier."""
    digest = hashlib.sha256(page).hexdigest()
    need(digest == dossier["page"], "it is not the page of this dossier; something was changed")
    return f"SHA-256 {digest}"


def header_of(octets):
    """Return the header of a model file and the shapes of its arrays, after checking all digests."""
    length = int.from_bytes(octets[:8], "little")
    head, payload = octets[: 8 + length], octets[8 + length :]
    need(payload[-32:] == hashlib.sha256(head).digest(), "the header of the model has not its digest")
    places = json.loads(head[8:])
    digests = json.loads((stored := places.pop("__metadata__"))["digests"])
    need(set(digests) == set(places) - {"digest"}, "an array of the model has no digest")
    for name, digest in digests.items():
        begin, end = places[name]["data_offsets"]
        need(hashlib.sha256(payload[begin:end]).hexdigest() == digest, f"array {name} has not its digest")
    parts = {name: json.loads(stored[name]) for name in ("sections", "domain", "privacy")}
    return parts, {name: place["shape"] for name, place in places.items()}


def described(octets, both):
    """Return the facts that a dossier states about a model; `both` is epsilon by the noise of two servers."""
    parts, shapes = header_of(octets)
    sections, domain, said = parts["sections"], parts["domain"], parts["privacy"]
    name, settings = sections["serve"]["model"], sections["serve"]["settings"]
    if "lists" in sections:  # a model of both jobs, whose settings name those of its parts
        inner = {"ratings": sections["serve"], "lists": sections["lists"]}
        threshold = sections["lists"]["settings"]["like_threshold"]
        name, settings = "both", {"like_threshold": threshold, "lists_share": sections["lists"]["share"]}
        for part, entry in inner.items():
            own = {"model": entry["model"], **entry["settings"]}
            settings |= {f"{part}.{key}": value for key, value in own.items() if key not in settings}
    season = said.get("season")
    return {
        "name": name,
        "settings": settings,
        "sha256": hashlib.sha256(octets).hexdigest(),
        "bytes": len(octets),
        "items": shapes["catalogue/offsets"][0] - 1,
        "rating_range": domain["rating_range"],
        "likes": domain.get("likes", False),
        "ratings_per_user": domain["max_ratings_per_user"],
        "trained_by": said["version"],
        "public": said["public"],
        "notes": said["notes"],
        "public_ratings": said.get("public_ratings", False),
        "item_features": said.get("item_features", False),
        "epsilon_of_both_servers": both,
        "exact_noise": said["exact_noise"],
        "exact_arithmetic": said["exact_arithmetic"],
        "week": season and [season["name"], season["week"]],
    }


def check_model(dossier, octets):
    """Check that the model file is the named one, has the stated promise, and has charged releases."""
    model, promise, book = dossier["model"], dossier["promise"], dossier["ledger"]
    need(hashlib.sha256(octets).hexdigest() == model["sha256"], "the model file is another one")
    said = header_of(octets)[0]["privacy"]
    need(said["private"] is True and said["not_private_because"] == [], "the model is NOT PRIVATE")
    stated = {key: said[key] for key in ("epsilon", "delta", "unit", "relation", "failure")}
    need(same(promise, stated), "the model promises something else")
    need((book["unit"], book["relation"]) == (said["unit"], said["relation"]), "another unit or relation")
    charged = [row for row in charges_of(book) if row["run"] in book["runs"]]
    left, used = iter(charged), []
    for release in said["releases"]:
        row = next((row for row in left if same_release(row, release)), None)
        need(row is not None, f"release {release['label']!r} of the model was not charged")
        used.append(row)
    need(used and list(dict.fromkeys(row["run"] for row in used)) == book["runs"], "a run is not the model's")
    costs = costs_of(used)
    if said.get("season"):  # all its trainings
        costs = mu_of(promise["epsilon"], promise["delta"]), 0.0, None
    check_level(dossier["learned"][0], costs, "the model")
    both = None
    if said.get("two_servers"):  # each of which adds noise
        both = epsilon_of(costs[0] / math.sqrt(2), promise["delta"] - promise["failure"])
        need(near(model["epsilon_of_both_servers"], both), f"by both servers' noise it is {both:.6g}")
        both = model["epsilon_of_both_servers"]
    need(same(model, described(octets, both)), "the model is described as another one")
    check_statement(book, said)
    return f"SHA-256 {model['sha256']}; its {len(used)} releases were charged"


def check_statement(book, said):
    """Check that the dossier has the charges, seasons and budget of the model's own statement."""
    then = said["ledger"]
    need(then is not None and then["dataset"] == book["dataset"], "the model is of another data set")
    earlier = charges_of(book)[: then["charges"]]
    need(len(earlier) == then["charges"], "charges from before the model's training are left out")
    need(
        near(math.hypot(*(row["mu"] for row in of_a_user(book, earlier))), then["mu"]),
        "earlier charges are others",
    )
    need(len({row["run"] for row in earlier}) == then["runs"], "earlier runs are others")
    reserved = 0.0
    for each in book["seasons"]:
        of_season = [row for row in earlier if row["season"] == each["name"]]
        spent = math.fsum(row["mu"] ** 2 for row in of_a_user(book, of_season))
        reserved += max(0.0, mu_of(each["epsilon"], each["delta"]) ** 2 - spent)
    need(then.get("reserved", 0.0) <= reserved * (1 + 1e-6) + 1e-12, "an open season is left out")
    if limit := then["budget"]:
        stated = book["budget"]
        need(stated is not None, "the budget of the data set is left out")
        need(stated["epsilon"] <= limit["epsilon"] and stated["delta"] <= limit["delta"], "a larger budget")
    need(book["closed"] or not then.get("closed", False), "the data set was closed")
    if week := said.get("season"):
        own = {name: week[name] for name in ("name", "first", "decay", "gap")} | {
            name: said[name] for name in ("epsilon", "delta", "unit", "relation")
        }
        kept = [{name: each[name] for name in own} for each in book["seasons"]]
        need(any(same(own, each) for each in kept), "the model's season is left out, or is another one")


def same_release(row, release):
    """Return whether a charge belongs to a release of a statement."""
    kind, numbers = parsed(row["mechanism"])
    names = {"RandomizedResponse": "epsilon", "RepeatAndSelect": "run_epsilon delta mean_runs"}
    stated = [release[name] for name in names.get(kind, "noise_multiplier").split()]
    words = all(row[name] == release[name] for name in ("label", "sensitivity", "unit", "relation"))
    return words and kind == release["mechanism"] and numbers == stated


def charges_of(book):
    """Return the charges by the names of their columns."""
    need(all(len(row) == len(COLUMNS) for row in book["charges"]), "a charge has other columns")
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in book["charges"]]
    check_types(rows, "charge[]", "a charge")
    return rows


def check_chain(dossier):
    """Check the hash of each charge, which covers the charge before it, and the head."""
    book, count, previous = dossier["ledger"], 0, "0" * 64
    for raw, row in zip(book["charges"], charges_of(book), strict=True):
        need(row["id"] > count, "charges are not in order")
        need(hashlib.sha256(json.dumps(raw[:-1]).encode()).hexdigest() == row["hash"], "a hash is wrong")
        need(row["id"] > count + 1 or row["previous"] == previous, "a link is wrong")
        need(all(row[each] == book[each] for each in ("dataset", "unit", "relation")), "a charge of others")
        count, previous = row["id"], row["hash"]
    head = book["head"]
    need(head["count"] > count or list(head.values()) == [count, previous], "the head is another one")
    weeks = runs_of(charges_of(book))
    names = [each["name"] for each in book["seasons"]]
    need(len(set(names)) == len(names) and set(weeks) <= set(names), "a season is left out, or there twice")
    for each in book["seasons"]:
        need(same(each["begun"], len(runs := weeks.get(each["name"], {}))), "a season has begun other weeks")
        need((each["unit"], each["relation"]) == (book["unit"], book["relation"]), "a season of another unit")
        need((each["unit"], each["relation"]) == ("user", "add-remove"), "no season has this promise")
        most = mu_of(each["epsilon"], each["delta"]) ** 2 / math.fsum(w * w for w in weights_of(each))
        need(near(each["training_mu_squared"], most), f"a training may cost {most:.6g} of mu squared")
        dearest = max((math.fsum(row["mu"] ** 2 for row in run) for run in runs.values()), default=0.0)
        need(dearest <= most * (1 + 1e-6), "a training costs more than the season allows")
    return f"{len(book['charges'])} charges, head {head['hash']}"


def runs_of(rows):
    """Return the charges by season and run."""
    seasons = {}
    for row in rows:
        if row["season"] is not None:
            seasons.setdefault(row["season"], {}).setdefault(row["run"], []).append(row)
    return seasons


def weights_of(season):
    """Return the weights of a user's trainings, in 32nds rounded down, until they are 0.

    The first training has the part `first` of the cost. The others share the rest: each costs `decay` times
    the one before.
    """
    first, decay, weights = season["first"], season["decay"], [1.0]
    cost = (1 - first) * (1 - decay) / first
    while weight := math.floor(32 * math.sqrt(cost) + 1e-9) / 32:
        weights.append(weight)
        cost *= decay
    return weights


def of_a_user(book, rows):
    """Return the costs of a user: of a season those of the dearest set of weeks, each by its weight."""
    kept = [row for row in rows if row["season"] is None]
    weights = {each["name"]: weights_of(each) for each in book["seasons"]}
    for name, runs in runs_of(rows).items():
        dearest = [0.0]  # by the number of the user's trainings so far
        for run in runs.values():
            cost = math.fsum(row["mu"] ** 2 for row in run)
            steps = [spent + weight**2 * cost for spent, weight in zip(dearest, weights[name], strict=False)]
            dearest = [max(pair) for pair in zip([*dearest, 0.0], [0.0, *steps], strict=False)]
        kept.append({"mu": math.sqrt(max(dearest)), "epsilon": None, "failure": 0.0})
    return kept


def parsed(mechanism):
    """Return name and numbers of a mechanism, as a ledger writes it."""
    kind, numbers = re.fullmatch(r"(\w+)\((.+)\)", mechanism).groups()
    return kind, [float(each.split("=")[1]) for each in numbers.split(", ")]


def cost_of(mechanism):
    """Return mu, pure epsilon or None, and the probability of failure."""
    kind, numbers = parsed(mechanism)
    if kind == "Gaussian":
        return 1 / numbers[0], None, 0.0
    if kind == "RepeatAndSelect":
        epsilon, failure = selection(*numbers), numbers[1]
    else:
        epsilon, failure = {"Laplace": 1 / numbers[0], "RandomizedResponse": numbers[0]}[kind], 0.0
    return -2 * float(ndtri(expit(-epsilon))), epsilon, failure


def bisect(is_above, low, high):
    """Return the point at which a monotone condition becomes true."""
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if is_above(middle) else (middle, high)
    return high


def delta_of(mu, epsilon):
    """Delta of a mu-GDP mechanism at epsilon (Balle and Wang 2018, theorem 8)."""
    first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return math.exp(first) * -math.expm1(second - first)


def epsilon_of(mu, delta):
    """Epsilon of a mu-GDP mechanism at delta."""
    if delta <= 0:
        return math.inf
    high = mu * (mu + 2 * math.sqrt(-2 * math.log(delta))) + 1
    return bisect(lambda epsilon: delta_of(mu, epsilon) <= delta, 0.0, high)


def mu_of(epsilon, delta):
    """Mu that a budget of epsilon at delta allows."""
    return bisect(lambda mu: delta_of(mu, epsilon) > delta, 1e-9, 1e3) if delta > 0 else 0.0


def selection(run_epsilon, delta, mean_runs):
    """Epsilon of the best of a geometric number of runs (Papernot and Steinke 2022, theorem 2)."""
    square, rate = mu_of(run_epsilon, delta) ** 2, math.log(mean_runs)
    second = max(1.0, math.sqrt(2 * rate / square))
    constant = 2 * ((second - 1) * square / 2 + rate / second)

    def at(power):
        order = 1 + math.exp(power)
        renyi = order * square / 2 + constant + math.log(mean_runs) / (order - 1)
        return renyi + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)

    best = bisect(lambda power: at(power + 1e-5) > at(power), -7.0, 11.5)
    return max(0.0, at(best))


def check_costs(rows):
    """Check the cost of each charge against its mechanism."""
    for row in rows:
        mu, epsilon, failure = cost_of(row["mechanism"])
        need(near(row["mu"], mu) and failure <= row["failure"] < 1, "a charge costs something else")
        pure = row["epsilon"] is None if epsilon is None else near(row["epsilon"], epsilon)
        need(pure, "a charge has another pure epsilon")


def costs_of(rows):
    """Return the total cost of charges: mu, failure, and pure epsilon or None."""
    pure = None if any(row["epsilon"] is None for row in rows) else math.fsum(row["epsilon"] for row in rows)
    return math.hypot(*(row["mu"] for row in rows)), math.fsum(row["failure"] for row in rows), pure


def near(stated, computed):
    """Return whether two numbers are equal up to rounding; more is allowed upwards, the safe side."""
    return computed * (1 - 1e-6) - 1e-12 <= stated <= computed * (1 + 1e-4) + 1e-12


def check_level(level, costs, what):
    """Check the epsilon of a cost, and the bounds on an attacker that follow from it."""
    mu, failure, pure = costs
    pure = math.inf if pure is None or failure > level["delta"] else pure
    epsilon = min(pure, epsilon_of(mu, level["delta"] - failure))
    need(near(level["epsilon"], epsilon), f"{what}: epsilon is {epsilon:.6g}, not {level['epsilon']:.6g}")
    need(near(level["failure"], failure) and near(level["mu"], mu), f"{what}: mu is {mu:.6g}")
    check_bounds(level, what)


def check_bounds(level, what):
    """Check the odds, beliefs and rates of a level."""
    epsilon, delta, mu = level["epsilon"], level["delta"], level["mu"]
    need(level["odds"] is None if epsilon >= 700 else near(level["odds"], math.exp(epsilon)), f"{what}: odds")
    need(same([each[0] for each in level["belief"]], [0.5, 0.01]), f"{what}: suspicions")
    for before, after in level["belief"]:
        need(near(after, 1 / (1 + math.exp(-epsilon) * (1 - before) / before)), f"{what}: belief")
    need(same([each[0] for each in level["found"]], [0.01, 0.1]), f"{what}: false alarms")
    for alarms, found in level["found"]:
        most = min(1.0, delta + math.exp(min(epsilon, 700)) * alarms)
        most = min(most, 1 - math.exp(-epsilon) * (1 - delta - alarms))
        if mu is not None and not level["failure"]:
            most = min(most, float(ndtr(ndtri(alarms) + mu)))
        need(near(found, most), f"{what}: what a test finds")


def check_arithmetic(dossier):
    """Check the bounds on this model, on all models so far, and on all possible later ones."""
    book, promise, levels = dossier["ledger"], dossier["promise"], dossier["learned"]
    check_costs(rows := charges_of(book))
    costs = costs_of(of_a_user(book, rows))
    check_level(levels[1], costs, "all models")
    need(levels[0]["delta"] == promise["delta"], "the model: another delta")
    need(levels[0]["epsilon"] <= promise["epsilon"] * (1 + 1e-9), "the model costs more than it promises")
    limit, still = book["budget"], [each for each in book["seasons"] if not each["closed"]]
    more = not book["closed"] and (limit is not None or bool(still))
    need(len(levels) == 2 + more, "what may come is not bounded as the ledger limits it")
    of = ["model" if dossier["model"]["week"] is None else "season", "so far"]
    of.append("weeks" if limit is None else "budget")
    need([each["of"] for each in levels] == of[: len(levels)], "a bound is of something else")
    deltas = [promise["delta"], promise["delta"] + costs[1]] if limit is None else [limit["delta"]]
    need(all(each["delta"] in deltas for each in levels[1:]), "a bound at another delta")
    if more and limit is not None:
        need({key: levels[2][key] for key in ("epsilon", "delta", "failure")} == limit, "the budget")
        need(levels[1]["epsilon"] <= limit["epsilon"] * (1 + 1e-9), "more than the budget")
        mu = mu_of(limit["epsilon"], limit["delta"] - limit["failure"])
        need(levels[2]["mu"] is None if costs[2] is not None else near(levels[2]["mu"], mu), "its mu")
        check_bounds(levels[2], "the budget")
    elif more:
        outside = [row for row in rows if row["season"] not in {each["name"] for each in still}]
        outside = of_a_user(book, outside)
        mus = [mu_of(each["epsilon"], each["delta"]) for each in still]
        mu = math.sqrt(math.fsum(each**2 for each in [*mus, *(row["mu"] for row in outside)]))
        failure = math.fsum(each["failure"] for each in outside)
        check_level(levels[2], (mu, failure, None), "the weeks to come")
    said = "mu = {mu:.6g}, epsilon = {epsilon:.6g} at delta = {delta:g} (unit: {unit}, relation: {relation})"
    return said.format(**levels[1], unit=book["unit"], relation=book["relation"])


def check_time(dossier):
    """Check that the dossier was made after its last charge, and not in the future."""
    made = datetime.fromisoformat(dossier["made"])
    last = max(datetime.fromisoformat(row["time"]) for row in charges_of(dossier["ledger"]))
    need(made.isoformat() == dossier["made"] and made.utcoffset() == timedelta(0), "no time in UTC")
    need(last < made < datetime.now(UTC) + timedelta(days=1), "made before its last charge, or in the future")
    return f"made {dossier['made']}"


def check_ledger(dossier, path):
    """Check that the ledger has the same charges, seasons and budget, and no further earlier charges."""
    book, made = dossier["ledger"], datetime.fromisoformat(dossier["made"])
    with closing(sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)) as ledger:

        def rows(columns, table, where):
            asked = f"SELECT {', '.join(columns)} FROM {table} WHERE {where}"
            return [list(row) for row in ledger.execute(asked, {"of": book["dataset"]})]

        charges = rows(COLUMNS, "charges", "dataset = :of ORDER BY id")
        (limit,) = rows(["epsilon", "delta", "failure", "closed"], "datasets", "name = :of")
        names = ["name", "first", "decay", "gap", "epsilon", "delta", "closed"]
        seasons = rows(names, "seasons", "dataset = :of ORDER BY rowid")
        head = book["head"]
        found = ledger.execute("SELECT hash FROM charges WHERE id = ?", (head["count"],)).fetchone()
    count = len([row for row in charges if row[0] <= head["count"]])
    need(found == (head["hash"],) and same(charges[:count], book["charges"]), "the ledger has other charges")
    later = [datetime.fromisoformat(row[3]) for row in charges[count:]]
    need(all(time >= made for time in later), "charges from before the dossier was made are left out")
    stored = None if limit[0] is None else dict(zip(FIELDS["budget"], limit[:3], strict=True))
    need(same(stored, book["budget"]), "the ledger has another budget")
    need(bool(limit[3]) or not book["closed"], "the ledger's data set is not closed")
    need(len(seasons) == len(book["seasons"]), "the ledger has other seasons")
    for row, each in zip(seasons, book["seasons"], strict=True):
        entry = dict(zip(names, row, strict=True))
        closed = each["closed"] and bool(entry.pop("closed"))
        entry.pop("closed", None)
        need(same(entry, {name: each[name] for name in entry}), "a season is another one in the ledger")
        need(same(each["closed"], closed), "a season is not closed in the ledger")
    return f"the same charges, seasons and budget; charges that came later: {len(later)}"


def verify(content, octets, key=None, ledger=None, page=None):
    """Return the checks: name, whether it passed (None if not compared), finding, parts not compared.

    `content` and `octets` are the bytes of a dossier and of a model, `key` and `page` those of a public key
    and of the HTML page, `ledger` the path of the ledger.
    """
    try:
        envelope, payload, dossier = read(content)
    except Exception as error:
        return [("form", False, str(error), ())]
    found = [("form", True, "an in-toto statement in a DSSE envelope, in canonical form", ())]
    checks = [(check_signature, envelope, payload, key), (check_model, dossier, octets)]
    checks += [(check_chain, dossier), (check_arithmetic, dossier), (check_time, dossier)]
    checks += [(check_page, dossier, page)] * (page is not None)
    checks += [(check_ledger, dossier, ledger)] * (ledger is not None)
    for check, *given in checks:
        name = check.__name__.removeprefix("check_")
        try:
            finding = check(*given)
            found.append((name, True, finding, ()))
        except Exception as error:  # any error of a forged file is a failed check
            kind = "" if isinstance(error, Wrong) else f"{type(error).__name__}: "
            found.append((name, False, f"{kind}{error}", ()))
    if envelope is None and key is None:
        found[1] = ("signature", None, "nobody has signed it yet", ("signature",))
    given = {"key": key or (True if envelope is None else None), "ledger": ledger, "page": page}
    for name, parts in NOT_CHECKED.items():
        if given.get(name) is None:
            found.append((name, None, f"not compared: {', '.join(parts)}", parts))
    return found


def content_of(path, what):
    """Return the bytes of a file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{what} {path} cannot be read ({error.strerror})") from None


def key_of(path):
    """Return the bytes of a public key."""
    content = content_of(path, "the key")
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"{path} is no Ed25519 public key in PEM")
    return key.public_bytes_raw()


def main():
    """Check the files of the command line."""
    parser = argparse.ArgumentParser(
        description="Check a dossier on a hushrec model, without hushrec.",
        epilog="Exit code: 0 if no check fails, 1 if one does, 2 if a file cannot be read.",
    )
    parser.add_argument("dossier", help="the .json of `hushrec sign`, or the .tosign of `hushrec certify`")
    parser.add_argument("model", help="the model file (.hush) that it is about")
    parser.add_argument("key", nargs="?", help="the public key that must have signed: Ed25519, PEM")
    parser.add_argument("--page", help="the HTML page that should belong to it")
    parser.add_argument("--ledger", help="the ledger (SQLite) of the training; it is only read")
    given = parser.parse_args()
    try:
        content, octets = content_of(given.dossier, "the dossier"), content_of(given.model, "the model")
        if PAYLOAD.encode() not in content:
            page_first = content.lstrip()[:9].lower() == b"<!doctype"
            hint = (
                f"a page; pass its .tosign or .json, and --page {given.dossier}"
                if page_first
                else "no dossier"
            )
            raise ValueError(f"{given.dossier} is {hint}")
        page = given.page and content_of(given.page, "the page")
        key = given.key and key_of(given.key)
        if given.ledger and not content_of(given.ledger, "the ledger").startswith(b"SQLite format 3"):
            raise ValueError(f"{given.ledger} is no ledger")
    except ValueError as error:
        parser.error(str(error))
    found = verify(content, octets, key, given.ledger, page)
    for name, passed, words, _ in found:
        status = {True: "ok", False: "FAILED", None: "NOT CHECKED"}[passed]
        print(f"{status:<13}{name + ':':<12}{words}")
    sys.exit(1 if any(line[1] is False for line in found) else 0)


if __name__ == "__main__":
    main()
