"""WRITE: append rows to a table, or overwrite all or some of its rows."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from deltasql.engine.inputs import batches, is_spark_frame
from deltasql.engine.parquet.writer import write_batches
from deltasql.engine.spark.errors import is_failed_cast
from deltasql.exceptions import TxnLogConfigError, TxnLogEngineError
from deltasql.exceptions.prefixes import TABLE_ERROR
from deltasql.model.schema.convert import schema_from_any
from deltasql.model.schema.identity import columns_of_rows
from deltasql.model.schema.schema import StructType, type_name
from deltasql.operations.rewrite import (
    change_type,
    count_rows_by_file,
    files_at,
    in_partitions,
    keeps_change_data,
    live_row_counts,
    record_whole_files,
    write_change_data,
)
from deltasql.operations.row_ids import scan_to_rewrite
from deltasql.operations.rules.conform import arrow_schema, conformer
from deltasql.operations.rules.identity import (
    missing_identity,
    numbered_batches,
    with_numbers,
)
from deltasql.operations.rules.missing_columns import (
    default_constants,
    optional_columns,
    with_defaults,
)
from deltasql.operations.rules.row_checks import (
    checked,
    checked_batches,
    combined,
    generated_columns,
    reject_append_only,
    rules_of,
    with_generated,
)
from deltasql.operations.rules.schema_merge import nullable
from deltasql.operations.rules.write_schema import check_or_change_schema, check_partitioning
from deltasql.operations.sql.expressions import condition_of
from deltasql.operations.sql.normal_form import normal
from deltasql.operations.sql.queries import alias, column, is_not_true, is_true
from deltasql.operations.sql.types import cast_to, typed_null
from deltasql.operations.table_stage import adds_table_to_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltasql.engine.base import Engine, Relation, WriteOptions
    from deltasql.model.actions import AddFile
    from deltasql.model.predicates.predicate import Predicate
    from deltasql.operations.table_stage import TableStage
    from deltasql.operations.write_request import WriteRequest

MODES = {"append": "Append", "overwrite": "Overwrite", "error": "ErrorIfExists", "ignore": "Ignore"}
SCHEMA_MODES = ("overwrite", "merge")
_OLD = "t"
"""The name of the table's existing rows in queries."""


@adds_table_to_errors
def stage_write(stage: TableStage, data: object, request: WriteRequest) -> dict[str, Any]:
    """Write rows as files and stage the files; return the metrics that deltalake reports.

    With the mode `overwrite`, the new rows replace the rows for which the predicate is true, or all
    rows if there is no predicate.
    """
    started = time.perf_counter()
    mode, predicate, options = request.mode, request.predicate, request.options
    check_modes(mode, request.schema_mode)
    rows = _Rows.of(stage, data)
    check_partitioning(stage, request)
    check_or_change_schema(stage, rows.schema, request, cast_by_engine=rows.relation is not None)
    found = None if predicate is None else stage.predicate(predicate, flavour=request.flavour)
    replaced = _replaced(stage, found) if mode == "overwrite" else _Replaced()
    # If only some rows of the files are replaced, `_write` writes the change data itself.
    record_files = replaced.scan is None and bool(stage.staged.cdc)
    try:
        adds = _write(stage, rows, found, replaced, options)
    except TxnLogEngineError as error:
        if is_failed_cast(error.__cause__):
            error.help = _cast_help(stage.schema, schema_from_any(rows.schema))
        raise
    if replaced.files is not None:
        if record_files:
            record_whole_files(stage, replaced.files, "delete", options)
        stage.remove(replaced.files)
    stage.add(adds)
    if record_files:
        record_whole_files(stage, stage.listed(adds), "insert", options)
    # The files have the current schema, so a concurrent change of the schema is a conflict.
    stage.record_read_version()
    metrics = {
        "num_added_files": len(adds),
        "num_removed_files": 0 if replaced.files is None else len(replaced.files),
        "num_partitions": 0,
        "num_added_rows": rows.count,
        "execution_time_ms": int((time.perf_counter() - started) * 1000),
        "num_retries": 0,
    }
    stage.set_commit_info("WRITE", _parameters(stage, request), metrics)
    return metrics


def _cast_help(wanted: StructType, given: StructType) -> str:
    """Return a help text that names the columns that a write casts."""
    pairs = [(field, wanted.find(field.name)) for field in given.fields]
    casts = [
        f"{field.name} ({type_name(field.type)} to {type_name(known.type)})"
        for field, known in pairs
        if known is not None and known.type != field.type
    ]
    return f"The write casts {', '.join(casts)}: cast or clean the values before writing."


