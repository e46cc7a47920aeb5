"""Tables of deltalake with every kind of operation, log, value and type."""

from __future__ import annotations

import os
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, Transaction
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction, create_table_with_add_actions

from tests.mirror.support import LOG, commit_path

if TYPE_CHECKING:
    from pathlib import Path

_DAY_S = 86_400
MANY = 10_000
_TIMESTAMP = datetime(2024, 5, 1, 10, 11, 12, 123456)
_STATS = '{"numRecords":2,"minValues":{"id":1},"maxValues":{"id":2},"nullCount":{"id":0}}'


def every_operation(place: Path) -> None:
    """Commits of every operation, with application transactions and custom metadata."""
    _append(place, 0, partition_by=["p"], configuration={"delta.logRetentionDuration": "30 days"})
    for number in (1, 2):
        properties = CommitProperties(
            custom_metadata={"who": 'é, "me"'},
            app_transactions=[Transaction("etl, été", number, 5), Transaction("b", number)],
        )
        _append(place, 10 * number, commit_properties=properties)
    table = DeltaTable(place)
    table.delete("id = 1")
    table.update({"v": "v || '!'"}, predicate="p = 'a b'")
    source = pa.table({"id": [2, 50], "p": ["a b", "c"], "v": ["m", "n"]})
    merger = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()
    table.alter.add_columns([Field("more", PrimitiveType("date"))])
    table.alter.add_constraint({"known": "id >= 0"})
    table.alter.set_table_name("the name")
    table.alter.set_table_description("a table of déltalake")
    table.optimize.compact()
    table.optimize.z_order(["id"])
    deltalake.write_deltalake(
        place, source.slice(0, 1), mode="overwrite", predicate="p = 'a b'", schema_mode="merge"
    )
    DeltaTable(place).restore(3)


def vacuumed(place: Path) -> None:
    """A complete log, although the data files of older versions are deleted."""
    for number in range(3):
        _append(place, number, partition_by=["p"])
    DeltaTable(place).delete("id < 3")
    table = DeltaTable(place)
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def checkpoints(place: Path) -> None:
    """Classic checkpoints at some versions, and commits between and after them."""
    for number in range(6):
        _append(place, number, partition_by=["p"])
        if number in (2, 4):
            DeltaTable(place).create_checkpoint()


def cleaned_up(place: Path) -> None:
    """A checkpoint; the commits before it are deleted."""
    for number in range(5):
        properties = CommitProperties(app_transactions=[Transaction("etl", number, 5)])
        _append(place, number, partition_by=["p"], commit_properties=properties)
    DeltaTable(place).delete("id = 0")
    DeltaTable(place).create_checkpoint()
    _append(place, 6)
    old = time.time() - 1000 * _DAY_S
    for number, file in enumerate(sorted((place / LOG).iterdir())):
        os.utime(file, (old + number, old + number))
    DeltaTable(place).cleanup_metadata()
    assert not commit_path(place, 0).exists()


def compacted(place: Path) -> None:
    """Compacted log files in addition to the commits."""
    for number in range(6):
        _append(place, number)
    DeltaTable(place).delete("id = 1")
    DeltaTable(place).compact_logs(0, 3)
    DeltaTable(place).compact_logs(2, 6)
    _append(place, 9)


def compacted_after_checkpoint(place: Path) -> None:
    """Compacted log files after a checkpoint, without the older commits."""
    cleaned_up(place)
    for number in (7, 8):
        _append(place, number)
    last = DeltaTable(place).version()
    DeltaTable(place).compact_logs(last - 2, last)


def odd_values(place: Path) -> None:
    """Partition values of two columns that need escaping in paths."""
    odd = ["a/b=c%20 d+e", "ü\"'#?&{}", " ", None, "__HIVE_DEFAULT_PARTITION__", "a:b*[c]\\"]
    rows = {"id": list(range(len(odd))), "p é": odd, "q": [None, *range(1, len(odd))]}
    deltalake.write_deltalake(place, pa.table(rows), partition_by=["p é", "q"])
    DeltaTable(place).delete("id = 0")


def typed_partitions(place: Path) -> None:
    """A partition column of every possible type."""
    columns: dict[str, Any] = {
        "d": [date(2024, 5, 1), None, date(1, 1, 1)],
        "at": [_TIMESTAMP.replace(tzinfo=UTC), None, datetime(1969, 12, 31, tzinfo=UTC)],
        "local": [_TIMESTAMP, None, datetime(9999, 12, 31)],
        "x": pa.array([Decimal("1.50"), None, Decimal("0.00")], pa.decimal128(6, 2)),
        "ok": [True, None, False],
        "f": [0.1, None, -1e10],
        "n": pa.array([1, None, -128], pa.int8()),
        "b": pa.array([b"ab", None, b"\x01"], pa.binary()),
    }
    rows = pa.table({"id": [1, 2, 3], **columns})
    deltalake.write_deltalake(place, rows, partition_by=list(columns))
    deltalake.write_deltalake(place, rows.slice(0, 1), mode="append")


