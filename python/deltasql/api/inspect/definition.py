"""Columns, properties and protocol of a table, and their changes over versions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from deltasql.api.inspect.page import ABOVE_ALL, Page, cut, page_size, read_cursor, write_cursor
from deltasql.commit.identity import changes_only_marks
from deltasql.exceptions import MASK, is_secret_name
from deltasql.model.clock import from_ms
from deltasql.model.report import Report
from deltasql.model.schema.identity import without_marks
from deltasql.model.schema.schema import (
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
from deltasql.store.records import metadata_from_row, protocol_from_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.model.actions import Metadata, Protocol
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.store.dialect import Row

_COMMENT = "comment"


@dataclass(frozen=True, slots=True)
class Column(Report):
    """A column of a table, with its Delta type."""

    name: str
    type: str
    nullable: bool
    comment: str | None
    partition: bool
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ColumnChange(Report):
    """A change of a column.

    `kind` is added, dropped, renamed, type, nullability, metadata or reordered.
    """

    kind: str
    column: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class ValueChange(Report):
    """A change of a property; None means no value."""

    key: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class SchemaChange(Report):
    """A version that changed columns, properties or the protocol of a table."""

    version: int
    committed_at: datetime | None
    operation: str | None
    changes: tuple[ColumnChange, ...]
    properties: tuple[ValueChange, ...]
    protocol: tuple[ValueChange, ...]
    partition_columns: tuple[str, ...]


def columns_of(snapshot: Snapshot) -> list[Column]:
    """Return the columns of a version."""
    return [
        Column(
            name=each.name,
            type=type_text(each.type),
            nullable=each.nullable,
            comment=each.metadata.get(_COMMENT),
            partition=each.name in snapshot.partition_columns,
            metadata={k: v for k, v in each.metadata.items() if k != _COMMENT},
        )
        for each in snapshot.schema.fields
    ]


def schema_changes(
    catalog: BaseCatalog, name: str, *, limit: int, cursor: str | None
) -> Page[SchemaChange]:
    """Return versions that changed columns, properties or the protocol, newest first."""
    table_id = catalog.resolve(name, fresh=True).table_id
    before = ABOVE_ALL if cursor is None else read_cursor("schema", cursor, int)[0]
    rows = catalog.store.query(
        "definition_versions", table_id=table_id, before=before, limit=page_size(limit) + 1
    )
    found, more = cut(rows, limit)
    return Page(
        tuple(_changes(catalog, table_id, found)),
        write_cursor("schema", found[-1][0]) if more else None,
    )


def _changes(catalog: BaseCatalog, table_id: int, rows: Sequence[Row]) -> list[SchemaChange]:
    """Compare each of these versions with the state before it; newest first."""
    if not rows:
        return []
    store, low, high = catalog.store, rows[-1][0], rows[0][0]
    span = {"table_id": table_id, "after": low - 1, "last": high}
    metadata = {row[0]: metadata_from_row(row) for row in store.query("metadata_between", **span)}
    protocols = {row[0]: protocol_from_row(row) for row in store.query("protocol_between", **span)}
    at_metadata, at_protocol = store.query("definitions_before", table_id=table_id, before=low)[0]
    old = None if at_metadata is None else store.metadata(table_id, at_metadata)
    before = None if at_protocol is None else store.protocol(table_id, at_protocol)
    found = []
    for version, committed_at_ms, operation in reversed(rows):
        new, after = metadata.get(version, old), protocols.get(version, before)
        is_new = old is None or version not in metadata or version in protocols
        if not is_new and old is not None and changes_only_marks(old, metadata[version]):
            continue  # only high-water marks of identity columns changed
        found.append(
            SchemaChange(
                version=version,
                committed_at=None if committed_at_ms is None else from_ms(committed_at_ms),
                operation=operation,
                changes=() if new is None else tuple(column_changes(old, new)),
                properties=() if new is None else tuple(metadata_changes(old, new)),
                protocol=() if after is None else tuple(protocol_changes(before, after)),
                partition_columns=() if new is None else tuple(new.partition_columns),
            )
        )
        old, before = new, after
    return found[::-1]


def column_changes(old: Metadata | None, new: Metadata) -> Iterator[ColumnChange]:
    """Yield the changes of columns, including fields of structs."""
    before = StructType() if old is None else StructType.from_json(old.schema_string)
    after = without_marks(StructType.from_json(new.schema_string))
    yield from _struct_changes(without_marks(before), after, "")


def metadata_changes(old: Metadata | None, new: Metadata) -> Iterator[ValueChange]:
    """Yield the changes of properties, partitioning, name and description."""
    yield from _value_changes(_facts(old), _facts(new))


def protocol_changes(old: Protocol | None, new: Protocol) -> Iterator[ValueChange]:
    """Yield the changes of reader and writer versions and of table features."""
    yield from _value_changes({} if old is None else old.body(), new.body())


def _facts(metadata: Metadata | None) -> dict[str, Any]:
    if metadata is None:
        return {}
    facts = {
        "name": metadata.name,
        "description": metadata.description,
        "partition columns": list(metadata.partition_columns) or None,
        "format": metadata.format.provider,
    }
    known = {key: value for key, value in facts.items() if value is not None}
    return {**known, **metadata.configuration}


def _value_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[ValueChange]:
    for key in dict.fromkeys((*old, *new)):
        before, after = _text(old.get(key)), _text(new.get(key))
        if before == after:
            continue
        if is_secret_name(key):
            before, after = (None if each is None else MASK for each in (before, after))
        yield ValueChange(key, before, after)


def _struct_changes(old: StructType, new: StructType, path: str) -> Iterator[ColumnChange]:
    was = {_identity(each): each for each in old.fields}
    now = {_identity(each): each for each in new.fields}
    for key, field in was.items():
        if key not in now:
            yield ColumnChange("dropped", path + field.name, type_text(field.type), None)
    for key, field in now.items():
        if key not in was:
            yield ColumnChange("added", path + field.name, None, type_text(field.type))
        else:
            yield from _field_changes(was[key], field, path)
    kept = [key for key in was if key in now], [key for key in now if key in was]
    if kept[0] != kept[1]:
        names = [
            ", ".join(each[key].name for key in keys)
            for each, keys in zip((was, now), kept, strict=True)
        ]
        yield ColumnChange("reordered", path.rstrip("."), *names)


def _identity(field: StructField) -> str:
    """Return the physical name of a column, which a rename does not change."""
    return str(field.metadata.get(PHYSICAL_NAME, field.name))


def _field_changes(old: StructField, new: StructField, path: str) -> Iterator[ColumnChange]:
    name = path + new.name
    if old.name != new.name:
        yield ColumnChange("renamed", name, old.name, new.name)
    if isinstance(old.type, StructType) and isinstance(new.type, StructType):
        yield from _struct_changes(old.type, new.type, f"{name}.")
    elif type_text(old.type) != type_text(new.type):
        yield ColumnChange("type", name, type_text(old.type), type_text(new.type))
    if old.nullable != new.nullable:
        texts = ["null" if each.nullable else "not null" for each in (old, new)]
        yield ColumnChange("nullability", name, *texts)
    if dict(old.metadata) != dict(new.metadata):
        for each in _value_changes(old.metadata, new.metadata):
            pair = [None if v is None else f"{each.key}={v}" for v in (each.before, each.after)]
            yield ColumnChange("metadata", name, *pair)


def type_text(data_type: DataType, names: Mapping[str, str] | None = None) -> str:
    """Return a Delta type as text; `names` replaces the names of primitive types.

    >>> type_text(ArrayType(StructType((StructField("a", "long"),))))
    'array<struct<a:long>>'
    """
    if isinstance(data_type, StructType):
        inside = ",".join(f"{each.name}:{type_text(each.type, names)}" for each in data_type.fields)
        return f"struct<{inside}>"
    if isinstance(data_type, ArrayType):
        return f"array<{type_text(data_type.element_type, names)}>"
    if isinstance(data_type, MapType):
        key, value = type_text(data_type.key_type, names), type_text(data_type.value_type, names)
        return f"map<{key},{value}>"
    return (names or {}).get(data_type, data_type)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
