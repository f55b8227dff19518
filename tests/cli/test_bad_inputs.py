"""Wrong inputs of a shop: each is one clear sentence that names what to change, and costs nothing.

By command line (exit code 2, nothing printed, written or charged) and from Python.
"""

import gzip
import math
import os
import shlex
from pathlib import Path

import pandas as pd
import pytest

import hushrec
from hushrec import Accountant, Budget, Domain, ItemBias, Ratings
from hushrec.engines.two_servers.node import Node

B = "--epsilon 5 --delta 1e-6"
D = "--rating-range 1 5 --catalogue items.txt"
TRAIN = f"train shop.csv {B} {D} --out m.hush"
RANGED = f"train shop.csv {B} --rating-range 1 5 --out m.hush"
NO_RANGE = f"train shop.csv {B} --catalogue items.txt --out m.hush"
COMPARE = f"compare shop.csv --delta 1e-6 {D} --out-dir o"

#: Command line -> words of its one sentence.
SERVER = "--peer http://x --peer-token items.txt --folder f --out m.hush"
DEVICE = "--first http://x --second http://x --tokens items.txt --folder f"
LINES = {
    f"train shop.csv {B} {D}": "--out is missing",
    f"train nowhere.csv {B} {D} --out m.hush": "'nowhere.csv' cannot be read",
    f"train cut.parquet {B} {D} --out m.hush": "cut.parquet",
    f"train german.csv {B} {D} --out m.hush": "pass --columns user=NAME",
    f"train noheader.csv {B} {D} --out m.hush": "hushrec check lists its columns",
    f"train likes.csv {B} {D} --out m.hush": "pass --columns rating=NAME",
    f"train nothing.csv {B} {D} --out m.hush": "nothing.csv' has no columns",
    f"check nothing.csv {D}": "nothing.csv' has no columns",
    f"check {D}": "RATINGS is missing",
    f"train shop.csv german.csv {B} {D} --out m.hush": "'german.csv' has no column for the users",
    f"train shop.csv shop.csv {B} {D} --columns user=x --out m.hush": "No table has a column named 'x'",
    f"prepare shop.csv likes.csv {D} --out s": "'likes.csv' has no column for the ratings",
    "recommend MODEL shop.csv --user a --mailing comma": "pass --all --out mail.private.csv",
    f"train book.xlsx {B} {D} --out m.hush": "a spreadsheet by its name; save it as CSV",
    f"train rows.jsonl {B} {D} --out m.hush": "JSON by its name",
    f"{RANGED} --catalogue items.csv": "a table of 2 columns, not a list",
    f"{RANGED} --catalogue twice.txt": "twice",
    f"{RANGED} --catalogue book.xlsx": "is not text; write one id",
    f"{RANGED} --catalogue latin.txt": "is not UTF-8 text",
    RANGED: "--catalogue",
    NO_RANGE: "--rating-range is missing",
    f"{NO_RANGE} --rating-range 1-5": "--rating-range needs LOW HIGH",
    f"{NO_RANGE} --rating-range 5 1": "increase from low to high",
    f"train shop.csv --epsilon 5 {D} --out m.hush": "--delta is missing",
    f"train shop.csv --delta 1e-6 {D} --out m.hush": "--epsilon is missing",
    f"train shop.csv --epsilon five --delta 1e-6 {D} --out m.hush": "--epsilon 'five' is not understood",
    f"train shop.csv --epsilon nan --delta 1e-6 {D} --out m.hush": "epsilon",
    f"train shop.csv --epsilon -1 --delta 1e-6 {D} --out m.hush": "epsilon",
    f"train shop.csv --epsilon 1e400 --delta 1e-6 {D} --out m.hush": "the word inf",
    f"train shop.csv --epsilon 5 --delta 0 {D} --out m.hush": "delta",
    f"train shop.csv --epsilon 5 --delta 5 {D} --out m.hush": "--delta must be",
    f"{TRAIN} --model svd": "--model svd is not known",
    f"{TRAIN} --model als": "pass --epsilon inf",
    f"{TRAIN} --model list": "--model list is not known; pass lists, ratings, both",
    f"{TRAIN} --relation sibling": "relation",
    f"{TRAIN} --dataset ''": "--dataset is empty",
    f"{TRAIN} --dataset ' '": "--dataset is blank; pass a value, or leave it out",
    f"train shop.csv {B} {D} --out=' '": "--out is blank",
    f"{TRAIN} --model '\t'": "--model is blank",
    f"{TRAIN} --format ' ' --season ' '": "--season is blank",
    f"season open {B} --dataset s --name '  '": "--name is blank",
    f"servers join shop.csv agreed.json --name ' ' {DEVICE}": "--name is blank",
    "recommend MODEL shop.csv --user ' '": "--user is blank",
    "similar MODEL ' '": "is blank; pass a value, or leave it out",
    f"{TRAIN} --max-ratings-per-user 0": "--max-ratings-per-user",
    f"{TRAIN} --model item-bias --set clip=-1": "clip=-1 is out of range; pass a number from",
    f"{TRAIN} --model item-bias --set clip=wide": "clip='wide' is out of range; pass a number",
    f"{TRAIN} --model item-bias --set clip=1 --set clip=2": "--set gives clip twice",
    f"{TRAIN} --set foo.rank=8": "both has no setting 'foo.rank'",
    f"{TRAIN} --set ratings.foo=8": "no setting",
    f"{TRAIN} --set ratings.model=als": "no setting",
    f"{TRAIN} --set ratings=8": "ratings",
    f"{TRAIN} --set rank": "--set 'rank' is not NAME=VALUE",
    f"{TRAIN} --like-threshold 6": "--like-threshold=6 is out of range; pass a rating from 1 to 5",
    f"{TRAIN} --model private-eigenrec --set like_threshold=0": "--like-threshold=0 is out of range",
    f"{NO_RANGE} --implicit --model item-bias": "item-bias predicts ratings, and all likes are equal",
    f"{TRAIN} --epsilom 1": "no option --epsilom (did you mean --epsilon?)",
    f"{TRAIN} --implicit": "Likes have no rating range",
    f"{TRAIN} --model lists --model popular": "--model is given twice",
    "trian": "no command 'trian' (did you mean train?); see hushrec --help.",
    f"{TRAIN} --columns user": "--columns 'user' is not NAME=VALUE",
    f"{TRAIN} --columns user=foo": "no column named 'foo'",
    f"{TRAIN} --columns usr=customer": "no role 'usr'",
    f"{TRAIN} --format excel": "--format must be one of parquet, csv",
    f"{TRAIN} --unit rating --model item-bias": "pass --unit user",
    f"{TRAIN} --rank 8": "no option --rank: settings of a model are passed as --set rank=VALUE",
    f"{TRAIN} --ledger ''": "--ledger is empty",
    "ledger show --ledger ''": "--ledger is empty",
    f"train '' {B} {D} --out m.hush": "The argument after 'train' is empty",
    f"{RANGED} --catalogue ''": "--catalogue is empty; pass a value, or leave it out",
    f"{COMPARE} --epsilons 1 --models ,": "needs at least one private model",
    f"{COMPARE} --epsilons 1 --dataset {'x' * 201}": "--dataset must be",
    f"tune shop.csv {B} {D} --out m.hush --model item-bias --mean-runs 0": "--mean-runs=0.0 is out of range",
    f"season open {B} --dataset {'x' * 201}": "--dataset must be",
    "evaluate MODEL shop.csv shop.csv --metrics ,": "--metrics names none",
    f"season open --dataset s {B} --name {'x' * 201}": "--name must be",
    "recommend MODEL shop.csv --user a --attributes drama.csv --where Größe=1": "`on sale` in backticks",
    "recommend MODEL shop.csv --user a --items nowhere.txt": "The list of --items 'nowhere.txt'",
    f"{TRAIN} --model both --set rank=4": "'rank'; pass ratings.rank or lists.rank",
    f"train shop.csv {B} {D} --format parquet --out m.hush": "leave the format out",
    f"{TRAIN} --model item-bias --item-features drama.csv": "uses no item features",
    f"train shop.csv {B} {D} --out shop.csv": "one of the inputs and would be overwritten",
    f"train shop.csv {B} {D} --out nowhere/m.hush": "pass a path in a folder that exists",
    f"train shop.csv {B} {D} --out .": "is a folder",
    f"train shop.csv {B} {D} --out /dev/null": "not a regular file",
    f"{NO_RANGE} --implicit --model ratings": "--model ratings needs ratings",
    f"check rows.csv {D}": "JSON by its first bytes; write it as CSV",
    f"check book.csv {D}": "a zip archive or an Excel workbook by its first bytes; unpack it",
    f"train book.zip {B} {D} --out m.hush": "an archive by its name; unpack it",
    f"train packed.csv {B} {D} --out m.hush": "is compressed; end its name in .gz",
    f"train plain.csv.gz {B} {D} --out m.hush": "is not compressed as its name says; remove .gz",
    f"train utf16.csv {B} {D} --out m.hush": "UTF-16 text by its first bytes; save it as UTF-8",
    f"train pipe.csv {B} {D} --out m.hush": "is a pipe or a device",
    f"{RANGED} --catalogue typed.item": "a table of 2 columns, not a list",
    f"{RANGED} --catalogue headed.txt": "begins with a header; remove this line",
    f"split ms.csv {D} --out-dir p --from 2020-01-01": "PRIVATE, for the curator alone: all ratings",
    f"split shop.csv {D} --columns time=day --out-dir p --from 2030-01-01": "PRIVATE",
    f"split us.csv {D} --out-dir p --from 2020-01-01": "no time of these ratings can be read",
    f"split us.csv {D} --out-dir p --leave-last": "no time of these ratings can be read",
    "evaluate items.txt shop.csv shop.csv": "is not a hushrec model file",
    "evaluate nowhere.hush shop.csv shop.csv": "check the path",
    "evaluate MODEL shop.csv nobody.csv": "no usable rating",
    "evaluate MODEL shop.csv shop.csv --metrics rmse,f1": "f1",
    "evaluate MODEL shop.csv shop.csv -k 0": "-k 0",
    "evaluate MODEL shop.csv shop.csv --relevant-from 6": "--relevant-from=6 is above all ratings",
    f"{COMPARE} --epsilons 1 --models item-bias --relevant-from 6": "is above all ratings; pass at most 5",
    f"{TRAIN} --no-json": "(did you mean --json?)",
    f"train shop.csv STORE {B} {D} --out m.hush": "pass the tables that it was prepared from",
    f"split STORE {D} --leave-last --out-dir p": "prepare a store with times=True (--times)",
    "servers run agreed.json --role first --nodes items.txt --peer https://x --peer-token peer.txt --folder f"
    " --out m.hush --ledger shop.csv": "is not a ledger",
    "evaluate MODEL shop.csv german.csv": "pass --columns user=NAME",
    "recommend MODEL shop.csv": "Pass --user ID for one user, or --all",
    "recommend MODEL shop.csv --user a --all": "not both",
    **{
        f"recommend MODEL nobody.csv --all {out}": "'nobody.csv' holds no usable rating"
        for out in ("--out l.csv", "--out-dir lists", "--out-parts lists")
    },
    "recommend MODEL shop.csv --user a --items other.txt": "has no item of the model's catalogue",
    "recommend MODEL shop.csv --all --out-dir no/such/lists": "in a folder that exists",
    "recommend MODEL shop.csv --all --force --out-dir ''": "--out-dir is empty",
    "recommend MODEL shop.csv --all --out-parts=": "--out-parts is empty",
    "recommend MODEL shop.csv --user ''": "--user is empty",
    "export MODEL --web ''": "--web is empty",
    "serve x=": "'x=' names no file",
    "serve MODEL --titles x=y.csv": "'x=y.csv' names no model or file",
    "serve MODEL --attributes model=": "names no model or file",
    "recommend MODEL shop.csv --user a --items shop.csv": "a table of 4 columns, not a list",
    "recommend MODEL shop.csv --all --out lists.xlsx": "ends in .parquet or .csv",
    "predict MODEL shop.csv --out x.csv": "PAIRS is missing",
    "predict MODEL shop.csv shop.csv --out x.txt": "--out: 'x.txt' is not a table",
    "predict MODEL shop.csv items.csv --out items.csv --force": "items.csv",
    "similar MODEL nothing": "Item 'nothing' is not in the model's catalogue",
    "similar MODEL --nn 3": "There is no option or item '--nn'",
    "similar MODEL": "Pass ITEM for one list",
    "similar MODEL x --all --out s.csv": "Pass ITEM for one list",
    "similar MODEL --all": "--all --out FILE",
    "similar MODEL --all --out s.json": "'s.json' is not a table",
    "similar MODEL x --where new": "pass --attributes FILE",
    "serve MODEL --where new": "need a table of the items",
    "serve MODEL --at-most new": "--at-most 'new' does not end in a number",
    f"plan {B} --items 100": "for example --users 6000",
    f"plan {B} --users 100 --items 100 --releases": "--rating-range is missing",
    f"plan {B} --items 9 --users 9 --model nope": "--model nope is not known",
    f"plan {B} --items 9 --users 9 --catalogue items.txt": "Pass --catalogue or --items, not both",
    f"{COMPARE} --epsilons 1;5": "--epsilons '1;5' is not a list of numbers",
    f"{COMPARE} --epsilons 1 --models nope": "--models 'nope' is not known",
    f"{COMPARE} --epsilons 1 --set rank=8": "--set rank names no model; write for example --set both.rank=",
    f"{COMPARE} --epsilons 1 --set item-bias.clip=-1": "clip=-1 is out of range",
    f"tune {B} {D} --model item-bias --try clip=0.3": "Pass RATINGS, or --generated USERS to try",
    f"split shop.csv {D} --out-dir p": "one way to split: --test-share",
    f"split shop.csv {D} --out-dir p --test-share 1": "--test-share",
    "ledger open --epsilon inf --delta 1e-6": "epsilon",
    "audit canaries --model global-mean --epsilon 5 --delta 1e-6": "one canary alone",
    f"split shop.csv {D} --columns time=day --out-dir p --from yesterday": "--from 'yesterday' is not a date",
    f"servers init a.json {B} {D} --model private-als": "declare it, for example --users",
    f"servers init a.json {B} {D} --model item-bias --relation replace": "relation 'add-remove'",
    f"servers run shop.csv --role first --nodes items.txt {SERVER}": "is not an agreement",
    "export MODEL --web site --titles drama.csv": "Titles need a column of texts named title or name",
    "servers run agreed.json --role first --nodes items.txt --peer https://x --peer-token peer.txt --folder f"
    " --out nowhere/m.hush": "pass a path in a folder that exists",
    f"servers join shop.csv shop.csv --name a {DEVICE}": "is not an agreement",
    f"servers join shop.csv shop.csv --name a {DEVICE} --every inf": "--every",
    f"servers join shop.csv shop.csv --name a {DEVICE} --every nan": "--every",
    f"servers join shop.csv shop.csv --name a {DEVICE} --patience nan": "--patience",
    f"servers run shop.csv --role first --nodes items.txt {SERVER} --deadline infd": "pass days or hours",
    f"servers run shop.csv --role first --nodes items.txt {SERVER} --deadline nanh": "pass days or hours",
    f"servers run shop.csv --role first --nodes items.txt {SERVER} --linger inf": "--linger",
    "papers serve-completion --catalogue items.txt --nodes 3": "--mask-rank=10 and a rank of 1 need more",
    **{
        f"{command} --ledger shop.csv": "is not a ledger"
        for command in (
            *("ledger show", "ledger close", "season show", "season close", TRAIN),
            *("ledger show --html o.html", f"ledger open {B}", f"season open {B}"),
        )
    },
    "--epsilon 5": "needs a command before it, as in hushrec train --epsilon",
}


