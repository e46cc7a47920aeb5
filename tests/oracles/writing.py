"""Tables written through deltasql that record the expected rows of every version."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from deltasql import AddFile, RemoveFile
from deltasql.model.clock import now_ms
from deltasql.model.protocol import upgraded_protocol
from deltasql.model.schema.convert import schema_from_any, schema_to_arrow
from deltasql.model.schema.schema import StructType
from deltasql.storage import open_storage
from tests.oracles.states import Rows, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from deltasql import Catalog
    from deltasql.api.catalog.base import CatalogTable
    from deltasql.model.actions import Action, Metadata

Row = dict[str, Any]


@dataclass(slots=True)
class Written:
    """A table and the expected content of its versions."""

    catalog: Catalog
    name: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    rows: list[Row] = field(default_factory=list)
    states: list[Rows] = field(default_factory=list)
    files: int = 0

    @property
    def table(self) -> CatalogTable:
        return self.catalog.table(self.name)

    def append(self, rows: Sequence[Row]) -> None:
        """Append rows with deltasql's writer."""
        with self.catalog.begin() as tx:
            tx.write(self.name, self.arrow(rows))
        self.became([*self.rows, *rows])

    def overwrite(self, rows: Sequence[Row]) -> None:
        """Replace all rows with deltasql's writer."""
        with self.catalog.begin() as tx:
            tx.write(self.name, self.arrow(rows), mode="overwrite")
        self.became(rows)

    def stage(self, actions: Iterable[Action], rows: Sequence[Row], **options: Any) -> None:
        """Commit actions; `rows` is the content of the table afterwards."""
        with self.catalog.begin() as tx:
            tx.stage_table(self.name, list(actions), **options)
        self.became(rows)

    def alter(
        self, schema: object = None, /, rows: Sequence[Row] | None = None, **changes: Any
    ) -> None:
        """Change the metadata: the schema, or fields of the metaData action."""
        snapshot = self.table.snapshot()
        metadata: Metadata = replace(snapshot.metadata, **changes)
        if schema is not None:
            metadata = replace(metadata, schema_string=schema_from_any(schema).to_json())
        columns = StructType.from_json(metadata.schema_string)
        protocol = upgraded_protocol(snapshot.protocol, columns, metadata.configuration)
        upgrade = [protocol] if protocol != snapshot.protocol else []
        self.schema = schema_to_arrow(columns)
        after = self.rows if rows is None else rows
        self.stage([metadata, *upgrade], after, operation="SET TBLPROPERTIES")

    def became(self, rows: Sequence[Row]) -> None:
        """Record the expected content of the next version: columns without a value are null."""
        names = self.schema.names
        self.rows = [{name: self._stored(row, name) for name in names} for row in rows]
        self.states.append(rows_of(self.schema, self.rows))

    def arrow(self, rows: Sequence[Row]) -> pa.Table:
        """Return rows as Arrow with the table's schema."""
        return pa.Table.from_pylist(list(rows), self.schema)

    def file(
        self, rows: pa.Table, *, partition: Mapping[str, str | None] | None = None, **fields: Any
    ) -> AddFile:
        """Write a Parquet file to the table's location, without deltasql's writer."""
        self.files += 1
        name = fields.pop("name", f"elsewhere-{self.files}.parquet")
        buffer = BytesIO()
        pq.write_table(rows, buffer)
        self.put(name, buffer.getvalue())
        stats = json.dumps({"numRecords": rows.num_rows}, separators=(",", ":"))
        values = {"partition_values": partition or {}, "stats": stats, **fields}
        return AddFile(
            path=quote(name, safe="/="), size=buffer.tell(), modification_time=now_ms(), **values
        )

    def put(self, name: str, data: bytes) -> None:
        """Write a file to the table's location."""
        open_storage(self.table.location, self.catalog.config.storage).put(name, data)

    def uri(self, name: str) -> str:
        """Return the absolute URI of a file at the table's location."""
        location = self.table.location
        root = location if "://" in location else Path(location).as_uri()
        return f"{root}/{quote(name)}"

    def live(self) -> list[AddFile]:
        """Return the live files, oldest first."""
        rows = self.table.snapshot().scan().arrow.sort_by("file_id").to_pylist()
        return [
            AddFile(
                path=row["path"],
                partition_values=json.loads(row["partition"]),
                size=row["size"],
                modification_time=row["modification_time"],
                stats=row["stats"] or None,
            )
            for row in rows
        ]

    def _stored(self, row: Row, name: str) -> Any:
        # Delta has no empty string as a partition value: it becomes null.
        value = row.get(name)
        return None if value == "" and name in self.partition_by else value


def create(
    catalog: Catalog,
    name: str,
    schema: object,
    *,
    partition_by: Sequence[str] = (),
    **options: Any,
) -> Written:
    """Create a table at version 0."""
    catalog.create_table(name, schema, partition_by=list(partition_by), **options)
    written = Written(catalog, name, schema_to_arrow(schema_from_any(schema)), tuple(partition_by))
    written.became([])
    return written


def removal(add: AddFile, *, data_change: bool = True) -> RemoveFile:
    """Return the action that removes a file."""
    return RemoveFile(
        path=add.path,
        deletion_timestamp=now_ms(),
        data_change=data_change,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        deletion_vector=add.deletion_vector,
    )
