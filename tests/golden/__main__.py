"""Write the golden files of the current formats into ``tests/golden/1``: ``python -m tests.golden``.

Run it once when a format gets its first version; a later format gets a folder of its own, and the test
reads all folders. The answers come from the bytes, as docs/reference describes them, by safetensors, sqlite3,
hashlib and NumPy, and from the table that the store was made of. hushrec reads no file here.
"""

import contextlib
import hashlib
import json
import shutil
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

import hushrec
from hushrec.cli import run
from hushrec.privacy import Attendance

PATH = Path(__file__).with_name("1")

ITEMS = [f"item {number}" for number in range(14)]
WORDS = ("wool sock", "tea pot", "steel pan")
TABLE = {
    "item": ITEMS,
    "kind": [f"kind {number % 3}" for number in range(14)],
    "title": [f"{WORDS[number % 3]} n{number // 5}" for number in range(14)],
}
USERS = [f"user-{number}" for number in range(30)]
#: Users of the store who were not in the first training.
LATE = USERS[-4:]
HISTORY = [["item 1", 5.0], ["item 4", 4.0], ["item 7", 5.0], ["item 8", 1.0]]
BUDGET, DELTA = 8.0, 1e-6
AGREED = "--model item-bias --epsilon 3 --delta 1e-6 --rating-range 1 5 --seed 7 --users-per-node 20"


def rows() -> list[tuple[str, str, float]]:
    """Return made-up ratings: each user likes what is of one kind."""
    rng = np.random.default_rng(11)
    found = []
    for number, user in enumerate(USERS):
        for item in rng.choice(14, size=6, replace=False):
            found.append((user, ITEMS[item], 5.0 if item % 3 == number % 3 else float(rng.integers(1, 5))))
    return found


def write(folder: Path) -> None:
    """Train the first week of a season from a store, and agree with a second server."""
    domain = hushrec.Domain(ITEMS, rating_range=(1, 5), max_ratings_per_user=6, item_features=TABLE)
    early = [row for row in rows() if row[0] not in LATE]
    ratings = hushrec.Ratings.from_any(tuple(map(list, zip(*early, strict=True))), domain)
    hushrec.Store.prepare(tuple(map(list, zip(*rows(), strict=True))), folder / "store", domain, partitions=2)
    ledger = hushrec.Ledger(folder / "ledger.sqlite")
    season = hushrec.Season(hushrec.Budget(BUDGET, DELTA))
    ledger.open_season("shop", season)
    people = Attendance(folder / "shop.attendance")
    week = hushrec.SeasonAccountant(season, ledger=ledger, dataset="shop", attendance=people)
    of_ratings = hushrec.PrivateALS.of(rank=2, iterations=2, bias_rounds=2, n_users=len(USERS))
    of_likes = hushrec.PrivateEigenRec.of(rank=2, iterations=2, n_users=len(USERS))
    model = hushrec.Both(ratings=of_ratings, lists=of_likes, like_threshold=4.0).fit(ratings, week)
    model.save(folder / "model.hush")
    budget = hushrec.Budget(2.0, DELTA)
    ledger.open_dataset("survey", budget)
    survey = hushrec.Accountant(hushrec.Budget(1.0, DELTA), ledger=ledger, dataset="survey")
    hushrec.ItemBias().fit(ratings, survey)
    (folder / "items.txt").write_text("\n".join(ITEMS), encoding="utf-8")
    words = ["servers", "init", str(folder / "agreement.json"), "--catalogue", str(folder / "items.txt")]
    assert run([*words, *AGREED.split()]) == 0
    (folder / "items.txt").unlink()
    (folder / "shop.attendance.lock").unlink(missing_ok=True)
    shutil.rmtree(ledger.trainings)


# ---------------------------------------------------------------------- answers without hushrec