@pytest.fixture
def shop(run, files):
    """The working folder, with a shop's files, most of them wrong somehow."""
    items = files.items[:5]
    rows = [(f"anna{user}", item, 3.25, "2024-05-01") for user in range(9) for item in items]
    head = "customer,product,stars,day"

    def lines(*cells):
        return "".join(",".join(map(str, row)) + "\n" for row in cells)

    texts = {
        "items.txt": "\n".join(items),
        "other.txt": "no-such-item\n",
        "twice.txt": "a\nb\na\n",
        "nobody.csv": "customer,product,stars\nu,none,3\n",
        "cut.parquet": "PAR1",
        "mine.svg": "mine",
        "shop.csv": head + "\n" + lines(*rows),
        "german.csv": "Kunde,Artikel,Sterne,Tag\n" + lines(*rows),
        "noheader.csv": lines(*rows),
        "likes.csv": "customer,product\n" + lines(*(row[:2] for row in rows)),
        "nothing.csv": "",
        "rows.csv": '{"user":"a","item":"b","rating":3}\n',
        "ms.csv": "customer,product,stars,time\n" + lines(*((*row[:3], 10**12) for row in rows)),
        "us.csv": "customer,product,stars,time\n" + lines(*((*row[:3], "12/24/2025") for row in rows)),
        "typed.item": f"item_id:token\ttitle:token_seq\n{items[0]}\tA red house\n",
        "headed.txt": "item_id\n" + "\n".join(items),
        "plain.csv.gz": head,
        "rows.jsonl": '{"user":"a","item":"b","rating":3}\n',
        "drama.csv": "id,drama\n" + lines(*((item, place % 2) for place, item in enumerate(items))),
        "items.csv": "id,name\n" + lines(*((item, f"Film {item}") for item in items)),
    }
    for name, text in texts.items():
        Path(name).write_text(text, encoding="utf-8")
    os.mkfifo("pipe.csv")
    Path("packed.csv").write_bytes(gzip.compress(Path("shop.csv").read_bytes()))
    Path("utf16.csv").write_bytes(Path("shop.csv").read_text(encoding="utf-8").encode("utf-16"))
    for name in ("book.csv", "book.xlsx", "book.zip"):
        Path(name).write_bytes(b"PK\x03\x04" + bytes(200))
    Path("peer.txt").write_text("t" * 32, encoding="ascii")
    run(*shlex.split(f"servers init agreed.json --model item-bias {B} {D}"))
    run(*shlex.split(f"prepare shop.csv {D} --out shop.store"))
    Path("latin.txt").write_bytes("köln\n".encode("latin-1"))
    return files


