"""What Python users expect of objects: copies, parameters, notebooks, names, plain refusals."""

import copy
import math
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import hushrec
from hushrec.data import realistic
from hushrec.errors import InputError
from hushrec.evaluation import evaluate
from hushrec.models import ItemBias
from hushrec.privacy import Accountant, Budget, Ledger, SystemNoise
from hushrec.privacy.testing import SeededNoise

BUDGET = Budget(5.0, 1e-6)
RATINGS = realistic(300, 40, 4000, seed=3)
MODEL = ItemBias().fit(RATINGS, Accountant(BUDGET))
ALONE = dict(list(zip(RATINGS.domain.items, (5.0, 4.0, 1.0))))


def answer(model: hushrec.Model) -> list:
    """Recommend, as a process of a pool is asked to."""
    return model.recommend(ALONE, 5)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_model_travels_as_the_bytes_of_its_file(again) -> None:
    twin = again(MODEL)
    assert twin.to_bytes() == MODEL.to_bytes()
    assert answer(twin) == answer(MODEL)
    assert MODEL.to_bytes() in pickle.dumps(MODEL)  # nothing else is in there


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("what", ["accountant", "ledger", "noise", "seeded"])
def test_what_spends_or_hides_cannot_be_copied(what, again, tmp_path) -> None:
    made = {
        "accountant": lambda: Accountant(BUDGET),
        "ledger": lambda: Ledger(tmp_path / "ledger.sqlite", create=True),
        "noise": SystemNoise,
        "seeded": lambda: SeededNoise(1),
    }[what]()
    with pytest.raises(InputError, match="cannot be pickled or copied: "):
        again(made)


def test_a_table_of_users_and_items_is_predicted_in_its_order() -> None:
    users, items = list(RATINGS.users[:4]), list(RATINGS.domain.items[:3])
    rows = [(users[2], items[1]), ("nobody", items[0]), (users[0], "nothing"), (users[2], items[0])]
    frame = pd.DataFrame(rows, columns=["user_id", "item_id"], index=[7, 7, 1, 0])
    expected = MODEL.predict(RATINGS, items)
    of_nobody = MODEL.predict({}, items)
    for table in (frame, pa.Table.from_pandas(frame, preserve_index=False), frame.to_dict("list")):
        found = MODEL.predict(RATINGS, table)
        np.testing.assert_allclose(found, [expected[2, 1], of_nobody[0], math.nan, expected[2, 0]])
    with pytest.raises(InputError, match="Ratings"):
        MODEL.predict(ALONE, frame)


def test_notebooks_and_terminals_show_what_is_public_and_no_more(tmp_path) -> None:
    book = Ledger(tmp_path / "<i>.sqlite")
    book.open_dataset("shop & co", Budget(5, 1e-6))
    accountant = Accountant(Budget(3, 1e-6), ledger=book, dataset="shop & co")
    ItemBias().fit(RATINGS, accountant)
    found = hushrec.compare(RATINGS, RATINGS, ["item-bias"], [5], delta=1e-6, data_is_public=True)
    for shown, words in (
        (book, "shop &amp; co: "),
        (book.summary("shop & co"), "reserved 0.0%, free "),
        (found, "<td>item-bias</td><td>5"),
    ):
        seen = shown._repr_html_()
        assert words in seen and "<i>" not in seen and seen.count("<tr>") == seen.count("</tr>") > 0
    assert str(found) == found.markdown() and str(tmp_path) not in book._repr_html_()
    for shown in (MODEL, MODEL.privacy, MODEL.estimator.plan(BUDGET, RATINGS.domain), found):
        assert len(repr(shown)) < 300
    for shown in (MODEL, MODEL.privacy, MODEL.estimator.plan(BUDGET, RATINGS.domain)):
        assert "unit: user, relation: add-remove" in repr(shown) + shown._repr_html_()
        assert "<script" not in shown._repr_html_()
    assert str(MODEL.privacy) == MODEL.privacy.text()
    measured = evaluate(MODEL, RATINGS, RATINGS)
    assert "private figure" in repr(measured) and "private figure" in str(measured)
    assert "private figure" in measured._repr_html_()


def test_the_readme_passes_strict_type_checks(tmp_path) -> None:
    root = Path(hushrec.__file__).parents[1]
    (code,) = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    names = "from typing import Any\ncatalogue: list[str] = []\nframe: Any = None\n"
    (tmp_path / "readme.py").write_text(names + code, encoding="utf-8")
    cache = root / ".mypy_cache" / "readme"  # other options than `make check` has would empty its cache
    words = ["-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", cache]
    words.append("readme.py")
    path = {**os.environ, "MYPYPATH": str(root)}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=tmp_path, env=path)
    assert done.returncode == 0, done.stdout
