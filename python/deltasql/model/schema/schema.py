"""A Delta schema: the `schemaString` as frozen classes, and its columns.

A primitive type is a str with the Delta name (`"long"`, `"decimal(10,2)"`); only nested types have
classes. The metadata of fields is stored unchanged, so that a schema can be parsed and written
again without loss.

>>> schema = StructType.from_json(
...     '{"type":"struct","fields":[{"name":"id","type":"long","nullable":false,"metadata":{}}]}'
... )
>>> schema.names
('id',)
>>> StructType.from_json(schema.to_json()) == schema
True
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.json_text import load_json
from deltasql.model.schema.column_paths import split_column_list, split_column_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

PHYSICAL_NAME = "delta.columnMapping.physicalName"
CURRENT_DEFAULT = "CURRENT_DEFAULT"
"""The key of a column's default value in the field metadata: an expression in Spark's SQL."""
COLLATIONS = "__COLLATIONS"
"""The key of the collations of a column's strings in the field metadata, as in Spark."""
PRIMITIVE_TYPES = frozenset(
    {
        *("byte", "short", "integer", "long", "float", "double", "boolean", "string"),
        *("binary", "date", "timestamp", "timestamp_ntz", "variant"),
        *("timestamp_nanos", "timestamp_nanos_ntz"),
    }
)
NANOSECOND_TYPES = frozenset({"timestamp_nanos", "timestamp_nanos_ntz"})
# Maximum nesting of a schema: more than real schemas have, and far below Python's recursion limit.
_DEEPEST = 100
_UNORDERED = frozenset({"binary", "variant", "void"})
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(-?\d{1,3})\s*\)")


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list with elements of one type."""

    element_type: DataType
    contains_null: bool = True


@dataclass(frozen=True, slots=True)
class MapType:
    """A map: all keys have one type, and all values have one type."""

    key_type: DataType
    value_type: DataType
    value_contains_null: bool = True


@dataclass(frozen=True, slots=True)
class StructField:
    """A field of a struct, or a column of a table."""

    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def physical_name(self, column_mapping_mode: str | None) -> str:
        """Return the name of the column in data files, statistics and partition values."""
        if column_mapping_mode in ("name", "id"):
            return str(self.metadata.get(PHYSICAL_NAME, self.name))
        return self.name


@dataclass(frozen=True, slots=True)
class StructType:
    """A struct, or the schema of a table: its fields in order."""

    fields: tuple[StructField, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(f.name for f in self.fields)

    def find(self, name: str) -> StructField | None:
        """Return the field with this exact name, otherwise a field whose name differs only in case.

        Return None if there is no such field.
        """
        folded = name.casefold()
        loose = None
        for candidate in self.fields:
            if candidate.name == name:
                return candidate
            if loose is None and candidate.name.casefold() == folded:
                loose = candidate
        return loose

    def to_json(self) -> str:
        """Return the `schemaString` of this schema, formatted like that of other writers."""
        return json.dumps(_type_to_json(self), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> StructType:
        """Parse a `schemaString`."""
        try:
            parsed = _type_from_json(load_json(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TxnLogSchemaError(
                f"not a Delta schema: {_reason(error)}",
                help="A schema is JSON of the form "
                '{"type":"struct","fields":[{"name":…,"type":…,"nullable":…,"metadata":{}}]}.',
            ) from error
        if not isinstance(parsed, StructType):
            raise TxnLogSchemaError(
                "the outermost type of a table schema is not a struct",
                help='Wrap the columns in {"type":"struct","fields":[…]}.',
            )
        return parsed


@lru_cache(maxsize=64)
def schema_of(text: str) -> StructType:
    """Parse a `schemaString`; cached, because every step of an operation needs the schema."""
    return StructType.from_json(text)


DataType: TypeAlias = "str | StructType | ArrayType | MapType"


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """A column that is not a struct: its logical path, its physical path and its Delta type."""

    path: tuple[str, ...]
    physical_path: tuple[str, ...]
    type: DataType
    metadata: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def type_name(self) -> str:
        """The name of the Delta type: `long`, `decimal(10,2)`, `array`, `map`."""
        return type_name(self.type)


def type_name(data_type: DataType) -> str:
    """Return the name of the outermost type.

    >>> type_name(ArrayType("long"))
    'array'
    """
    if isinstance(data_type, str):
        return data_type
    return {StructType: "struct", ArrayType: "array", MapType: "map"}[type(data_type)]


def decimal_type(data_type: DataType) -> tuple[int, int] | None:
    """Return (precision, scale) of a decimal type; None for any other type.

    >>> decimal_type("decimal(10,2)")
    (10, 2)
    """
    if data_type == "decimal":
        return 10, 0
    match = _DECIMAL.fullmatch(data_type) if isinstance(data_type, str) else None
    return (int(match[1]), int(match[2])) if match else None


def is_primitive(name: str) -> bool:
    """Return whether Delta has a primitive type with this name."""
    decimal = decimal_type(name)
    if decimal is not None:
        precision, scale = decimal
        return 1 <= precision <= 38 and 0 <= scale <= precision
    return name in PRIMITIVE_TYPES


def has_nanoseconds(data_type: DataType) -> bool:
    """Return whether a type is or contains a timestamp with nanoseconds.

    >>> has_nanoseconds(ArrayType("timestamp_nanos")), has_nanoseconds("timestamp")
    (True, False)
    """
    primitive = (each for each in nested_types(data_type) if isinstance(each, str))
    return not NANOSECOND_TYPES.isdisjoint(primitive)


def has_variant(data_type: DataType) -> bool:
    """Return whether a type is or contains a variant.

    >>> has_variant(ArrayType("variant")), has_variant("string")
    (True, False)
    """
    return "variant" in nested_types(data_type)


def is_collated(data_type: DataType, metadata: Mapping[str, object]) -> bool:
    """Return whether a column with this type and metadata, or a field in it, has a collation."""
    return COLLATIONS in metadata or any(
        COLLATIONS in member.metadata
        for kind in nested_types(data_type)
        if isinstance(kind, StructType)
        for member in kind.fields
    )


def has_order(data_type: DataType) -> bool:
    """Return whether columns of this type have a minimum and a maximum in the statistics."""
    return isinstance(data_type, str) and data_type not in _UNORDERED and is_primitive(data_type)


def column_mapping_mode(configuration: Mapping[str, str]) -> str | None:
    """Return the mode of column mapping, `name` or `id`; None if it is disabled."""
    mode = configuration.get("delta.columnMapping.mode", "none").lower()
    return mode if mode in ("name", "id") else None


def leaf_columns(schema: StructType, column_mapping_mode: str | None = None) -> list[LeafColumn]:
    """Return every column that is not a struct, in the order of the schema.

    >>> leaf_columns(StructType((StructField("a", StructType((StructField("b", "long"),))),)))
    [LeafColumn(path=('a', 'b'), physical_path=('a', 'b'), type='long')]
    """
    return list(_walk_leaves(schema, column_mapping_mode, (), ()))


def resolve_column(
    schema: StructType, path: Sequence[str], column_mapping_mode: str | None = None
) -> LeafColumn | None:
    """Return the column with a logical path, ignoring case; it may be a struct.

    Return None if there is no such column.

    >>> schema = StructType((StructField("Day", "date"),))
    >>> resolve_column(schema, ["day"]).path
    ('Day',)
    """
    found: list[StructField] = []
    here: DataType = schema
    for name in path:
        step = here.find(name) if isinstance(here, StructType) else None
        if step is None:
            return None
        found.append(step)
        here = step.type
    return LeafColumn(
        tuple(f.name for f in found),
        tuple(f.physical_name(column_mapping_mode) for f in found),
        here,
        found[-1].metadata if found else {},
    )


def skipping_columns(
    schema: StructType, partition_columns: Sequence[str], configuration: Mapping[str, str]
) -> list[tuple[tuple[str, ...], str]]:
    """Return the columns with minimum and maximum in the statistics: (physical path, type).

    The property `delta.dataSkippingStatsColumns` lists these columns. If it is not set, they are
    the first `delta.dataSkippingNumIndexedCols` leaf columns (default 32; -1 means all), not
    counting partition columns. Arrays and maps count, but have no minimum and maximum.

    >>> schema = StructType((StructField("day", "date"), StructField("id", "long")))
    >>> skipping_columns(schema, ["day"], {})
    [(('id',), 'long')]
    """
    leaves = indexed_columns(schema, partition_columns, configuration)
    return [(leaf.physical_path, leaf.type_name) for leaf in leaves if has_order(leaf.type)]


def indexed_columns(
    schema: StructType, partition_columns: Sequence[str], configuration: Mapping[str, str]
) -> list[LeafColumn]:
    """Return the columns with statistics; columns without an order have only a null count."""
    partitions = set(partition_columns)
    leaves = [
        leaf
        for leaf in leaf_columns(schema, column_mapping_mode(configuration))
        if leaf.path[0] not in partitions
    ]
    named = configuration.get("delta.dataSkippingStatsColumns")
    if named is not None:
        wanted = [_folded(split_column_path(part)) for part in split_column_list(named)]
        leaves = [leaf for leaf in leaves if any(_within(leaf.path, path) for path in wanted)]
    else:
        text = configuration.get("delta.dataSkippingNumIndexedCols", "")
        count = int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else 32
        leaves = leaves if count < 0 else leaves[:count]
    return leaves


def known_columns(schema: StructType, names: Sequence[str] | None, table: str) -> list[str]:
    """Return the requested columns, or all columns if `names` is None.

    Raise TxnLogSchemaError for an unknown column.
    """
    known = list(schema.names)
    if names is None:
        return known
    for name in names:
        if name not in known:
            raise TxnLogSchemaError(
                f"Schema error: No field named {name}.",
                table=table,
                column=name,
                help=f"{nearest(name, known)}The columns are {', '.join(known)}.",
            )
    return list(names)


def nested_types(data_type: DataType) -> Iterator[DataType]:
    """Yield a type and all types inside of it, the outermost first.

    >>> list(nested_types(MapType("string", ArrayType("long"))))[2:]
    [ArrayType(element_type='long', contains_null=True), 'long']
    """
    yield data_type
    if isinstance(data_type, StructType):
        inner: list[DataType] = [member.type for member in data_type.fields]
    elif isinstance(data_type, ArrayType):
        inner = [data_type.element_type]
    elif isinstance(data_type, MapType):
        inner = [data_type.key_type, data_type.value_type]
    else:
        return
    for each in inner:
        yield from nested_types(each)


def with_elements(data_type: DataType, change: Callable[[DataType], DataType]) -> DataType:
    """Apply `change` to the inner types of an array or a map; return other types unchanged."""
    if isinstance(data_type, ArrayType):
        return replace(data_type, element_type=change(data_type.element_type))
    if isinstance(data_type, MapType):
        key, value = change(data_type.key_type), change(data_type.value_type)
        return replace(data_type, key_type=key, value_type=value)
    return data_type


def with_members(data_type: DataType, change: Callable[[StructField], StructField]) -> DataType:
    """Apply `change` to every field of the outermost structs in a type.

    In the result, elements of arrays and values of maps are nullable.
    """
    if isinstance(data_type, StructType):
        return StructType(tuple(change(member) for member in data_type.fields))
    if isinstance(data_type, ArrayType):
        return ArrayType(with_members(data_type.element_type, change))
    if isinstance(data_type, MapType):
        key, value = data_type.key_type, data_type.value_type
        return MapType(with_members(key, change), with_members(value, change))
    return data_type


def without_void(schema: StructType, partition_columns: Sequence[str] = ()) -> StructType:
    """Return the columns that data files contain: according to the protocol, all but void columns.

    Void columns remain if a table or a struct has no other columns. They also remain in arrays and
    maps, for which the protocol does not define this.

    >>> without_void(StructType((StructField("id", "long"), StructField("v", "void")))).names
    ('id',)
    """
    fields = [replace(field, type=_stored_type(field.type)) for field in schema.fields]
    kept = [f for f in fields if f.type != "void" or f.name in partition_columns]
    return StructType(tuple(kept if any(f.name not in partition_columns for f in kept) else fields))


def has_void(data_type: DataType) -> bool:
    """Return whether a type is or contains void.

    >>> has_void(ArrayType("void")), has_void("long")
    (True, False)
    """
    return "void" in nested_types(data_type)


def _stored_type(data_type: DataType) -> DataType:
    if isinstance(data_type, StructType):
        return without_void(data_type)
    return with_elements(data_type, _stored_type)


def nearest(name: str, known: Sequence[str]) -> str:
    """Return `Did you mean 'x'? ` for the most similar known name, or an empty string.

    >>> nearest("amuont", ["amount", "day"])
    "Did you mean 'amount'? "
    """
    by_folded = {k.casefold(): k for k in known}
    close = difflib.get_close_matches(name.casefold(), list(by_folded), n=1)
    return f"Did you mean {by_folded[close[0]]!r}? " if close else ""


def _type_to_json(data_type: DataType) -> Any:
    if isinstance(data_type, str):
        return data_type
    if isinstance(data_type, ArrayType):
        return {
            "type": "array",
            "elementType": _type_to_json(data_type.element_type),
            "containsNull": data_type.contains_null,
        }
    if isinstance(data_type, MapType):
        return {
            "type": "map",
            "keyType": _type_to_json(data_type.key_type),
            "valueType": _type_to_json(data_type.value_type),
            "valueContainsNull": data_type.value_contains_null,
        }
    members = [
        {
            "name": f.name,
            "type": _type_to_json(f.type),
            "nullable": f.nullable,
            "metadata": dict(f.metadata),
        }
        for f in data_type.fields
    ]
    return {"type": "struct", "fields": members}


def _type_from_json(data: Any, depth: int = 0) -> DataType:
    if isinstance(data, str):
        return data
    if depth > _DEEPEST:
        raise ValueError(f"types are nested more than {_DEEPEST} levels deep")
    kind = data["type"]
    if kind == "struct":
        return StructType(
            tuple(
                StructField(
                    _column_name(f["name"]),
                    _type_from_json(f["type"], depth + 1),
                    bool(f.get("nullable", True)),
                    f.get("metadata") or {},
                )
                for f in data["fields"]
            )
        )
    if kind == "array":
        element = _type_from_json(data["elementType"], depth + 1)
        return ArrayType(element, bool(data.get("containsNull", True)))
    if kind == "map":
        return MapType(
            _type_from_json(data["keyType"], depth + 1),
            _type_from_json(data["valueType"], depth + 1),
            bool(data.get("valueContainsNull", True)),
        )
    raise ValueError(f"unknown type {kind!r}")


def _column_name(name: Any) -> str:
    if not isinstance(name, str) or "\0" in name:
        raise ValueError(f"{name!r} is not a valid column name")
    return name


def _walk_leaves(
    struct: StructType, mode: str | None, path: tuple[str, ...], physical: tuple[str, ...]
) -> Iterator[LeafColumn]:
    for member in struct.fields:
        here, there = (*path, member.name), (*physical, member.physical_name(mode))
        if isinstance(member.type, StructType):
            yield from _walk_leaves(member.type, mode, here, there)
        else:
            yield LeafColumn(here, there, member.type, member.metadata)


def _folded(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.casefold() for name in path)


def _within(path: Sequence[str], ancestor: tuple[str, ...]) -> bool:
    return _folded(path[: len(ancestor)]) == ancestor


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
