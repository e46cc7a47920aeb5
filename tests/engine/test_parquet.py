"""Writing rows to Parquet files: types, sizes, partitions and options."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from deltasql.config import Config
from deltasql.engine.base import CHANGE_TYPE, EVERY_COLUMN, WriteOptions
from deltasql.engine.duckdb.engine import DuckDbEngine
from deltasql.engine.parquet import writer as writing
from deltasql.engine.parquet.writer import write_batches
from deltasql.exceptions import TxnLogEngineError, TxnLogSchemaError
from tests.engine.support import listed, parquet, plan_for
from tests.oracles.states import arrow_rows

if TYPE_CHECKING:
    from deltasql.engine.base import WritePlan
    from deltasql.model.actions import AddFile

MAPPED = {"delta.columnMapping.mode": "name"}


def read_back(plan: WritePlan, adds: list[AddFile]) -> pa.Table:
    with DuckDbEngine(Config()) as engine:
        return engine.collect(engine.scan(listed(plan, adds)))


def noise(rows: int, **columns: Any) -> pa.Table:
    """Return rows that do not compress."""
    values = np.random.default_rng(1).random(rows)
    return pa.table({"id": pa.array(range(rows), pa.int64()), "x": values, **columns})


def test_empty_input_writes_no_file(tmp_path: Path) -> None:
    data = pa.table({"id": pa.array([], pa.int64())})
    assert write_batches(data.to_reader(), plan_for(tmp_path, data.schema)) == []
    assert list(tmp_path.iterdir()) == []


def test_intents_are_recorded_before_files_are_written(tmp_path: Path) -> None:
    data = noise(100, part=pa.array([n % 3 for n in range(100)], pa.int32()))
    announced: list[str] = []

    def intend(names: list[str]) -> None:
        assert not any((tmp_path / name).exists() for name in names)
        announced.extend(names)

    plan = plan_for(tmp_path, data.schema, partition_by=["part"])
    adds = write_batches(data.to_reader(), type(plan)(**{**_fields(plan), "intend": intend}))
    assert sorted(announced) == sorted(plan.storage.data_name(add.path) for add in adds)
    assert {add.partition_values["part"] for add in adds} == {"0", "1", "2"}


def test_failed_write_leaves_no_file(tmp_path: Path) -> None:
    data = noise(1000)

    def broken() -> Any:
        yield from data.to_batches(100)
        raise RuntimeError("the source is gone")

    options = WriteOptions(target_file_size=2_000)
    plan = plan_for(tmp_path, data.schema, options=options)
    with pytest.raises(RuntimeError, match="the source is gone"):
        write_batches(pa.RecordBatchReader.from_batches(data.schema, broken()), plan)
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (pa.array(["a", None]).dictionary_encode(), pa.string()),
        (pa.array(["a", None], pa.large_string()), pa.string()),
        (pa.array(["a" * 20, None], pa.string_view()), pa.string()),
        (pa.array([b"a" * 20, None], pa.binary_view()), pa.binary()),
        (pa.array([b"ab", None], pa.binary(2)), pa.binary()),
        (pa.array([[1], None], pa.large_list(pa.int32())), pa.list_(pa.int32())),
        (pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), pa.list_(pa.int32())),
        (pa.array([[1], None], pa.list_view(pa.int32())), pa.list_(pa.int32())),
        (pa.array([1, None], pa.timestamp("ns", "Europe/Paris")), pa.timestamp("us", "UTC")),
        (pa.array([1001, None], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([1, None], pa.timestamp("s")), pa.timestamp("us")),
        (pa.array([{"a": 1999}, None], pa.struct([("a", pa.timestamp("ns"))])), None),
        (pa.array([86_400_000, None], pa.date64()), pa.date32()),
        (pa.array([None, None]), pa.int64()),
        (pa.array([1, None], pa.uint8()), pa.int64()),
    ],
    ids=lambda value: str(value.type if isinstance(value, pa.Array) else value),
)
def test_types_without_a_delta_type_are_cast(
    tmp_path: Path, given: pa.Array, stored: pa.DataType | None
) -> None:
    kind = stored or pa.struct([("a", pa.timestamp("us"))])
    plan = plan_for(tmp_path, pa.schema([("v", kind)]))
    adds = write_batches(pa.table({"v": given}).to_reader(), plan)
    options = pa.compute.CastOptions(kind, allow_time_truncate=True)
    if isinstance(given.type, pa.ListViewType):  # Arrow's own cast of list views is wrong
        wanted = pa.table({"v": pa.array(given.to_pylist(), kind)})
    else:
        wanted = pa.table({"v": pa.compute.cast(given, options=options)})
    assert arrow_rows(read_back(plan, adds)) == arrow_rows(wanted)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pa.array(["x"]), pa.int64()),
        (pa.array([2**40]), pa.int32()),
        (pa.array([1.5]), pa.int64()),
        (pa.array([[1]]), pa.string()),
    ],
    ids=str,
)
def test_values_that_cannot_be_cast_are_rejected(
    tmp_path: Path, given: pa.Array, wanted: pa.DataType
) -> None:
    plan = plan_for(tmp_path, pa.schema([("v", wanted)]))
    with pytest.raises(TxnLogSchemaError, match="column 'v'"):
        write_batches(pa.table({"v": given}).to_reader(), plan)


def test_null_in_a_not_null_field_is_rejected_even_inside_structs(tmp_path: Path) -> None:
    inner = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", inner)])
    plan = plan_for(tmp_path, schema)
    loose = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int64())]))])

    def write(*rows: dict[str, Any]) -> list[AddFile]:
        return write_batches(pa.Table.from_pylist(list(rows), loose).to_reader(), plan)

    assert write({"id": 1, "s": {"a": 1}}, {"id": 2, "s": None})
    with pytest.raises(TxnLogSchemaError, match="'id' must not be null"):
        write({"id": None, "s": None})
    with pytest.raises(TxnLogSchemaError, match=r"'s\.a' must not be null"):
        write({"id": 1, "s": {"a": None}})


def mapped_schema() -> str:
    def field(name: str, kind: Any, number: int) -> dict[str, Any]:
        names = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"}
        return {"name": name, "type": kind, "nullable": True, "metadata": names}

    inner = {"type": "struct", "fields": [field("a b", "long", 3), field("c", "string", 4)]}
    items = {"type": "array", "elementType": inner, "containsNull": True}
    pairs = {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}
    fields = [
        field("the day", "string", 1),
        field("in", inner, 2),
        field("l", items, 5),
        field("m", pairs, 6),
    ]
    return json.dumps({"type": "struct", "fields": fields})


def test_column_mapping_applies_to_files_partition_values_and_statistics(
    tmp_path: Path,
) -> None:
    plan = plan_for(tmp_path, mapped_schema(), partition_by=["the day"], configuration=MAPPED)
    inner = pa.struct([("a b", pa.int64()), ("c", pa.string())])
    rows = pa.table(
        {
            "the day": ["mon", "mon", None],
            "in": pa.array([{"a b": 7, "c": "x"}, None, {"a b": None, "c": "y"}], inner),
            "l": pa.array([[{"a b": 1, "c": None}, None], None, []], pa.list_(inner)),
            "m": pa.array([[("k", {"a b": 1, "c": "z"})], None, []], pa.map_(pa.string(), inner)),
        }
    )
    adds = write_batches(rows.to_reader(), plan)
    assert arrow_rows(read_back(plan, adds)) == arrow_rows(rows)
    assert [add.partition_values for add in adds] == [{"c1": "mon"}, {"c1": None}]
    stats = json.loads(adds[0].stats or "")
    assert stats["minValues"] == {"c2": {"c3": 7, "c4": "x"}}
    assert stats["nullCount"] == {"c2": {"c3": 1, "c4": 1}, "c5": 1, "c6": 1}
    schema = parquet(plan, adds[0]).schema_arrow
    assert schema.names == ["c2", "c5", "c6"]
    ids = {f.name: f.metadata[b"PARQUET:field_id"] for f in (*schema, *schema.field("c2").type)}
    assert ids == {"c2": b"2", "c5": b"5", "c6": b"6", "c3": b"3", "c4": b"4"}
    assert [f.name for f in schema.field("c5").type.value_type] == ["c3", "c4"]


def test_change_data_file_has_change_type_and_folder(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    plan = plan_for(tmp_path, schema, partition_by=["p"], folder="_change_data/")
    rows = pa.table({"id": [1], "p": ["x"], CHANGE_TYPE: ["delete"]})
    [add] = write_batches(rows.to_reader(), plan)
    assert add.path.startswith("_change_data/p=x/part-")
    assert add.stats is None
    assert parquet(plan, add).read().to_pylist() == [{"id": 1, CHANGE_TYPE: "delete"}]


# Sizes


@pytest.mark.parametrize("source", ["options", "property"])
def test_files_end_near_the_target_size(tmp_path: Path, source: str) -> None:
    size = 200_000
    data = noise(200_000)  # about 2.4 MB
    options = WriteOptions(target_file_size=size if source == "options" else None)
    properties = {} if source == "options" else {"delta.targetFileSize": "200000"}
    plan = plan_for(tmp_path, data.schema, options=options, configuration=properties)
    adds = write_batches(data.to_reader(max_chunksize=10_000), plan)
    assert len(adds) > 8
    sizes = sorted(add.size for add in adds)[
        2:
    ]  # the last file of each of two writers may be smaller
    assert all(size * 0.9 <= each <= size * 1.4 for each in sizes), sizes
    assert arrow_rows(read_back(plan, adds)) == arrow_rows(data)


def test_one_large_batch_is_split_into_files(tmp_path: Path) -> None:
    data = noise(100_000)
    options = WriteOptions(target_file_size=100_000)
    plan = plan_for(tmp_path, data.schema, options=options)
    adds = write_batches(data.to_reader(), plan)
    assert len(adds) > 5
    assert sum(json.loads(add.stats or "")["numRecords"] for add in adds) == 100_000


def test_small_batches_are_combined_into_one_row_group(tmp_path: Path) -> None:
    data = noise(5_000)
    plan = plan_for(tmp_path, data.schema)
    [add] = write_batches(data.to_reader(max_chunksize=10), plan)
    assert parquet(plan, add).num_row_groups == 1


@pytest.mark.parametrize("partitions", [3, 500])
def test_every_partition_is_written_to_one_file(
    tmp_path: Path, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_CHUNK_OF_PARTITIONS_BYTES", 100_000)
    parts = pa.array([n * 7919 % partitions for n in range(40_000)], pa.int32())
    data = noise(40_000, part=parts)
    plan = plan_for(tmp_path, data.schema, partition_by=["part"])
    adds = write_batches(data.to_reader(max_chunksize=1_000), plan)
    # The rows are sorted first, so each partition is written once.
    assert len(adds) == partitions
    assert arrow_rows(read_back(plan, adds)) == arrow_rows(data)


def test_partitions_that_appear_late_are_sorted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_CHUNK_OF_PARTITIONS_BYTES", 50_000)
    parts = pa.array([0 if n < 10_000 else n % 300 for n in range(30_000)], pa.int32())
    data = noise(30_000, part=parts)
    plan = plan_for(tmp_path, data.schema, partition_by=["part"])
    adds = write_batches(data.to_reader(max_chunksize=1_000), plan)
    assert arrow_rows(read_back(plan, adds)) == arrow_rows(data)
    assert len(adds) <= 302


def test_rows_keep_their_order_in_a_file(tmp_path: Path) -> None:
    data = noise(300_000)
    plan = plan_for(tmp_path, data.schema)
    [add] = write_batches(data.to_reader(max_chunksize=7_000), plan)
    ids = parquet(plan, add).read(["id"])["id"].to_pylist()
    assert all(a < b for a, b in pairwise(ids))


# Options


def test_codec_is_the_option_then_the_table_property_then_snappy(tmp_path: Path) -> None:
    data = noise(10)

    def codec(options: WriteOptions, properties: dict[str, str]) -> tuple[str, str]:
        plan = plan_for(tmp_path, data.schema, options=options, configuration=properties)
        [add] = write_batches(data.to_reader(), plan)
        column = parquet(plan, add).metadata.row_group(0).column(0)
        return column.compression, add.path.partition("-c000")[2]

    properties = {"delta.parquet.compression.codec": "zstd"}
    assert codec(WriteOptions(), {}) == ("SNAPPY", ".snappy.parquet")
    assert codec(WriteOptions(), properties) == ("ZSTD", ".zstd.parquet")
    assert codec(WriteOptions(compression="gzip"), properties) == ("GZIP", ".gz.parquet")
    none = ("UNCOMPRESSED", ".parquet")
    assert codec(WriteOptions(compression="none"), properties) == none
    assert codec(WriteOptions(), {"delta.parquet.compression.codec": "uncompressed"}) == none
    with pytest.raises(TxnLogEngineError, match="'lzo'"):
        codec(WriteOptions(compression="lzo"), {})


def test_column_options_apply_to_their_columns(tmp_path: Path) -> None:
    inner = pa.struct([("a", pa.int64()), ("b", pa.string())])
    data = pa.table(
        {
            "id": pa.array(range(5000), pa.int64()),
            "text": [str(n % 7) for n in range(5000)],
            "in": pa.array([{"a": n, "b": "x"} for n in range(5000)], inner),
            "l": pa.array([[n] for n in range(5000)], pa.list_(pa.int32())),
        }
    )
    options = WriteOptions(
        max_row_group_size=2000,
        dictionary_enabled={EVERY_COLUMN: False, "text": True, "in.b": True},
        statistics_enabled={"id": False},
        encodings={"id": "DELTA_BINARY_PACKED"},
        bloom_filters={"text": (0.01, 100)},
        data_page_size=1000,
        write_batch_size=100,
    )
    plan = plan_for(tmp_path, data.schema, options=options)
    [add] = write_batches(data.to_reader(), plan)
    metadata = parquet(plan, add).metadata
    assert [metadata.row_group(n).num_rows for n in range(3)] == [2000, 2000, 1000]
    columns = {metadata.row_group(0).column(n).path_in_schema: n for n in range(5)}
    group = metadata.row_group(0)
    dictionary = {path for path, n in columns.items() if group.column(n).has_dictionary_page}
    assert dictionary == {"text", "in.b"}
    assert "DELTA_BINARY_PACKED" in group.column(columns["id"]).encodings
    assert group.column(columns["id"]).statistics is None
    assert group.column(columns["in.a"]).statistics is not None


def test_nanoseconds_are_truncated(tmp_path: Path) -> None:
    given = pa.array([1_999, 999], pa.timestamp("ns"))
    plan = plan_for(tmp_path, pa.schema([("at", pa.timestamp("us"))]))
    adds = write_batches(pa.table({"at": given}).to_reader(), plan)
    found = read_back(plan, adds)["at"].to_pylist()
    assert found == [datetime(1970, 1, 1, 0, 0, 0, 1), datetime(1970, 1, 1)]


def _fields(plan: WritePlan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in plan.__dataclass_fields__}