def check_modes(mode: str, schema_mode: str | None = None) -> None:
    """Raise deltalake's error for an unknown mode or for a combination that is not allowed."""
    if mode not in MODES:
        raise TxnLogConfigError(
            f"Invalid save mode provided: {mode}, only these are supported: {list(MODES)}",
            prefix=TABLE_ERROR,
            help=f"Use one of {', '.join(MODES)}.",
        )
    if schema_mode is not None and schema_mode not in SCHEMA_MODES:
        raise TxnLogConfigError(
            f"Invalid schema write mode provided: {schema_mode}, "
            f"only these are supported: {list(SCHEMA_MODES)}",
            prefix=TABLE_ERROR,
            help="Use 'merge' or 'overwrite', or omit schema_mode.",
        )
    if schema_mode == "overwrite" and mode != "overwrite":
        raise TxnLogConfigError(
            "Schema overwrite not supported for Append",
            prefix=TABLE_ERROR,
            help="Append with schema_mode='merge', or overwrite the table.",
        )


def rows_to_write(data: object) -> Any:
    """Return rows in a form that can be written: a Spark DataFrame or an Arrow reader."""
    return data if is_spark_frame(data) else batches(data)


def schema_to_create(rows: Any) -> StructType:
    """Return the schema of a table that is created for these rows.

    All columns of a Spark DataFrame become nullable, because Spark marks computed columns as NOT
    NULL although the user did not ask for it.
    """
    given = columns_of_rows(schema_from_any(rows.schema))
    return nullable(given, StructType()) if is_spark_frame(rows) else given


@dataclass(slots=True)
class _Rows:
    """The rows to write: an Arrow stream, or a relation of the engine."""

    schema: pa.Schema | StructType
    reader: pa.RecordBatchReader | None = None
    relation: Relation | None = None
    count: int = 0

    @classmethod
    def of(cls, stage: TableStage, data: object) -> _Rows:
        if is_spark_frame(data):
            frame: Any = data
            return cls(schema_from_any(frame.schema), relation=stage.engine.rows(data))
        reader = batches(data)
        return cls(reader.schema, reader)

    @property
    def names(self) -> Sequence[str]:
        return self.schema.names


@dataclass(frozen=True, slots=True)
class _Replaced:
    """The files that an overwrite removes.

    If some rows of these files are not replaced, `scan` has all their rows, and `matching` is the
    condition for the rows to replace.
    """

    files: pa.Table | None = None
    scan: Relation | None = None
    matching: exp.Expr = field(default_factory=exp.true)


def _replaced(stage: TableStage, predicate: Predicate | None) -> _Replaced:
    if predicate is None:
        files = stage.files()
        if len(files):
            reject_append_only(stage)
        stage.read(whole_table=True, files=files)
        return _Replaced(files)
    found = stage.files(predicate)
    if len(found):
        reject_append_only(stage)
    if predicate.partition_only or not len(found):
        files = in_partitions(stage, found, predicate) if len(found) else found
        stage.read(predicate=predicate, files=files)
        return _Replaced(files)
    engine = stage.engine
    condition = condition_of(predicate, _OLD)
    matched = count_rows_by_file(engine, engine.scan(stage.live(found), positions=True), condition)
    files = files_at(found, matched)
    stage.read(predicate=predicate, files=files)
    if sum(matched.values()) == sum(live_row_counts(stage, files)):
        return _Replaced(files)
    return _Replaced(files, scan_to_rewrite(stage, files), condition)


def _write(
    stage: TableStage,
    rows: _Rows,
    predicate: Predicate | None,
    replaced: _Replaced,
    options: WriteOptions | None,
) -> list[AddFile]:
    condition = None if predicate is None else condition_of(predicate)
    keeps_rows = replaced.scan is not None
    by_engine = keeps_rows and (keeps_change_data(stage) or stage.row_columns)
    if rows.reader is None or by_engine:
        return _write_relation(stage, rows, condition, replaced, options)
    wanted = arrow_schema(stage.metadata.schema_string)
    stream = _conformed_batches(stage, rows, wanted, condition)
    if replaced.scan is not None:
        kept = stage.engine.query(_survivors(stage, replaced), t=replaced.scan)
        stream = _chained(stream, stage.engine, kept, wanted)
    return write_batches(pa.RecordBatchReader.from_batches(wanted, stream), stage.plan(options))


