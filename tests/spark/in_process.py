"""Runs the data source step by step as Spark does, without a JVM.

Each object is pickled between the steps, since Spark sends them between processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import to_arrow_schema

from deltasql.engine.spark.schema import spark_schema
from deltasql.model.schema.convert import schema_from_any
from deltasql.spark.source.source import DeltaSqlSource
from deltasql.spark.source.stream import UnlimitedStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.spark.source.stream import TableStream
    from deltasql.spark.source.write import TableWriter

T = TypeVar("T")


def moved(thing: T) -> T:
    """Return a copy of an object as another process would receive it."""
    found: T = cloudpickle.loads(cloudpickle.dumps(thing))
    return found


def source(uri: str, **options: object) -> DeltaSqlSource:
    given = {
        name: str(value).lower() if value is True else str(value) for name, value in options.items()
    }
    return DeltaSqlSource(CaseInsensitiveDict({"path": uri, **given}))


def load(uri: str, **options: object) -> pa.Table:
    """Read as `spark.read.format("deltasql").options(…).load(uri)` does."""
    made = source(uri, **options)
    schema = made.schema()
    reader = moved(moved(made).reader(schema))
    wanted = to_arrow_schema(schema, timezone="UTC")
    batches = [batch for part in reader.partitions() for batch in reader.read(moved(part))]
    assert all(batch.schema.equals(wanted) for batch in batches)
    return pa.Table.from_batches(batches, wanted)


def writer(
    uri: str, schema: pa.Schema, *, overwrite: bool = False, **options: object
) -> TableWriter:
    """Plan a write as Spark does."""
    return moved(source(uri, **options).writer(spark_schema(schema_from_any(schema)), overwrite))


def save(uri: str, *tasks: pa.Table, overwrite: bool = False, **options: object) -> None:
    """Write as `df.write.format("deltasql").options(…).save(uri)` does, with one task per table."""
    planned = writer(uri, tasks[0].schema, overwrite=overwrite, **options)
    messages = [moved(moved(planned).write(iter(task.to_batches()))) for task in tasks]
    moved(planned).commit(messages)


class Stream:
    """A streaming query on the source; its offset is the content of a checkpoint."""

    def __init__(self, uri: str, offset: dict[str, Any] | None = None, **options: object) -> None:
        made = source(uri, **options)
        self.schema = made.schema()
        self.reader: TableStream = moved(made).streamReader(self.schema)
        self.offset = self.reader.initialOffset() if offset is None else offset

    def batch(self, limit: object = None) -> list[dict[str, Any]] | None:
        """Return the rows of the next batch, or None if there are no new rows."""
        reader: Any = self.reader
        if isinstance(reader, UnlimitedStream):
            end = reader.latestOffset()
        else:
            end = reader.latestOffset(self.offset, limit or reader.getDefaultReadLimit())
        if end == self.offset:
            return None
        start, self.offset = self.offset, end
        return self.between(start, end)

    def older(self) -> Stream:
        """Use the reader for PySpark 4.0 and 4.1 instead."""
        reader = self.reader
        self.reader = UnlimitedStream(reader.options, reader.reading, reader.version)
        return self

    def between(self, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
        worker = moved(self.reader)
        parts: Sequence[Any] = self.reader.partitions(start, end)
        batches = [batch for part in parts for batch in worker.read(moved(part))]
        return pa.Table.from_batches(
            batches, to_arrow_schema(self.schema, timezone="UTC")
        ).to_pylist()

    def ids(self) -> list[list[int]]:
        """Return the ids of all non-empty batches until there are no new rows."""
        found = []
        while (rows := self.batch()) is not None:
            found.append(sorted(row["id"] for row in rows))
        return [ids for ids in found if ids]
