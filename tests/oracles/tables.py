"""The fixed set, part one: tables that deltasql's writer fills."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.oracles.writing import Row, Written, create, removal

if TYPE_CHECKING:
    from deltasql import AddFile, Catalog

NAN, INF = float("nan"), float("inf")
STRINGS = (
    *("plain", None, "", "a b", " lead", "trail ", "a/b", "/", "..", "é", "日本", "😀", "e\u0301"),
    *("100%", "%25", "%2F", "a=b", "=", "a:b", "2024-01-01 10:00:00", "a+b", "a&b?c#d", "'q'"),
    *('"d"', "\\", "[x]{y}*", "~", "$1", "a,b;c", "null", "NULL", "true", "007", "\t", "a\nb"),
    *("\u200b", "|<>^`!@()", "x" * 150),
)
UTC_TIME = pa.timestamp("us", "UTC")


def string_partitions(catalog: Catalog) -> list[Written]:
    """Partition values with every character that is special in paths, URLs or folders."""
    schema = pa.schema([("id", pa.int64()), ("p", pa.string()), ("q", pa.string())])
    table = create(catalog, "string_partitions", schema, partition_by=["p", "q"])
    rows = [
        {"id": number, "p": value, "q": STRINGS[-number % len(STRINGS)]}
        for number, value in enumerate(STRINGS)
    ]
    table.append(rows[::2])
    table.append(rows[1::2])
    table.overwrite([{**row, "id": row["id"] + 1000} for row in rows[:20]])
    return [table]


def partition_names(catalog: Catalog) -> list[Written]:
    """A partition column with a non-ASCII name, and one in mixed case."""
    schema = pa.schema([("id", pa.int64()), ("straße-日", pa.string()), ("Day", pa.date32())])
    table = create(catalog, "partition_names", schema, partition_by=["straße-日", "Day"])
    rows = [{"id": 1, "straße-日": "é", "Day": date(2024, 1, 1)}, {"id": 2}]
    table.append(rows[:1])
    table.append(rows[1:])
    return [table]


def hive_null(catalog: Catalog) -> list[Written]:
    """Hive's folder name for null as a value."""
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    table = create(catalog, "hive_null", schema, partition_by=["p"])
    table.append([{"id": 1, "p": "__HIVE_DEFAULT_PARTITION__"}, {"id": 2, "p": None}])
    return [table]


def typed_partitions(catalog: Catalog) -> list[Written]:
    """Partition values of every type, each with extremes and null."""
    values: dict[str, tuple[pa.DataType, list[Any]]] = {
        "flag": (pa.bool_(), [True, False]),
        "tiny": (pa.int8(), [-128, 127]),
        "small": (pa.int16(), [-(2**15), 2**15 - 1]),
        "number": (pa.int32(), [-(2**31), 2**31 - 1]),
        "big": (pa.int64(), [-(2**63), 2**63 - 1]),
        "price": (pa.decimal128(10, 2), [Decimal("99999999.99"), Decimal("0.00")]),
        "day": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1)]),
        "at": (
            UTC_TIME,
            [
                datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
                datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
                datetime(2024, 2, 29, 12, 30, 0, 1, UTC),
            ],
        ),
        "real": (pa.float64(), [0.1, -1.5e300]),
        "single": (pa.float32(), [0.5, -3.25]),
    }
    schema = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in values.items())])
    table = create(catalog, "typed_partitions", schema, partition_by=list(values))
    for number in range(4):
        row = {name: [*each, None, None][number] for name, (_, each) in values.items()}
        table.append([{"id": 2 * number, **row}, {"id": 2 * number + 1, **row}])
    return [table]


def negative_decimal(catalog: Catalog) -> list[Written]:
    """A negative decimal as a partition value."""
    schema = pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2))])
    table = create(catalog, "negative_decimal", schema, partition_by=["price"])
    table.append([{"id": 1, "price": Decimal("-1.50")}, {"id": 2, "price": Decimal("-0.01")}])
    return [table]


def binary_partition(catalog: Catalog) -> list[Written]:
    """Bytes as a partition value, which Delta stores as text."""
    schema = pa.schema([("id", pa.int64()), ("key", pa.binary())])
    table = create(catalog, "binary_partition", schema, partition_by=["key"])
    table.append([{"id": 1, "key": b"ab/c"}, {"id": 2, "key": "é".encode()}, {"id": 3}])
    return [table]


