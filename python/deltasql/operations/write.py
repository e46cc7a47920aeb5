"""WRITE: append rows to a table, or put them in the place of what it holds."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from deltasql.engine.arrow import batches
from deltasql.engine.base import FILE
from deltasql.engine.choose import is_spark_frame
from deltasql.engine.parquet import write_batches
from deltasql.exceptions import TxnLogConfigError, TxnLogSchemaError, TxnLogTransactionError
from deltasql.model.column_mapping import with_new_columns_mapped
from deltasql.model.protocol import required_features, upgraded_protocol, writer_features
from deltasql.model.schema_convert import schema_from_any
from deltasql.model.schema_rules import validate_schema
from deltasql.operations.checks import (
    checked,
    checked_batches,
    generated_columns,
    rules_of,
    with_generated,
)
from deltasql.operations.conform import arrow_schema, check_names, conformer
from deltasql.operations.expressions import normal, scalar
from deltasql.operations.info import tell
from deltasql.operations.schema_merge import merge_schemas, nullable
from deltasql.operations.sql_types import cast_to, column, is_not_true, is_true

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from deltasql.engine.base import Relation, WriteOptions
    from deltasql.model.actions import AddFile
    from deltasql.model.schema import StructType
    from deltasql.operations.target import Target

MODES = {"append": "Append", "overwrite": "Overwrite", "error": "ErrorIfExists", "ignore": "Ignore"}
SCHEMA_MODES = ("overwrite", "merge")


def stage_write(
    target: Target,
    data: object,
    *,
    mode: str = "append",
    predicate: str | None = None,
    schema_mode: str | None = None,
    partition_by: Sequence[str] | str | None = None,
    options: WriteOptions | None = None,
) -> dict[str, Any]:
    """Write rows as files and stage them; returns the metrics that deltalake reports.

    With `overwrite` they replace all rows, or those for which the predicate is true.
    """
    started = time.perf_counter()
    check_modes(mode, schema_mode)
    rows = _Rows.of(target, data)
    _refuse_other_partitions(target, mode, predicate, schema_mode, partition_by)
    _follow_schema(target, rows, mode, predicate, schema_mode, partition_by)
    replaced = _replaced(target, mode, predicate)
    adds = _write(target, rows, predicate, replaced, options)
    if replaced.files is not None:
        target.remove(replaced.files)
    target.add(adds)
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
    tell(target, "WRITE", _parameters(target, mode, predicate), metrics)
    return metrics


def check_modes(mode: str, schema_mode: str | None = None) -> None:
    """Refuse a mode that there is not, in the words of deltalake."""
    if mode not in MODES:
        raise TxnLogConfigError(
            f"Invalid save mode provided: {mode}, only these are supported: {list(MODES)}",
            help=f"Use one of {', '.join(MODES)}.",
        )
    if schema_mode is not None and schema_mode not in SCHEMA_MODES:
        raise TxnLogConfigError(
            f"Invalid schema write mode provided: {schema_mode}, "
            f"only these are supported: {list(SCHEMA_MODES)}",
            help="Use 'merge' or 'overwrite', or leave it out.",
        )
    if schema_mode == "overwrite" and mode == "append":
        raise TxnLogConfigError(
            "Schema overwrite not supported for Append",
            help="Append with schema_mode='merge', or overwrite the table.",
        )


def rows_to_write(data: object) -> Any:
    """Return rows that know their `schema` and can be written: a Spark frame, or a reader."""
    return data if is_spark_frame(data) else batches(data)


@dataclass(slots=True)
class _Rows:
    """What is to be written: a stream of Arrow, or a relation of the engine."""

    schema: pa.Schema | StructType
    reader: pa.RecordBatchReader | None = None
    relation: Relation | None = None
    count: int = 0

    @classmethod
    def of(cls, target: Target, data: object) -> _Rows:
        if is_spark_frame(data):
            frame: Any = data
            return cls(schema_from_any(frame.schema), relation=target.engine.rows(data))
        reader = batches(data)
        return cls(reader.schema, reader)

    @property
    def names(self) -> Sequence[str]:
        return self.schema.names

    def delta_schema(self) -> StructType:
        return schema_from_any(self.schema)


@dataclass(frozen=True, slots=True)
class _Replaced:
    """The files that leave the table, and the rows of them that stay in it."""

    files: pa.Table | None = None
    survivors: Relation | None = None


def _refuse_other_partitions(
    target: Target,
    mode: str,
    predicate: str | None,
    schema_mode: str | None,
    partition_by: Sequence[str] | str | None,
) -> None:
    if partition_by is None:
        return
    wanted = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    changes_all = mode == "overwrite" and schema_mode == "overwrite" and predicate is None
    if wanted != list(target.partition_columns) and not changes_all:
        raise TxnLogSchemaError(
            "Specified table partitioning does not match table partitioning: "
            f"expected: {json.dumps(list(target.partition_columns))}, got: {json.dumps(wanted)}",
            table=target.name,
            help="To change partition columns, overwrite the full table with "
            "schema_mode='overwrite' and no predicate; else leave out partition_by.",
        )


def _follow_schema(
    target: Target,
    rows: _Rows,
    mode: str,
    predicate: str | None,
    schema_mode: str | None,
    partition_by: Sequence[str] | str | None,
) -> None:
    """Check the columns of the data against the table's, or change the table's after them."""
    present = arrow_schema(target.metadata.schema_string)
    if partition_by is None and isinstance(rows.schema, pa.Schema) and rows.schema.equals(present):
        return
    given = rows.delta_schema()
    _refuse_missing_feature(target, given)
    if schema_mode is None:
        names = rows.schema if isinstance(rows.schema, pa.Schema) else arrow_of(given)
        check_names(names, present, optional=generated_columns(target), table=target.name)
        return
    partitions = target.partition_columns
    if schema_mode == "overwrite" and predicate is None:
        wanted = given
        if partition_by is not None:
            partitions = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    else:
        wanted = merge_schemas(target.schema, nullable(given, target.schema))
    if wanted == target.schema and partitions == target.partition_columns:
        return
    mapped, properties = with_new_columns_mapped(wanted, target.configuration)
    validate_schema(mapped, partitions, target.configuration.get("delta.columnMapping.mode"))
    changed = replace(
        target.metadata,
        schema_string=mapped.to_json(),
        partition_columns=tuple(partitions),
        configuration=properties,
    )
    target.change_metadata(changed, upgraded_protocol(target.protocol, mapped, properties))


def _refuse_missing_feature(target: Target, given: StructType) -> None:
    needed = required_features(given, {}) & {"timestampNtz"}
    if needed - writer_features(target.protocol):
        raise TxnLogTransactionError(
            "Table features must be specified, please specify: TimestampWithoutTimezone",
            table=target.name,
            help="Give the timestamps a zone, or add the feature with "
            "alter.add_feature(TableFeatures.TimestampWithoutTimezone).",
        )


def _replaced(target: Target, mode: str, predicate: str | None) -> _Replaced:
    if mode != "overwrite":
        return _Replaced()
    if predicate is None:
        files = target.files()
        target.read(files=files)
        return _Replaced(files)
    pruning = target.predicate(predicate)
    found = target.files(pruning)
    condition = scalar(predicate, target.schema)
    if pruning.partition_only or not len(found):
        target.read(predicate=pruning, files=found)
        return _Replaced(found)
    engine = target.engine
    scan = engine.scan(target.live(found), positions=True)
    touched = exp.select(column(FILE)).distinct().from_("scan").where(is_true(condition))
    places = sorted(engine.collect(engine.query(touched, scan=scan)).column(0).to_pylist())
    files = found.take(places)
    target.read(predicate=pruning, files=files)
    if not places:
        return _Replaced(files)
    names = [column(name) for name in target.schema.names]
    kept = exp.select(*names).from_("scan").where(is_not_true(condition))
    return _Replaced(files, engine.query(kept, scan=engine.scan(target.live(files))))


def _write(
    target: Target,
    rows: _Rows,
    predicate: str | None,
    replaced: _Replaced,
    options: WriteOptions | None,
) -> list[AddFile]:
    condition = None if predicate is None else scalar(predicate, target.schema)
    plan = target.plan(options)
    if rows.reader is None:
        relation = _conformed(target, rows, condition)
        if replaced.survivors is not None:
            columns = [column(name) for name in target.schema.names]
            both = exp.union(
                exp.select(*columns).from_("new"), exp.select(*columns).from_("old"), distinct=False
            )
            relation = target.engine.query(both, new=relation, old=replaced.survivors)
        return target.engine.write(relation, plan)
    wanted = arrow_schema(target.metadata.schema_string)
    stream = _conformed_batches(target, rows, wanted, condition)
    if replaced.survivors is not None:
        stream = _chained(stream, target.engine.stream(replaced.survivors), wanted)
    return write_batches(pa.RecordBatchReader.from_batches(wanted, stream), plan)


def _conformed_batches(
    target: Target, rows: _Rows, wanted: pa.Schema, condition: exp.Expr | None
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
    first: Iterator[pa.RecordBatch], second: pa.RecordBatchReader, wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    yield from first
    conform = conformer(second.schema, wanted)
    yield from second if conform is None else map(conform, second)


def _conformed(target: Target, rows: _Rows, condition: exp.Expr | None) -> Relation:
    """Return the rows of a relation with the table's columns, checked."""
    assert rows.relation is not None
    engine = target.engine
    complete = with_generated(target, rows.relation, engine=engine)
    columns = [
        exp.alias_(cast_to(column(f.name), f.type), f.name, quoted=True)
        if f.name in complete.columns
        else exp.alias_(cast_to(exp.null(), f.type), f.name, quoted=True)
        for f in target.schema.fields
    ]
    shaped = engine.query(exp.select(*columns).from_("rows"), rows=complete)
    kept = checked(target, shaped, engine=engine, predicate=condition)
    count = exp.select(exp.Count(this=exp.Star())).from_("rows")
    rows.count = int(engine.collect(engine.query(count, rows=kept)).column(0)[0].as_py())
    return kept


def _parameters(target: Target, mode: str, predicate: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"mode": MODES[mode]}
    if target.partition_columns:
        found["partitionBy"] = json.dumps(
            list(target.partition_columns), separators=(",", ":"), ensure_ascii=False
        )
    if predicate is not None:
        found["predicate"] = normal(predicate)
    return found


def arrow_of(schema: StructType) -> pa.Schema:
    """Return the Arrow types of rows with a Delta schema."""
    return arrow_schema(schema.to_json())
