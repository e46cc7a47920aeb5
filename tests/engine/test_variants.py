"""Shredded variants are read as the binaries that an unshredded file would have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltasql.engine.parquet.variants import unshredded
from tests.each import check_each

if TYPE_CHECKING:
    from pathlib import Path

KIND = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
# The Arrow type of the shredded column, and values to store in it.
SHREDDED = {
    "INTEGER": ["7", "-1::INTEGER", "'text'", "[1]", "NULL"],
    "BIGINT": ["9000000000::BIGINT", "1.5::DOUBLE", "{'a': 1}"],
    "VARCHAR": ["'é'", f"'{'x' * 100}'", "''", "7"],
    "BOOLEAN": ["true", "false", "NULL"],
    "DOUBLE": ["1.25::DOUBLE", "'NaN'::DOUBLE", "2"],
    "FLOAT": ["1.25::FLOAT", "'a'"],
    "DECIMAL(9,2)": ["-12.34::DECIMAL(9,2)", "'a'"],
    "DECIMAL(18,4)": ["123456789.1234::DECIMAL(18,4)", "'a'"],
    "DECIMAL(38,10)": ["-1234567890123456789.0123456789::DECIMAL(38,10)", "'a'"],
    "DATE": ["DATE '1969-12-31'", "'a'"],
    "TIMESTAMP": ["TIMESTAMP '1950-01-01 01:02:03.456789'", "1"],
    "TIMESTAMPTZ": ["TIMESTAMPTZ '2024-01-01 01:02:03.456789+02'", "1"],
    "TIME": ["TIME '12:34:56.789'", "1"],
    "BLOB": [r"'\xAA\x00'::BLOB", "1"],
    "UUID": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::UUID", "1"],
    "INTEGER[]": ["[1, 2, NULL]", "[]::INTEGER[]", "[1::VARIANT, 'a'::VARIANT]", "3", "NULL"],
    "STRUCT(a INTEGER, b STRUCT(c VARCHAR, d INTEGER[]))": [
        "{'a': 1, 'b': {'c': 'x', 'd': [1, 2]}}",
        "{'z': 9, 'a': 'no number', 'aa': 1}",
        "{'b': {'e': [1], 'c': NULL}, 'é': 'ü'}",
        "[1, 2]",
        "NULL",
        "{'b': 5}",
        "{'a': 1, 'y': {'n': [{'m': 1}]}}",
    ],
    "STRUCT(n INTEGER, t VARCHAR)[]": [
        "[{'n': 1}::VARIANT, {'t': 'a', 'u': 2}::VARIANT, 4::VARIANT]",
        "[]::VARCHAR[]",
    ],
}


def test_shredded_variants_merge_to_the_values_that_duckdb_reads(tmp_path: Path) -> None:
    database = duckdb.connect()

    def check(kind: str) -> None:
        path = str(tmp_path / "shredded.parquet")
        rows = " UNION ALL ".join(
            f"SELECT {n} AS n, ({value})::VARIANT AS v" for n, value in enumerate(SHREDDED[kind])
        )
        options = f"FORMAT parquet, SHREDDING {{'v': '{kind}'}}"
        database.execute(f"COPY ({rows} ORDER BY n) TO '{path}' ({options})")
        column: Any = pq.read_table(path)["v"].combine_chunks()
        assert "typed_value" in [member.name for member in column.type]
        found = unshredded(column, KIND)
        sliced = unshredded(column.slice(1), KIND)
        assert sliced.to_pylist() == found.to_pylist()[1:]
        joined = pa.table(
            {"v": [each and each["metadata"] + each["value"] for each in found.to_pylist()]}
        )
        database.register("joined", joined)
        ours, theirs = (
            database.execute(query).fetchall()
            for query in (
                "SELECT x::VARCHAR, split_part(variant_typeof(x), '(', 1) "
                "FROM (SELECT variant_bytes_to_variant(v) AS x FROM joined)",
                "SELECT v::VARCHAR, split_part(variant_typeof(v), '(', 1) "
                f"FROM read_parquet('{path}') ORDER BY n",
            )
        )
        assert len(joined) == len(SHREDDED[kind])
        assert ours == theirs

    check_each(SHREDDED, check)


def test_large_variants_use_wider_counts_and_offsets(tmp_path: Path) -> None:
    database, path = duckdb.connect(), str(tmp_path / "large.parquet")
    fields = ", ".join(f"'k{n}': {'$$' + 'v' * n + '$$'}" for n in range(300))
    options = "FORMAT parquet, SHREDDING {'v': 'STRUCT(k7 VARCHAR, k299 INTEGER)'}"
    database.execute(
        f"COPY (SELECT {{{fields}, 'l': range(1000)}}::VARIANT AS v) TO '{path}' ({options})"
    )
    [row] = unshredded(pq.read_table(path)["v"].combine_chunks(), KIND).to_pylist()
    joined = pa.table({"v": [row["metadata"] + row["value"]]})
    database.register("joined", joined)
    found = database.execute("SELECT variant_bytes_to_variant(v)::VARCHAR FROM joined").fetchall()
    assert found == database.execute(f"SELECT v::VARCHAR FROM '{path}'").fetchall()


def test_null_differs_from_a_variant_that_is_null() -> None:
    rows = [{"metadata": b"\x01\x00\x00", "value": b"\x00", "typed_value": None}, None]
    kind = pa.struct([*KIND, ("typed_value", pa.int64())])
    found = unshredded(pa.array(rows, kind), KIND).to_pylist()
    assert found == [{"metadata": b"\x01\x00\x00", "value": b"\x00"}, None]


def test_shredded_value_of_an_unsupported_type_is_an_error() -> None:
    kind = pa.struct([*KIND, ("typed_value", pa.duration("s"))])
    rows = pa.array([{"metadata": b"\x01\x00\x00", "value": None, "typed_value": 1}], kind)
    with pytest.raises(pa.ArrowNotImplementedError, match="duration"):
        unshredded(rows, KIND)