def primitives(catalog: Catalog) -> list[Written]:
    """Every primitive type with its extremes and null."""
    schema = pa.schema(
        [
            *(("flag", pa.bool_()), ("tiny", pa.int8()), ("small", pa.int16())),
            *(("number", pa.int32()), ("big", pa.int64())),
            *(("single", pa.float32()), ("double", pa.float64())),
            *(("text", pa.string()), ("raw", pa.binary())),
            *(("day", pa.date32()), ("at", UTC_TIME)),
        ]
    )
    table = create(catalog, "primitives", schema)
    low: Row = {
        "flag": False,
        "tiny": -128,
        "small": -(2**15),
        "number": -(2**31),
        "big": -(2**63),
        "single": -3.4028234663852886e38,
        "double": -1.7976931348623157e308,
        "text": "",
        "raw": b"",
        "day": date(1, 1, 1),
        "at": datetime(1, 1, 1, tzinfo=UTC),
    }
    high: Row = {
        "flag": True,
        "tiny": 127,
        "small": 2**15 - 1,
        "number": 2**31 - 1,
        "big": 2**63 - 1,
        "single": 1.401298464324817e-45,
        "double": 5e-324,
        "text": "z\u0000é😀\U0010ffff" * 20,
        "raw": bytes(range(256)),
        "day": date(9999, 12, 31),
        "at": datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    }
    odd = [{"single": value, "double": value} for value in (NAN, INF, -INF, -0.0, 0.0)]
    table.append([low])
    table.append([high, {}])
    table.append(odd)
    return [table]


def zoneless(catalog: Catalog) -> list[Written]:
    """Timestamps without a zone, in the files and as a partition value."""
    plain = pa.timestamp("us")
    schema = pa.schema([("id", pa.int64()), ("at", plain), ("hour", plain)])
    table = create(catalog, "zoneless", schema, partition_by=["hour"])
    timestamps = [
        datetime(2024, 2, 29, 1),
        datetime(1, 1, 1),
        datetime(9999, 12, 31, 23, 59, 59, 1),
    ]
    table.append([{"id": n, "at": at, "hour": at} for n, at in enumerate([*timestamps, None])])
    return [table]


def decimals(catalog: Catalog) -> list[Written]:
    """Decimals of all storage widths, with nines in all digits."""
    kinds = [(1, 0), (9, 2), (10, 10), (18, 6), (19, 3), (28, 28), (38, 0), (38, 18), (38, 38)]
    names = {f"d{precision}_{scale}": (precision, scale) for precision, scale in kinds}
    schema = pa.schema([(name, pa.decimal128(*kind)) for name, kind in names.items()])
    table = create(catalog, "decimals", schema)
    for sign in ("", "-"):
        nines = {n: Decimal(f"{sign}{'9' * p}e-{s}") for n, (p, s) in names.items()}
        units = {n: Decimal(f"{sign}1e-{s}") for n, (_, s) in names.items()}
        table.append([nines, units, {}])
    table.append([{name: Decimal(f"0e-{scale}") for name, (_, scale) in names.items()}])
    return [table]


def nested(catalog: Catalog) -> list[Written]:
    """Nested structs, lists and maps: empty, null, and with null values."""
    point = pa.struct([("x", pa.float64()), ("tag", pa.string())])
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("point", point),
            ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int64())),
            ("path", pa.list_(point)),
            ("deep", pa.struct([("a", pa.struct([("b", pa.list_(pa.map_(pa.int32(), point)))]))])),
            ("grid", pa.list_(pa.list_(pa.int32()))),
        ]
    )
    table = create(catalog, "nested", schema)
    p, q = {"x": 1.5, "tag": "é"}, {"x": None, "tag": None}
    table.append(
        [
            {
                "id": 1,
                "point": p,
                "tags": ["a", "", None],
                "counts": [("k", 1), ("", None)],
                "path": [p, None, q],
                "deep": {"a": {"b": [[(1, p), (2, None)], None, []]}},
                "grid": [[1, None], [], None],
            },
            {"id": 2, "point": q, "tags": [], "counts": [], "path": [], "deep": {"a": {"b": []}}},
        ]
    )
    table.append([{"id": 3}, {"id": 4, "deep": {"a": None}}, {"id": 5, "deep": {"a": {"b": None}}}])
    return [table]


