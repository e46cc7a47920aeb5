"""The fixed set, part two: files that pyarrow wrote, staged as Delta actions."""

from __future__ import annotations

import json
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltasql import AddCdcFile, DomainMetadata, SetTransaction
from deltasql.model.clock import now_ms
from tests.oracles.deletion_vectors import file_vector, inline_vector
from tests.oracles.writing import Written, create, removal

if TYPE_CHECKING:
    from deltasql import Catalog

MANY = 10_000


def flat_paths(catalog: Catalog) -> list[Written]:
    """Partition values that are not in the paths, and files at unusual paths."""
    schema = pa.schema([("id", pa.int64()), ("part", pa.string())])
    table = create(catalog, "flat_paths", schema, partition_by=["part"])
    names = ["x.parquet", "deep/er/x y.parquet", "part=wrong/é %25+&.parquet"]
    for number, name in enumerate(names):
        part = ["a", "b/ %", None][number]
        add = table.file(_ids(number), partition={"part": part}, name=name)
        table.stage([add], [*table.rows, {"id": number, "part": part}])
    return [table]


def absolute_path(catalog: Catalog) -> list[Written]:
    """A file named by an absolute URI."""
    table = create(catalog, "absolute_path", pa.schema([("id", pa.int64())]))
    add = table.file(_ids(1), name="a b.parquet")
    table.stage([replace(add, path=table.uri("a b.parquet"))], [{"id": 1}])
    return [table]


def mapped_partition(catalog: Catalog) -> list[Written]:
    """A partition column with another physical name."""
    table = create(
        catalog,
        "mapped_partition",
        _mapped(("id", "long", "c1"), ("the day", "string", "c2")),
        partition_by=["the day"],
        properties={"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"},
    )
    for number, day in enumerate(["mon day", None]):
        add = table.file(pa.table({"c1": [number]}), partition={"c2": day}, name=f"x/{number}")
        table.stage([add], [*table.rows, {"id": number, "the day": day}])
    return [table]


