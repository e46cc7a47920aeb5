"""`deltasql optimize`, `vacuum`, `restore`, `undo` and `checkpoint` on every database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import deltasql
from tests.cli.terminal import on_terminal
from tests.clock import Clock

if TYPE_CHECKING:
    import pytest

    from tests.cli.conftest import Cli


def ids(cli: Cli, table: str = "sales") -> list[int]:
    return [row["id"] for row in cli.json("query", f"SELECT id FROM {table} ORDER BY id")]


def version(cli: Cli) -> int:
    return int(cli.json("table", "show", "sales")["version"])


def live(cli: Cli) -> int:
    return int(cli.json("table", "show", "sales")["num_files"])


def test_optimize_rewrites_files_unless_dry_run(sales: Cli) -> None:
    output = sales.json("optimize", "sales", "--dry-run")
    assert (output["numFilesRemoved"], live(sales), version(sales)) == (2, 2, 2)
    metrics = sales.json("optimize", "sales")
    assert (metrics["numFilesAdded"], metrics["numFilesRemoved"]) == (1, 2)
    assert (live(sales), ids(sales)) == (1, [0, 1, 2, 3])


def test_optimize_names_wrong_options(sales: Cli) -> None:
    wrong = sales("optimize", "sales", "--target-size", "10MB", exit_code=2).stderr
    assert "Invalid value for '--target-size': '10MB' is not a valid integer." in wrong
    wrong = sales("optimize", "sales", "--where", "price=1", exit_code=2).stderr
    assert "sales has no partition column 'price'." in wrong


def test_z_order_accepts_only_existing_columns(sales: Cli) -> None:
    assert "'price'" in sales("optimize", "sales", "--z-order", "prise", exit_code=2).stderr
    output = sales.json("optimize", "sales", "--z-order", "id,price", "--dry-run")
    assert output["numFilesRemoved"] == 2
    sales("optimize", "sales", "--z-order", "id,price")
    assert ids(sales) == [0, 1, 2, 3]


def test_expire_deletes_versions_only_after_confirmation(
    sales: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def history() -> list[int]:
        return [row["version"] for row in sales.json("history", "sales")]

    assert sales.json("expire", "sales", "--yes")["limited_by"] == "retention"
    sales("expire", "sales", "--retention-hours", "1", exit_code=3)
    Clock(monkeypatch).ahead_s = 365 * 24 * 3600
    assert "(the published log 'table')" in sales("expire", "sales", "--dry-run").stdout
    sales("checkpoint", "sales")
    separator = "&" if "?" in str(sales.uri) else "?"
    deltasql.DeltaTable(f"{sales.uri}{separator}table=sales").cleanup_metadata()
    # The log now begins at version 2.
    assert "1 version" in sales("expire", "sales", "--dry-run").stdout
    sales("expire", "sales", stdin="n\n", exit_code=1)
    assert history() == [2, 1, 0]
    assert sales.json("expire", "sales", "--yes")["versions"] == 1
    assert history() == [2, 1]
    assert ids(sales) == [0, 1, 2, 3]
    assert "0 versions" in sales("expire", "sales", "--before-version", "0", "--dry-run").stdout


def test_restore_and_undo_commit_only_after_confirmation(sales: Cli) -> None:
    assert sales.json("restore", "sales", "1", "--dry-run") != {}
    assert version(sales) == 2
    sales("restore", "sales", "1", stdin="n\n", exit_code=1)
    assert version(sales) == 2
    assert sales.json("restore", "sales", "1", "--yes")["version"] == 3
    assert ids(sales) == [0, 1]
    sales("undo", "sales", "--dry-run")
    assert version(sales) == 3
    sales("undo", "sales", "--yes")
    assert ids(sales) == [0, 1, 2, 3]
    assert ids(sales, "sales@1") == [0, 1]


def test_restore_accepts_a_timestamp_and_rejects_invalid_targets(sales: Cli) -> None:
    first = sales.json("history", "sales")[-1]["committed_at"]
    sales("restore", "sales", first, "--yes")
    assert ids(sales) == []
    refused = sales("restore", "sales", "2000-01-01T00:00:00Z", "--yes", exit_code=3)
    assert "sales had no version at 2000-01-01" in refused.stderr
    sales("restore", "sales", "yesterday", "--yes", exit_code=2)
    sales("restore", "sales", "99", "--yes", exit_code=3)


def test_vacuum_deletes_only_after_confirmation(sales: Cli, tmp_path: Path) -> None:
    def files() -> list[Path]:
        found = (tmp_path / "lake").rglob("*.parquet")
        return [each for each in found if each.parent.name != "_delta_log"]

    sales("optimize", "sales")
    assert len(files()) == 3
    keep = ("--retention-hours", "0", "--force")
    output = sales.json("vacuum", "sales", *keep, "--dry-run")
    assert (len(output), len(files())) == (2, 3)
    sales("vacuum", "sales", *keep, stdin="n\n", exit_code=1)
    assert len(files()) == 3
    assert sales.json("vacuum", "sales", *keep, "--yes") == output
    assert len(files()) == 1
    assert ids(sales) == [0, 1, 2, 3]


def test_progress_bar_shows_number_of_deleted_files(sales_in_sqlite: Cli) -> None:
    sales_in_sqlite("optimize", "sales")
    arguments = ("vacuum", "sales", "--retention-hours", "0", "--force", "--yes")
    output, drawn = on_terminal(sales_in_sqlite.uri, *arguments)
    assert output.count(".parquet") == 2
    assert "2 of 2" in drawn


def test_vacuum_respects_retention_unless_forced(sales: Cli) -> None:
    output = sales("vacuum", "sales", "--retention-hours", "0", exit_code=3).stderr
    assert "retention" in output
    assert "--force" in output
    sales("vacuum", "sales", "--full", "--lite", exit_code=2)
    assert sales.json("vacuum", "sales", "--full", "--dry-run") == []


def test_checkpoint_updates_last_checkpoint(sales: Cli, tmp_path: Path) -> None:
    assert sales.json("checkpoint", "sales")["version"] == 2
    (last,) = (tmp_path / "lake").rglob("_last_checkpoint")
    assert json.loads(last.read_text())["version"] == 2
