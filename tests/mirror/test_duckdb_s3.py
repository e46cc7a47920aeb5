"""A DuckDB catalog file with views on tables in a bucket, read with httpfs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import duckdb
import duckdb_extensions
import pyarrow as pa

import deltasql
from tests.oracles.states import arrow_rows, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri


def test_view_reads_a_table_in_a_bucket(
    sqlite_uri: DeltaSqlUri, s3_location: str, s3_options: dict[str, str], tmp_path: Path
) -> None:
    duckdb_extensions.import_extension("httpfs")
    path = tmp_path / "catalog.duckdb"
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("p", pa.string())])
    rows = [
        {"id": number, "at": datetime(2024, 5, 1, number, tzinfo=UTC), "p": p}
        for number, p in enumerate(["a b", "50% off", "größe/東京", None, "a+b"])
    ]
    with deltasql.connect(
        sqlite_uri,
        create=True,
        storage={"options": s3_options},
        table={"data_root": f"{s3_location}/100%25 t"},
    ) as catalog:
        deltasql.mirror_duckdb(catalog, path)
        catalog.create_table("sales", schema, partition_by="p")
        for each in (rows[:3], rows[3:]):
            with catalog.begin() as tx:
                tx.write("sales", pa.Table.from_pylist(each, schema))
        assert [each.state for each in catalog.mirror.status()] == ["ACTIVE", "ACTIVE"]
    with duckdb.connect(str(path), read_only=True) as db:
        db.execute(
            f"""LOAD httpfs; SET TimeZone = 'UTC'; CREATE SECRET (TYPE s3, URL_STYLE 'path',
            KEY_ID '{s3_options["AWS_ACCESS_KEY_ID"]}', REGION '{s3_options["AWS_REGION"]}',
            SECRET '{s3_options["AWS_SECRET_ACCESS_KEY"]}', USE_SSL false,
            ENDPOINT '{s3_options["AWS_ENDPOINT_URL"].removeprefix("http://")}')"""
        )
        found = arrow_rows(db.execute("SELECT * FROM sales").to_arrow_table())
    assert found == rows_of(schema, rows)
