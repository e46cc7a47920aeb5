"""A small published table with some history, for tests that read or damage its log."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa

import deltasql
from deltasql.storage import open_storage
from tests.mirror.support import LOG, commit_lines, commit_path, open_mirrored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql import Catalog
    from deltasql.api.catalog.base import CatalogTable
    from deltasql.storage import Storage
    from deltasql.uri import DeltaSqlUri

CHECKPOINT = 6
HEAD = 8
# No automatic checkpoints: deltalake writes the only one.
QUIET = {"mirror": {"mode": "sync", "checkpoint_interval": 1_000_000}}


def publish_history(uri: DeltaSqlUri | str, folder: Path, **settings: Any) -> Catalog:
    """Return a catalog; its table `t` has nine versions, three partitions, a checkpoint at 6."""
    catalog = open_mirrored(uri, folder, **{**QUIET, **settings})
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    properties = {"delta.checkpointInterval": "1000000"}
    catalog.create_table("t", schema, partition_by=["p"], properties=properties)
    for number in range(CHECKPOINT):
        append(catalog, number, mode="overwrite" if number == 3 else "append")
    table = catalog.table("t")
    deltalake.DeltaTable(table.location).create_checkpoint()
    append(catalog, 7)
    append(catalog, 8, mode="overwrite")
    return catalog


@contextmanager
def copied_history(pristine: Path, place: Path) -> Iterator[Catalog]:
    """Copy a catalog from `pristine` to the folder where it was published, and open it."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(pristine, place)
    with open_mirrored(f"deltasql://sqlite/{place}/meta.db", place / "lake", **QUIET) as catalog:
        yield catalog


def keep_history(folder: Path) -> tuple[Path, Path]:
    """Publish the history once; return the copy to keep, and the folder where it was published."""
    pristine, place = folder / "pristine", folder / "place"
    place.mkdir()
    publish_history(f"deltasql://sqlite/{place}/meta.db", place / "lake").close()
    shutil.copytree(place, pristine)
    return pristine, place


def append(catalog: Catalog, number: int, *, mode: str = "append", table: str = "t") -> int:
    """Commit three rows in three partitions, and an application transaction."""
    rows = pa.table({"id": [number, number + 1, None], "p": ["a b", "é/%", None]})
    with catalog.begin() as tx:
        tx.write(table, rows, mode=mode)
        tx.stage_table(table, [deltasql.SetTransaction("etl", number, last_updated=number)])
    return tx.versions[table]


def storage_of(table: CatalogTable) -> Storage:
    """Return the storage of a table."""
    return open_storage(table.location)


def change_commit(
    location: Path | str, version: int, change: Callable[[dict[str, Any]], object]
) -> None:
    """Damage a commit file: call `change` on each of its actions."""
    actions = commit_lines(location, version)
    for action in actions:
        change(action)
    text = "".join(json.dumps(action) + "\n" for action in actions if action)
    commit_path(location, version).write_text(text)


def forget_derived(location: Path | str) -> None:
    """Delete all files of the log but the commit files, so that deltalake has to read these."""
    for file in (Path(location) / LOG).iterdir():
        if file.suffix != ".json":
            file.unlink()
