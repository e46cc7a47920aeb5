"""A read replica by streaming replication: what its readers see, and that it takes no writes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import deltasql
from deltasql import Catalog
from deltasql.exceptions import StoreReadOnlyError
from tests.matrix.behaviours import OK, check
from tests.matrix.postgres import PostgresServer, running, wait

# With these settings of the primary server, a COMMIT returns when the replica shows it.
_SYNCHRONOUS = {"synchronous_standby_names": "*", "synchronous_commit": "remote_apply"}


def replica_results(programs: Path, folder: Path) -> dict[str, str]:
    """Return the results of all checks of a replica."""
    with running(programs, folder / "primary") as primary:
        _write(primary, folder, 0)  # before the copy: it creates the catalog
        replica = PostgresServer(programs, folder / "replica")
        # -R writes the settings of a replica into the copy.
        copy = ("-D", str(replica.data), "-d", primary.address, "-R", "-X", "stream")
        replica.run("pg_basebackup", *copy, "-c", "fast")
        replica.start()
        try:
            _follows(primary, replica, folder)
            _refuses_writes(replica, folder)
            _shows_staleness(primary, replica, folder)
            _is_never_stale(primary, replica, folder)
        finally:
            replica.stop()
    names = ("reads of a replica", "no writes", "staleness visible", "staleness bounded")
    return dict.fromkeys(names, OK)


def _follows(primary: PostgresServer, replica: PostgresServer, folder: Path) -> None:
    for number in range(1, 4):
        _write(primary, folder, number)
    with _open(replica, folder) as catalog:
        wait(lambda: catalog.table("t").version() == 3)
        check(_ids(catalog) == [0, 1, 2, 3], "the replica shows other rows")
        check(len(catalog.table("t").history()) == 4, "the replica shows another history")
        replicas = [each for each in catalog.inspect.doctor().checks if each.name == "replica"]
        check([each.status for each in replicas] == ["ok"], f"doctor reports {replicas}")
    with _open(primary, folder) as catalog:
        names = [each.name for each in catalog.inspect.doctor().checks]
        check("replica" not in names, "doctor reports a primary server as a replica")


def _refuses_writes(replica: PostgresServer, folder: Path) -> None:
    before = sorted((folder / "lake").rglob("*"))
    with _open(replica, folder) as catalog:
        for write in (_append, _create):
            try:
                write(catalog)
            except StoreReadOnlyError as error:
                check("primary" in error.help, f"the help is {error.help}")
            else:
                check(False, f"{write.__name__} succeeded on a replica")
    check(sorted((folder / "lake").rglob("*")) == before, "a refused write left files")


def _append(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("t", _rows(9))


def _create(catalog: Catalog) -> None:
    catalog.create_table("new", _rows(9).schema)


def _shows_staleness(primary: PostgresServer, replica: PostgresServer, folder: Path) -> None:
    replica.execute("SELECT pg_wal_replay_pause()")
    _write(primary, folder, 4)
    with _open(replica, folder) as catalog:
        check(catalog.table("t").version() == 3, "a paused replica shows a new commit")
        wait(lambda: _replica_status(catalog) == "warning")
        replica.execute("SELECT pg_wal_replay_resume()")
        wait(lambda: catalog.table("t").version() == 4)
        wait(lambda: _replica_status(catalog) == "ok")


def _is_never_stale(primary: PostgresServer, replica: PostgresServer, folder: Path) -> None:
    for name, value in _SYNCHRONOUS.items():
        primary.execute(f"ALTER SYSTEM SET {name} = '{value}'")
    primary.execute("SELECT pg_reload_conf()")
    wait(lambda: primary.execute("SHOW synchronous_commit") == [("remote_apply",)])
    wait(lambda: primary.execute("SELECT sync_state FROM pg_stat_replication") == [("sync",)])
    with _open(primary, folder) as writer, _open(replica, folder) as reader:
        for _ in range(20):
            _append(writer)
            written, seen = writer.table("t").version(), reader.table("t").version()
            check(seen == written, f"version {written} is committed, the replica shows {seen}")


def _replica_status(catalog: Catalog) -> str:
    (found,) = [each for each in catalog.inspect.doctor().checks if each.name == "replica"]
    return found.status


def _open(server: PostgresServer, folder: Path) -> Catalog:
    return deltasql.connect(server.uri(), table={"data_root": str(folder / "lake")})


def _write(server: PostgresServer, folder: Path, number: int) -> None:
    with _open(server, folder) as catalog, catalog.begin() as tx:
        tx.write("t", _rows(number))


def _rows(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64())})


def _ids(catalog: Catalog) -> list[int]:
    found = catalog.query("SELECT id FROM t ORDER BY id").read_all()
    return [int(number) for number in found["id"].to_pylist()]
