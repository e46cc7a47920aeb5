"""OPTIMIZE ZORDER BY: write rows with similar values of several columns to the same files.

The values of each column are ranked within a partition, nulls first. The bits of the ranks are
interleaved, and rows are sorted by the resulting number. Every type that has an order is supported.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deltasql.exceptions import TxnLogSchemaError
from deltasql.exceptions.prefixes import TABLE_ERROR
from deltasql.model.predicates.parser import Scope, field_of
from deltasql.model.schema.schema import nearest
from deltasql.operations.optimize.compaction import plan_rewrite
from deltasql.operations.row_ids import scan_to_rewrite
from deltasql.operations.sql.queries import column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from deltasql.engine.base import WriteOptions
    from deltasql.model.actions import AddFile
    from deltasql.operations.optimize.compaction import Compaction
    from deltasql.operations.table_stage import TableStage

# Maximum bits of all columns together. They must fit in a signed 64-bit integer.
_MAX_TOTAL_BITS = 60
_MAX_BITS_PER_COLUMN = 16
_ORDER = "__deltasql_z"


def plan_z_order(
    stage: TableStage,
    columns: Sequence[str],
    *,
    partition_filters: Sequence[Any] | None = None,
    target_size: int | None = None,
) -> tuple[Compaction, Callable[[TableStage, pa.Table, WriteOptions], list[AddFile]]]:
    """Plan to sort every partition along a Z-curve, and return the function to rewrite a bin."""
    paths = _checked(stage, columns)
    plan = plan_rewrite(
        stage, "zOrder", partition_filters=partition_filters, target_size=target_size
    )
    return plan, partial(rewrite_sorted, paths)


def z_value(ranks: Sequence[exp.Expr], bits: int) -> exp.Expr:
    """Interleave the bits of integers, in arithmetic that every engine supports.

    >>> z_value([exp.column("a"), exp.column("b")], 1).sql(dialect="duckdb")
    '(a // 1 % 2) * 2 + (b // 1 % 2) * 1'
    """
    terms: list[exp.Expr] = []
    for bit in reversed(range(bits)):
        for index, rank in enumerate(ranks):
            weight = 2 ** (bit * len(ranks) + len(ranks) - 1 - index)
            taken = exp.Mod(
                this=exp.IntDiv(this=rank.copy(), expression=exp.Literal.number(2**bit)),
                expression=exp.Literal.number(2),
            )
            terms.append(exp.Mul(this=exp.paren(taken), expression=exp.Literal.number(weight)))
    total = terms[0]
    for term in terms[1:]:
        total = exp.Add(this=total, expression=term)
    return total


def rewrite_sorted(
    paths: Sequence[tuple[str, ...]], stage: TableStage, files: pa.Table, options: WriteOptions
) -> list[AddFile]:
    """Rewrite the rows of files, sorted along the Z-curve of columns."""
    engine, names = stage.engine, stage.stored_schema.names
    rows = scan_to_rewrite(stage, files)
    bits = min(_MAX_BITS_PER_COLUMN, _MAX_TOTAL_BITS // len(paths))
    keys = {f"{_ORDER}{n}": field_of(path) for n, path in enumerate(paths)}
    ranked = engine.ranked(rows, keys, bits)
    order = z_value([column(name) for name in keys], bits)
    sorted_rows = (
        exp.select(*(column(name) for name in names))
        .from_("ranked")
        .order_by(order, *(field_of(path) for path in paths))
    )
    relation = engine.query(sorted_rows, ranked=ranked)
    return engine.write(relation, stage.plan(options, data_change=False, rewrites=True))


def _checked(stage: TableStage, columns: Sequence[str]) -> list[tuple[str, ...]]:
    if not columns:
        raise TxnLogSchemaError(
            "Z-order requires at least one column",
            prefix=TABLE_ERROR,
            help="Name the columns to sort by.",
        )
    if stage.clustered_by():
        raise TxnLogSchemaError(
            "a clustered table cannot be Z-ordered",
            help="Call compact() (deltasql optimize): it clusters files that are not clustered.",
        )
    partitions = set(stage.partition_columns)
    found = [name for name in columns if name in partitions]
    if found:
        shown = ", ".join(f'"{name}"' for name in found)
        raise TxnLogSchemaError(
            f"Z-order columns cannot be partition columns. Found: [{shown}]",
            prefix=TABLE_ERROR,
            help="Remove them from the list: all rows of a partition have the same value.",
        )
    scope = Scope.of(stage.schema)
    paths = []
    for name in columns:
        known = scope.find([name]) or scope.find(name.split("."))
        if known is None:
            raise TxnLogSchemaError(
                f'Z-order column "{name}": field "{name}" not found in schema',
                column=name,
                prefix=TABLE_ERROR,
                help=f"{nearest(name, stage.schema.names)}The table has: "
                f"{', '.join(stage.schema.names)}.",
            )
        paths.append(known[1].path)
    return paths
