"""Generate Spark SQL from the queries of operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.engine.spark.casts import casts_by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from deltasql.model.schema.schema import DataType

# The meaning of TIMESTAMP is a setting of the session; these two types are fixed.
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
    """Return the text of a query for `SparkSession.sql`.

    `view_of` returns the name of a relation's view, `type_of` the type of a relation's column.
    `small` relations are broadcast when they are joined to others.

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
            # Spark would send all rows to one task for this window.
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
    for kind in tree.find_all(exp.DataType):
        kind.set("this", _TIMESTAMPS.get(kind.this, kind.this))
    return tree.sql(dialect="spark", identify=True)


def _cast_by_name(
    tree: exp.Query, relations: Collection[str], type_of: Callable[[str, str], DataType | None]
) -> None:
    names = {t.alias_or_name: t.name for t in tree.find_all(exp.Table) if t.name in relations}

    def source(column: exp.Column) -> DataType | None:
        wanted = [names[column.table]] if column.table in names else list(names.values())
        found = [kind for name in wanted if (kind := type_of(name, column.name)) is not None]
        return found[0] if len(found) == 1 else None

    casts_by_name(tree, source)


def _broadcast_small(tree: exp.Query, small: Collection[str]) -> None:
    """Add a broadcast hint for small relations, without which Spark would sort the large side.

    A subquery over small relations gets no hint: a join of two may have any size.
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
