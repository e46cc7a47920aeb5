"""The Python of the guide runs, block after block in one session."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "spark.md"


@pytest.mark.heavy
def test_the_guide_can_be_followed_word_for_word(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = GUIDE.read_text(encoding="utf-8").replace("/tmp/shop", str(tmp_path))
    known: dict[str, object] = {}
    for block in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
        # Errors name the line of the page.
        above = "\n" * text.count("\n", 0, block.start(1))
        exec(compile(above + block.group(1), str(GUIDE), "exec"), known)
    assert known["spark"] is spark
    told = re.findall(r"print\(tx\.versions\) *# (.*)", text)
    assert capsys.readouterr().out.splitlines()[0] == told[0]
