"""Recovery of a PostgreSQL catalog from a dump or to a point in time, with a mirror that differs.

The restored database is older than the published logs, which are then ahead of it, or it has
commits that the logs lack. Both ways end with a catalog whose verification finds no difference.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import deltalake
import pyarrow as pa

import deltasql
from deltasql import Catalog
from deltasql.exceptions import LogAheadError
from tests.matrix.behaviours import OK, Failure, check
from tests.matrix.postgres import PostgresServer, own, running, wait

_RESTORED = "restored"


def dump_results(programs: Path, folder: Path) -> dict[str, str]:
    """Restore a dump into another database, with the mirror ahead of it and behind it."""
    with running(programs, folder / "server") as server:
        _write(server, "postgres", folder, 1)
        _write(server, "postgres", folder, 2, mirror="off")  # not published when it is dumped
        dump = server.folder / "catalog.dump"
        server.run("pg_dump", "-d", server.address, "-Fc", "-f", str(dump))
        server.execute(f"CREATE DATABASE {_RESTORED}")
        target = server.address.replace("dbname=postgres", f"dbname={_RESTORED}")
        server.run("pg_restore", "-d", target, "--exit-on-error", str(dump))
        _publishes_what_is_missing(server, _RESTORED, folder)
        server.execute(f"DROP DATABASE {_RESTORED}")
        # Now the logs get versions that the dump does not have.
        _write(server, "postgres", folder, 3)
        _write(server, "postgres", folder, 4)
        server.execute(f"CREATE DATABASE {_RESTORED}")
        server.run("pg_restore", "-d", target, "--exit-on-error", str(dump))
        _loads_what_is_ahead(server, _RESTORED, folder, [1, 2, 3, 4])
    return dict.fromkeys(("dump, mirror behind", "dump, mirror ahead"), OK)


def point_in_time_results(programs: Path, folder: Path) -> dict[str, str]:
    """Recover a server to a point in time, with the mirror ahead of it and behind it."""
    archive = folder / "archive"
    archive.mkdir()
    own(archive)
    settings = {"archive_mode": "on", "archive_command": f"cp %p {archive}/%f"}
    with running(programs, folder / "server", settings) as server:
        _write(server, "postgres", folder, 1)
        backup = folder / "backup"
        backup.mkdir()
        own(backup)
        copy = str(backup / "data")
        server.run("pg_basebackup", "-D", copy, "-d", server.address, "-X", "none", "-c", "fast")
        _write(server, "postgres", folder, 2, mirror="off")
        server.execute("SELECT pg_create_restore_point('first')")
        _write(server, "postgres", folder, 3)
        server.execute("SELECT pg_create_restore_point('second')")
        _write(server, "postgres", folder, 4)
        server.execute("SELECT pg_switch_wal()")
    found = {}
    # The log ends at version 3; the database was recovered to version 1.
    with _recovered(programs, folder, "first") as recovered:
        _loads_what_is_ahead(recovered, "postgres", folder, [1, 2, 3, 4])
    found["point in time, mirror ahead"] = OK
    # The lake was restored from an older copy: its log ends at version 0.
    location = _location(folder)
    for version in (1, 2, 3):
        (location / "_delta_log" / f"{version:020}.json").unlink()
    for name in location.glob("_delta_log/*.crc"):
        name.unlink()
    with _recovered(programs, folder, "second") as recovered:
        _repairs_the_log(recovered, "postgres", folder, [1, 2, 3])
    found["point in time, mirror behind"] = OK
    return found


@contextmanager
def _recovered(programs: Path, folder: Path, point: str) -> Iterator[PostgresServer]:
    """Run a server with a copy of the backup, recovered from the archive up to a restore point."""
    server = PostgresServer(
        programs,
        folder / f"recovered-{point}",
        {
            "restore_command": f"cp {folder}/archive/%f %p",
            "recovery_target_name": point,
            "recovery_target_action": "promote",
        },
    )
    shutil.copytree(folder / "backup" / "data", server.data)
    for path in (server.data, *server.data.rglob("*")):
        own(path)
    (server.data / "recovery.signal").touch()
    own(server.data / "recovery.signal")
    server.data.chmod(0o700)
    server.start()
    try:
        # The server accepts readers before the end of the recovery, and writers after it.
        wait(lambda: server.execute("SELECT pg_is_in_recovery()") == [(False,)])
        yield server
    finally:
        server.stop()


def _publishes_what_is_missing(server: PostgresServer, database: str, folder: Path) -> None:
    with _open(server, database, folder) as catalog:
        (state,) = catalog.mirror.status("t")
        check(state.pending == 1, f"{state.pending} versions are not published")
        catalog.mirror.publish("t")
        _is_sound(catalog, folder, [1, 2])


def _loads_what_is_ahead(
    server: PostgresServer, database: str, folder: Path, expected: list[int]
) -> None:
    before = _published(folder)
    with _open(server, database, folder) as catalog:
        try:
            _append(catalog, 9)
        except LogAheadError:
            pass
        else:
            raise Failure("a commit took a version that the log already has")
        check(_published(folder) == before, "the rejected commit changed the log")
        deltasql.rebuild(catalog, str(folder / "lake"))
        _is_sound(catalog, folder, expected)
        _append(catalog, 5)
        _is_sound(catalog, folder, [*expected, 5])
        # The next rehearsal starts with the log as it was.
        last = _location(folder) / "_delta_log" / f"{len(expected):020}.json"
    last.unlink()
    for name in last.parent.glob("*.crc"):
        name.unlink()


def _repairs_the_log(
    server: PostgresServer, database: str, folder: Path, expected: list[int]
) -> None:
    with _open(server, database, folder) as catalog:
        (report,) = catalog.mirror.verify("t")
        check(not report.ok, "the missing commits were not found")
        (state,) = catalog.mirror.status("t")
        check(state.state == "DAMAGED", f"the state of the mirror is {state.state}")
        catalog.mirror.repair("t")
        _is_sound(catalog, folder, expected)
        _append(catalog, 6)
        _is_sound(catalog, folder, [*expected, 6])


def _is_sound(catalog: Catalog, folder: Path, expected: list[int]) -> None:
    (report,) = catalog.mirror.verify("t", versions="all")
    check(report.ok, report.summary())
    failed = [each for each in catalog.inspect.doctor().checks if each.status == "failure"]
    check(not failed, f"doctor reports {failed}")
    rows = catalog.query("SELECT id FROM t ORDER BY id").read_all()
    check(rows["id"].to_pylist() == expected, f"the rows are {rows['id'].to_pylist()}")
    stock = deltalake.DeltaTable(str(_location(folder))).to_pyarrow_table()
    found = sorted(stock["id"].to_pylist())
    check(found == expected, f"deltalake reads {found}, not {expected}")


def _published(folder: Path) -> list[str]:
    return sorted(path.name for path in (_location(folder) / "_delta_log").iterdir())


def _location(folder: Path) -> Path:
    return folder / "lake" / "default" / "t"


def _open(server: PostgresServer, database: str, folder: Path, mirror: str = "sync") -> Catalog:
    return deltasql.connect(
        server.uri(database), table={"data_root": str(folder / "lake")}, mirror={"mode": mirror}
    )


def _write(
    server: PostgresServer, database: str, folder: Path, number: int, mirror: str = "sync"
) -> None:
    with _open(server, database, folder, mirror) as catalog:
        _append(catalog, number)


def _append(catalog: Catalog, number: int) -> None:
    with catalog.begin() as tx:
        tx.write("t", pa.table({"id": pa.array([number], pa.int64())}))
