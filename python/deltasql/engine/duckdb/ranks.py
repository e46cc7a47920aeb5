"""Ranks by a window over all rows, for an engine that has them all in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def rank_query(columns: Sequence[str], keys: Mapping[str, exp.Expr], bits: int) -> exp.Select:
    """Return the query that adds to the rows of `rows` the rank of each key.

    >>> rank_query([], {"r": exp.column("a")}, 4).sql(dialect="duckdb")[7:]
    'CAST(FLOOR(PERCENT_RANK() OVER (ORDER BY a NULLS FIRST) * 15) AS BIGINT) AS "r" FROM rows'
    """
    ranks = [exp.alias_(_rank(key, bits), name, quoted=True) for name, key in keys.items()]
    named = [exp.column(exp.to_identifier(name, quoted=True)) for name in columns]
    return exp.select(*named, *ranks).from_("rows")


def _rank(key: exp.Expr, bits: int) -> exp.Expr:
    window = exp.Window(
        this=exp.PercentRank(),
        order=exp.Order(expressions=[exp.Ordered(this=key.copy(), nulls_first=True)]),
    )
    scaled = exp.Mul(this=window, expression=exp.Literal.number(2**bits - 1))
    return exp.cast(exp.Floor(this=scaled), "BIGINT")
