"""The behaviours that every cell of the matrix shows, each a function of one `Place`.

`python -m tests.matrix.behaviours --catalog URI --location URI` runs them and prints one line of
JSON: the result of each behaviour, which is `ok` or an error. The module imports only deltasql,
deltalake, pyarrow and the standard library, so that it runs in every environment.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import deltalake
import pyarrow as pa

import deltasql
import deltasql.spark
from deltasql import AddFile, Catalog, RemoveFile
from deltasql.exceptions import CommitConflictError, CommitOutcomeUnknownError, TxnLogError
from deltasql.uri import parse_uri
from tests.matrix.relay import Relay

OK = "ok"
BULK_FILES = 5_000
# A commit exchanges fewer messages with a database or a store than this.
_MOST_RESPONSES = 200
_KILLED = 9


@dataclass(frozen=True)
class Place:
    """The catalog, the location of its tables, and the options of their store."""

    catalog: str
    location: str
    storage_options: Mapping[str, str] = field(default_factory=dict)
    spark: Any = None
    """A Spark session, which then writes all rows and reads them, too."""
    relays: tuple[Relay, ...] = ()
    """Relays through which all clients of the store connect; without them, `lost_answer` adds some.

    Hadoop keeps the first client for a store, so Spark needs them from the beginning.
    """

    def numbers(self, *numbers: int) -> Any:
        """Return rows with these ids."""
        if self.spark is None:
            return _numbers(*numbers)
        values = ", ".join(f"({number}L)" for number in numbers)
        return self.spark.sql(f"SELECT * FROM VALUES {values} AS t(id)").coalesce(1)

    def connect(self, **settings: Any) -> Catalog:
        """Open the catalog."""
        known = {
            "table": {"data_root": f"{self.location}/tables"},
            "storage": {"options": dict(self.storage_options)},
        }
        return deltasql.connect(self.catalog, **{**known, **settings})

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a table; stock deltalake must read the same rows from the mirror."""
        with self.connect() as catalog:
            table = catalog.table(name)
            location, version = table.location, table.version()
            found = _sorted(catalog.query(f"SELECT * FROM {name}").read_all())
            if self.spark is not None:
                frame = deltasql.spark.read(self.spark, table.uri).orderBy("id")
                on_spark = [row.asDict() for row in frame.collect()]
                check(on_spark == found, f"Spark reads other rows: {on_spark[:5]}")
        stock = self.stock(location)
        check(stock.version() == version, f"deltalake sees {stock.version()}, not {version}")
        read = _sorted(stock.to_pyarrow_table())
        check(read == found, f"deltalake reads other rows: {read[:5]}, not {found[:5]}")
        return found

    def stock(self, location: str, version: int | None = None) -> deltalake.DeltaTable:
        """Open the published log of a table with stock deltalake."""
        options = dict(self.storage_options) or None
        return deltalake.DeltaTable(location, version=version, storage_options=options)


def commit(place: Place) -> None:
    """Commit to two tables in one transaction, append, and read both with stock deltalake."""
    with place.connect() as catalog:
        with catalog.begin() as tx:
            tx.write("first", place.numbers(1, 2))
            tx.write("second", place.numbers(3))
        check(tx.versions == {"first": 0, "second": 0}, f"the versions are {tx.versions}")
        for number in range(4, 8):
            with catalog.begin() as tx:
                tx.write("first", place.numbers(number))
        catalog.mirror.publish()
    check(_ids(place, "first") == [1, 2, 4, 5, 6, 7], "rows of `first` are missing")
    check(_ids(place, "second") == [3], "rows of `second` are missing")


def conflict(place: Place) -> None:
    """Overwrite a table in two transactions at once: the later one fails and changes nothing."""
    with place.connect() as catalog:
        with catalog.begin() as tx:
            tx.write("contended", place.numbers(1))
        one, two = catalog.begin(), catalog.begin()
        one.write("contended", place.numbers(2), mode="overwrite")
        two.write("contended", place.numbers(3), mode="overwrite")
        one.commit()
        try:
            two.commit()
        except CommitConflictError:
            pass
        else:
            raise Failure("both transactions were committed")
        check(_ids(place, "contended") == [2], "the failed transaction changed the table")
        # Appends do not conflict with each other.
        one, two = catalog.begin(), catalog.begin()
        one.write("contended", place.numbers(4))
        two.write("contended", place.numbers(5))
        one.commit(), two.commit()
        catalog.mirror.publish()
    check(_ids(place, "contended") == [2, 4, 5], "an append is missing")


def lost_answer(place: Place) -> None:
    """Lose a response at every step of a commit: it is applied once or reported as failed."""
    with place.connect() as catalog, catalog.begin() as tx:
        tx.write("asked", place.numbers(0))
        tx.write("again", place.numbers(0))
    servers = _servers(place)
    if not servers:
        _die_after_commit(place)
    for server in servers:
        _lose_each_response(place, server)


