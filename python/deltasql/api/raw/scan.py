"""Reading the rows of a version, with the engine or by what was published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from arro3.core import RecordBatchReader
from deltalake._internal import RawDeltaTable
from sqlglot import exp

from deltasql.api.raw.arguments import check_list, check_texts
from deltasql.api.raw.files import FilesSide
from deltasql.engine.choose import open_engine
from deltasql.exceptions import TxnLogMirrorError
from deltasql.mirror.targets import OWN
from deltasql.model.schema import known_columns
from deltasql.model.schema_convert import schema_to_arrow
from deltasql.operations.conform import cast_column
from deltasql.operations.expressions import Scope, parse_condition
from deltasql.storage.location import location_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LIVE = "t"


class ScanSide(FilesSide):
    """Rows of a version."""

    def scan(
        self, columns: list[str] | None = None, predicate: str | None = None
    ) -> RecordBatchReader:
        """Return the rows for which a predicate is true, read while they are asked for."""
        check_list(columns)
        check_texts(predicate)
        return RecordBatchReader.from_arrow(self.read(columns, predicate))

    def read(
        self,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        *,
        files: pa.Table | None = None,
        views: bool = True,
    ) -> pa.RecordBatchReader:
        """Return rows as pyarrow reads them, of listed files or of all that can match.

        With `views` text and bytes have the types of deltalake's own scan.
        """
        condition = None
        if predicate is not None:
            condition = parse_condition(predicate, Scope.of(self.snapshot.schema, _LIVE))
        names = known_columns(self.snapshot.schema, columns, self.name)
        whole = schema_to_arrow(self.snapshot.schema)
        fields = [whole.field(name) for name in names]
        if views:
            fields = [field.with_type(_as_view(field.type)) for field in fields]
        schema = pa.schema(fields)
        listed = files if files is not None else self.listed(predicate)
        wanted: list[exp.Expr] = [exp.column(name, _LIVE, quoted=True) for name in names]
        # Without any column there are still rows to count.
        query = exp.select(*(wanted or [exp.null()])).from_(exp.to_table(_LIVE))
        if condition is not None:
            query = query.where(condition)
        return pa.RecordBatchReader.from_batches(schema, self._batches(listed, query, schema))

    def _batches(
        self, listed: pa.Table, query: exp.Select, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        with open_engine(self.catalog.config, name="duckdb") as engine:
            rows = engine.query(query, **{_LIVE: engine.scan(self.live(listed))})
            for batch in engine.stream(rows):
                yield _conformed(batch, schema)

    # What was published

    def published(self) -> RawDeltaTable:
        """Return deltalake's own table of this version, published now if it is not yet."""
        mirror = self.catalog.mirror
        if not self.is_published():
            if mirror.mode == "off":
                raise TxnLogMirrorError(
                    f"version {self.snapshot.version} of {self.name} is not published, "
                    "and the mirror is off",
                    table=self.name,
                    version=self.snapshot.version,
                    help="Publish with catalog.mirror.publish(), or read with scan().",
                )
            mirror.publish(self.name)
        location = self.row.location
        return RawDeltaTable(
            location_url(location),
            version=self.snapshot.version,
            storage_options=self.storage_options(),
        )

    def is_published(self) -> bool:
        """Tell whether the mirror beside the data has this version."""
        found = [each for each in self.catalog.mirror.status(self.name) if each.target == OWN]
        return bool(found) and found[0].published_version >= self.snapshot.version

    def storage_options(self) -> dict[str, str]:
        """Return the options of the table's storage with their secrets: for drivers only."""
        return self.catalog.config.storage.plain_options(self.row.location)

    def __datafusion_table_provider__(self, session: Any | None = None) -> Any:
        """Return what DataFusion reads the published table by."""
        return self.published().__datafusion_table_provider__(session)


def _as_view(kind: pa.DataType) -> pa.DataType:
    """Return the type that deltalake's scan gives a column: views, but not inside of maps."""
    types = pa.types
    if types.is_string(kind):
        return pa.string_view()
    if types.is_binary(kind):
        return pa.binary_view()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_as_view(field.type)) for field in kind.fields])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_view(kind.value_type)))
    return kind


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Give a batch the types of the table: an engine has names and widths of its own."""
    if not schema.names:
        return batch.select([])
    columns = [
        cast_column(column, field.type, field.name)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