def rewritten(catalog: Catalog) -> list[Written]:
    """Files that are removed, replaced, compacted without a data change, and restored."""
    schema = pa.schema([("id", pa.int64()), ("part", pa.string())])
    table = create(catalog, "rewritten", schema, partition_by=["part"])
    rows = [{"id": number, "part": "ab"[number % 2]} for number in range(8)]
    for start in range(0, 8, 2):
        table.append(rows[start : start + 2])
    files = table.live()
    gone = [file for file in files if file.partition_values["part"] == "a"][:2]
    table.stage([removal(file) for file in gone], [r for r in rows if r["id"] not in (0, 2)])
    kept = [file for file in table.live() if file.partition_values["part"] == "b"]
    whole = table.file(
        pa.table({"id": pa.array([1, 3, 5, 7], pa.int64())}),
        name="part=b/compacted.parquet",
        partition={"part": "b"},
        data_change=False,
    )
    table.stage([whole, *(removal(f, data_change=False) for f in kept)], table.rows)
    table.stage([replace(file, modification_time=1) for file in gone], rows)  # restored
    table.overwrite([{"id": 100, "part": None}])
    table.overwrite([])
    table.append([{"id": 101, "part": "a"}])
    return [table]


def evolved(catalog: Catalog) -> list[Written]:
    """Columns, nullability, properties and descriptions that change between writes."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("Näme", pa.string())])
    table = create(catalog, "evolved", schema, description="before")
    table.append([{"id": 1, "Näme": "a"}])
    wider = [pa.field("id", pa.int64()), *list(schema)[1:], ("extra", pa.list_(pa.date32()))]
    table.alter(pa.schema(wider), description="after 'quotes' and\nlines")
    table.append([{"id": None, "extra": [date(2024, 1, 1)]}])
    properties = {"delta.checkpointInterval": "3", "owner": 'é 100% "it\'s"', "empty": ""}
    known = dict(table.table.snapshot().metadata.configuration)
    table.alter(configuration={**known, **properties})
    table.append([{"id": 3, "Näme": "", "extra": []}])
    table.alter(configuration={"delta.logRetentionDuration": "interval 365 days", **known})
    inner = pa.struct([("a", pa.int32()), ("b", pa.string())])
    table.alter(pa.schema([*wider, ("inner", inner)]))
    table.append([{"id": 4, "inner": {"a": 1, "b": None}}])
    return [table]


def several_tables(catalog: Catalog) -> list[Written]:
    """Commits to three tables at once, one of which creates a table."""
    schema = pa.schema([("id", pa.int64())])
    orders, stock = (create(catalog, f"crm.{name}", schema) for name in ("orders", "stock"))
    with catalog.begin() as tx:
        tx.write("crm.orders", pa.table({"id": [1, 2]}))
        tx.create_table("crm.audit", schema)
        tx.write("crm.audit", pa.table({"id": [3]}))
        tx.write("crm.stock", pa.table({"id": [4]}))
    audit = Written(catalog, "crm.audit", schema)
    for table, ids in ((orders, [1, 2]), (audit, [3]), (stock, [4])):
        table.became([{"id": each} for each in ids])
    with catalog.begin() as tx:
        tx.write("crm.orders", pa.table({"id": [5]}), mode="overwrite")
        tx.write("crm.audit", pa.table({"id": [6]}))
    orders.became([{"id": 5}])
    audit.became([{"id": 3}, {"id": 6}])
    return [orders, stock, audit]


def many_commits(catalog: Catalog, commits: int = 200) -> list[Written]:
    """Two hundred commits, with a removal in every tenth, and several checkpoints."""
    schema = pa.schema([("id", pa.int64()), ("part", pa.int32())])
    properties = {"delta.checkpointInterval": "30"}
    table = create(catalog, "many_commits", schema, partition_by=["part"], properties=properties)
    live: list[tuple[int, AddFile]] = []
    for number in range(1, commits):
        row = {"id": number, "part": number % 3}
        add = table.file(
            pa.table({"id": pa.array([number], pa.int64())}),
            partition={"part": str(number % 3)},
            name=f"part={number % 3}/{number}.parquet",
        )
        live.append((number, add))
        actions: list[Any] = [add]
        rows = [*table.rows, row]
        if number % 10 == 0:
            gone, file = live.pop(number // 10)
            actions.append(removal(file))
            rows = [each for each in rows if each["id"] != gone]
        table.stage(actions, rows)
    return [table]