def bulk(place: Place) -> None:
    """Add several thousand files in one commit, and remove them in the next one."""
    paths = [f"part-{number:05}.parquet" for number in range(BULK_FILES)]
    with place.connect() as catalog:
        with catalog.begin() as tx:
            tx.write("large", place.numbers(1))
        with catalog.begin() as tx:
            tx.stage_table("large", [_added(path) for path in paths])
        catalog.mirror.publish()
        location = catalog.table("large").location
        found = {uri.rpartition("/")[2] for uri in place.stock(location).file_uris()}
        check(found.issuperset(paths), f"deltalake sees {len(found)} files")
        check(len(found) == BULK_FILES + 1, f"deltalake sees {len(found)} files")
        with catalog.begin() as tx:
            tx.stage_table("large", [_removed(path) for path in paths])
        catalog.mirror.checkpoint("large")
    check(_ids(place, "large") == [1], "the rows changed")


def vacuum(place: Place) -> None:
    """Delete the files of replaced rows, and only those."""
    with place.connect() as catalog:
        for number in range(3):
            with catalog.begin() as tx:
                tx.write("old", place.numbers(number), mode="overwrite")
        catalog.mirror.publish()
        options = {"retention_hours": 0, "enforce_retention_duration": False, "dry_run": False}
        deleted = catalog.vacuum("old", **options)
        check(len(deleted) == 2, f"{len(deleted)} files were deleted, not 2")
        check(not catalog.vacuum("old", **options), "the second vacuum deleted files, too")
        location = catalog.table("old").location
    check(_ids(place, "old") == [2], "the rows changed")
    try:
        place.stock(location, 0).to_pyarrow_table()
    except Exception:  # its type depends on the store
        return
    raise Failure("the deleted file can still be read")


def migrate(place: Place) -> None:
    """Import a plain Delta table, write to it through SQL, and export it."""
    source, copy = f"{place.location}/plain", f"{place.location}/copy"
    options = dict(place.storage_options) or None
    for number in (1, 2):
        deltalake.write_deltalake(source, _numbers(number), mode="append", storage_options=options)
    with place.connect() as catalog:
        catalog.import_table(source, name="imported")
        catalog.cutover("imported")
        with catalog.begin() as tx:
            tx.write("imported", place.numbers(3))
        catalog.mirror.publish()
        check(_ids(place, "imported") == [1, 2, 3], "imported rows are missing")
        catalog.export_table("imported", copy, with_data=True, storage_options=options)
        (report,) = catalog.mirror.verify("imported", versions="all")
        check(report.total == 0, report.summary())
    exported = _sorted(place.stock(copy).to_pyarrow_table())
    check([row["id"] for row in exported] == [1, 2, 3], "exported rows are missing")


BEHAVIOURS: Mapping[str, Callable[[Place], None]] = {
    each.__name__: each for each in (commit, conflict, lost_answer, bulk, vacuum, migrate)
}


def results(place: Place, chosen: tuple[str, ...] = tuple(BEHAVIOURS)) -> dict[str, str]:
    """Run the behaviours; return `ok` or the error for each."""
    found = {}
    for name in chosen:
        try:
            BEHAVIOURS[name](place)
        except Exception as error:
            traceback.print_exc()
            lines = str(error).strip().splitlines() or [""]
            found[name] = f"{type(error).__name__}: {lines[0]}"
        else:
            found[name] = OK
    return found


class Failure(Exception):
    """A behaviour that differs from the promised one."""


def check(condition: bool, message: str) -> None:
    """Raise `Failure` unless the condition holds."""
    if not condition:
        raise Failure(message)


def _servers(place: Place) -> list[str]:
    """Return which servers the cell reaches over the network: the database, the store."""
    found = []
    if parse_uri(place.catalog).port is not None:
        found.append("database")
    if _addresses(place.storage_options):
        found.append("store")
    return found


def _addresses(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if value.startswith("http://")}


@contextmanager
def _relayed(place: Place, server: str) -> Iterator[tuple[Place, tuple[Relay, ...]]]:
    """Yield the same place with a relay in front of its database or its store."""
    if server == "database":
        uri = parse_uri(place.catalog)
        with Relay(uri.host or "127.0.0.1", uri.port or 5432) as relay:
            changed = replace(uri, port=relay.port).to_string()
            yield replace(place, catalog=changed), (relay,)
    elif place.relays:
        yield place, place.relays
    else:
        with relayed_store(place) as (relayed, _):
            yield relayed, relayed.relays


@contextmanager
def relayed_store(
    place: Place, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[Place, dict[str, str]]]:
    """Yield the place and the settings of a Spark session with relays in front of the store."""
    relays: dict[str, Relay] = {}
    with ExitStack() as stack:
        for address in _addresses(place.storage_options).values():
            parts = urlsplit(address)
            if parts.netloc not in relays:
                relay = Relay(parts.hostname or "127.0.0.1", parts.port or 80)
                relays[parts.netloc] = stack.enter_context(relay)

        def through_relays(values: Mapping[str, str]) -> dict[str, str]:
            found = dict(values)
            for server, relay in relays.items():
                own = f"127.0.0.1:{relay.port}"
                found = {name: value.replace(server, own) for name, value in found.items()}
            return found

        options = through_relays(place.storage_options)
        relayed = replace(place, storage_options=options, relays=tuple(relays.values()))
        yield relayed, through_relays(settings or {})


