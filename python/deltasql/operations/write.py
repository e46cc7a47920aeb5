"""WRITE: append rows to a table, or put them in the place of what it holds."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from deltasql.engine.choose import is_spark_frame
from deltasql.engine.inputs import batches
from deltasql.engine.parquet.writer import write_batches
from deltasql.exceptions import TxnLogConfigError
from deltasql.exceptions.prefixes import TABLE_ERROR
from deltasql.model.schema.convert import schema_from_any
from deltasql.model.schema.schema import StructType
from deltasql.operations.changes.write import (
    change_type,
    keeps_change_data,
    tell_whole_files,
    write_change_data,
)
from deltasql.operations.commit_info import set_commit_info
from deltasql.operations.rules.checks import (
    checked,
    checked_batches,
    generated_columns,
    refuse_append_only,
    rules_of,
    with_generated,
)
from deltasql.operations.rules.conform import arrow_schema, conformer
from deltasql.operations.rules.schema_merge import nullable
from deltasql.operations.rules.write_schema import follow_schema, refuse_other_partitions
from deltasql.operations.sql.expressions import Scope, parse_condition
from deltasql.operations.sql.normal_form import normal
from deltasql.operations.sql.types import cast_to, column, is_not_true, is_true
from deltasql.operations.target import adds_table_to_errors
from deltasql.operations.touched import chosen, counted_rows, in_partitions, rows_by_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from deltasql.engine.base import Engine, Relation, WriteOptions
    from deltasql.model.actions import AddFile
    from deltasql.operations.target import TableStage
    from deltasql.operations.write_request import WriteRequest

MODES = {"append": "Append", "overwrite": "Overwrite", "error": "ErrorIfExists", "ignore": "Ignore"}
SCHEMA_MODES = ("overwrite", "merge")
_OLD = "t"
"""The rows of the table, in queries."""


@adds_table_to_errors
def stage_write(target: TableStage, data: object, request: WriteRequest) -> dict[str, Any]:
    """Write rows as files and stage them; returns the metrics that deltalake reports.

    With `overwrite` they replace all rows, or those for which the predicate is true.
    """
    started = time.perf_counter()
    mode, schema_mode, predicate = request.mode, request.schema_mode, request.predicate
    partition_by, options = request.partition_by, request.options
    check_modes(mode, schema_mode)
    rows = _Rows.of(target, data)
    refuse_other_partitions(target, mode, predicate, schema_mode, partition_by)
    follow_schema(
        target,
        rows.schema,
        predicate,
        schema_mode,
        partition_by,
        cast_by_engine=rows.relation is not None,
    )
    replaced = _replaced(target, mode, predicate)
    # Where some rows of a file stay, the change data of the others is written along with them.
    tells_files = replaced.scan is None and bool(target.staged.cdc)
    adds = _write(target, rows, predicate, replaced, options)
    if replaced.files is not None:
        if tells_files:
            tell_whole_files(target, replaced.files, "delete", options)
        target.remove(replaced.files)
    target.add(adds)
    if tells_files:
        tell_whole_files(target, target.listed(adds), "insert", options)
    # The files are for the schema of this moment: an append is in vain once it changed.
    target.follows()
    metrics = {
        "num_added_files": len(adds),
        "num_removed_files": 0 if replaced.files is None else len(replaced.files),
        "num_partitions": 0,
        "num_added_rows": rows.count,
        "execution_time_ms": int((time.perf_counter() - started) * 1000),
        "num_retries": 0,
    }
    set_commit_info(target, "WRITE", _parameters(target, mode, predicate), metrics)
    return metrics


def check_modes(mode: str, schema_mode: str | None = None) -> None:
    """Refuse a mode that there is not, in the words of deltalake."""
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
            help="Use 'merge' or 'overwrite', or leave it out.",
        )
    if schema_mode == "overwrite" and mode != "overwrite":
        raise TxnLogConfigError(
            "Schema overwrite not supported for Append",
            prefix=TABLE_ERROR,
            help="Append with schema_mode='merge', or overwrite the table.",
        )


def rows_to_write(data: object) -> Any:
    """Return rows that know their `schema` and can be written: a Spark frame, or a reader."""
    return data if is_spark_frame(data) else batches(data)


def schema_to_create(rows: Any) -> object:
    """Return the schema of a table that is made for these rows.

    Spark says of computed columns that they are never null, which is no wish of the user.
    """
    if not is_spark_frame(rows):
        return rows.schema
    given = schema_from_any(rows.schema)
    return nullable(given, StructType())


@dataclass(slots=True)
class _Rows:
    """What is to be written: a stream of Arrow, or a relation of the engine."""

    schema: pa.Schema | StructType
    reader: pa.RecordBatchReader | None = None
    relation: Relation | None = None
    count: int = 0

    @classmethod
    def of(cls, target: TableStage, data: object) -> _Rows:
        if is_spark_frame(data):
            frame: Any = data
            return cls(schema_from_any(frame.schema), relation=target.engine.rows(data))
        reader = batches(data)
        return cls(reader.schema, reader)

    @property
    def names(self) -> Sequence[str]:
        return self.schema.names


@dataclass(frozen=True, slots=True)
class _Replaced:
    """The files that leave the table; where some of their rows stay, which ones go."""

    files: pa.Table | None = None
    scan: Relation | None = None
    matching: exp.Expr = field(default_factory=exp.true)


def _replaced(target: TableStage, mode: str, predicate: str | None) -> _Replaced:
    if mode != "overwrite":
        return _Replaced()
    if predicate is None:
        files = target.files()
        if len(files):
            refuse_append_only(target)
        target.read(whole_table=True, files=files)
        return _Replaced(files)
    pruning = target.predicate(predicate)
    found = target.files(pruning)
    if len(found):
        refuse_append_only(target)
    if pruning.partition_only or not len(found):
        files = in_partitions(target, found, predicate) if len(found) else found
        target.read(predicate=pruning, files=files)
        return _Replaced(files)
    engine = target.engine
    condition = parse_condition(predicate, Scope.of(target.schema, _OLD))
    matched = rows_by_file(engine, engine.scan(target.live(found), positions=True), condition)
    files = chosen(found, matched)
    target.read(predicate=pruning, files=files)
    if sum(matched.values()) == sum(counted_rows(target, files)):
        return _Replaced(files)
    return _Replaced(files, engine.scan(target.live(files)), condition)


def _write(
    target: TableStage,
    rows: _Rows,
    predicate: str | None,
    replaced: _Replaced,
    options: WriteOptions | None,
) -> list[AddFile]:
    condition = None if predicate is None else parse_condition(predicate, target.schema)
    tells_changes = replaced.scan is not None and keeps_change_data(target)
    if rows.reader is None or tells_changes:
        return _write_relation(target, rows, condition, replaced, options)
    wanted = arrow_schema(target.metadata.schema_string)
    stream = _conformed_batches(target, rows, wanted, condition)
    if replaced.scan is not None:
        kept = target.engine.query(_survivors(target, replaced), t=replaced.scan)
        stream = _chained(stream, target.engine, kept, wanted)
    return write_batches(pa.RecordBatchReader.from_batches(wanted, stream), target.plan(options))


def _write_relation(
    target: TableStage,
    rows: _Rows,
    condition: exp.Expr | None,
    replaced: _Replaced,
    options: WriteOptions | None,
) -> list[AddFile]:
    engine = target.engine
    new = _conformed(target, rows, condition)
    if replaced.scan is None:
        written = engine.write(new, target.plan(options))
        if rows.reader is None:  # counted from the files, so that rows are computed once
            rows.count = sum(json.loads(each.stats or "{}")["numRecords"] for each in written)
        return written
    if rows.reader is None:
        new = engine.keep(new)
        count = exp.select(exp.Count(this=exp.Star())).from_("rows")
        rows.count = int(engine.collect(engine.query(count, rows=new)).column(0)[0].as_py())
    columns = [column(name) for name in target.schema.names]
    inserts = exp.select(*columns).from_(exp.to_table("new"))
    both = exp.union(inserts, _survivors(target, replaced), distinct=False)
    added = engine.write(engine.query(both, new=new, t=replaced.scan), target.plan(options))
    if keeps_change_data(target):
        old = [column(name, _OLD) for name in target.schema.names]
        gone = exp.select(*old, change_type("delete")).from_(exp.to_table(_OLD))
        changes = exp.union(
            inserts.select(change_type("insert")),
            gone.where(is_true(replaced.matching)),
            distinct=False,
        )
        write_change_data(target, engine.query(changes, new=new, t=replaced.scan), options)
    return added


def _survivors(target: TableStage, replaced: _Replaced) -> exp.Select:
    old = [column(name, _OLD) for name in target.schema.names]
    return exp.select(*old).from_(exp.to_table(_OLD)).where(is_not_true(replaced.matching))


def _conformed_batches(
    target: TableStage, rows: _Rows, wanted: pa.Schema, condition: exp.Expr | None
) -> Iterator[pa.RecordBatch]:
    assert rows.reader is not None
    conform = conformer(rows.reader.schema, wanted)
    given: Iterable[pa.RecordBatch] = _counted(rows)
    stream = given if conform is None else map(conform, given)
    missing = [name for name in generated_columns(target) if name not in rows.names]
    if condition is None and not rules_of(target):
        yield from stream
    else:
        yield from checked_batches(target, stream, generate=missing, predicate=condition)


def _counted(rows: _Rows) -> Iterator[pa.RecordBatch]:
    assert rows.reader is not None
    for batch in rows.reader:
        rows.count += batch.num_rows
        yield batch


def _chained(
    first: Iterator[pa.RecordBatch], engine: Engine, kept: Relation, wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    yield from first
    # Not before: the checks of the first rows ask the same engine.
    second = engine.stream(kept)
    conform = conformer(second.schema, wanted)
    yield from second if conform is None else map(conform, second)


def _conformed(target: TableStage, rows: _Rows, condition: exp.Expr | None) -> Relation:
    """Return the rows of a relation with the table's columns, checked."""
    engine = target.engine
    given = _as_relation(target, rows) if rows.relation is None else rows.relation
    complete = with_generated(target, given, engine=engine)
    if complete is rows.relation and _has_types_of(target.schema, rows):
        return checked(target, complete, engine=engine, predicate=condition)
    columns = [
        exp.alias_(
            cast_to(column(f.name) if f.name in complete.columns else exp.null(), f.type),
            f.name,
            quoted=True,
        )
        for f in target.schema.fields
    ]
    shaped = engine.query(exp.select(*columns).from_("rows"), rows=complete)
    return checked(target, shaped, engine=engine, predicate=condition)


