"""A second verifier of dossiers, without hushrec: it needs cryptography and SciPy.

    python verify_dossier.py dossier.json model.hush officer.pub.pem --ledger team.sqlite

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

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from scipy.special import expit, log_ndtr, ndtr, ndtri

COLUMNS = ["id", "dataset", "run", "time", "label", "mechanism", "sensitivity", "mu", "epsilon", "failure"]
COLUMNS += ["unit", "relation", "season", "step", "previous", "hash"]
#: Keys of the parts of a dossier.
PARTS = "language made declared consent model promise ledger learned attacks code not_covered criteria"
PARTS += " deletion law"
PAYLOAD = "application/vnd.in-toto+json"
TYPES = ["https://in-toto.io/Statement/v1", "https://github.com/hushrec/hushrec/dossier/v1"]
DECLARED = "controller purpose period contact review"
LEDGER = "dataset unit relation closed head charges runs budget seasons"
SEASON = "name weeks first_share gap lifetime epsilon delta unit relation failure begun closed"
SEASON += " training_mu_squared"
LEVEL = "of epsilon delta failure mu odds belief found"
BUDGET = "epsilon delta failure"
#: Parts of the dossier that no check compares. The first two are compared if a public key or the ledger is
#: passed.
NOT_CHECKED = {
    "key": ("signature",),
    "ledger": ("ledger",),
    "sentences": ("not_covered", "criteria", "deletion", "law", "code"),
    "declared": ("declared", "consent", "made", "attacks", "language"),
}


class Wrong(Exception):
    """A check that fails."""


def need(holds, what):
    """Raise Wrong with this message unless the condition holds."""
    if not holds:
        raise Wrong(what)


def keys(part, names):
    """Raise Wrong unless a part of the dossier has exactly these keys."""
    need(set(part) == set(names.split()), f"a part holds {sorted(set(part) ^ set(names.split()))}")


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
    """Return envelope, payload and dossier of a file in canonical form."""
    envelope = json.loads(content)
    need(isinstance(envelope, dict) and canonical(envelope) == content, "not the canonical form")
    keys(envelope, "payload payloadType signatures")
    need(envelope["payloadType"] == PAYLOAD and len(envelope["signatures"]) == 1, "another envelope")
    keys(envelope["signatures"][0], "keyid sig")
    payload = decoded(envelope["payload"])
    statement = json.loads(payload)
    need(isinstance(statement, dict) and canonical(statement) == payload, "not the canonical form")
    keys(statement, "_type subject predicateType predicate")
    dossier = statement["predicate"]
    keys(dossier, PARTS)
    keys(dossier["declared"], DECLARED)
    if dossier["consent"] is not None:
        keys(dossier["consent"], "text list")
    model = dossier["model"]
    subject = [{"name": f"{model['name']}.hush", "digest": {"sha256": model["sha256"]}}]
    need(same(statement["subject"], subject), "the statement is about another model")
    need([statement["_type"], statement["predicateType"]] == TYPES, "another format or version")
    return envelope, payload, dossier


def check_signature(envelope, payload, wanted=None):
    """Check the Ed25519 signature of the payload and its type, as DSSE encodes them."""
    (entry,) = envelope["signatures"]
    key = bytes.fromhex(entry["keyid"])
    need(key.hex() == entry["keyid"], "written in another way")
    need(wanted in (None, key), f"by another key, {key.hex()}")
    signed = f"DSSEv1 {len(PAYLOAD)} {PAYLOAD} {len(payload)} ".encode() + payload
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(decoded(entry["sig"]), signed)
    except InvalidSignature:
        raise Wrong("not that of the key in the dossier") from None
    return f"by key {key.hex()}"


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
    if (week := said.get("season")) and week["lifetime"]:  # K trainings of the largest cost
        costs = math.sqrt(week["weeks"] * slice_of(promise, week["weeks"])), 0.0, None
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
        reserved += max(0.0, mu_of(each["epsilon"], each["delta"] - each["failure"]) ** 2 - spent)
    need(then.get("reserved", 0.0) <= reserved * (1 + 1e-6) + 1e-12, "an open season is left out")
    if limit := then["budget"]:
        stated = book["budget"]
        need(stated is not None, "the budget of the data set is left out")
        need(stated["epsilon"] <= limit["epsilon"] and stated["delta"] <= limit["delta"], "a larger budget")
    need(book["closed"] or not then.get("closed", False), "the data set was closed")
    if week := said.get("season"):
        names = ("name", "weeks", "first_share", "gap", "lifetime")
        own = {name: week[name] for name in names} | {
            name: said[name] for name in ("epsilon", "delta", "unit", "relation", "failure")
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
    return [dict(zip(COLUMNS, row)) for row in book["charges"]]


def check_chain(dossier):
    """Check the hash of each charge, which covers the charge before it, and the head."""
    book, count, previous = dossier["ledger"], 0, "0" * 64
    for raw, row in zip(book["charges"], charges_of(book)):
        need(type(row["id"]) is int and row["id"] > count, "charges are not in order")
        need(hashlib.sha256(json.dumps(raw[:-1]).encode()).hexdigest() == row["hash"], "a hash is wrong")
        need(row["id"] > count + 1 or row["previous"] == previous, "a link is wrong")
        need(all(row[each] == book[each] for each in ("dataset", "unit", "relation")), "a charge of others")
        count, previous = row["id"], row["hash"]
    head = book["head"]
    need(head["count"] > count or list(head.values()) == [count, previous], "the head is another one")
    need(re.fullmatch("[0-9a-f]{64}", head["hash"]) and set(head) == {"count", "hash"}, "the head is no hash")
    keys(book, LEDGER)
    need(type(head["count"]) is int and type(book["closed"]) is bool, "the ledger's part holds other values")
    weeks = runs_of(charges_of(book))
    names = [each["name"] for each in book["seasons"]]
    need(len(set(names)) == len(names) and set(weeks) <= set(names), "a season is left out, or there twice")
    for each in book["seasons"]:
        keys(each, SEASON)
        need(same(each["begun"], len(runs := weeks.get(each["name"], {}))), "a season has begun other weeks")
        need((each["unit"], each["relation"]) == (book["unit"], book["relation"]), "a season of another unit")
        need(type(each["lifetime"]) is bool and type(each["weeks"]) is int, "a season of another kind")
        if not each["lifetime"]:
            need(each["training_mu_squared"] is None, "a season of another kind")
            continue
        need((each["unit"], each["relation"], each["failure"]) == ("user", "add-remove", 0.0), "no lifetime")
        most = slice_of(each, each["weeks"])
        need(same(each["first_share"], 1 / each["weeks"]), "trainings of a lifetime are not alike")
        need(near(each["training_mu_squared"], most), f"a training may cost {most:.6g} of mu squared")
        dearest = max((math.fsum(row["mu"] ** 2 for row in run) for run in runs.values()), default=0.0)
        need(dearest <= most * (1 + 1e-6), "a training costs more than the lifetime season allows")
    return f"{len(book['charges'])} charges, head {head['hash']}"


def runs_of(rows):
    """Return the charges by season and run."""
    seasons = {}
    for row in rows:
        if row["season"] is not None:
            seasons.setdefault(row["season"], {}).setdefault(row["run"], []).append(row)
    return seasons


def slice_of(promise, trainings):
    """Return the part of a promise's mu squared that one of so many equal trainings has."""
    return mu_of(promise["epsilon"], promise["delta"]) ** 2 / trainings


