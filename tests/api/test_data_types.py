"""The tables in `docs/reference/data-types.md` match the product."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pytest

import deltasql
from tests.each import check_each
from tests.oracles.readers import DuckDb

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "data-types.md"
MIDNIGHT = dt.datetime(2024, 5, 1)
VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "boolean": (pa.bool_(), True),
    "byte": (pa.int8(), 1),
    "short": (pa.int16(), 1),
    "integer": (pa.int32(), 1),
    "long": (pa.int64(), 1),
    "float": (pa.float32(), 1.5),
    "double": (pa.float64(), 1.5),
    "decimal(38,10)": (pa.decimal128(38, 10), Decimal("1.5")),
    "string": (pa.string(), "x"),
    "binary": (pa.binary(), b"x"),
    "date": (pa.date32(), MIDNIGHT.date()),
    "timestamp": (pa.timestamp("us", "UTC"), MIDNIGHT.replace(tzinfo=dt.UTC)),
    "timestamp_ntz": (pa.timestamp("us"), MIDNIGHT),
    "array": (pa.list_(pa.field("element", pa.int64())), [1]),
    "map": (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    "struct": (pa.struct([("a", pa.int64())]), {"a": 1}),
    "void": (pa.null(), None),
}
CONVERTED = (
    (pa.uint8(), 1),
    (pa.uint16(), 1),
    (pa.uint32(), 1),
    (pa.uint64(), 1),
    (pa.large_string(), "x"),
    (pa.string_view(), "x"),
    (pa.dictionary(pa.int32(), pa.string()), "x"),
    (pa.large_binary(), b"x"),
    (pa.binary(1), b"x"),
    (pa.date64(), MIDNIGHT.date()),
    (pa.timestamp("s"), MIDNIGHT),
    (pa.timestamp("ns"), MIDNIGHT),
    (pa.timestamp("us", "Europe/Berlin"), MIDNIGHT.replace(tzinfo=dt.UTC)),
    (pa.large_list(pa.int64()), [1]),
    (pa.list_(pa.int64(), 1), [1]),
)
REFUSED = (
    pa.float16(),
    pa.decimal256(50, 2),
    pa.time64("us"),
    pa.duration("us"),
    pa.month_day_nano_interval(),
)


def rows_of(name: str) -> list[list[str]]:
    """Return the cells of each row of a Markdown table on the page."""
    text = PAGE.read_text("utf-8").partition(f"<!-- {name} -->")[2]
    lines = re.findall(r"^\| (`.*) \|$", text.partition(f"<!-- end of {name} -->")[0], re.M)
    return [[cell.strip("`") for cell in line.split(" | ")] for line in lines]


def two_rows(arrow: pa.DataType, value: Any) -> pa.Table:
    return pa.table({"id": [1, 2], "v": pa.array([value, None], arrow)})


def delta_type(uri: str) -> str:
    kind = deltasql.DeltaTable(uri).schema().fields[1].type
    return str(kind.type)


def test_every_delta_type_is_on_the_page() -> None:
    assert [row[0] for row in rows_of("types")] == [*VALUES]


def test_each_type_matches_its_row_in_the_table(tmp_path: Path) -> None:
    def check(row: list[str]) -> None:
        name, arrow_name, sql_type, _, partition, by_deltalake, by_duckdb = row
        arrow, value = VALUES[name]
        folder = tmp_path / name
        uri = f"deltasql://sqlite/{folder}/meta.db"
        data = two_rows(arrow, value)
        table = f"{uri}?table=t"
        deltasql.write_deltalake(table, data)
        assert delta_type(table) == name
        expected = data["v"].to_pylist()
        read = deltasql.DeltaTable(table).to_pyarrow_table().sort_by("id")
        assert read["v"].to_pylist() == expected
        assert re.sub(r" \('\w+'\)", "", str(read["v"].type)) == arrow_name
        with deltasql.connect(uri) as catalog:
            found = catalog.query("SELECT v, typeof(v) AS name FROM t ORDER BY id").read_all()
            assert found["v"].to_pylist() == expected
            assert found["name"][0].as_py().strip('"').replace('"', "") == sql_type
            location = catalog.table("t").location
        stock = deltalake.DeltaTable(location).to_pyarrow_table().sort_by("id")
        assert (stock["v"].to_pylist() == expected) == (by_deltalake == "yes")
        assert delta_scan(location, expected) == (by_duckdb == "yes")
        opened = deltasql.DeltaTable(table)
        assert opened.update({"id": "id + 10"}, predicate="id = 1")["num_updated_rows"] == 1
        merge = opened.merge(data, "t.id = s.id", source_alias="s", target_alias="t")
        assert merge.when_matched_update_all().execute()["num_target_rows_updated"] == 1
        assert can_partition(f"{uri}?table=p", data) == (partition == "yes")

    check_each(rows_of("types"), check)


def delta_scan(location: str, expected: list[Any]) -> bool:
    reader = DuckDb()
    try:
        rows = reader.query("SELECT v FROM delta_scan($place) ORDER BY id", place=location)
    except duckdb.Error:
        return False
    assert len(rows) == len(expected)
    return True


def can_partition(uri: str, data: pa.Table) -> bool:
    try:
        deltasql.write_deltalake(uri, data, partition_by=["v"])
    except deltasql.exceptions.TxnLogSchemaError:
        return False
    read = deltasql.DeltaTable(uri).to_pyarrow_table().sort_by("id")
    assert read["v"].to_pylist() == data["v"].to_pylist()
    return True


def test_arrow_types_become_the_delta_types_of_the_page(tmp_path: Path) -> None:
    expected = dict(rows_of("converted"))
    found = {}
    for number, (arrow, value) in enumerate(CONVERTED):
        uri = f"deltasql://sqlite/{tmp_path}/meta.db?table=t{number}"
        deltasql.write_deltalake(uri, two_rows(arrow, value))
        found[str(arrow)] = delta_type(uri)
    assert found == expected


def test_unsigned_value_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    uri = f"deltasql://sqlite/{tmp_path}/meta.db?table=t"
    with pytest.raises(deltasql.exceptions.TxnLogError):
        deltasql.write_deltalake(uri, pa.table({"v": pa.array([200], pa.uint8())}))


def test_types_that_delta_does_not_have_are_refused(tmp_path: Path) -> None:
    assert [row[0] for row in rows_of("refused")] == [str(each) for each in REFUSED]
    for arrow in REFUSED:
        uri = f"deltasql://sqlite/{tmp_path}/meta.db?table=t"
        with pytest.raises(deltasql.exceptions.TxnLogSchemaError, match="Invalid data type"):
            deltasql.write_deltalake(uri, pa.table({"v": pa.array([None], arrow)}))
