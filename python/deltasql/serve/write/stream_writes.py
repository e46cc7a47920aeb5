"""Writes of a stream: check the columns, and record the number of the batch in the commit.

After a crash between our commit and Spark's checkpoint, Spark repeats the batch. The number of the
batch is therefore a part of the commit, as a `txn` action whose application id is the id of the
streaming query. A batch whose number is already recorded is not committed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from deltasql.api.stream.options import WRITING
from deltasql.api.stream.rules import columns_of
from deltasql.engine.spark.sql import spark_text
from deltasql.exceptions import TxnLogConfigError, TxnLogSchemaError
from deltasql.model.actions import SetTransaction
from deltasql.model.clock import now_ms
from deltasql.model.schema.convert import schema_from_spark
from deltasql.model.schema.schema import (
    StructField,
    StructType,
    nearest,
    type_name,
    with_members,
)
from deltasql.operations.rules.missing_columns import missing_defaults

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.model.schema.schema import DataType
    from deltasql.operations.table_stage import TableStage
    from deltasql.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A micro-batch: the id of its streaming query, and its number."""

    query_id: str
    number: int

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self | None:
        """Return the batch of a commit, or None if no stream writes it."""
        given = body.get("stream")
        return None if given is None else cls(str(given["query_id"]), int(given["batch"]))

    def is_in(self, snapshot: Snapshot) -> bool:
        """Return whether a version of the table contains the batch."""
        done = snapshot.transaction_version(self.query_id)
        return done is not None and done >= self.number

    def needs_no_commit(
        self, tx: MultiTableTransaction, table: str, body: Mapping[str, Any]
    ) -> bool:
        """Return whether the batch is committed already, or has no rows to append."""
        appends_nothing = not body.get("files") and body.get("overwrite") is None
        return appends_nothing or self.is_in(tx.snapshot(table))

    def action(self) -> SetTransaction:
        """Return the action that records the batch in its commit."""
        return SetTransaction(self.query_id, self.number, now_ms())


def replace_latest(tx: MultiTableTransaction, table: str, latest: Snapshot) -> None:
    """Let a batch that replaces all rows (complete mode) replace those of the latest version.

    Its rows do not depend on the table, so commits since the batch began are no conflict. If the
    columns or the properties have changed, the version stays, and the commit is a conflict.
    """
    begun = tx.snapshot(table)
    is_same_table = latest.table.table_uuid == begun.table.table_uuid
    if is_same_table and (latest.metadata, latest.protocol) == (begun.metadata, begun.protocol):
        tx.pin(table, latest)


def stream_positions(stage: TableStage, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the position of each column of the table in the rows of a stream, and the defaults.

    A column that the stream lacks has no position, and gets its default, or null. Spark does not
    compare the columns of a stream with the table, so this function does: it raises if the stream
    has other columns, or other types. Returns an empty dict if the write is not a stream.
    """
    given = body.get("stream")
    if given is None:
        return {}
    _reject_options(stage.name, given.get("options") or {})
    positions: dict[str, int] = {}
    for position, field in enumerate(schema_from_spark(given["schema"]).fields):
        known = stage.schema.find(field.name)
        if known is None:
            raise TxnLogSchemaError(
                f"the stream has a column {field.name!r}, which {stage.name} does not have",
                table=stage.name,
                column=field.name,
                help=f"{nearest(field.name, list(stage.schema.names))}Drop the column from the "
                "stream, or add it to the table with ALTER TABLE … ADD COLUMNS.",
            )
        _check_type(stage.name, field, known)
        positions[known.name] = position
    defaults = missing_defaults(stage, positions)
    texts = {name: spark_text(value) for name, value in defaults.items()}
    names = stage.schema.names
    return {
        "positions": [positions.get(name) for name in names],
        "defaults": [texts.get(name) for name in names],
    }


def _check_type(table: str, field: StructField, known: StructField) -> None:
    own, expected = (columns_of(StructType((each,)))[0].type for each in (field, known))
    if own != expected:
        names = type_name(own), type_name(expected)
        difference = (
            f"{names[0]}, not {names[1]}" if names[0] != names[1] else f"another {names[0]}"
        )
        raise TxnLogSchemaError(
            f"the column {field.name!r} of the stream into {table} is {difference}",
            table=table,
            column=field.name,
            help="Cast the column to the type that it has in the table.",
        )
    if any(
        is_nullable and not may_be_null
        for is_nullable, may_be_null in zip(
            _nullability(field.type), _nullability(known.type), strict=True
        )
    ):
        raise TxnLogSchemaError(
            f"a member of the column {field.name!r} is NOT NULL in {table}, and nullable in the "
            "stream",
            table=table,
            column=field.name,
            help="Use deltasql.spark.stream_writer with foreachBatch, which checks every row.",
        )


def _nullability(data_type: DataType) -> list[bool]:
    """Return whether each member of a struct may be null, at every level."""
    found: list[bool] = []

    def visit(field: StructField) -> StructField:
        found.append(field.nullable)
        return StructField(field.name, with_members(field.type, visit))

    with_members(data_type, visit)
    return found


def _reject_options(table: str, options: Mapping[str, str]) -> None:
    refused = {each.lower() for each in WRITING}
    for name in options:
        if name.lower() in refused:
            raise TxnLogConfigError(
                f"a stream into {table} does not accept {name}",
                key=name,
                help="Leave it out, or use deltasql.spark.stream_writer with foreachBatch.",
            )
