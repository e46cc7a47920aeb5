"""Delta tables of deltalake to import, and ways to damage their logs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa

from deltasql.verify.sql_state import SqlState
from tests.mirror.support import LOG, commit_path

if TYPE_CHECKING:
    from deltasql import Catalog

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])
HEAD = 6
CHECKPOINT = 4


def rows(*ids: int) -> pa.Table:
    """Return rows in two partitions."""
    return pa.table({"id": list(ids), "p": ["a" if i % 2 else "b" for i in ids]}, schema=SCHEMA)


def append(place: Path | str, *ids: int, **options: Any) -> int:
    """Append rows with deltalake; return the version."""
    deltalake.write_deltalake(str(place), rows(*ids), mode="append", partition_by=["p"], **options)
    return deltalake.DeltaTable(str(place)).version()


def make_table(place: Path, *, checkpoint: bool = True) -> Path:
    """Write a table with seven versions: appends, a delete, a checkpoint at version 4."""
    # The log keeps every commit: no automatic checkpoints.
    quiet = {"configuration": {"delta.checkpointInterval": "1000"}}
    append(place, 1, 2, **quiet)
    append(place, 3)
    append(place, 4, 5)
    deltalake.DeltaTable(str(place)).delete("id = 3")
    append(place, 6)
    if checkpoint:
        deltalake.DeltaTable(str(place)).create_checkpoint()
    append(place, 7)
    assert append(place, 8) == HEAD
    return place


def copy_of(pristine: Path, place: Path) -> Path:
    """Copy a table so that a test can damage it."""
    shutil.copytree(pristine, place)
    return place


def checkpoint_file(place: Path, version: int = CHECKPOINT) -> Path:
    return place / LOG / f"{version:020d}.checkpoint.parquet"


def change_actions(place: Path, version: int, change: Any) -> None:
    """Rewrite a commit with the actions that a function returns."""
    path = commit_path(place, version)
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in change(actions)))


def read_ids(place: Path | str, version: int | None = None) -> list[int]:
    """Return the ids that deltalake reads."""
    table = deltalake.DeltaTable(str(place), version=version)
    return sorted(table.to_pyarrow_table()["id"].to_pylist())


def paths_at(catalog: Catalog, name: str, version: int) -> list[str]:
    """Return the live files in SQL at a version."""
    state = SqlState(catalog.store, catalog.table(name).row, version)
    return sorted(state.files["path"].to_pylist())


def stock_paths_at(place: Path | str, version: int) -> list[str]:
    """Return the live files in deltalake at a version."""
    actions = pa.table(deltalake.DeltaTable(str(place), version=version).get_add_actions())
    return sorted(actions["path"].to_pylist())