def of_model(path: Path) -> dict[str, Any]:
    """Fold a user in as docs/reference/fold-in.md says."""
    content = path.read_bytes()
    with safe_open(path, "np") as file:
        about = {name: json.loads(text) for name, text in file.metadata().items() if text[0] in "{["}
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no mapping

    def of(section: str, name: str) -> Any:
        found, stored = arrays.get(f"{section}/{name}"), arrays.get(f"{section}/{name}_rows")
        if stored is None:
            return found
        whole = np.zeros((len(ITEMS), found.shape[1]))
        whole[stored] = found
        return whole

    places, ratings = [ITEMS.index(item) for item, _ in HISTORY], np.array([each for _, each in HISTORY])
    center, bias, factors = (of("serve", name) for name in ("center", "item_bias", "item_factors"))
    design = np.column_stack([factors[places], np.ones(len(places))])
    ridge = np.diag([*[of("serve", "regularization")] * factors.shape[1], of("serve", "bias_regularization")])
    solved = np.linalg.solve(design.T @ design + ridge, design.T @ (ratings - center - bias[places]))
    predicted = np.clip(center + bias + factors @ solved[:-1] + solved[-1], 1, 5)

    liked = [place for place, rating in zip(places, ratings, strict=True) if rating >= 4]
    names = "item_factors", "history_weight", "history_popularity", "history_prior"
    factors, weight, popularity, prior = (of("lists", name) for name in names)
    mass = weight[liked] @ popularity[liked] * (1 + prior / len(liked))
    scores = (
        of("lists", "center") + of("lists", "item_bias") + factors @ (weight[liked] @ factors[liked] / mass)
    )
    for place in liked:
        added = of("lists", "word_weight") * of("lists", "similarity")[place] ** 1.5 / np.sqrt(len(liked))
        np.add.at(scores, of("lists", "neighbours")[place], added)
    order = sorted(set(range(len(ITEMS))) - set(places), key=lambda place: -scores[place])
    return {
        "history": HISTORY,
        "predicted": predicted.tolist(),
        "list": [ITEMS[place] for place in order],
        "parts": [part[0] for part in about["sections"]["lists"]["parts"]],
        "digest": hashlib.sha256(content[: 8 + int.from_bytes(content[:8], "little")]).hexdigest(),
        "item features": TABLE,
    }


def epsilon_of(mu: float) -> float:
    """Solve Balle and Wang 2018, Theorem 8."""

    def over(epsilon: float) -> float:
        tail = np.exp(epsilon + log_ndtr(-epsilon / mu - mu / 2))
        return float(ndtr(-epsilon / mu + mu / 2) - tail) - DELTA

    return float(brentq(over, 0, 100, xtol=1e-12))


def of_ledger(path: Path) -> dict[str, Any]:
    """Add up the charges with SQL, and follow their hashes."""
    with contextlib.closing(sqlite3.connect(path)) as book:
        charges = book.execute("SELECT * FROM charges ORDER BY id").fetchall()
        spent = dict(book.execute("SELECT dataset, SUM(mu * mu) FROM charges GROUP BY dataset"))
        labels = {name: [] for name in spent}
        for dataset, label in book.execute("SELECT dataset, label FROM charges ORDER BY id"):
            labels[dataset].append(label)
        seasons = book.execute("SELECT dataset, name, epsilon, delta, first, decay FROM seasons").fetchall()
    last = "0" * 64
    for row in charges:
        assert row[-2] == last and row[-1] == hashlib.sha256(json.dumps(row[:-1]).encode()).hexdigest()
        last = row[-1]
    epsilons = {name: epsilon_of(mu2**0.5) for name, mu2 in spent.items()}
    return {"labels": labels, "mu squared": spent, "epsilon": epsilons, "seasons": seasons, "last": last}


def counts(path: Path) -> dict[str, int]:
    """Read how many trainings each user of the store was in."""
    digest, content = path.read_bytes()[:32], path.read_bytes()[32:]
    assert digest == hashlib.blake2b(content, digest_size=32, person=b"attendance 1").digest()
    line, _, rest = content.partition(b"\n")
    key = bytes.fromhex(json.loads(line)["key"])
    stored = {
        rest[at : at + 16]: int.from_bytes(rest[at + 16 : at + 20], "little")
        for at in range(0, len(rest), 20)
    }
    hashes = {user: hashlib.blake2b(user.encode(), key=key, digest_size=16).digest() for user in USERS}
    return {user: stored.get(hashes[user], 0) for user in USERS}


def of_store() -> dict[str, Any]:
    """Add up the table that the store was made of."""
    sums: Counter[str] = Counter()
    for _, item, rating in rows():
        sums[item] += rating
    return {"users": len(USERS), "ratings": len(rows()), "sums": dict(sums)}


def of_agreement(path: Path) -> dict[str, Any]:
    """Read the file; the noise of both servers together has twice the variance of one."""
    written = json.loads(path.read_text(encoding="utf-8"))
    mu = brentq(lambda mu: epsilon_of(mu) - written["epsilon"], 0.1, 5, xtol=1e-13)
    kept = {name: written[name] for name in ("model", "seed", "users_per_node", "fingerprint")}
    return kept | {"epsilon": written["epsilon"], "epsilon against all others": epsilon_of(mu / 2**0.5)}


def main() -> None:
    """Write the files, then the answers."""
    shutil.rmtree(PATH, ignore_errors=True)
    PATH.mkdir()
    write(PATH)
    answers = {
        "version": hushrec.__version__,
        "model": of_model(PATH / "model.hush"),
        "ledger": of_ledger(PATH / "ledger.sqlite"),
        "attendance": counts(PATH / "shop.attendance"),
        "store": of_store(),
        "agreement": of_agreement(PATH / "agreement.json"),
    }
    (PATH / "answers.json").write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
