"""Checks that run with one release of deltalake: `python -m tests.matrix.on_deltalake FOLDER`.

Each check makes the same calls on a table of deltasql and on a table of deltalake at a path, and
compares the results. The module imports only deltasql, deltalake, pyarrow and the standard library.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.schema import PrimitiveType

import deltasql
from deltasql import deltalake_internals
from deltasql.api.deltalake_compat.handle.raw_table import RawTable
from tests.matrix.behaviours import check
from tests.matrix.checks import main

ROWS = pa.table({"id": pa.array([1, 2, 3, 4], pa.int64()), "part": ["a", "a", "b b", None]})
WITHOUT_SPACE = ROWS.set_column(1, "part", pa.array(["a", "a", "b", None]))
MORE = pa.table({"id": pa.array([4, 5], pa.int64()), "part": ["c", "c"]})
Table = deltalake.DeltaTable
_numbers = itertools.count()


def internals(folder: Path) -> None:
    """The private parts of this release are those that deltasql knows."""
    check(deltalake_internals.MISSING == (), f"missing: {deltalake_internals.MISSING}")
    changed = deltalake_internals.changed_methods(RawTable)
    check(changed == {}, f"changed: {changed}")


def reads(folder: Path) -> None:
    """Rows, files, partitions, statistics and history are those of deltalake."""

    def found(table: Table) -> list[Any]:
        return [
            rows(table.to_pyarrow_table()),
            rows(table.to_pyarrow_table(columns=["id"], filters=[("id", ">", 2)])),
            rows(table.to_pyarrow_table(partitions=[("part", "=", "a")])),
            rows(table.to_pyarrow_dataset(partitions=[("part", "=", "b b")]).to_table()),
            # Before 1.5, deltalake returns a null as the string "null".
            sorted(str(each["part"] or "null") for each in table.partitions()),
            sorted(str(each) for each in table.partitions([("part", "=", "a")])),
            len(table.file_uris()),
            len(table.file_uris([("part", "in", ["a", "b b"])])),
            type(table.get_add_actions()).__name__,
            sorted(pa.table(table.get_add_actions(flatten=True))["num_records"].to_pylist()),
            [(each["version"], each["operation"]) for each in table.history()],
            [each["version"] for each in table.history(1)],
            (table.version(), table.count(), table.schema().to_json()),
            tuple(table.protocol()),
            table.transaction_version("nobody"),
        ]

    same(folder, lambda table: None, found)


def old_versions(folder: Path) -> None:
    """An older version can be loaded, by number and through `load_as_version`."""

    def change(table: Table) -> None:
        write(table, MORE, mode="append")
        write(table, MORE, mode="overwrite")

    def found(table: Table) -> list[Any]:
        seen = [rows(table.to_pyarrow_table())]
        for version in (0, 1):
            table.load_as_version(version)
            seen.append(rows(table.to_pyarrow_table()))
        table.update_incremental()
        return [*seen, table.version()]

    same(folder, change, found)


def row_changes(folder: Path) -> None:
    """Write, delete, update and merge change the same rows, and return the same metrics."""

    def change(table: Table) -> list[Any]:
        write(table, MORE, mode="append")
        metrics = [table.delete("id = 2"), table.update({"id": "id + 10"}, predicate="id = 1")]
        merge = table.merge(MORE, "t.id = s.id", source_alias="s", target_alias="t")
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
        metrics.append(merge.execute())
        merge = table.merge(MORE, "t.id = s.id", source_alias="s", target_alias="t")
        metrics.append(merge.when_not_matched_by_source_delete("t.id = 3").execute())
        return [counts(each) for each in metrics]

    # A merge of deltalake 1.5.0 does not delete rows of partitions with a space in their value.
    data = ROWS if deltalake.__version__ != "1.5.0" else WITHOUT_SPACE
    same(folder, change, lambda table: rows(table.to_pyarrow_table()), data=data)


def maintenance(folder: Path) -> None:
    """Compact, z-order, vacuum, restore, repair and checkpoints leave the same rows."""

    def change(table: Table) -> list[Any]:
        for _ in range(2):
            write(table, MORE, mode="append")
        found = [table.optimize.compact()["numFilesRemoved"]]
        table.optimize.z_order(["id"])
        table.restore(1)
        found.append(unused_files(table))
        found.append(table.repair(dry_run=True)["files_removed"])
        table.create_checkpoint()
        table.cleanup_metadata()
        return found

    # Before 1.5, deltalake fails if a partition column has a null.
    same(folder, change, lambda table: rows(table.to_pyarrow_table()), data=ROWS.slice(0, 3))


def alter(folder: Path) -> None:
    """ALTER TABLE through `table.alter`, and the change data feed."""

    def change(table: Table) -> list[Any]:
        table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
        table.alter.add_constraint({"positive": "id > 0"})
        table.alter.add_columns([deltalake.Field("extra", PrimitiveType("string"))])
        table.alter.set_table_name("name")
        table.alter.set_table_description("description")
        table.alter.set_column_metadata("id", {"comment": "number"})
        table.delete("id = 1")
        table.alter.drop_constraint("positive")
        return []

    def found(table: Table) -> list[Any]:
        cdf = pa.table(table.load_cdf(starting_version=table.version() - 1).read_all())
        described = table.metadata()
        return [
            sorted(cdf["id"].to_pylist()),
            (described.name, described.description, described.configuration),
            table.schema().to_json(),
        ]

    same(folder, change, found)


def queries(folder: Path) -> None:
    """`deltasql.QueryBuilder` returns the right rows and numbers of rows."""
    table, _ = tables(folder)
    for sql, expected in (
        ("SELECT count(*) AS n FROM t", [{"n": 4}]),
        ("SELECT id FROM t WHERE id > 2 ORDER BY id", [{"id": 3}, {"id": 4}]),
        ("SELECT id FROM t WHERE part = 'a' ORDER BY id", [{"id": 1}, {"id": 2}]),
    ):
        found = deltasql.QueryBuilder().register("t", table).execute(sql)
        read = pa.table(found.read_all()).to_pylist()
        check(read == expected, f"{sql}: {read}")
    scanned = pa.table(deltasql.DeltaTable(table.uri).scan(predicate="id > 2").read_all())
    check(sorted(scanned["id"].to_pylist()) == [3, 4], f"scan() returns {scanned}")


def registered(folder: Path) -> None:
    """After `register()`, deltalake's own functions and subclasses accept `deltasql://` URIs."""

    class Mine(deltalake.DeltaTable):
        pass

    deltasql.register()
    try:
        uri = new_uri(folder)
        deltalake.write_deltalake(uri, ROWS, partition_by=["part"])
        deltalake.write_deltalake(uri, MORE, mode="append")
        for opened in (deltalake.DeltaTable(uri), Mine(uri)):
            check(opened.to_pyarrow_table().num_rows == 6, "rows are missing")
            check([each["version"] for each in opened.history()] == [1, 0], "wrong history")
        check(deltalake.DeltaTable.is_deltatable(uri), "the table is not found")
        created = deltalake.DeltaTable.create(new_uri(folder), schema=ROWS.schema)
        check(created.version() == 0, "the table was not created")
        found = deltalake.QueryBuilder().register("t", opened).execute("SELECT count(*) n FROM t")
        check(pa.table(found.read_all())["n"].to_pylist() == [6], "wrong number of rows")
    finally:
        deltasql.unregister()
    check("deltasql" not in repr(deltalake.DeltaTable.__init__), "unregister() left a function")


