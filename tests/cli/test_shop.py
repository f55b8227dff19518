"""Real tables of a shop: German names, decimal commas, leading zeros, returns, umlauts, two tables."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hushrec.data import Ratings
from hushrec.serving.model import load

ITEMS = [f"{number:04d}" for number in range(1, 41)]
COLUMNS = "user=Kunde,item=Artikel,rating=Sterne,quantity=Menge,id=ArtNr,title=Name"
DECLARED = ["--catalogue", "items.txt", "--rating-range", "1", "5", "--columns", COLUMNS]
BUDGET = ["--epsilon", "5", "--delta", "1e-6", "--users", "60"]


@pytest.fixture
def shop(run) -> Callable[..., Any]:
    folder = Path.cwd()
    (folder / "items.txt").write_text("\n".join(ITEMS) + "\n")
    articles = [f"{item};Käse {item};{('Käse', 'Öl')[k % 2]};{k},50" for k, item in enumerate(ITEMS)]
    (folder / "artikel.csv").write_text(
        "ArtNr;Name;Gruppe;Preis\n" + "\n".join(articles) + "\n", encoding="utf-8"
    )
    rows = [
        f"Müller {u};{ITEMS[(7 * u + k) % 40]};1,5;{('', '4,5')[k % 2]}" for u in range(60) for k in range(8)
    ]
    rows += [f"Müller {u};{ITEMS[7 * u % 40]};-1,5;" for u in range(60)]
    (folder / "kauf.csv").write_text(
        "Kunde;Artikel;Menge;Sterne\n" + "\n".join(rows) + "\n", encoding="utf-8"
    )
    return run


def test_from_two_tables_to_lists_with_titles_and_rules(shop) -> None:
    found = json.loads(
        shop("check", "kauf.csv", *DECLARED, "--item-features", "artikel.csv", "--json").stdout
    )
    assert found["item_features"] == {"title": "words", "Gruppe": "words and features", "Preis": "features"}
    assert (found["rows"], found["usable"], found["users"], found["hints"]) == (540, 420, 60, [])
    assert not shop("plan", *BUDGET, *DECLARED, "--item-features", "artikel.csv").exit_code
    trained = shop(
        "train", "kauf.csv", *BUDGET, *DECLARED, "--item-features", "artikel.csv", "--out", "m.hush"
    )
    assert not trained.exit_code, trained.stderr
    history = ["m.hush", "kauf.csv", "--user", "Müller 3", "--columns", COLUMNS, "--json"]
    answer = json.loads(shop("recommend", *history, "--attributes", "artikel.csv", "--titles", "artikel.csv",
                            "--where", "Preis < 20.5", "-n", "3").stdout)  # fmt: skip
    assert all(
        entry["title"] == f"Käse {entry['item']}" and entry["item"] <= "0021" for entry in answer["items"]
    )
    own = Ratings.from_any("kauf.csv", load("m.hush").domain, columns={
        "user": "Kunde", "item": "Artikel", "rating": "Sterne", "quantity": "Menge"})  # fmt: skip
    assert ITEMS[21] not in {own.domain.items[k] for k in own.for_users(["Müller 3"]).matrix.indices}
    Path("pairs.csv").write_text("user,item\nMüller 3,0001\n", encoding="utf-8")
    Path("test.csv").write_text("user,item,rating\nMüller 3,0001,4\n", encoding="utf-8")
    named = ["--columns", COLUMNS]  # of the history; the other table has usual names
    for words in (
        ["predict", "m.hush", "kauf.csv", "pairs.csv", "--out", "p.csv"],
        ["evaluate", "m.hush", "kauf.csv", "test.csv"],
    ):
        assert not (done := shop(*words, *named)).exit_code, done.stderr
        Path("p.csv").unlink(missing_ok=True)
        wrong = shop(*words, "--columns", COLUMNS.replace("Kunde", "Kunden"))
        assert "'kauf.csv' has no column named 'Kunden'" in wrong.stderr
    like = json.loads(
        shop("similar", "m.hush", "0001", "--titles", "artikel.csv", "--columns", COLUMNS, "--json").stdout
    )
    assert like["items"][0]["title"].startswith("Käse")
    ruled = ["--attributes", "artikel.csv", "--where", "Preis < 20.5", "--columns", COLUMNS]
    like = json.loads(shop("similar", "m.hush", "0001", *ruled, "--json").stdout)
    assert like["items"] and all(entry["item"] <= "0021" for entry in like["items"])
    done = shop("similar", "m.hush", "--all", "--out", "s.csv", "-n", "2", *ruled)
    assert done.exit_code == 0 and "Wrote the lists of" in done.stdout, done.stderr
    with open("s.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len({row["item"] for row in rows}) * 2 == len(rows) > 40
    said = json.loads(
        shop("similar", "m.hush", "--all", "--out", "t.csv", "-n", "2", *ruled, "--json").stdout
    )
    assert said == {"path": "t.csv", "items": len(rows) // 2, "catalogue": 40}
    basket = json.loads(shop("similar", "m.hush", "0001", "0007", "--json").stdout)
    assert basket["item"] == ["0001", "0007"]
    assert not {"0001", "0007"} & {entry["item"] for entry in basket["items"]} and like["item"] == "0001"
    assert all(row["similar"] <= "0021" and row["similar"] != row["item"] for row in rows)


@pytest.mark.parametrize(("mailing", "mark"), [("comma", ","), ("semicolon", ";")])
def test_a_mailing_has_one_row_per_customer_with_titles(shop, mailing, mark) -> None:
    assert not shop(
        "train", "kauf.csv", *BUDGET, *DECLARED, "--model", "popular", "--out", "m.hush"
    ).exit_code
    lists = ["recommend", "m.hush", "kauf.csv", "--all", "-n", "30", "--titles", "artikel.csv"]
    lists += DECLARED[-2:]
    assert not shop(*lists, "--out", "long.private.csv").exit_code
    assert not shop(*lists, "--out", "mail.private.csv", "--mailing", mailing).exit_code
    assert Path("mail.private.csv").read_bytes().startswith(b"\xef\xbb\xbf") == (mark == ";")
    read = {}
    for name, delimiter in (("long", ","), ("mail", mark)):
        with open(f"{name}.private.csv", encoding="utf-8-sig") as file:
            read[name] = list(csv.DictReader(file, delimiter=delimiter))
    wanted = {}
    for row in read["long"]:
        user = wanted.setdefault(row["user"], {})
        user |= {f"{name}_{row['rank']}": row[name] for name in ("item", "title")}
    assert [row.pop("user") for row in read["mail"]] == list(wanted) and len(wanted) == 60
    for row, expected in zip(read["mail"], wanted.values(), strict=True):
        assert {name: cell for name, cell in row.items() if cell} == expected
        assert len(row) == 60
    assert "pass --all --out mail" in shop(*lists, "--out", "mail.parquet", "--mailing", mailing).stderr


def test_likes_by_quantity_and_splits_that_keep_them(shop) -> None:
    declared = ["--catalogue", "items.txt", "--implicit"]
    declared += ["--columns", "user=Kunde,item=Artikel,quantity=Menge"]
    assert json.loads(shop("check", "kauf.csv", *declared, "--json").stdout)["usable"] == 420
    assert not shop("split", "kauf.csv", *DECLARED, "--test-share", "0.2", "--out-dir", "parts").exit_code
    usable = [
        json.loads(shop("check", f"parts/{part}.parquet", *DECLARED[:5], "--json").stdout)["usable"]
        for part in ("train", "test")
    ]
    assert sum(usable) == 420
    assert not shop("prepare", "kauf.csv", *DECLARED, "--out", "s.store").exit_code
    assert shop("train", "s.store", *BUDGET, "--model", "item-bias", "--out", "m.hush").exit_code == 2


def test_unknown_roles_and_missing_ids_are_refused_in_one_sentence(shop) -> None:
    for columns, says in (("person=Kunde", "has no role 'person'"), ("item=Artikel", "--columns id=NAME")):
        words = ["plan", *BUDGET, *DECLARED[:5], "--item-features", "artikel.csv", "--columns", columns]
        assert says in " ".join(shop(*words).stderr.split())
