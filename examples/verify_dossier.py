"""A second verifier of dossiers, without hushrec: it needs cryptography and SciPy.

    python verify_dossier.py dossier.json model.hush [public-key.pem]

It prints a line a check and exits with 1 if one fails, with 2 if a file cannot be read. The dossier is held
against its signature, the model and the hash chain; epsilons are computed from the recorded mechanisms.
"""

import hashlib
import json
import math
import re
import sys
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from scipy.special import expit, log_ndtr, ndtr, ndtri

COLUMNS = ["id", "dataset", "run", "time", "label", "mechanism", "sensitivity", "mu", "epsilon", "failure"]
COLUMNS += ["unit", "relation", "season", "step", "previous", "hash"]


class Wrong(Exception):
    """A check that fails."""


def need(holds, what):
    """Fail with what is wrong unless it holds."""
    if not holds:
        raise Wrong(what)


def canonical(value):
    """The bytes that are signed: keys sorted, ASCII, one space a level, floats as Python writes them."""
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False).encode("ascii") + b"\n"


def read(content):
    """The dossier, if the file is exactly what a writer of dossiers writes."""
    dossier = json.loads(content)
    need(isinstance(dossier, dict) and canonical(dossier) == content, "not the canonical form")
    need((dossier["format"], dossier["version"]) == ("hushrec dossier", 1), "another format or version")
    return dossier


def check_signature(dossier, wanted=None):
    """Ed25519 over everything but the signature itself."""
    entry = dossier["signature"]
    need(set(entry) == {"algorithm", "public_key", "value"} and entry["algorithm"] == "Ed25519", "no Ed25519")
    key, value = (bytes.fromhex(entry[name]) for name in ("public_key", "value"))
    need((key.hex(), value.hex()) == (entry["public_key"], entry["value"]), "written in another way")
    need(wanted in (None, key), f"by another key, {key.hex()}")
    rest = {name: part for name, part in dossier.items() if name != "signature"}
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(value, canonical(rest))
    except InvalidSignature:
        raise Wrong("not that of the key in the dossier") from None
    return f"by key {key.hex()}" + ("" if wanted else "; ask its owner whether it is theirs")


def statement_of(octets):
    """The privacy statement in a model file, all of whose bytes have their digests."""
    length = int.from_bytes(octets[:8], "little")
    head, payload = octets[: 8 + length], octets[8 + length :]
    need(payload[-32:] == hashlib.sha256(head).digest(), "the header of the model has not its digest")
    places = json.loads(head[8:])
    digests = json.loads((stored := places.pop("__metadata__"))["digests"])
    need(set(digests) == set(places) - {"digest"}, "an array of the model has no digest")
    for name, digest in digests.items():
        begin, end = places[name]["data_offsets"]
        need(hashlib.sha256(payload[begin:end]).hexdigest() == digest, f"array {name} has not its digest")
    return json.loads(stored["privacy"])


def check_model(dossier, octets):
    """The file is the one that is named; it promises what is said, and released what was charged."""
    model, promise, book = dossier["model"], dossier["promise"], dossier["ledger"]
    named = [model["sha256"], model["bytes"]]
    need([hashlib.sha256(octets).hexdigest(), len(octets)] == named, "the model file is another one")
    said = statement_of(octets)
    need(said["private"] is True and said["not_private_because"] == [], "the model is NOT PRIVATE")
    same = all(promise[key] == said[key] for key in ("epsilon", "delta", "unit", "relation", "failure"))
    need(same and len(promise) == 5, "the model promises something else")
    told = [model["notes"], model["public"], model["public_ratings"]]
    need(told == [said["notes"], said["public"], said.get("public_ratings", False)], "it says something else")
    need((book["unit"], book["relation"]) == (said["unit"], said["relation"]), "another unit or relation")
    charged = [row for row in charges_of(book) if row["run"] in book["runs"]]
    left, used = iter(charged), []
    for release in said["releases"]:
        row = next((row for row in left if same_release(row, release)), None)
        need(row is not None, f"release {release['label']!r} of the model was not charged")
        used.append(row)
    need(used and list(dict.fromkeys(row["run"] for row in used)) == book["runs"], "a run is not the model's")
    check_level(dossier["learned"][0], costs := costs_of(used), "the model")
    both = None
    if said.get("two_servers"):  # each of which adds noise
        both = epsilon_of(costs[0] / math.sqrt(2), promise["delta"] - promise["failure"])
    stated = model["epsilon_of_both_servers"]
    need(stated is both if both is None else near(stated, both), f"by both servers' noise it is {both}")
    return f"SHA-256 {model['sha256']}; its {len(used)} releases were charged"


