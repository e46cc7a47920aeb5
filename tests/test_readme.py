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
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(block.replace("/tmp/shop", str(tmp_path)), "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "{'orders': 0, 'stock': 0}"
    assert printed[2] == "2"
    with deltasql.connect(f"deltasql://sqlite/{tmp_path}/catalog.db") as catalog:
        rows = deltalake.DeltaTable(catalog.table("orders").location).to_pyarrow_table()
    assert rows.num_rows == 2
