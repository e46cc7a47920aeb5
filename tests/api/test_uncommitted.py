"""Files of transactions that never committed and whose table does not exist."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import deltasql
from deltasql.exceptions import FilesTakenError
from deltasql.storage import open_storage

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases

ROWS = pa.table({"id": [1, 2], "_p": ["a", "b/c"]})
KILLED = """
import os, signal, sys, pyarrow as pa, deltasql
uri, lake = sys.argv[1:]
with deltasql.connect(uri, table={"data_root": lake}) as catalog:
    tx = catalog.begin()
    rows = pa.table({"id": [1, 2], "_p": ["a", "b/c"]})
    tx.create_table("t", rows.schema, partition_by="_p")
    tx.write("t", rows)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def age(catalog: Catalog) -> None:
    """Make all intents two hours older."""
    with catalog.store.session() as session:
        session.begin()
        session.script("UPDATE dl_staged_files SET staged_at_ms = staged_at_ms - 7200000")
        session.commit()


def data_files(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*.parquet"))


def intents_check(catalog: Catalog) -> tuple[str, str]:
    checks = {each.name: each for each in catalog.inspect.doctor().checks}
    assert checks["orphan rows"].status == "ok"
    found = checks["intents"]
    return found.status, found.suggestion or ""


def test_vacuum_deletes_files_of_a_killed_process_that_created_a_table(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, catalog_uri.to_string(), str(lake)], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    left = data_files(lake)
    assert len(left) == 2
    (lake / "default" / "t" / "other.parquet").write_bytes(b"x")  # a file without an intent
    with deltasql.connect(catalog_uri) as catalog:
        assert intents_check(catalog)[0] == "ok"
        assert (
            catalog.vacuum_uncommitted(dry_run=False) == []
        )  # the transaction may still be running
        age(catalog)
        assert intents_check(catalog) == (
            "warning",
            "Delete them: deltasql vacuum --uncommitted.",
        )
        assert sorted(catalog.vacuum_uncommitted()) == left
        assert data_files(lake)[:2] == left
        assert sorted(catalog.vacuum_uncommitted(dry_run=False)) == left
        assert [Path(each).name for each in data_files(lake)] == ["other.parquet"]
        assert intents_check(catalog)[0] == "ok"
        assert catalog.vacuum_uncommitted() == []


def test_transaction_whose_files_were_vacuumed_does_not_commit(
    catalog: Catalog,
) -> None:
    tx = catalog.begin()
    tx.create_table("t", ROWS.schema)
    tx.write("t", ROWS)
    age(catalog)
    assert len(catalog.vacuum_uncommitted(dry_run=False)) == 1
    with pytest.raises(FilesTakenError, match="vacuum may have deleted files"):
        tx.commit()
    assert catalog.tables() == []


def test_transaction_whose_intents_were_lost_commits(catalog: Catalog) -> None:
    tx = catalog.begin()
    tx.create_table("t", ROWS.schema)
    tx.write("t", ROWS)
    catalog.store.clear_intents(tx.txn_id)
    tx.commit()
    assert catalog.table("t").version() == 0


def test_vacuum_keeps_committed_files_of_live_and_dropped_tables(
    catalog: Catalog, tmp_path: Path
) -> None:
    for name in ("live", "dropped"):
        with catalog.begin() as tx:
            tx.write(name, ROWS, partition_by=["_p"])
    place = Path(catalog.table("dropped").location)
    running = catalog.begin()
    running.write("dropped", ROWS)
    known = _committed(catalog, "dropped")
    new = [path for path in data_files(place) if path not in known]
    catalog.drop("dropped")
    live = _committed(catalog, "live")
    with catalog.store.change() as (session, _):
        session.insert("insert_staged_file", [("dead", -1, path, 1) for path in live])
    age(catalog)
    assert sorted(catalog.vacuum_uncommitted(dry_run=False)) == new
    assert data_files(tmp_path) == sorted([*live, *known])
    running.rollback()
    with catalog.begin() as tx:
        assert tx.read("live").num_rows == 2


def _committed(catalog: Catalog, name: str) -> list[str]:
    table = catalog.table(name)
    storage = open_storage(table.location)
    return [f"{table.location}/{storage.data_name(path)}" for path in table.scan().paths()]