def same_release(row, release):
    """Tell whether a charge is that of a release as a statement has it."""
    kind, numbers = parsed(row["mechanism"])
    names = {"RandomizedResponse": "epsilon", "RepeatAndSelect": "run_epsilon delta mean_runs shape"}
    stated = [release[name] for name in names.get(kind, "noise_multiplier").split()]
    words = all(row[name] == release[name] for name in ("label", "sensitivity", "unit", "relation"))
    return words and kind == release["mechanism"] and numbers == stated


def charges_of(book):
    """The charges by the names of their columns."""
    need(all(len(row) == len(COLUMNS) for row in book["charges"]), "a charge has other columns")
    return [dict(zip(COLUMNS, row)) for row in book["charges"]]


def check_chain(dossier):
    """Each charge has its hash, which holds that of the one before it; the last is the head, or before it."""
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
    need(len(book) == 9 and type(head["count"]) is int, "the ledger's part is not as it should be")
    return f"{len(book['charges'])} charges, head {head['hash']}"


def parsed(mechanism):
    """Name and numbers of a mechanism, as a ledger writes it."""
    kind, numbers = re.fullmatch(r"(\w+)\((.+)\)", mechanism).groups()
    return kind, [float(each.split("=")[1]) for each in numbers.split(", ")]


def cost_of(mechanism):
    """Mu, pure epsilon if there is one, and chance of failure."""
    kind, numbers = parsed(mechanism)
    if kind == "Gaussian":
        return 1 / numbers[0], None, 0.0
    if kind == "RepeatAndSelect":
        epsilon, failure = selection(*numbers), numbers[1]
    else:
        epsilon, failure = {"Laplace": 1 / numbers[0], "RandomizedResponse": numbers[0]}[kind], 0.0
    return -2 * float(ndtri(expit(-epsilon))), epsilon, failure


def bisect(is_above, low, high):
    """Return where a function turns true."""
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


def selection(run_epsilon, delta, mean_runs, shape):
    """Epsilon of the best of a random number of runs (Papernot and Steinke 2022, theorem 2)."""
    square = mu_of(run_epsilon, delta) ** 2

    def mean(rate):
        odds = math.expm1(rate)
        return odds / rate if shape == 0 else shape * odds / -math.expm1(-shape * rate)

    rate = bisect(lambda rate: mean(rate) >= mean_runs, 1e-9, 60.0)
    second = max(1.0, math.sqrt(2 * rate / square))
    constant = (1 + shape) * ((second - 1) * square / 2 + rate / second)

    def at(power):
        order = 1 + math.exp(power)
        renyi = order * square / 2 + constant + math.log(mean_runs) / (order - 1)
        return renyi + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)

    best = bisect(lambda power: at(power + 1e-5) > at(power), -7.0, 11.5)
    return max(0.0, at(best))


def costs_of(rows):
    """Return what charges cost, each held against its mechanism."""
    for row in rows:
        mu, epsilon, failure = cost_of(row["mechanism"])
        need(near(row["mu"], mu) and failure <= row["failure"] < 1, "a charge costs something else")
        pure = row["epsilon"] is None if epsilon is None else near(row["epsilon"], epsilon)
        need(pure, "a charge has another pure epsilon")
    pure = None if any(row["epsilon"] is None for row in rows) else math.fsum(row["epsilon"] for row in rows)
    return math.hypot(*(row["mu"] for row in rows)), math.fsum(row["failure"] for row in rows), pure


def near(stated, computed):
    """Equal but for rounding, of which there may be more to the safe side."""
    return computed * (1 - 1e-6) - 1e-12 <= stated <= computed * (1 + 1e-4) + 1e-12


def check_level(level, costs, what):
    """Check that what costs so much has this epsilon, and that what is learned from it follows."""
    mu, failure, pure = costs
    pure = math.inf if pure is None or failure > level["delta"] else pure
    epsilon = min(pure, epsilon_of(mu, level["delta"] - failure))
    need(near(level["epsilon"], epsilon), f"{what}: epsilon is {epsilon:.6g}, not {level['epsilon']:.6g}")
    need(near(level["failure"], failure) and near(level["mu"], mu), f"{what}: mu is {mu:.6g}")
    check_bounds(level, what)