def of_a_user(book, rows):
    """Return the charges that one user can be in: of a lifetime season the trainings of largest mu.

    They have no pure epsilon, because other trainings may have a larger one.
    """
    lifetimes = {each["name"]: each["weeks"] for each in book["seasons"] if each["lifetime"]}
    kept = [row for row in rows if row["season"] not in lifetimes]
    for name, runs in runs_of(rows).items():
        if name in lifetimes:
            by_cost = sorted(runs.values(), key=lambda run: math.fsum(row["mu"] ** 2 for row in run))
            largest = [row for run in by_cost[-lifetimes[name] :] for row in run]
            kept += [{**row, "epsilon": None} for row in largest]
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
    keys(level, LEVEL)
    numbers = [level[name] for name in ("epsilon", "delta", "failure")]
    numbers += [level[name] for name in ("mu", "odds") if level[name] is not None]
    numbers += [part[1] for part in [*level["belief"], *level["found"]]]
    need(all(type(number) is float for number in numbers), f"{what}: a number of another kind")
    need(same([each[0] for each in level["belief"]], [0.5, 0.01]), f"{what}: suspicions")
    need(all(len(each) == 2 for each in [*level["belief"], *level["found"]]), f"{what}: more than it should")
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
    lifetime = [each["name"] for each in book["seasons"] if each["lifetime"]]
    week = dossier["model"]["week"]
    of = ["model" if week is None else "lifetime" if week[0] in lifetime else "season", "so far"]
    of.append("weeks" if limit is None else "budget")
    need([each["of"] for each in levels] == of[: len(levels)], "a bound is of something else")
    deltas = [promise["delta"], promise["delta"] + costs[1]] if limit is None else [limit["delta"]]
    need(all(each["delta"] in deltas for each in levels[1:]), "a bound at another delta")
    if limit is not None:
        keys(limit, BUDGET)
    if more and limit is not None:
        need({key: levels[2][key] for key in ("epsilon", "delta", "failure")} == limit, "the budget")
        need(levels[1]["epsilon"] <= limit["epsilon"] * (1 + 1e-9), "more than the budget")
        mu = mu_of(limit["epsilon"], limit["delta"] - limit["failure"])
        need(levels[2]["mu"] is None if costs[2] is not None else near(levels[2]["mu"], mu), "its mu")
        check_bounds(levels[2], "the budget")
    elif more:
        outside = [row for row in rows if row["season"] not in {each["name"] for each in still}]
        outside = of_a_user(book, outside)
        mus = [mu_of(each["epsilon"], each["delta"] - each["failure"]) for each in still]
        mu = math.sqrt(math.fsum(each**2 for each in [*mus, *(row["mu"] for row in outside)]))
        failure = math.fsum(each["failure"] for each in [*still, *outside])
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
        names = ["name", "weeks", "first_share", "gap", "epsilon", "delta", "failure", "lifetime", "closed"]
        seasons = rows(names, "seasons", "dataset = :of ORDER BY rowid")
        head = book["head"]
        found = ledger.execute("SELECT hash FROM charges WHERE id = ?", (head["count"],)).fetchone()
    count = len([row for row in charges if row[0] <= head["count"]])
    need(found == (head["hash"],) and same(charges[:count], book["charges"]), "the ledger has other charges")
    later = [datetime.fromisoformat(row[3]) for row in charges[count:]]
    need(all(time >= made for time in later), "charges from before the dossier was made are left out")
    stored = None if limit[0] is None else dict(zip(BUDGET.split(), limit))
    need(same(stored, book["budget"]), "the ledger has another budget")
    need(bool(limit[3]) or not book["closed"], "the ledger's data set is not closed")
    need(len(seasons) == len(book["seasons"]), "the ledger has other seasons")
    for row, each in zip(seasons, book["seasons"]):
        entry = dict(zip(names, row))
        entry["lifetime"] = bool(entry["lifetime"])
        closed = each["closed"] and bool(entry.pop("closed"))
        entry.pop("closed", None)
        need(same(entry, {name: each[name] for name in entry}), "a season is another one in the ledger")
        need(same(each["closed"], closed), "a season is not closed in the ledger")
    return f"the same charges, seasons and budget; charges that came later: {len(later)}"