def converted(folder: Path) -> None:
    """`convert_to_deltalake` and `create` work with a URI and with a path."""
    for name, uri in (("ours", new_uri(folder)), ("stock", None)):
        place = folder / f"converted-{name}"
        place.mkdir()
        pq.write_table(ROWS, place / "rows.parquet")
        address = str(place) if uri is None else f"{uri}&location={place}"
        deltasql.convert_to_deltalake(address)
        found = deltasql.DeltaTable(uri or str(place)).to_pyarrow_table()
        check(rows(found) == rows(ROWS), f"{name}: other rows: {found}")
    for address in (new_uri(folder), str(folder / "created")):
        table = deltasql.DeltaTable.create(address, ROWS.schema, partition_by="part")
        check(table.metadata().partition_columns == ["part"], f"{address}: not partitioned")
        table.update({"id": "1"})
        deltasql.write_deltalake(address, ROWS, mode="append")
        deltasql.DeltaTable(address).undo()
        check(deltasql.DeltaTable(address).to_pyarrow_table().num_rows == 0, "undo() left rows")


def rows_compared(folder: Path) -> None:
    """`verify` compares all rows with those that this release reads from the log."""
    table, _ = tables(folder)
    table.delete("id = 2")
    with deltasql.connect(f"deltasql://sqlite/{folder}/meta.db") as catalog:
        for report in catalog.mirror.verify(data=True):
            check(report.total == 0, report.summary())
            check(all(each.compared_with == "deltalake" for each in report.data), str(report.data))


CHECKS: dict[str, Callable[[Path], None]] = {
    "internals": internals,
    "reads like deltalake": reads,
    "old versions": old_versions,
    "DML like deltalake": row_changes,
    "maintenance": maintenance,
    "ALTER TABLE": alter,
    "QueryBuilder": queries,
    "register()": registered,
    "convert and create": converted,
    "verify": rows_compared,
}


class Opened(deltasql.DeltaTable):
    """A table that knows its URI."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        super().__init__(uri)


def tables(folder: Path, data: pa.Table = ROWS) -> tuple[Opened, Table]:
    """Create the same table twice: in a catalog, and at a path."""
    uri, path = new_uri(folder), str(folder / f"plain{next(_numbers)}")
    deltasql.write_deltalake(uri, data, partition_by=["part"])
    deltalake.write_deltalake(path, data, partition_by=["part"])
    return Opened(uri), deltalake.DeltaTable(path)


def same(
    folder: Path,
    change: Callable[[Table], Any],
    found: Callable[[Table], Any],
    data: pa.Table = ROWS,
) -> None:
    """Change both tables, and compare the results and what is read afterwards."""
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for table in tables(folder, data):
            results.append((change(table), found(table)))
    (ours, seen), (theirs, expected) = results
    check(ours == theirs, f"results differ: {ours}, deltalake: {theirs}")
    check(seen == expected, f"tables differ: {seen}, deltalake: {expected}")


def unused_files(table: Table) -> int:
    """Return how many files a vacuum would delete that are not live.

    From 1.5.0 to 1.6.3, deltalake also lists live files of partitions with a space in their value.
    """
    listed = table.vacuum(0, dry_run=True, enforce_retention_duration=False)
    live = {uri.rpartition("/")[2] for uri in table.file_uris()}
    dead = [each for each in listed if each.rpartition("/")[2] not in live]
    check(len(dead) == len(listed) or not isinstance(table, Opened), f"live files: {listed}")
    return len(dead)


def write(table: Table, data: pa.Table, mode: Any) -> None:
    deltalake.write_deltalake(table, data, mode=mode)


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(each.values()) for each in table.to_pylist()), key=str)


def counts(metrics: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in metrics.items()
        if "rows" in name and "copied" not in name and value
    }


def new_uri(folder: Path) -> str:
    return f"deltasql://sqlite/{folder}/meta.db?table=t{next(_numbers)}"


if __name__ == "__main__":
    sys.exit(main(CHECKS))
