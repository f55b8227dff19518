"""Every call on the migration pages runs."""

import re
from pathlib import Path

import numpy as np
import pytest
from pyarrow import csv

import hushrec
from docs._ext import execute

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
CELL = re.compile(r"^\|[^|]*\|([^|]*)\|[^|]*\|$", flags=re.M)


def calls(page):
    """Every snippet of Python in a table's second column, once."""
    found = [code for cell in CELL.findall(page) for code in re.findall(r"`([^`]+)`", cell)]
    return sorted({code for code in found if "(" in code and "…" not in code})


@pytest.mark.parametrize(("name", "least"), [("migrating", 25), ("lightfm", 9)])
def test_every_call_runs(name, least, tmp_path, monkeypatch):
    text = (GUIDES / f"{name}.md").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HUSHREC_LEDGER", "own.sqlite")
    names = vars(hushrec) | {name: getattr(hushrec, name) for name in hushrec.__all__} | {"hushrec": hushrec}
    names |= execute.made_up()
    page = "".join(re.findall(r"```python\n(.*?)```", text, flags=re.S))
    exec(page, names)
    items, table = names["catalogue"], names["frame"]
    names["n_users"], names["ids"], names["items"] = 6000, ["1", "2"], items
    names["history"], names["test"] = hushrec.split_ratings(names["ratings"], (0.8, 0.2), seed=0)
    names["users"], names["matrix"] = names["ratings"].users, names["ratings"].matrix
    names["features"] = np.eye(len(items), 2)
    renamed = table.rename_columns(["uid", "iid", "r"])
    csv.write_csv(table, "ratings.csv")
    names["model"].save("model.hush")
    run = calls(text)
    assert len(run) > least
    for code in run:
        mine = dict(names)
        if "uid" in code:
            mine["frame"] = renamed
        elif "predict(ratings" in code:
            mine["frame"] = table.select(["user", "item"]).slice(0, 5)
        if "fit(" in code:
            mine["estimator"] = hushrec.Popular() if names["domain"].likes else hushrec.ItemBias()
            mine["accountant"] = hushrec.Accountant(hushrec.Budget(3, 1e-6))
        if "cross_validate" in code:
            mine["ratings"] = hushrec.realistic(200, 30, 3000, seed=0)
            code = code.replace("folds=5", "folds=2").replace("private-als", "item-bias")
        for known, stands in {"ann": "1", "bob": "2"}.items():
            code = code.replace(f'"{known}"', f'"{stands}"')
        exec(code, mine)
    assert np.isfinite(names["model"].predict({"matrix": 5}, ["alien"])).all()