def every_type(place: Path) -> None:
    """A column of every type, also nested, with nulls and the limits of each range."""
    far = datetime(9999, 12, 31, 23, 59, 59, 999999)
    columns: dict[str, Any] = {
        "long": pa.array([2**63 - 1, -(2**63), None]),
        "int": pa.array([2**31 - 1, -(2**31), None], pa.int32()),
        "short": pa.array([2**15 - 1, -(2**15), None], pa.int16()),
        "byte": pa.array([127, -128, None], pa.int8()),
        "double": pa.array([float("nan"), float("-inf"), None]),
        "float": pa.array([0.1, -0.0, None], pa.float32()),
        "decimal": pa.array([Decimal("9" * 38), Decimal("-1"), None], pa.decimal128(38, 0)),
        "bool": [True, False, None],
        "text": ["é" * 100, "", None],
        "bytes": pa.array([b"\x00\xff", b"", None], pa.binary()),
        "date": [date(9999, 12, 31), date(1, 1, 1), None],
        "at": pa.array([far, datetime(1, 1, 1), None], pa.timestamp("us", "UTC")),
        "local": pa.array([far, datetime(1, 1, 1), None], pa.timestamp("us")),
        "list": pa.array([[1, None], [], None], pa.list_(pa.int64())),
        "map": pa.array([[("a", 1.5)], [], None], pa.map_(pa.string(), pa.float64())),
        "struct": [{"a": 1, "b": {"c": ["x"]}}, {"a": None, "b": None}, None],
    }
    deltalake.write_deltalake(place, pa.table(columns))
    deltalake.write_deltalake(place, pa.table({"long": [1]}), mode="append", schema_mode="merge")


def change_data(place: Path) -> None:
    """Change data files."""
    # Not partitioned: deltalake does not find its own change data files in escaped folders.
    _append(place, 0, configuration={"delta.enableChangeDataFeed": "true"})
    _append(place, 10)
    table = DeltaTable(place)
    table.update({"v": "'changed'"}, predicate="id = 1")
    table.delete("id = 2")
    source = pa.table({"id": [10, 50], "p": ["a b", "c"], "v": ["m", "n"]})
    merger = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()
    deltalake.write_deltalake(table, source.slice(0, 1), mode="overwrite")


def converted(place: Path) -> None:
    """Converted Parquet files: foreign file names, and partition values from folders."""
    for folder in ("p=a b", "p=__HIVE_DEFAULT_PARTITION__"):
        (place / folder).mkdir(parents=True)
        pq.write_table(pa.table({"id": [len(folder)]}), place / folder / "rows of é.parquet")
    deltalake.convert_to_deltalake(
        place,
        partition_by=deltalake.Schema([Field("p", PrimitiveType("string"))]),
        partition_strategy="hive",
    )
    deltalake.write_deltalake(place, pa.table({"id": [7], "p": ["a b"]}), mode="append")


def many_files(place: Path) -> None:
    """Ten thousand files in one commit, a delete, a checkpoint, and a commit after it."""
    schema = pa.schema([("id", pa.int64()), ("p", pa.int64())])
    place.mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), place / "first.parquet")
    size = (place / "first.parquet").stat().st_size
    adds = []
    for number in range(MANY):
        name = f"p={number % 50}/part-{number:05d}.parquet"
        target = place / name
        target.parent.mkdir(exist_ok=True)
        target.hardlink_to(place / "first.parquet")
        adds.append(AddAction(name, size, {"p": str(number % 50)}, 5, True, _STATS))
    create_table_with_add_actions(
        str(place), deltalake.Schema.from_arrow(schema), adds, partition_by=["p"]
    )
    DeltaTable(place).delete("p = 7")
    DeltaTable(place).create_checkpoint()
    deltalake.write_deltalake(place, pa.table({"id": [7], "p": [7]}), mode="append")


def _append(place: Path, number: int, **options: Any) -> None:
    rows = pa.table(
        {
            "id": [number, number + 1, number + 2],
            "p": ["a b", "é%", None],
            "v": [f"v{number}", None, "x" * 40],
        }
    )
    deltalake.write_deltalake(place, rows, mode="append", **options)
