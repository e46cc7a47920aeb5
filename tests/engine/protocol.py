"""The tests that every engine must pass; the tests of each engine inherit them."""

from __future__ import annotations

import json
import math
from array import array
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlglot import exp, parse_one

from deltasql.engine.base import CHANGE_TYPE, FILE, ROW, WriteOptions
from deltasql.exceptions import TxnLogError
from tests.engine.support import listed, plan_for
from tests.oracles.states import arrow_rows, rows_of

if TYPE_CHECKING:
    from deltasql.engine.base import Engine

IDS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", None, "it's {x} \\ “"]})
TIMESTAMP = datetime(2024, 3, 31, 1, 30, 0, 123456, UTC)
NESTED = pa.schema(
    [
        ("s", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
        ("m", pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
        ("l", pa.list_(pa.struct([("x", pa.decimal128(20, 4))]))),
    ]
)


def sql(text: str) -> exp.Query:
    found = parse_one(text, read="duckdb")
    assert isinstance(found, exp.Query)
    return found


class EngineProtocol:
    """Tests for all engines; a subclass provides the fixture `engine`."""

    # Rows in and out

    def test_rows_keep_their_types(self, engine: Engine) -> None:
        table = pa.table(
            {
                "tiny": pa.array([1, None], pa.int8()),
                "big": pa.array([2**63 - 1, None], pa.int64()),
                "single": pa.array([1.5, None], pa.float32()),
                "double": pa.array([math.inf, None], pa.float64()),
                "price": pa.array([Decimal("1234567890123.45"), None], pa.decimal128(18, 2)),
                "flag": pa.array([True, None], pa.bool_()),
                "raw": pa.array([b"\x00\xff", None], pa.binary()),
                "day": pa.array([date(1, 1, 1), None], pa.date32()),
                "at": pa.array([TIMESTAMP, None], pa.timestamp("us", "UTC")),
                "plain": pa.array([datetime(2024, 3, 31, 2, 30), None], pa.timestamp("us")),
            }
        )
        relation = engine.rows(table)
        assert relation.columns == tuple(table.column_names)
        assert arrow_rows(engine.collect(relation)) == arrow_rows(table)

    def test_nested_rows_are_read_back(self, engine: Engine) -> None:
        rows = [
            {
                "s": {"a": 1, "b": ["x", None]},
                "m": [("k", TIMESTAMP)],
                "l": [{"x": Decimal("0.5000")}],
            },
            {"s": None, "m": [], "l": None},
            {"s": {"a": None, "b": []}, "m": None, "l": [None]},
        ]
        table = pa.Table.from_pylist(rows, NESTED)
        assert arrow_rows(engine.collect(engine.rows(table))) == rows_of(NESTED, rows)

    def test_stream_input_can_be_read_twice(self, engine: Engine) -> None:
        relation = engine.rows(IDS.to_reader(max_chunksize=1))
        assert [arrow_rows(engine.collect(relation)) for _ in range(2)] == [arrow_rows(IDS)] * 2

    def test_stream_returns_all_rows(self, engine: Engine) -> None:
        many = pa.table(
            {
                "id": range(50_000),
                "at": pa.array([TIMESTAMP] * 50_000, NESTED.field("m").type.item_type),
            }
        )
        relation = engine.query(sql("SELECT * FROM many WHERE id % 2 = 0"), many=engine.rows(many))
        found = engine.stream(relation)
        assert found.schema.field("at").type == pa.timestamp("us", "UTC")
        whole = found.read_all()
        assert whole.num_rows == 25_000
        assert sorted(whole["id"].to_pylist()) == list(range(0, 50_000, 2))

    # Queries

    def test_query_uses_relations_by_name(self, engine: Engine) -> None:
        found = engine.query(
            sql(
                "SELECT t.id, s.name, t.name AS mine FROM t LEFT JOIN s ON t.id = s.id "
                "WHERE t.id < 3 ORDER BY t.id"
            ),
            t=engine.rows(IDS),
            s=engine.rows(IDS.slice(0, 1)),
        )
        assert found.columns == ("id", "name", "mine")
        assert engine.collect(found).to_pylist() == [
            {"id": 1, "name": "a", "mine": "a"},
            {"id": 2, "name": None, "mine": None},
        ]

    def test_relation_name_qualifies_columns(self, engine: Engine) -> None:
        found = engine.query(
            sql("SELECT rows.id FROM rows WHERE rows.id = 2"), rows=engine.rows(IDS)
        )
        assert engine.collect(found)["id"].to_pylist() == [2]

    def test_string_literals_are_not_interpreted(self, engine: Engine) -> None:
        text = IDS["name"][2].as_py()
        query = exp.select(exp.alias_(exp.Literal.string(text), "x")).from_("t").limit(1)
        assert engine.collect(engine.query(query, t=engine.rows(IDS)))["x"].to_pylist() == [text]

    def test_query_can_use_another_query(self, engine: Engine) -> None:
        first = engine.query(sql("SELECT id * 2 AS twice FROM t"), t=engine.rows(IDS))
        second = engine.query(sql("SELECT sum(twice) AS total FROM q"), q=first)
        assert engine.collect(second)["total"].to_pylist() == [12]

    def test_cast_overflow_raises(self, engine: Engine) -> None:
        big = engine.rows(pa.table({"n": pa.array([2**40], pa.int64())}))
        with pytest.raises(TxnLogError):
            engine.collect(engine.query(sql("SELECT CAST(n AS INT) AS n FROM t"), t=big))

    def test_timestamps_do_not_depend_on_the_time_zone(self, engine: Engine) -> None:
        timestamps = engine.rows(pa.table({"at": pa.array([TIMESTAMP], pa.timestamp("us", "UTC"))}))
        found = engine.query(
            sql(
                "SELECT CAST('2024-03-31T01:30:00.123456Z' AS TIMESTAMPTZ) = at AS same, "
                "CAST(at AS DATE) AS day, EXTRACT(HOUR FROM at) AS hour, at FROM t"
            ),
            t=timestamps,
        )
        [row] = engine.collect(found).to_pylist()
        assert (row["same"], row["day"], row["hour"]) == (True, date(2024, 3, 31), 1)
        assert row["at"] == TIMESTAMP

    def test_row_number_without_order_is_stable_and_unique(self, engine: Engine) -> None:
        number = exp.alias_(exp.Window(this=exp.RowNumber()), "n")
        query = exp.select(exp.column("id"), number).from_("t")
        kept = engine.keep(engine.query(query, t=engine.rows(IDS)))
        first, second = (engine.collect(kept).sort_by("id") for _ in range(2))
        assert first.equals(second)
        assert len(set(first["n"].to_pylist())) == 3

    def test_structs_are_cast_by_field_name(self, engine: Engine) -> None:
        inner = pa.struct([("b", pa.int64()), ("a", pa.int64())])
        given = pa.table({"s": pa.array([{"b": 2, "a": 1}, None], inner)})
        kind = exp.DataType.build("STRUCT<a BIGINT, b BIGINT>", dialect="spark")
        query = exp.select(exp.alias_(exp.Cast(this=exp.column("s"), to=kind), "s")).from_("t")
        found = engine.collect(engine.query(query, t=engine.rows(given)))
        assert found["s"].to_pylist() == [{"a": 1, "b": 2}, None]

    def test_materialized_rows_are_computed_once(self, engine: Engine) -> None:
        query = sql("SELECT random() AS r FROM t")
        kept = engine.keep(engine.query(query, t=engine.rows(IDS)))
        first, second = (sorted(engine.collect(kept)["r"].to_pylist()) for _ in range(2))
        assert first == second

    # Files

    def test_scan_returns_file_and_row_positions(self, engine: Engine, tmp_path: Path) -> None:
        plan = plan_for(tmp_path / "t", IDS.schema)
        (tmp_path / "t").mkdir()
        adds = [file for _ in range(2) for file in engine.write(engine.rows(IDS), plan)]
        files = listed(plan, adds)
        assert engine.scan(files).columns == ("id", "name")
        placed = engine.collect(engine.scan(files, positions=True))
        assert placed.column_names == ["id", "name", FILE, ROW]
        for row in placed.to_pylist():
            file = tmp_path / "t" / files.files[row[FILE]].path
            assert pq.read_table(file)["id"][row[ROW]].as_py() == row["id"]
        assert sorted(placed["id"].to_pylist()) == [1, 1, 2, 2, 3, 3]

    def test_positions_of_rows_are_grouped_by_file(self, engine: Engine) -> None:
        wanted = {0: [0, 1, 32_767, 32_768, 200_000], 7: [*range(5, 70_000, 3)]}
        pairs = [(file, row) for file, rows in wanted.items() for row in rows]
        columns = {FILE: [file for file, _ in pairs], ROW: [row for _, row in pairs]}
        found = engine.positions(engine.rows(pa.table(columns)))
        positions = {file: array("q", rows.positions()).tolist() for file, rows in found.items()}
        assert positions == wanted

    def test_intents_are_recorded_before_files_are_written(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        announced: list[str] = []

        def intend(names: list[str]) -> None:
            if not announced:
                assert not list(tmp_path.rglob("*.parquet"))
            announced.extend(names)

        plan = plan_for(tmp_path, IDS.schema)
        from dataclasses import replace

        adds = engine.write(engine.rows(IDS), replace(plan, intend=intend))
        folders = tuple(name for name in announced if name.endswith("/"))
        assert adds
        assert all(add.path in announced or add.path.startswith(folders) for add in adds)

    def test_empty_input_writes_no_file(self, engine: Engine, tmp_path: Path) -> None:
        for partition_by in ((), ("name",)):
            plan = plan_for(tmp_path, IDS.schema, partition_by=partition_by)
            assert engine.write(engine.rows(IDS.slice(0, 0)), plan) == []
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]

    def test_partition_values_are_formatted_as_in_the_protocol(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        values: dict[str, tuple[pa.DataType, list[Any], list[str | None]]] = {
            "at": (
                pa.timestamp("us", "UTC"),
                [TIMESTAMP, datetime(1, 1, 1, tzinfo=UTC), None],
                ["2024-03-31T01:30:00.123456Z", "0001-01-01T00:00:00.000000Z", None],
            ),
            "plain": (
                pa.timestamp("us"),
                [datetime(2024, 3, 31, 2, 30), datetime(1, 1, 1), None],
                ["2024-03-31 02:30:00.000000", "0001-01-01 00:00:00.000000", None],
            ),
            "day": (pa.date32(), [date(2024, 2, 29), None], ["2024-02-29", None]),
            "flag": (pa.bool_(), [True, False, None], ["true", "false", None]),
            "price": (
                pa.decimal128(38, 20),
                [Decimal("0.00000000000000000001"), Decimal("-5"), None],
                ["0.00000000000000000001", "-5.00000000000000000000", None],
            ),
            "number": (pa.int64(), [-(2**63), None], [str(-(2**63)), None]),
            "text": (
                pa.string(),
                ["a b/%=", "é😀", "__HIVE_DEFAULT_PARTITION__", "", None, "+", "..", "%5F"],
                ["a b/%=", "é😀", "__HIVE_DEFAULT_PARTITION__", None, None, "+", "..", "%5F"],
            ),
            "raw": (pa.binary(), ["é/".encode(), None], ["é/", None]),
        }
        for name, (kind, given, spelled) in values.items():
            table = pa.table({"id": range(len(given)), "p": pa.array(given, kind)})
            plan = plan_for(tmp_path / name, table.schema, partition_by=["p"])
            (tmp_path / name).mkdir()
            adds = engine.write(engine.rows(table), plan)
            assert {add.partition_values["p"] for add in adds} == set(spelled), name
            back = engine.collect(engine.scan(listed(plan, adds))).sort_by("id")
            expected = [None if value == "" else value for value in given]
            assert back["p"].to_pylist() == expected, name

    def test_statistics_cover_every_row(self, engine: Engine, tmp_path: Path) -> None:
        table = pa.table(
            {
                "id": pa.array([5, None, -3], pa.int64()),
                "text": ["b" * 40, "a", None],
                "nan": pa.array([1.0, math.nan, None], pa.float64()),
                "inf": pa.array([1.0, math.inf, None], pa.float64()),
                "zero": pa.array([0.0, -0.0, None], pa.float64()),
                "at": pa.array([TIMESTAMP, None, None], pa.timestamp("us", "UTC")),
                "price": pa.array([Decimal("1.10"), Decimal("-2.00"), None], pa.decimal128(30, 2)),
                "empty": pa.array([None, None, None], pa.date32()),
                "s": pa.array([{"a": 1}, None, {"a": None}], pa.struct([("a", pa.int32())])),
            }
        )
        plan = plan_for(tmp_path, table.schema)
        found = [json.loads(add.stats or "") for add in engine.write(engine.rows(table), plan)]
        assert sum(each["numRecords"] for each in found) == 3
        nulls = [each["nullCount"] for each in found]
        assert {name: sum(each[name] for each in nulls) for name in ("id", "text", "empty")} == {
            "id": 1,
            "text": 1,
            "empty": 3,
        }
        assert sum(each["s"]["a"] for each in nulls) == 2
        low = [each["minValues"] for each in found]
        high = [each["maxValues"] for each in found]
        assert min(each["id"] for each in low if "id" in each) == -3
        assert max(each["id"] for each in high if "id" in each) == 5
        assert max(each["text"] for each in high if "text" in each) > "b" * 40
        assert not any("empty" in each for each in (*low, *high))
        assert not any("nan" in each or "inf" in each for each in high)
        assert all(math.copysign(1, each["zero"]) == -1 for each in low if "zero" in each)
        timestamps = [each["at"] for each in high if "at" in each]
        assert max(timestamps) == "2024-03-31T01:30:00.124Z"

    def test_files_have_physical_names_and_field_ids(self, engine: Engine, tmp_path: Path) -> None:
        schema = json.dumps(
            {
                "type": "struct",
                "fields": [
                    _mapped("the id", "long", 1),
                    _mapped("p p", "string", 2),
                    _mapped(
                        "s",
                        {"type": "struct", "fields": [_mapped("x y", "long", 4)]},
                        3,
                    ),
                ],
            }
        )
        plan = plan_for(
            tmp_path,
            schema,
            partition_by=["p p"],
            configuration={"delta.columnMapping.mode": "id"},
        )
        rows = [{"the id": 1, "p p": "a b", "s": {"x y": 7}}, {"the id": 2, "p p": None, "s": None}]
        arrow = pa.schema(
            [
                ("the id", pa.int64()),
                ("p p", pa.string()),
                ("s", pa.struct([("x y", pa.int64())])),
            ]
        )
        adds = engine.write(engine.rows(pa.Table.from_pylist(rows, arrow)), plan)
        assert {add.partition_values["c2"] for add in adds} == {"a b", None}
        for add in adds:
            [path] = tmp_path.rglob(add.path.rpartition("/")[2])
            stored = pq.read_schema(path)
            ids = {
                f.name: f.metadata[b"PARQUET:field_id"] for f in (*stored, *stored.field("c3").type)
            }
            assert ids == {"c1": b"1", "c3": b"3", "c4": b"4"}
            assert set(json.loads(add.stats or "")["nullCount"]) == {"c1", "c3"}
        assert arrow_rows(engine.collect(engine.scan(listed(plan, adds)))) == rows_of(arrow, rows)

    def test_change_data_is_written_to_its_folder(self, engine: Engine, tmp_path: Path) -> None:
        plan = plan_for(tmp_path, IDS.schema, folder="_change_data/")
        changes = IDS.append_column(CHANGE_TYPE, pa.array(["insert"] * 3))
        adds = engine.write(engine.rows(changes), plan)
        assert all(add.path.startswith("_change_data/") for add in adds)
        found = pa.concat_tables(pq.read_table(tmp_path / add.path) for add in adds)
        assert set(found.column_names) == {"id", "name", CHANGE_TYPE}

    @pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip", "uncompressed"])
    def test_compression_option_sets_the_codec(
        self, engine: Engine, tmp_path: Path, codec: str
    ) -> None:
        plan = plan_for(tmp_path, IDS.schema, options=WriteOptions(compression=codec))
        for add in engine.write(engine.rows(IDS), plan):
            column = pq.read_metadata(tmp_path / add.path).row_group(0).column(0)
            assert column.compression == codec.upper()


def _mapped(name: str, data_type: object, number: int) -> dict[str, object]:
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"}
    return {"name": name, "type": data_type, "nullable": True, "metadata": metadata}
