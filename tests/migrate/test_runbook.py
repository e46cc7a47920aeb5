"""The commands of the disaster recovery guide work as described."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest
from click.testing import CliRunner

import deltasql
from deltasql.cli.main import main
from tests.mirror.published import append, publish_history
from tests.mirror.support import commit_path, open_mirrored

if TYPE_CHECKING:
    from click.testing import Result

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "disaster-recovery.md"


def blocks(language: str, folder: Path) -> list[str]:
    """Return the code blocks of the guide, with paths in a folder of the test."""
    text = GUIDE.read_text("utf-8")
    found = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return [block.replace("/srv", str(folder)) for block in found]


def run(block: str) -> list[Result]:
    """Run the lines of a shell block."""
    env: dict[str, str] = {}
    results = []
    for line in block.splitlines():
        arguments = shlex.split(line)
        if arguments[0] == "export":
            name, _, value = arguments[1].partition("=")
            env[name] = value
            continue
        assert arguments[0] == "deltasql"
        results.append(CliRunner().invoke(main, arguments[1:], env=env))
    return results


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data root whose database is gone."""
    with publish_history(f"deltasql://sqlite/{tmp_path}/meta.db", tmp_path / "lake"):
        pass
    (tmp_path / "new").mkdir()
    return tmp_path


def test_commands_of_the_guide_rebuild_a_catalog(folder: Path) -> None:
    rebuild, *_ = blocks("sh", folder)
    preview, loaded, verified, status = run(rebuild)
    for result in (preview, loaded, verified, status):
        assert result.exit_code == 0, result.output
    assert "would load" in preview.output
    assert "ok" in verified.output
    with deltasql.connect(f"deltasql://sqlite/{folder}/new/meta.db") as catalog:
        assert append(catalog, 9) == 9


def test_python_code_of_the_guide_rebuilds_a_catalog(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = blocks("python", folder)
    exec(compile(block, "disaster-recovery.md", "exec"), {})
    assert "1 table found" in capsys.readouterr().out


@pytest.fixture
def sales(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table that can also be written outside SQL; returns its location."""
    uri = f"deltasql://sqlite/{tmp_path}/meta.db"
    monkeypatch.setenv("DELTASQL_URI", uri)
    settings = {"table": {"data_root": str(tmp_path / "lake"), "in_commit_timestamps": False}}
    with open_mirrored(uri, tmp_path / "lake", **settings) as catalog:
        catalog.create_table("sales", pa.schema([("id", pa.int64())]))
        with catalog.begin() as tx:
            tx.write("sales", pa.table({"id": [1]}))
        return catalog.table("sales").location


def test_commands_of_the_guide_repair_a_log(sales: str, tmp_path: Path) -> None:
    commit_path(sales, 0).unlink()
    verified, repaired = run(blocks("sh", tmp_path)[1])
    assert verified.exit_code == 1
    assert "missing-version" in verified.output
    assert repaired.exit_code == 0, repaired.output
    assert commit_path(sales, 0).exists()


@pytest.mark.parametrize("number", [0, 1], ids=["adopt", "reject"])
def test_commands_of_the_guide_resolve_foreign_commits(
    sales: str, tmp_path: Path, number: int
) -> None:
    deltalake.write_deltalake(sales, pa.table({"id": [2]}), mode="append")
    line = blocks("sh", tmp_path)[2].splitlines()[number]
    (resolved,) = run(line)
    assert resolved.exit_code == 0, resolved.output
    assert deltalake.DeltaTable(sales).to_pyarrow_table().num_rows == 2 - number
    (verified,) = run("deltasql verify sales")
    assert verified.exit_code == 0, verified.output