def column_mapping(catalog: Catalog) -> list[Written]:
    """Columns with other physical names; renamed, dropped and added without a rewrite."""
    table = create(
        catalog,
        "column_mapping",
        _mapped(("id", "long", "c1"), ("the day, ok?", "string", "c2"), ("in{n}er", _INNER, "c3")),
        properties={"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "5"},
    )
    inner = pa.struct([pa.field("k1", pa.int64()), pa.field("k2", pa.string())])
    values = pa.array([{"k1": 5, "k2": "a"}, None], inner)
    table.stage(
        [table.file(pa.table({"c1": [1, 2], "c2": ["mon", None], "c3": values}))],
        [
            {"id": 1, "the day, ok?": "mon", "in{n}er": {"a b": 5, "b": "a"}},
            {"id": 2, "the day, ok?": None, "in{n}er": None},
        ],
    )
    rows = [{"key": row["id"], "the day, ok?": row["the day, ok?"]} for row in table.rows]
    known = dict(table.table.snapshot().metadata.configuration)
    # A remaining column gets the name of the dropped one.
    table.alter(
        _mapped(("key", "long", "c1"), ("the day, ok?", "string", "c2"), ("id", "date", "c6")),
        configuration={**known, "delta.columnMapping.maxColumnId": "6"},
        rows=rows,
    )
    late = pa.table({"c1": [3], "c2": ["tue"], "c6": pa.array([0], pa.int32()).cast(pa.date32())})
    day = late["c6"][0].as_py()
    table.stage([table.file(late)], [*rows, {"key": 3, "the day, ok?": "tue", "id": day}])
    return [table]


def rules(catalog: Catalog) -> list[Written]:
    """CHECK constraints, a generated column, NOT NULL and an invariant; the files satisfy them."""
    schema = _schema(
        ("id", "long", False, {}),
        ("day", "date", True, {"delta.generationExpression": "CAST(at AS DATE)"}),
        ("at", "timestamp", True, {}),
        ("n", "integer", True, {"delta.invariants": '{"expression":{"expression":"n > 0"}}'}),
    )
    properties = {"delta.constraints.positive": "id > 0"}
    table = create(catalog, "rules", schema, partition_by=["day"], properties=properties)
    at = pa.scalar("2024-02-29T10:00:00Z").cast(pa.timestamp("us", "UTC"))
    data = pa.table({"id": [1, 2], "at": pa.array([at, at]), "n": pa.array([1, None], pa.int32())})
    day = at.as_py().date()
    add = table.file(data, partition={"day": "2024-02-29"}, name="day=2024-02-29/1.parquet")
    rows = [{**row, "day": day} for row in data.to_pylist()]
    table.stage([add], rows)
    known = dict(table.table.snapshot().metadata.configuration)
    table.alter(configuration={**known, "delta.constraints.named": "n < 100 OR n IS NULL"})
    return [table]


def deletion_vectors(catalog: Catalog) -> list[Written]:
    """Rows deleted by inline vectors and by vectors in files, in several steps, and compacted."""
    schema = pa.schema([("id", pa.int64())])
    properties = {"delta.enableDeletionVectors": "true"}
    table = create(catalog, "deletion_vectors", schema, properties=properties)
    first, second = table.file(_ids(*range(10))), table.file(_ids(*range(10, 20)))
    table.stage([first, second], [{"id": n} for n in range(20)])
    some = replace(first, deletion_vector=inline_vector([0, 3, 9]))
    table.stage([removal(first), some], _without(table, {0, 3, 9}))
    more = replace(first, deletion_vector=inline_vector([0, 3, 4, 9]))
    vector, content = file_vector([1, 2], table.uri("deletion_vector_1.bin"))
    table.put("deletion_vector_1.bin", content)
    other = replace(second, deletion_vector=vector)
    table.stage([removal(some), more, removal(second), other], _without(table, {4, 11, 12}))
    rest = [row["id"] for row in table.rows if row["id"] < 10]
    whole = replace(table.file(_ids(*rest)), data_change=False)
    table.stage([removal(more, data_change=False), whole], table.rows)
    return [table]


def change_data(catalog: Catalog) -> list[Written]:
    """A commit with a change data file, which a reader of rows must ignore."""
    schema = pa.schema([("id", pa.int64())])
    properties = {"delta.enableChangeDataFeed": "true"}
    table = create(catalog, "change_data", schema, properties=properties)
    add = table.file(_ids(1, 2, 3))
    table.stage([add], [{"id": n} for n in (1, 2, 3)])
    buffer = BytesIO()
    pq.write_table(_ids(2).append_column("_change_type", pa.array(["delete"])), buffer)
    table.put("_change_data/cdc-1.parquet", buffer.getvalue())
    cdc = AddCdcFile("_change_data/cdc-1.parquet", {}, buffer.tell())
    table.stage([removal(add), table.file(_ids(1, 3)), cdc], _without(table, {2}))
    return [table]


def applications(catalog: Catalog) -> list[Written]:
    """Application transactions, metadata domains that are added and removed, and tags."""
    schema = pa.schema([("id", pa.int64())])
    properties = {"delta.feature.domainMetadata": "supported"}
    table = create(catalog, "applications", schema, properties=properties)
    steps: list[list[Any]] = [
        [SetTransaction("etl", 1, now_ms()), DomainMetadata("acme.é", '{"a":"1"}')],
        [SetTransaction("etl", 7), SetTransaction('it\'s "q" %', 2**62, 5)],
        [DomainMetadata("acme.é", '{"a":"2"}'), DomainMetadata("other", "")],
        [DomainMetadata("other", "", removed=True)],
    ]
    for number, actions in enumerate(steps):
        add = table.file(_ids(number), tags={"owner": "é", "n": str(number)})
        table.stage([add, *actions], [*table.rows, {"id": number}])
    return [table]


def many_files(catalog: Catalog) -> list[Written]:
    """Ten thousand files in one commit, then a tenth of them replaced by one."""
    schema = pa.schema([("id", pa.int64()), ("part", pa.int32())])
    properties = {"delta.checkpointInterval": "2"}
    table = create(catalog, "many_files", schema, partition_by=["part"], properties=properties)
    root = Path(table.table.location)
    first = [
        table.file(_ids(number), partition={"part": str(number)}, name=f"part={number}/x.parquet")
        for number in range(10)
    ]
    adds, rows = [], []
    for number in range(MANY):
        part = number % 10
        path = f"part={part}/{number}.parquet"
        (root / path).hardlink_to(root / first[part].path)
        bounds = {"minValues": {"id": part}, "maxValues": {"id": part}, "nullCount": {"id": 0}}
        stats = json.dumps({"numRecords": 1, **bounds})
        adds.append(replace(first[part], path=path, stats=stats, modification_time=number))
        rows.append({"id": part, "part": part})
    table.stage(adds, rows)
    gone = [removal(add) for add in adds if add.partition_values["part"] == "0"]
    kept = [row for row in rows if row["part"] != 0]
    table.stage([first[0], *gone], [*kept, {"id": 0, "part": 0}])
    return [table]


_INNER = {
    "type": "struct",
    "fields": [
        {
            "name": name,
            "type": kind,
            "nullable": True,
            "metadata": {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": physical,
            },
        }
        for name, kind, number, physical in (("a b", "long", 4, "k1"), ("b", "string", 5, "k2"))
    ],
}


def _mapped(*columns: tuple[str, Any, str]) -> str:
    """Return a schema with physical names; the number in each is the column's id."""
    fields = []
    for name, kind, physical in columns:
        metadata = {
            "delta.columnMapping.id": int(physical[1:]),
            "delta.columnMapping.physicalName": physical,
        }
        fields.append((name, kind, True, metadata))
    return _schema(*fields)


def _schema(*columns: tuple[str, Any, bool, dict[str, Any]]) -> str:
    names = ("name", "type", "nullable", "metadata")
    fields = [dict(zip(names, column, strict=True)) for column in columns]
    return json.dumps({"type": "struct", "fields": fields})


def _ids(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def _without(table: Written, ids: set[int]) -> list[dict[str, Any]]:
    return [row for row in table.rows if row["id"] not in ids]
