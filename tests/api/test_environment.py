"""Guarantee 9: deltasql does not change the user's environment."""

from __future__ import annotations

import gc
import locale
import os
import signal
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import deltasql
from deltasql.api.catalog.connect import close_all

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = pa.table({"id": pa.array(range(3_000), pa.int64()), "v": ["x"] * 3_000})


def work(folder: Path, name: str = "t") -> None:
    """Run every kind of change and a read, in files below a folder."""
    address = f"deltasql://sqlite/{folder}/meta.db?table={name}"
    deltasql.write_deltalake(address, ROWS)
    table = deltasql.DeltaTable(address)
    table.update({"v": "'y'"}, predicate="id < 10")
    table.delete("id = 1")
    merger = table.merge(ROWS, "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert table.to_pyarrow_table().num_rows == 3_000
    with deltasql.connect(f"deltasql://sqlite/{folder}/meta.db") as catalog:
        counted = catalog.query(f"SELECT count(*) AS n FROM {name}").read_all()
    assert counted["n"].to_pylist() == [3_000]
    close_all()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("DELTASQL_TABLE__DATA_ROOT", str(tmp_path / "lake"))
    yield tmp_path
    close_all()


def state() -> dict[str, Any]:
    """Return the state that a process shares with all code in it."""
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "mask": _mask(),
        "locale": locale.setlocale(locale.LC_ALL),
        "signals": {each: signal.getsignal(each) for each in signal.valid_signals()},
        "hooks": (sys.excepthook, sys.displayhook, threading.excepthook, sys.gettrace()),
        "warnings": list(warnings.filters),
        "collector": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()),
        "recursion": sys.getrecursionlimit(),
        "switches": sys.getswitchinterval(),
    }


def _mask() -> int:
    found = os.umask(0o022)
    os.umask(found)
    return found


def test_operations_do_not_change_process_state(folder: Path) -> None:
    work(folder)  # late imports of other libraries may change the environment once
    before = state()
    work(folder, "u")
    after = state()
    assert [name for name in before if before[name] != after[name]] == []


def test_operations_write_only_below_catalog_and_data_root(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporary files are deleted at the end."""
    home, here, scratch = (tmp_path_factory.mktemp(name) for name in ("home", "here", "scratch"))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(here)
    work(folder)
    assert [*home.rglob("*"), *here.rglob("*"), *scratch.rglob("*")] == []
    assert sorted(each.name for each in folder.iterdir() if "meta.db" not in each.name) == ["lake"]