def _has_types_of(schema: StructType, rows: _Rows) -> bool:
    if not isinstance(rows.schema, StructType):
        return False
    given, wanted = ([(f.name, f.type) for f in each.fields] for each in (rows.schema, schema))
    return given == wanted


def _as_relation(target: TableStage, rows: _Rows) -> Relation:
    """Hand a stream to the engine, in the table's types; what is generated is not there yet."""
    assert rows.reader is not None
    generated = [name for name in generated_columns(target) if name not in rows.names]
    whole = arrow_schema(target.metadata.schema_string)
    wanted = pa.schema([field for field in whole if field.name not in generated])
    conform = conformer(rows.reader.schema, wanted)
    stream = rows.reader if conform is None else map(conform, rows.reader)
    return target.engine.rows(pa.RecordBatchReader.from_batches(wanted, stream))


def _parameters(target: TableStage, mode: str, predicate: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"mode": MODES[mode]}
    if target.partition_columns:
        found["partitionBy"] = json.dumps(
            list(target.partition_columns), separators=(",", ":"), ensure_ascii=False
        )
    if predicate is not None:
        found["predicate"] = normal(predicate, target.schema)
    return found


def arrow_of(schema: StructType) -> pa.Schema:
    """Return the Arrow types of rows with a Delta schema."""
    return arrow_schema(schema.to_json())