def _write_relation(
    stage: TableStage,
    rows: _Rows,
    condition: exp.Expr | None,
    replaced: _Replaced,
    options: WriteOptions | None,
) -> list[AddFile]:
    engine = stage.engine
    new = _conformed(stage, rows, condition)
    if replaced.scan is None:
        written = engine.write(new, stage.plan(options))
        if rows.reader is None:  # use the statistics, so that the rows are computed only once
            rows.count = sum(json.loads(each.stats or "{}")["numRecords"] for each in written)
        return written
    if rows.reader is None:
        new = engine.keep(new)
        count = exp.select(exp.Count(this=exp.Star())).from_("rows")
        rows.count = int(engine.collect(engine.query(count, rows=new)).column(0)[0].as_py())
    columns = [column(name) for name in stage.schema.names]
    inserts = exp.select(*columns).from_(exp.to_table("new"))
    without_ids = (alias(typed_null(each.type), each.name) for each in stage.row_columns)
    both = exp.union(inserts.select(*without_ids), _survivors(stage, replaced), distinct=False)
    plan = stage.plan(options, rewrites=True)
    added = engine.write(engine.query(both, new=new, t=replaced.scan), plan)
    if keeps_change_data(stage):
        old = [column(name, _OLD) for name in stage.schema.names]
        deletes = exp.select(*old, change_type("delete")).from_(exp.to_table(_OLD))
        changes = exp.union(
            inserts.select(change_type("insert")),
            deletes.where(is_true(replaced.matching)),
            distinct=False,
        )
        write_change_data(stage, engine.query(changes, new=new, t=replaced.scan), options)
    return added


def _survivors(stage: TableStage, replaced: _Replaced) -> exp.Select:
    old = [column(name, _OLD) for name in stage.stored_schema.names]
    return exp.select(*old).from_(exp.to_table(_OLD)).where(is_not_true(replaced.matching))


def _conformed_batches(
    stage: TableStage, rows: _Rows, wanted: pa.Schema, condition: exp.Expr | None
) -> Iterator[pa.RecordBatch]:
    assert rows.reader is not None
    stream = _counted(rows)
    if not rows.reader.schema.equals(wanted):
        constants = default_constants(stage, rows.names)
        stream = map(conformer(rows.reader.schema, wanted, constants), stream)
    numbered = missing_identity(stage, rows.names)
    if numbered:
        stream = numbered_batches(stage, numbered, combined(stream))
    missing = [name for name in generated_columns(stage) if name not in rows.names]
    if condition is None and not rules_of(stage):
        yield from stream
    else:
        yield from checked_batches(stage, stream, generate=missing, predicate=condition)


def _counted(rows: _Rows) -> Iterator[pa.RecordBatch]:
    assert rows.reader is not None
    for batch in rows.reader:
        rows.count += batch.num_rows
        yield batch


def _chained(
    first: Iterator[pa.RecordBatch], engine: Engine, kept: Relation, wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    yield from first
    # Start the second stream only now, because the checks of the first rows use the same engine.
    second = engine.stream(kept)
    is_same = second.schema.equals(wanted)
    yield from second if is_same else map(conformer(second.schema, wanted), second)


def _conformed(stage: TableStage, rows: _Rows, condition: exp.Expr | None) -> Relation:
    """Return the rows as a relation with the table's columns and types, after checking them."""
    engine = stage.engine
    given = _as_relation(stage, rows) if rows.relation is None else rows.relation
    numbered = missing_identity(stage, given.columns)
    filled = with_numbers(stage, numbered, with_defaults(stage, given, engine), engine)
    complete = with_generated(stage, filled, engine=engine)
    if complete is rows.relation and _has_types_of(stage.schema, rows):
        return checked(stage, complete, engine=engine, predicate=condition)
    columns = [
        exp.alias_(
            cast_to(column(f.name) if f.name in complete.columns else exp.null(), f.type),
            f.name,
            quoted=True,
        )
        for f in stage.schema.fields
    ]
    shaped = engine.query(exp.select(*columns).from_("rows"), rows=complete)
    return checked(stage, shaped, engine=engine, predicate=condition)


def _has_types_of(schema: StructType, rows: _Rows) -> bool:
    if not isinstance(rows.schema, StructType):
        return False
    given, wanted = ([(f.name, f.type) for f in each.fields] for each in (rows.schema, schema))
    return given == wanted


def _as_relation(stage: TableStage, rows: _Rows) -> Relation:
    """Return an Arrow stream as a relation with the table's types.

    Columns that the write fills are not added if the rows do not have them.
    """
    assert rows.reader is not None
    filled = [name for name in optional_columns(stage) if name not in rows.names]
    whole = arrow_schema(stage.metadata.schema_string)
    wanted = pa.schema([field for field in whole if field.name not in filled])
    is_same = rows.reader.schema.equals(wanted)
    stream = rows.reader if is_same else map(conformer(rows.reader.schema, wanted), rows.reader)
    return stage.engine.rows(pa.RecordBatchReader.from_batches(wanted, stream))


def _parameters(stage: TableStage, request: WriteRequest) -> dict[str, Any]:
    found: dict[str, Any] = {"mode": MODES[request.mode]}
    if stage.partition_columns:
        found["partitionBy"] = json.dumps(
            list(stage.partition_columns), separators=(",", ":"), ensure_ascii=False
        )
    if request.predicate is not None:
        escapes = request.flavour == "spark"
        found["predicate"] = normal(request.predicate, stage.schema, escapes=escapes)
    return found


def arrow_of(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of rows with a Delta schema."""
    return arrow_schema(schema.to_json())
