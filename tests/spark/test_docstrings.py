"""The code in the docstrings of the public names of `deltasql.spark` runs."""

from __future__ import annotations

import re
from inspect import getdoc
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

import deltasql.spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SHOWN = ("read", "write", "DeltaTable", "register", "stream_writer")


@pytest.mark.everything("the guide and the tests of each function run the same calls")
def test_code_in_docstrings_runs(spark: SparkSession, tmp_path: Path) -> None:
    names: dict[str, Any] = {"deltasql": deltasql}
    for thing in (deltasql.spark, *(getattr(deltasql.spark, name) for name in SHOWN)):
        code = dedent("".join(re.findall(r"^    .*\n?|^\n", getdoc(thing) or "", re.M)))
        assert "deltasql.spark" in code
        exec(code.replace("/tmp/docstrings", str(tmp_path)), names)
    assert names["spark"] is spark
    assert names["table"].toDF().count() == 1
    with deltasql.connect(f"deltasql://sqlite/{tmp_path}/catalog.db") as catalog:
        assert catalog.table("sales").snapshot().version == 2
        assert catalog.table("copy").snapshot().version == 2