def check_bounds(level, what):
    """Odds, beliefs and rates of a level."""
    epsilon, delta, mu = level["epsilon"], level["delta"], level["mu"]
    need(level["odds"] is None if epsilon >= 700 else near(level["odds"], math.exp(epsilon)), f"{what}: odds")
    need([each[0] for each in level["belief"]] == [0.5, 0.01] and len(level) == 8, f"{what}: suspicions")
    for before, after in level["belief"]:
        need(near(after, 1 / (1 + math.exp(-epsilon) * (1 - before) / before)), f"{what}: belief")
    need([each[0] for each in level["found"]] == [0.01, 0.1], f"{what}: false alarms")
    for alarms, found in level["found"]:
        most = min(1.0, delta + math.exp(min(epsilon, 700)) * alarms)
        most = min(most, 1 - math.exp(-epsilon) * (1 - delta - alarms))
        if mu is not None and not level["failure"]:
            most = min(most, float(ndtr(ndtri(alarms) + mu)))
        need(near(found, most), f"{what}: what a test finds")


def check_arithmetic(dossier):
    """The model, all models so far, and all that may come."""
    book, promise, levels = dossier["ledger"], dossier["promise"], dossier["learned"]
    costs = costs_of(rows := charges_of(book))
    check_level(levels[1], costs, "all models")
    need(levels[0]["delta"] == promise["delta"], "the model: another delta")
    need(levels[0]["epsilon"] <= promise["epsilon"] * (1 + 1e-9), "the model costs more than it promises")
    limit, still = book["budget"], [each for each in book["seasons"] if not each["closed"]]
    more = not book["closed"] and (limit is not None or bool(still))
    need(len(levels) == 2 + more, "what may come is not bounded as the ledger limits it")
    if more and limit is not None:
        need({key: levels[2][key] for key in ("epsilon", "delta", "failure")} == limit, "the budget")
        need(levels[1]["epsilon"] <= limit["epsilon"] * (1 + 1e-9), "more than the budget")
        mu = mu_of(limit["epsilon"], limit["delta"] - limit["failure"])
        need(levels[2]["mu"] is None if costs[2] is not None else near(levels[2]["mu"], mu), "its mu")
        check_bounds(levels[2], "the budget")
    elif more:
        outside = [row for row in rows if row["season"] not in {each["name"] for each in still}]
        mus = [mu_of(each["epsilon"], each["delta"] - each["failure"]) for each in still]
        mu = math.sqrt(math.fsum(each**2 for each in [*mus, *(row["mu"] for row in outside)]))
        failure = math.fsum(each["failure"] for each in [*still, *outside])
        check_level(levels[2], (mu, failure, None), "the weeks to come")
    said = "mu = {mu:.6g}, epsilon = {epsilon:.6g} at delta = {delta:g} (unit: {unit}, relation: {relation})"
    return said.format(**levels[1], unit=book["unit"], relation=book["relation"])


def verify(content, octets, key=None):
    """Each check with whether it passed and what it says, for the bytes of a dossier and of a model."""
    try:
        dossier = read(content)
    except Exception as error:
        return [("form", False, str(error))]
    found = [("form", True, "canonical")]
    for check, *more in ((check_signature, key), (check_model, octets), (check_chain,), (check_arithmetic,)):
        name = check.__name__.removeprefix("check_")
        try:
            found.append((name, True, check(dossier, *more)))
        except Exception as error:  # whatever a forged file can raise is a reason not to believe it
            found.append((name, False, f"{type(error).__name__}: {error}"))
    return found


def main():
    """Check the files that the command line names."""
    try:
        content, octets, *pem = (Path(path).read_bytes() for path in sys.argv[1:4])
        key = load_pem_public_key(pem[0]).public_bytes_raw() if pem else None
    except (OSError, ValueError) as error:
        sys.exit(print(f"{error}\n{__doc__}", file=sys.stderr) or 2)
    for name, passed, words in (found := verify(content, octets, key)):
        print(f"{'ok' if passed else 'FAILED':<8}{name + ':':<12}{words}")
    sys.exit(0 if all(passed for _, passed, _ in found) else 1)


if __name__ == "__main__":
    main()
