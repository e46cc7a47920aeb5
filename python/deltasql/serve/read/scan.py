"""The request `scan`: the files to read, for Spark's Parquet reader."""

from __future__ import annotations

import base64
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.engine.files.live_files import LiveFiles
from deltasql.engine.spark.file_index import encoded_values
from deltasql.engine.spark.schema import plain_field
from deltasql.model.features.row_tracking import materialized_columns
from deltasql.model.schema.schema import StructType
from deltasql.serve.names import snapshot_of, table_name
from deltasql.serve.read.filters import skipping_condition
from deltasql.serve.tables import reject_changed, unchanged_stage
from deltasql.storage.location import data_urls

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator, Mapping, Sequence

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.operations.table_stage import TableStage
    from deltasql.serve.transactions import Transactions

FILES_PER_LINE = 1_000


def planned(
    catalog: Catalog, transactions: Transactions, body: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the schemas and partitions of the files that can match the filters, then the files.

    With `limit`, yield only as many files as have this number of rows. With `row_ids`, the files
    of a table with row tracking have the id and the commit version of their first row. The last
    object says how many files there are.
    """
    row_ids = bool(body.get("row_ids"))
    condition = skipping_condition(body.get("filters", ()))
    if body.get("read_in") is not None:
        with transactions.reading(body) as tx:
            assert tx is not None
            replaced = transactions.replaced(tx, table_name(body))
            if replaced is not None:
                reject_changed(replaced, body, more_columns=True)
                return _response(replaced, row_ids)
            stage = unchanged_stage(tx, body, more_columns=True)
            return _response(_files_in(stage, condition), row_ids)
    snapshot = snapshot_of(catalog, body)
    has_ids = row_ids and bool(materialized_columns(snapshot.metadata.configuration))
    scan = snapshot.scan(condition)
    listed = scan.arrow if has_ids else scan.to_read
    if body.get("limit") is not None:
        listed = _first_files(listed, int(body["limit"]))
    location = snapshot.table.location
    live = LiveFiles(location, snapshot.metadata, listed, catalog.config.storage)
    return _response(live, row_ids)


def _first_files(listed: pa.Table, rows: int) -> pa.Table:
    """Return the first files that have a number of rows in total.

    A file with a deletion vector or without statistics counts as empty: it may have no rows.
    """
    vectors = pc.fill_null(listed["deletion_vector"].cast(pa.string()), "")
    counts = pc.if_else(pc.equal(vectors, ""), pc.fill_null(listed["num_records"], 0), 0)
    before = pc.less(pc.subtract(pc.cumulative_sum(counts), counts), rows)
    return listed.filter(before)


def _files_in(stage: TableStage, condition: str | None) -> LiveFiles:
    """Return the files that a transaction sees, and add what is read to its read set."""
    predicate = None if condition is None else stage.predicate(condition)
    files = stage.files(predicate)
    stage.read(whole_table=predicate is None, predicate=predicate, files=files)
    return stage.live(files)


def _response(live: LiveFiles, row_ids: bool) -> Iterator[dict[str, Any]]:
    listed = live.listed
    partitions = live.partitions.dictionary_encode()
    files = _files(live, partitions.indices.to_pylist())
    if row_ids and live.row_columns:
        files = _with_first_ids(live, files)
    groups = _by_schema(live, files)
    yield {
        "schemas": [stored_schema(schema, live).to_json() for schema, _ in groups],
        "partitions": partition_values(live, partitions.dictionary.to_pylist()),
        "bytes": pc.sum(listed["size"]).as_py() or 0,
        "rows": _row_count(listed),
        "has_deleted_rows": live.have_deletions,
        "has_column_mapping": live.column_mapping_mode is not None,
        "row_columns": [each.name for each in live.row_columns],
    }
    for number, (_, alike) in enumerate(groups):
        for start in range(0, len(alike), FILES_PER_LINE):
            yield {"schema": number, "files": alike[start : start + FILES_PER_LINE]}
    yield {"end": len(files)}


def _row_count(listed: pa.Table) -> int | None:
    """Return the number of rows, including deleted ones; None if a file has no statistics."""
    counts = listed["num_records"]
    return None if counts.null_count else pc.sum(counts).as_py() or 0


def _files(live: LiveFiles, partitions: Sequence[int]) -> list[tuple[Any, ...]]:
    """Return each file as a tuple: URL, size, modification time, partition, vector of deleted rows.

    A query of a large table waits for this list, so `zip` builds it from whole columns. The garbage
    collector stops tracking tuples of atomic values; it would visit lists again and again.
    """
    listed = live.listed
    paths, sizes = listed["path"].to_pylist(), listed["size"].to_pylist()
    times = pc.fill_null(listed["modification_time"], 0).to_pylist()
    urls = data_urls(live.location, paths)
    found: list[tuple[Any, ...]] = list(zip(urls, sizes, times, partitions, strict=True))
    if live.have_deletions:
        deleted = {file.path: encoded_rows(rows) for file, rows in live.deleted_rows(live.files)}
        found = [
            (*file, deleted[path]) if path in deleted else file
            for path, file in zip(paths, found, strict=True)
        ]
    return found


def _with_first_ids(live: LiveFiles, files: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Add the id of the first row and the commit version to each file, after its deleted rows."""
    row_ids = live.listed["base_row_id"].to_pylist()
    versions = live.listed["default_row_commit_version"].to_pylist()
    return [
        (*file, *[None] * (5 - len(file)), row_id, version)
        for file, row_id, version in zip(files, row_ids, versions, strict=True)
    ]


def _by_schema(
    live: LiveFiles, files: Sequence[tuple[Any, ...]]
) -> list[tuple[StructType, Sequence[tuple[Any, ...]]]]:
    """Group files by the names of their columns, which differ only if columns are mapped by id."""
    if live.column_mapping_mode != "id":
        return [(live.schema, files)]
    found = dict(zip((file.path for file in live.files), files, strict=True))
    groups = live.by_names(live.files)
    return [(schema, [found[file.path] for file in alike]) for schema, alike in groups]


def encoded_rows(rows: array[int]) -> str:
    """Return row positions as 64-bit little-endian integers in base64."""
    if sys.byteorder == "big":
        rows = rows[:]
        rows.byteswap()
    return base64.b64encode(rows.tobytes()).decode()


def stored_schema(schema: StructType, live: LiveFiles) -> StructType:
    """Return the columns of files under their physical names, without partition columns."""
    mode = live.column_mapping_mode
    return StructType(
        tuple(
            plain_field(field, mode)
            for field in schema.fields
            if field.name not in live.partition_columns
        )
    )


def partition_values(live: LiveFiles, partitions: Sequence[str]) -> list[list[str | None]]:
    """Return the values of each partition as strings; dates and timestamps are numbers."""
    columns = [encoded_values(values) for _, values in live.values_of(partitions)]
    rows = zip(*columns, strict=True) if columns else ((),) * len(partitions)
    return [[None if value is None else value.decode() for value in row] for row in rows]
