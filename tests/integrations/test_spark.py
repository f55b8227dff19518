"""The lines on Spark of the page on warehouses: ``make test SPARK=1``."""

import shutil
import sys
from pathlib import Path

import pytest

from docs._ext.execute import run_page

pytest.importorskip("pyspark")
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "warehouse.md"
SET_UP = """```python
from pathlib import Path

import hushrec
import pyarrow as pa
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.sql.shuffle.partitions", 2).getOrCreate()
texts = "concat('c', hash(id) % 50) AS customer_id", "concat('sku', abs(hash(id + 1)) % 40) AS sku"
orders = spark.range(4000).selectExpr(*texts, "CAST(1 + abs(hash(id)) % 5 AS double) AS stars")
domain = hushrec.Domain([f"sku{k}" for k in range(40)], rating_range=(1, 5))
FILES
hushrec.ItemBias().fit(store, hushrec.Accountant(hushrec.Budget(5, 1e-6))).save("shop.hush")
```
"""
CHECK = """```python
table, model, rows = frame.toArrow(), hushrec.load("shop.hush"), store.ratings()
wanted = model.recommend_batch(rows, n=20).select(["user", "item", "rank"]).to_pylist()
found = table.select(["user", "item", "rank"]).to_pylist()
key = lambda row: (row["user"], row["rank"])
print(len(found), sorted(found, key=key) == sorted(wanted, key=key))
spark.stop()
```
"""


@pytest.mark.skipif(shutil.which("java") is None, reason="no Java")
def test_the_lines_of_the_page_run_on_a_local_spark(monkeypatch):
    """Oracle: the lists of all users from the store."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    section = PAGE.read_text(encoding="utf-8").partition("## Spark")[2].partition("\n## ")[0]
    section = section.replace("<!-- not run -->", "").replace("s3://shop/ratings", "ratings")
    files, lists = (block.partition("```")[0] for block in section.split("```python\n")[1:])
    page = SET_UP.replace("FILES", files) + f"```python\n{lists}```\n" + CHECK
    printed = [shown for _, shown in run_page(page)]
    count, same = printed[-1].split()
    assert int(count) > 500 and same == "True"
