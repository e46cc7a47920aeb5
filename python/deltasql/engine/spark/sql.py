"""Queries of operations in Spark's SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.engine.spark.casts import casts_by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from deltasql.model.schema.schema import DataType

# Spark's TIMESTAMP is what a session says it is; these two are not.
_MOMENTS = {
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

    `view_of` returns the view that has the rows of a relation, `type_of` the type of a relation's
    column. `small` relations are sent to every executor when they are joined to others.

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
        _name_casts(tree, relations, type_of)
    for window in list(tree.find_all(exp.Window)):
        if _numbers_in_no_order(window):
            # Spark would bring all rows to one place for it.
            window.replace(exp.Anonymous(this="monotonically_increasing_id"))
    _send_small(tree, small)
    for table in list(tree.find_all(exp.Table)):
        if table.name not in relations or table.db:
            continue
        if not table.alias:
            table.set("alias", exp.TableAlias(this=table.this.copy()))
        view = exp.to_table(view_of(table.name))
        table.set("this", view.this)
        table.set("db", view.args.get("db"))
    for kind in tree.find_all(exp.DataType):
        kind.set("this", _MOMENTS.get(kind.this, kind.this))
    return tree.sql(dialect="spark", identify=True)


def _name_casts(
    tree: exp.Query, relations: Collection[str], type_of: Callable[[str, str], DataType | None]
) -> None:
    names = {t.alias_or_name: t.name for t in tree.find_all(exp.Table) if t.name in relations}

    def source(column: exp.Column) -> DataType | None:
        wanted = [names[column.table]] if column.table in names else list(names.values())
        found = [kind for name in wanted if (kind := type_of(name, column.name)) is not None]
        return found[0] if len(found) == 1 else None

    casts_by_name(tree, source)


def _send_small(tree: exp.Query, small: Collection[str]) -> None:
    """Say what Spark cannot know: else it would sort a large side for the sake of a small one.

    What is made of small relations was never measured: a join of two may have any size.
    """
    for select in tree.find_all(exp.Select):
        sent = []
        for join in select.args.get("joins") or ():
            if isinstance(join.this, exp.Table) and join.this.name in small:
                sent.append(exp.column(join.this.alias_or_name))
        if sent:
            hint = exp.Anonymous(this="BROADCAST", expressions=sent)
            select.set("hint", exp.Hint(expressions=[hint]))


def _numbers_in_no_order(window: exp.Window) -> bool:
    parts = ("partition_by", "order", "spec")
    return isinstance(window.this, exp.RowNumber) and not any(window.args.get(p) for p in parts)
