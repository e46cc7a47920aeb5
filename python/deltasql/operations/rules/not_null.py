"""NOT NULL: find the columns and fields that must not be null, and the rows with nulls in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from deltasql.model.schema.schema import ArrayType, DataType, MapType, StructType

if TYPE_CHECKING:
    from collections.abc import Iterator

ELEMENTS, VALUES = "[]", "{}"
"""Steps of a path for the elements of an array and the values of a map."""


@dataclass(frozen=True, slots=True)
class NotNull:
    """A column or nested field that must not be null, unless its parent is null."""

    path: tuple[str, ...]

    @property
    def name(self) -> str:
        return ".".join(self.path)


def not_null_paths(schema: StructType) -> Iterator[NotNull]:
    """Yield every column and nested field of a schema that must not be null.

    >>> from deltasql.model.schema.schema import StructField
    >>> list(not_null_paths(StructType((StructField("id", "long", nullable=False),))))
    [NotNull(path=('id',))]
    """
    for path in _paths(schema, ()):
        yield NotNull(path)


def null_rows(batch: pa.RecordBatch, rule: NotNull) -> pa.Array | None:
    """Return a mask of the rows that break a rule, or None if no row does."""
    first, *rest = rule.path
    column = batch.column(first)
    found = _broken(column, rest)
    if found is None:
        return None
    return pc.is_in(pa.array(range(batch.num_rows), pa.int64()), found)


def null_condition(rule: NotNull) -> exp.Expr:
    """Return the SQL condition for rows that break a rule."""
    first, *rest = rule.path
    return _null_in(exp.column(exp.to_identifier(first, quoted=True)), rest)


def _paths(data_type: DataType, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(data_type, StructType):
        for field in data_type.fields:
            here = (*path, field.name)
            if not field.nullable:
                yield here
            yield from _paths(field.type, here)
    elif isinstance(data_type, ArrayType):
        if not data_type.contains_null:
            yield (*path, ELEMENTS)
        yield from _paths(data_type.element_type, (*path, ELEMENTS))
    elif isinstance(data_type, MapType):
        if not data_type.value_contains_null:
            yield (*path, VALUES)
        yield from _paths(data_type.value_type, (*path, VALUES))


def _broken(column: pa.Array, path: list[str]) -> pa.Array | None:
    """Return the positions of rows with a null at the end of the path; None if there are none."""
    if not path:
        return pc.indices_nonzero(column.is_null()).cast(pa.int64()) if column.null_count else None
    step, *rest = path
    if step in (ELEMENTS, VALUES):
        if pa.types.is_map(column.type):
            offsets = pa.ListArray.from_arrays(column.offsets, column.items)
            lists = pc.if_else(column.is_valid(), offsets, pa.scalar(None, offsets.type))
        else:
            lists = column
        inner = _broken(pc.list_flatten(lists), rest)
        return None if inner is None else pc.list_parent_indices(lists).take(inner)
    valid = column if not column.null_count else column.drop_null()
    inner = _broken(pc.struct_field(valid, step), rest)
    if inner is None or valid is column:
        return inner
    return pc.indices_nonzero(column.is_valid()).cast(pa.int64()).take(inner)


def _null_in(value: exp.Expr, path: list[str]) -> exp.Expr:
    if not path:
        return exp.Is(this=value, expression=exp.null())
    step, *rest = path
    if step in (ELEMENTS, VALUES):
        items = exp.func("map_values", value) if step == VALUES else value
        name = exp.to_identifier(f"item{len(rest)}")
        test = exp.Lambda(this=_null_in(exp.column(name), rest), expressions=[name])
        found = exp.ArraySize(this=exp.ArrayFilter(this=items, expression=test))
        count = exp.Coalesce(this=found, expressions=[exp.Literal.number(0)])
        return exp.GT(this=count, expression=exp.Literal.number(0))
    member = exp.Dot(this=value.copy(), expression=exp.to_identifier(step, quoted=True))
    inside = exp.Not(this=exp.Is(this=value, expression=exp.null()))
    return exp.Paren(this=exp.and_(inside, _null_in(member, rest)))