def test_every_wrong_line_is_one_sentence_and_costs_nothing(run, shop):
    before = sorted(Path().iterdir())
    wrong = []
    for line, says in LINES.items():
        done = run(*shlex.split(line.replace("MODEL", shop.model).replace("STORE", "shop.store")))
        one = done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1 and len(done.stderr) < 450
        told = {word for word in ("Kunde", "Artikel", "Jürgen", "anna", "3.25") if word in done.stderr}
        if done.exit_code != 2 or done.stdout or not one or says not in done.stderr or told:
            wrong.append(f"{line}\n  -> {done.exit_code} {done.output}  (expected: {says})")
    assert not wrong, "\n".join(wrong)
    assert sorted(Path().iterdir()) == before and not run.ledger.exists()


BUDGET = Budget(5.0, 1e-6)
DOMAIN = Domain(["a", "b", "c", "d"], rating_range=(1, 5))
RATINGS = Ratings.from_any((["u", "u", "v"], ["a", "b", "a"], [1, 5, 3]), DOMAIN)
TRAINING = {"items": ["a"], "rating_range": (1, 5), "epsilon": 5, "delta": 1e-6}
FRAME = pd.DataFrame({"user": ["u"], "item": ["a"], "rating": [3.0]})
MODEL = ItemBias().fit(RATINGS, Accountant(BUDGET))
LOAD = "Ratings.from_any(table, "

