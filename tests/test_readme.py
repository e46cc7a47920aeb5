"""The README's Python runs, and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa

import deltasql

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent


def python_blocks() -> list[str]:
    """The README's Python; the last block works on Spark DataFrames."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_python_of_the_readme_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    *blocks, _ = python_blocks()
    assert blocks
    for block in blocks:
        exec(compile(block.replace("/tmp/shop", str(tmp_path)), "README.md", "exec"), {})
        printed = capsys.readouterr().out.splitlines()
        told = re.findall(r"^ *print\(.*\)  # (.*)$", block, re.MULTILINE)
        assert len(printed) == len(told)
        for line, expected in zip(printed, told, strict=True):
            # What cannot be the same twice, such as the name of a file, is told in words.
            value = expected.partition(": ")[0] if expected[0].isdigit() else expected
            assert line == value or value[0].isalpha()
    with deltasql.connect(f"deltasql://sqlite/{tmp_path}/catalog.db") as catalog:
        rows = deltalake.DeltaTable(catalog.table("orders").location).to_pyarrow_table()
    assert rows.num_rows == 2


def test_spark_of_the_readme_runs(spark: SparkSession, tmp_path: Path) -> None:
    *_, block = python_blocks()
    uri = f"deltasql://sqlite/{tmp_path}/catalog.db"
    news = spark.sql("SELECT 'pen' AS sku, 98L AS left")
    sold = spark.sql("SELECT 3L AS id, 'pen' AS sku")
    with deltasql.begin(uri) as tx:
        tx.write("stock", pa.table({"sku": ["pen", "ink"], "left": [99, 49]}))
        tx.write("orders", pa.table({"id": [1, 2], "sku": ["pen", "ink"]}))
    exec(block, {"deltasql": deltasql, "uri": uri, "news": news, "sold": sold})
    with deltasql.connect(uri) as catalog:
        stock = deltalake.DeltaTable(catalog.table("stock").location).to_pyarrow_table()
        orders = catalog.table("orders").snapshot().totals()
    assert dict(zip(*stock.to_pydict().values(), strict=True)) == {"pen": 98, "ink": 49}
    assert orders.num_records == 3