def _lose_each_response(place: Place, server: str) -> None:
    """Commit again and again, and lose the first response, then the second, and so on."""
    committed = 0
    with _relayed(place, server) as (relayed, relays), relayed.connect() as catalog:
        _write_both(catalog, place.numbers(1_000))  # opens the connections
        for step in range(_MOST_RESPONSES):
            number = 2_000 + step
            lost = sum(relay.lost for relay in relays)
            for relay in relays:
                relay.lose(after=step)
            expected: tuple[int, ...] = (1,)
            try:
                _write_both(catalog, place.numbers(number))
            except CommitOutcomeUnknownError:
                expected = (0, 1)
            except TxnLogError:
                expected = (0,)
            for relay in relays:
                relay.pass_all()
            was_lost = sum(relay.lost for relay in relays) > lost
            # Spark reads the tables once, at the end.
            found = _committed(replace(place, spark=None), number)
            check(found[0] == found[1], f"{server}, response {step}: half of a transaction")
            check(found[0] in expected, f"{server}, response {step}: committed {found[0]} times")
            if not was_lost:
                break
            committed += expected == (1,)
        else:
            raise Failure(f"a commit waits for more than {_MOST_RESPONSES} responses")
        check(committed > 0, f"no commit survived a lost response of the {server}")
        catalog.mirror.publish()
    check(_ids(place, "asked") == _ids(place, "again"), "the tables differ")


def _committed(place: Place, number: int) -> tuple[int, int]:
    """Return how often a number was committed to either table, without losing responses."""
    with place.connect() as catalog:
        catalog.mirror.publish()
    asked, again = (_ids(place, name).count(number) for name in ("asked", "again"))
    return asked, again


def _write_both(catalog: Catalog, rows: Any) -> None:
    with catalog.begin() as tx:
        tx.write("asked", rows)
        tx.write("again", rows)


def _die_after_commit(place: Place) -> None:
    """Kill a process after its COMMIT and before it publishes: the next one finds the commit.

    A catalog in a file and a local folder send no responses that could be lost, so the process that
    waits for the result disappears instead. It has no Spark session.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.matrix.behaviours", *_arguments(place), "--die"], check=False
    )
    check(done.returncode == _KILLED, f"the process ended with {done.returncode}")
    check(_committed(place, 5_000) == (1, 1), "the commit of the killed process is missing")


def _arguments(place: Place) -> list[str]:
    options = json.dumps(dict(place.storage_options))
    return [
        *("--catalog", place.catalog, "--location", place.location),
        *("--storage-options", options),
    ]


def _numbers(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def _ids(place: Place, name: str) -> list[int]:
    return [row["id"] for row in place.rows(name)]


def _sorted(rows: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.sort_by("id").to_pylist()
    return found


def _added(path: str) -> AddFile:
    stats = '{"numRecords":1,"minValues":{"id":7},"maxValues":{"id":7},"nullCount":{"id":0}}'
    return AddFile(path=path, partition_values={}, size=500, modification_time=0, stats=stats)


def _removed(path: str) -> RemoveFile:
    return RemoveFile(path=path, extended_file_metadata=True, partition_values={}, size=500)


def main() -> int:
    """Run the behaviours for the arguments, and print their results as one line of JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.matrix.behaviours",
        description="Run the behaviours of the matrix with one catalog and one store.",
        epilog="example: python -m tests.matrix.behaviours "
        "--catalog deltasql://sqlite//tmp/m/meta.db --location /tmp/m/lake",
    )
    parser.add_argument("behaviour", nargs="*", choices=[[], *BEHAVIOURS], help="default: all")
    parser.add_argument("--catalog", required=True, help="deltasql:// URI of a new catalog")
    parser.add_argument("--location", required=True, help="empty folder for all tables")
    parser.add_argument("--storage-options", default="{}", type=json.loads, metavar="JSON")
    parser.add_argument(
        "--spark",
        type=json.loads,
        metavar="JSON",
        help="write and read all rows with Spark, with these settings",
    )
    parser.add_argument("--die", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    place = Place(given.catalog, given.location.rstrip("/"), given.storage_options)
    if given.die:
        with place.connect(mirror={"mode": "off"}) as catalog:
            _write_both(catalog, place.numbers(5_000))
            os._exit(_KILLED)
    chosen = tuple(given.behaviour or BEHAVIOURS)
    if given.spark is None:
        found = results(place, chosen)
    else:
        from tests.spark.on_release import new_session  # late import: only PySpark's cells have it

        with relayed_store(place, given.spark) as (relayed, settings):
            found = results(replace(relayed, spark=new_session(settings)), chosen)
    print(json.dumps(found), flush=True)
    return 0 if set(found.values()) == {OK} else 1


if __name__ == "__main__":
    sys.exit(main())
