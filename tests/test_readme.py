"""The README's Python runs, and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake

import deltasql

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parent.parent


def test_python_of_the_readme_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
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