def verify(content, octets, key=None, ledger=None):
    """Return the checks: name, whether it passed (None if not compared), finding, parts not compared.

    `content` and `octets` are the bytes of a dossier and of a model, `key` those of a public key, `ledger`
    the path of the ledger.
    """
    try:
        envelope, payload, dossier = read(content)
    except Exception as error:
        return [("form", False, str(error), ())]
    found = [("form", True, "an in-toto statement in a DSSE envelope, in canonical form", ())]
    checks = [(check_signature, envelope, payload, key), (check_model, dossier, octets)]
    checks += [(check_chain, dossier), (check_arithmetic, dossier), (check_time, dossier)]
    checks += [(check_ledger, dossier, ledger)] * (ledger is not None)
    for check, *given in checks:
        name = check.__name__.removeprefix("check_")
        try:
            found.append((name, True, check(*given), ()))
        except Exception as error:  # any error of a forged file is a failed check
            found.append((name, False, f"{type(error).__name__}: {error}", ()))
    given = {"key": key, "ledger": ledger}
    for name, parts in NOT_CHECKED.items():
        if given.get(name) is None:
            found.append((name, None, f"not compared: {', '.join(parts)}", parts))
    return found


def main():
    """Check the files of the command line."""
    parser = argparse.ArgumentParser(
        description="Check a dossier on a hushrec model, without hushrec.",
        epilog="Exit code: 0 if no check fails, 1 if one does, 2 if a file cannot be read.",
    )
    parser.add_argument("dossier", help="the JSON file that `hushrec certify` wrote")
    parser.add_argument("model", help="the model file (.hush) that it is about")
    parser.add_argument("key", nargs="?", help="the public key that must have signed: Ed25519, PEM")
    parser.add_argument("--ledger", help="the ledger (SQLite) of the training; it is only read")
    given = parser.parse_args()
    try:
        content, octets = Path(given.dossier).read_bytes(), Path(given.model).read_bytes()
        pem = given.key and Path(given.key).read_bytes()
        key = load_pem_public_key(pem).public_bytes_raw() if pem else None
        if given.ledger and not Path(given.ledger).is_file():
            raise OSError(f"there is no ledger at {given.ledger}")
    except (OSError, ValueError) as error:
        parser.error(str(error))
    found = verify(content, octets, key, given.ledger)
    for name, passed, words, _ in found:
        status = {True: "ok", False: "FAILED", None: "NOT CHECKED"}[passed]
        print(f"{status:<13}{name + ':':<12}{words}")
    sys.exit(1 if any(line[1] is False for line in found) else 0)


if __name__ == "__main__":
    main()
