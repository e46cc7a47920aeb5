"""Tables that a deltalake release writes by itself; each function takes the folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

Maker = Callable[[str], None]


def appends(location: str) -> None:
    """Appends of common types"""
    for number in range(4):
        write_deltalake(
            location,
            pa.table(
                {
                    "id": pa.array([number, None], pa.int64()),
                    "name": ["é ", None],
                    "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
                    "day": pa.array([date(2024, 2, 29), None], pa.date32()),
                    "at": pa.array(
                        [datetime(2024, 2, 29, 12, tzinfo=UTC), None], pa.timestamp("us", "UTC")
                    ),
                    "tags": pa.array([["a", None], None], pa.list_(pa.string())),
                    "point": pa.array([{"x": 1.5}, None], pa.struct([("x", pa.float64())])),
                }
            ),
            mode="append",
        )


def partitions(location: str) -> None:
    """Partitions, special values, replaced ones"""
    values = ["plain", None, "a b", "a/b", "é", "100%", "a=b", "a:b"]
    data = pa.table({"id": pa.array(range(len(values)), pa.int64()), "part": values})
    write_deltalake(location, data, partition_by=["part"])
    write_deltalake(location, data, mode="append")
    news = pa.table({"id": pa.array([99], pa.int64()), "part": ["a b"]})
    write_deltalake(location, news, mode="overwrite", predicate="part = 'a b'")


def changes(location: str) -> None:
    """Delete, update, merge, overwrite, restore"""
    write_deltalake(location, _rows(0, 20))
    DeltaTable(location).delete("id < 3")
    DeltaTable(location).update(updates={"name": "'new'"}, predicate="id = 5")
    (
        DeltaTable(location)
        .merge(_rows(15, 30), "t.id = s.id", source_alias="s", target_alias="t")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    write_deltalake(location, _rows(0, 2), mode="overwrite")
    DeltaTable(location).restore(2)


def change_feed(location: str) -> None:
    """Change data feed"""
    configuration = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(location, _rows(0, 5), configuration=configuration)
    DeltaTable(location).update(updates={"name": "'new'"}, predicate="id = 1")
    DeltaTable(location).delete("id = 2")


def evolution(location: str) -> None:
    """New columns, constraints, properties"""
    write_deltalake(location, _rows(0, 3))
    wider = _rows(3, 5).append_column("more", pa.array([1.5, None]))
    write_deltalake(location, wider, mode="append", schema_mode="merge")
    DeltaTable(location).alter.add_constraint({"positive": "id >= 0"})
    DeltaTable(location).alter.set_table_properties({"delta.checkpointInterval": "5"})
    write_deltalake(location, wider, mode="append")


def maintenance(location: str) -> None:
    """Optimize, z-order, vacuum, checkpoints"""
    for number in range(6):
        write_deltalake(location, _rows(number, number + 1), mode="append")
    DeltaTable(location).create_checkpoint()
    DeltaTable(location).optimize.compact()
    DeltaTable(location).optimize.z_order(["id"])
    DeltaTable(location).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    write_deltalake(location, _rows(6, 8), mode="append")
    DeltaTable(location).create_checkpoint()


def no_zone(location: str) -> None:
    """Timestamps without a zone"""
    at = pa.array([datetime(2024, 2, 29, 12), None], pa.timestamp("us"))
    write_deltalake(location, pa.table({"id": pa.array([1, 2], pa.int64()), "at": at}))


def _rows(low: int, high: int) -> pa.Table:
    numbers = range(low, high)
    return pa.table(
        {"id": pa.array(numbers, pa.int64()), "name": [f"n{number}" for number in numbers]}
    )


MAKERS: Mapping[str, Maker] = {
    each.__name__: each
    for each in (appends, partitions, changes, change_feed, evolution, maintenance, no_zone)
}
