"""Hand-written Delta tables: the test decides each action and each Parquet file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
MAPPED = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
VECTORS = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
}


@dataclass(slots=True)
class HandwrittenTable:
    """A folder with a `_delta_log` of any content."""

    folder: Path
    version: int = field(default=-1, init=False)

    def __post_init__(self) -> None:
        (self.folder / "_delta_log").mkdir(parents=True)

    @property
    def path(self) -> str:
        return str(self.folder)

    @property
    def log(self) -> Path:
        return self.folder / "_delta_log"

    def commit(self, *actions: dict[str, Any]) -> int:
        """Write the next commit file."""
        self.version += 1
        lines = "\n".join(json.dumps(action) for action in actions)
        (self.log / f"{self.version:020d}.json").write_text(lines + "\n")
        return self.version

    def add(self, name: str, rows: pa.Table, **fields: Any) -> dict[str, Any]:
        """Write a data file and return its add action."""
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, self.folder / name)
        return added(name, size=(self.folder / name).stat().st_size, **fields)


def added(path: str, **fields: Any) -> dict[str, Any]:
    body = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1}
    return {"add": {**body, "dataChange": True, **fields}}


def removed(path: str, **fields: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 2, "dataChange": True, **fields}}


def metadata(*columns: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the metaData action of a table with these columns; `fields` override its fields."""
    body = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": columns}),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 1,
        **fields,
    }
    return {"metaData": {key: value for key, value in body.items() if value is not None}}


def column(
    name: str, kind: Any = "long", number: int | None = None, physical: str | None = None
) -> dict[str, Any]:
    """Return a column, with its id and physical name under column mapping."""
    marks = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    metadata = {key: value for key, value in marks.items() if value is not None}
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def struct(*columns: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(columns)}


def array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def numbered(name: str, kind: pa.DataType, number: int) -> pa.Field:
    """Return a column of a Parquet file with its field id."""
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})
