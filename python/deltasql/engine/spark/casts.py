"""Cast structs by the names of their fields: Spark's own cast goes by position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.model.schema.schema import ArrayType, DataType, MapType, StructType

if TYPE_CHECKING:
    from collections.abc import Callable

_STRUCT, _ARRAY, _MAP = exp.DType.STRUCT, exp.DType.ARRAY, exp.DType.MAP


def casts_by_name(query: exp.Expr, type_of: Callable[[exp.Column], DataType | None]) -> None:
    """Replace casts of columns whose structs lack fields or have them in another order."""
    for cast in list(query.find_all(exp.Cast)):
        column = cast.this
        if not isinstance(column, exp.Column) or not cast.to.find(exp.ColumnDef):
            continue
        given = type_of(column)
        if given is not None and not _same_positions(given, cast.to):
            cast.replace(_by_name(column.copy(), given, cast.to, 0))


def _same_positions(given: DataType, wanted: exp.DataType) -> bool:
    if isinstance(given, StructType) and wanted.this == _STRUCT:
        fields = wanted.expressions
        return len(fields) == len(given.fields) and all(
            member.name.casefold() == field.name.casefold()
            and _same_positions(member.type, field.args["kind"])
            for member, field in zip(given.fields, fields, strict=True)
        )
    if isinstance(given, ArrayType) and wanted.this == _ARRAY:
        return _same_positions(given.element_type, wanted.expressions[0])
    if isinstance(given, MapType) and wanted.this == _MAP:
        key, value = wanted.expressions
        return _same_positions(given.key_type, key) and _same_positions(given.value_type, value)
    return True


def _by_name(value: exp.Expr, given: DataType, wanted: exp.DataType, depth: int) -> exp.Expr:
    if isinstance(given, StructType) and wanted.this == _STRUCT:
        parts: list[exp.Expr] = []
        for field in wanted.expressions:
            kind = field.args["kind"]
            member = given.find(field.name)
            parts.append(exp.Literal.string(field.name))
            if member is None:
                parts.append(exp.Cast(this=exp.null(), to=kind.copy()))
                continue
            name = exp.to_identifier(member.name, quoted=True)
            inner = exp.Dot(this=value.copy(), expression=name)
            parts.append(_by_name(inner, member.type, kind, depth))
        whole = exp.Anonymous(this="named_struct", expressions=parts)
        is_null = exp.Is(this=value.copy(), expression=exp.null())
        return exp.Case(ifs=[exp.If(this=is_null, true=exp.null())], default=whole)
    if isinstance(given, ArrayType) and wanted.this == _ARRAY:
        kind = wanted.expressions[0]
        return _each(value, depth, lambda item: _by_name(item, given.element_type, kind, depth + 1))
    if isinstance(given, MapType) and wanted.this == _MAP:
        key_kind, value_kind = wanted.expressions

        def entry(item: exp.Expr) -> exp.Expr:
            key = exp.Dot(this=item.copy(), expression=exp.to_identifier("key"))
            inner = exp.Dot(this=item.copy(), expression=exp.to_identifier("value"))
            parts = [
                _by_name(key, given.key_type, key_kind, depth + 1),
                _by_name(inner, given.value_type, value_kind, depth + 1),
            ]
            return exp.Anonymous(this="struct", expressions=parts)

        entries = exp.Anonymous(this="map_entries", expressions=[value])
        changed = _each(entries, depth, entry)
        return exp.Anonymous(this="map_from_entries", expressions=[changed])
    return exp.Cast(this=value, to=wanted.copy())


def _each(items: exp.Expr, depth: int, change: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    name = exp.to_identifier(f"x{depth}", quoted=True)
    inner = exp.Lambda(this=change(exp.column(name.copy())), expressions=[name])
    return exp.Anonymous(this="transform", expressions=[items, inner])