#: Call -> words of its error.
CALLS = {
    "a frame for ratings": (lambda: ItemBias().fit(FRAME, Accountant(BUDGET)), LOAD),
    "a budget for an accountant": (lambda: ItemBias().fit(RATINGS, BUDGET), "pass Accountant(budget)"),
    "swapped": (lambda: ItemBias().fit(Accountant(BUDGET), RATINGS), "Ratings or Store, not Accountant"),
    "epsilon as text": (lambda: Budget("5", 1e-6), "epsilon must be a number"),
    "a negative epsilon": (lambda: Budget(-1, 1e-6), "greater than 0"),
    "donors alone": (lambda: ItemBias().fit(RATINGS, Accountant(BUDGET), public=["u1"]), "PublicRatings"),
    "many users for one": (lambda: MODEL.recommend(RATINGS), "call recommend_batch"),
    "no items": (lambda: MODEL.recommend({"a": 5}, n=0), "n=0"),
    "a frame for one user": (lambda: MODEL.recommend(FRAME), "a mapping from item to rating"),
    "one id for a list": (lambda: MODEL.predict({"a": 5}, "b"), "is not a list; pass one"),
    "an unknown item": (lambda: MODEL.predict({"a": 5}, ["z"]), "not in the model's catalogue"),
    "a rating out of range": (lambda: MODEL.predict({"a": 50}, ["b"]), "not a number from 1 to 5"),
    "one user for many": (lambda: MODEL.recommend_batch({"a": 5}), "history must be Ratings, not dict"),
    "no path to load": (lambda: hushrec.load(None), "pass the name of a model file"),
    "no model there": (lambda: hushrec.load("nowhere.hush"), "check the path"),
    "evaluate, swapped": (lambda: hushrec.evaluate(RATINGS, MODEL, RATINGS), "pass the trained model first"),
    "evaluate on a frame": (lambda: hushrec.evaluate(MODEL, FRAME, FRAME), LOAD),
    "one metric": (
        lambda: hushrec.evaluate(MODEL, RATINGS, RATINGS, metrics="rmse"),
        "metrics='rmse' is not a list",
    ),
    "users in words": (lambda: hushrec.PrivateALS.planned(BUDGET, DOMAIN, "many"), "n_users='many'"),
    "a setting as text": (lambda: hushrec.PrivateALS(rank="3"), "rank='3'"),
    "a path for a ledger": (lambda: Accountant(BUDGET, ledger="l.sqlite"), "pass Ledger(path)"),
    "an unknown option": (
        lambda: MODEL.recommend({"a": 5}, N=10),
        "recommend has no option 'N'; did you mean n?",
    ),
    "of many": (lambda: MODEL.recommend_batch(RATINGS, k=10), "recommend_batch has no option 'k'; it has n,"),
    "of a folder": (lambda: hushrec.write_lists(MODEL, RATINGS, "o", N=1), "write_lists has no option 'N'"),
    "of a store": (lambda: hushrec.Store.prepare(RATINGS, "o", DOMAIN, Force=True), "did you mean force?"),
    "of folds": (
        lambda: hushrec.cross_validate(RATINGS, ["item-bias"], [1], Delta=1e-6),
        "cross_validate has no option 'Delta'; did you mean delta?",
    ),
    "settings": (
        lambda: hushrec.train(
            FRAME, items=["a"], rating_range=(1, 5), epsilon=5, delta=1e-6, settings=3, ledger="l"
        ),
        "settings must be Mapping, not int; pass {",
    ),
    "settings by number": (
        lambda: hushrec.train(
            FRAME, items=["a"], rating_range=(1, 5), epsilon=5, delta=1e-6, settings={3: 1}, ledger="l"
        ),
        "both has no setting 3",
    ),
    "a part in words": (lambda: BUDGET.part("x"), "fraction='x' is out of range"),
    "a part of an accountant": (lambda: Accountant(BUDGET).part("x"), "share='x' is out of range"),
    "a blank data set": (lambda: Accountant(BUDGET, dataset=" "), "and not blank; it is ' '"),
    "a blank season": (lambda: hushrec.Season(BUDGET, name=" "), "name must be a line"),
    "a blank node": (lambda: Node(name=" ", tokens=("", ""), folder="f", ledger=None), "A node's name"),
    "a blank data set of a node": (
        lambda: Node(name="n", tokens=("", ""), folder="f", ledger=None, dataset="  "),
        "dataset must be a line",
    ),
    "a blank ledger": (lambda: hushrec.Ledger(" "), "The ledger ' ' could not be used (it is blank)"),
    "no for public": (lambda: Accountant(BUDGET, data_is_public="no"), "data_is_public='no' is neither True"),
    "no for a sum": (lambda: Accountant(BUDGET, allow_composition="no"), "allow_composition='no' is neither"),
    "no for a resumed one": (lambda: Accountant(BUDGET, resume="no"), "resume='no' is neither True nor"),
    "no for an early week": (
        lambda: hushrec.SeasonAccountant(hushrec.Season(BUDGET), early="no"),
        "early='no' is neither True nor False",
    ),
    "no for likes": (lambda: Domain(["a"], likes="no"), "likes='no' is neither True nor False"),
    **{
        f"train with {name}": (
            lambda name=name, value=value: hushrec.train(
                FRAME, **{**TRAINING, name: value, "ledger": "never-made"}
            ),
            says,
        )
        for name, value, says in (
            ("data_is_public", "no", "data_is_public='no' is neither True nor False"),
            ("model", ["both"], "model ['both'] is not known"),
            ("public", {"a": 1}, "pass hushrec.PublicRatings"),
        )
    },
    "relevant from above": (
        lambda: hushrec.evaluate(MODEL, RATINGS, RATINGS, relevant_from=6),
        "relevant_from=6 is above all ratings; pass at most 5",
    ),
    "NaN for a threshold": (lambda: hushrec.PrivateEigenRec(like_threshold=math.nan), "like_threshold=nan"),
}


@pytest.mark.parametrize("case", CALLS)
def test_every_wrong_call_is_one_sentence(case):
    call, says = CALLS[case]
    with pytest.raises(hushrec.HushrecError) as refused:
        call()
    assert says in str(refused.value) and "\n" not in str(refused.value), str(refused.value)


def test_none_for_a_column_is_its_usual_name():
    assert Ratings.from_any(FRAME, DOMAIN, columns={"user": None, "rating": "rating"}).n_ratings == 1


def test_a_large_delta_gives_a_warning_in_python_too():
    ratings = hushrec.realistic(60, 20, 600, seed=0)
    budget = Budget(5, 0.1)
    with pytest.warns(UserWarning, match="delta = 0.1 is at least 1 / 60 users"):
        hushrec.PrivateALS.planned(budget, ratings.domain, 60).fit(ratings, Accountant(budget))
