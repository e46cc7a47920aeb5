"""Generate Spark SQL from the queries of operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.model.schema.schema import ArrayType, MapType, StructType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from deltasql.model.schema.schema import DataType

_STRUCT, _ARRAY, _MAP = exp.DType.STRUCT, exp.DType.ARRAY, exp.DType.MAP
# A setting of the session decides what TIMESTAMP means; these two types are unambiguous.
_TIMESTAMPS = {
    exp.DType.TIMESTAMPTZ: exp.DType.TIMESTAMPLTZ,
    exp.DType.TIMESTAMP: exp.DType.TIMESTAMPNTZ,
}


def spark_query(
    query: exp.Query,
    view_of: Callable[[str], str],
    relations: Collection[str],
    type_of: Callable[[str, str], DataType | None] | None = None,
    small: Collection[str] = (),
) -> str:
    """Return a query as a string for `SparkSession.sql`.

    `view_of` returns the name of a relation's view, `type_of` the type of a relation's column. The
    relations in `small` are broadcast in joins.

    >>> from sqlglot import parse_one
    >>> query, views = parse_one("SELECT a.x FROM a, b AS c"), {"a": "v", "b": "g.w"}
    >>> spark_query(query, views.get, views)
    'SELECT `a`.`x` FROM `v` AS `a`, `g`.`w` AS `c`'
    >>> query = parse_one("SELECT a.x FROM a JOIN b ON a.x = b.x")
    >>> spark_query(query, views.get, views, small=["b"])
    'SELECT /*+ BROADCAST(`b`) */ `a`.`x` FROM `v` AS `a` JOIN `g`.`w` AS `b` ON `a`.`x` = `b`.`x`'
    """
    tree = query.copy()
    if type_of is not None:
        _cast_by_name(tree, relations, type_of)
    for window in list(tree.find_all(exp.Window)):
        if _is_unordered_row_number(window):
            # Replace ROW_NUMBER() OVER (), for which Spark would send all rows to one task.
            window.replace(exp.Anonymous(this="monotonically_increasing_id"))
    _broadcast_small(tree, small)
    for table in list(tree.find_all(exp.Table)):
        if table.name not in relations or table.db:
            continue
        if not table.alias:
            table.set("alias", exp.TableAlias(this=table.this.copy()))
        view = exp.to_table(view_of(table.name))
        table.set("this", view.this)
        table.set("db", view.args.get("db"))
    return spark_text(tree)


def spark_text(tree: exp.Expr) -> str:
    """Return a query or an expression as Spark SQL. The types in the tree are changed in place."""
    for kind in tree.find_all(exp.DataType):
        kind.set("this", _TIMESTAMPS.get(kind.this, kind.this))
    return tree.sql(dialect="spark", identify=True)


def _cast_by_name(
    tree: exp.Query, relations: Collection[str], type_of: Callable[[str, str], DataType | None]
) -> None:
    """Replace casts of structs with missing fields, or with fields in a different order.

    Spark's own cast matches the fields of a struct by position.
    """
    names = {t.alias_or_name: t.name for t in tree.find_all(exp.Table) if t.name in relations}
    for cast in list(tree.find_all(exp.Cast)):
        column = cast.this
        if not isinstance(column, exp.Column) or not cast.to.find(exp.ColumnDef):
            continue
        owners = [names[column.table]] if column.table in names else list(names.values())
        found = [kind for name in owners if (kind := type_of(name, column.name)) is not None]
        if len(found) == 1 and not _same_positions(found[0], cast.to):
            cast.replace(_by_name(column.copy(), found[0], cast.to, 0))


def _broadcast_small(tree: exp.Query, small: Collection[str]) -> None:
    """Add broadcast hints for small relations; without a hint, Spark would sort the large side.

    A subquery over small relations gets no hint, because a join of two relations can be large.
    """
    for select in tree.find_all(exp.Select):
        broadcast = []
        for join in select.args.get("joins") or ():
            if isinstance(join.this, exp.Table) and join.this.name in small:
                broadcast.append(exp.column(join.this.alias_or_name))
        if broadcast:
            hint = exp.Anonymous(this="BROADCAST", expressions=broadcast)
            select.set("hint", exp.Hint(expressions=[hint]))


def _is_unordered_row_number(window: exp.Window) -> bool:
    parts = ("partition_by", "order", "spec")
    return isinstance(window.this, exp.RowNumber) and not any(window.args.get(p) for p in parts)


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
