"""Queries of operations in Spark's SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.engine.spark_casts import casts_by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from deltasql.model.schema import DataType

_PREFIX = "r_"
# Spark's TIMESTAMP is what a session says it is; these two are not.
_MOMENTS = {
    exp.DType.TIMESTAMPTZ: exp.DType.TIMESTAMPLTZ,
    exp.DType.TIMESTAMP: exp.DType.TIMESTAMPNTZ,
}


def spark_query(
    query: exp.Query,
    relations: Collection[str],
    type_of: Callable[[str, str], DataType | None] | None = None,
    small: Collection[str] = (),
) -> str:
    """Return the text of a query for `SparkSession.sql`, relations as its parameters.

    `type_of` tells the type of a relation's column. `small` relations are sent to every executor
    when they are joined to others.

    >>> from sqlglot import parse_one
    >>> spark_query(parse_one("SELECT a.x, '{' FROM a, b AS c"), ["a", "b"])
    "SELECT `a`.`x`, '{{' FROM {r_a} AS `a`, {r_b} AS `c`"
    >>> spark_query(parse_one("SELECT a.x FROM a JOIN b ON a.x = b.x"), ["a", "b"], small=["b"])
    'SELECT /*+ BROADCAST(`b`) */ `a`.`x` FROM {r_a} AS `a` JOIN {r_b} AS `b` ON `a`.`x` = `b`.`x`'
    """
    tree = query.copy()
    if type_of is not None:
        _name_casts(tree, relations, type_of)
    for window in list(tree.find_all(exp.Window)):
        if _numbers_in_no_order(window):
            # Spark would bring all rows to one place for it.
            window.replace(exp.Anonymous(this="monotonically_increasing_id"))
    _send_small(tree, small)
    stands: dict[str, str] = {}
    for table in list(tree.find_all(exp.Table)):
        if table.name not in relations or table.db:
            continue
        mark = f"__deltasql_{len(stands)}__"
        stands[f"`{mark}`"] = parameter(table.name)
        if not table.alias:
            table.set("alias", exp.TableAlias(this=table.this.copy()))
        table.set("this", exp.to_identifier(mark, quoted=True))
    for kind in tree.find_all(exp.DataType):
        kind.set("this", _MOMENTS.get(kind.this, kind.this))
    text = tree.sql(dialect="spark", identify=True).replace("{", "{{").replace("}", "}}")
    for mark, name in stands.items():
        text = text.replace(mark, f"{{{name}}}")
    return text


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


def parameter(relation: str) -> str:
    """Return the name under which a relation is handed to `SparkSession.sql`."""
    return f"{_PREFIX}{relation}"
