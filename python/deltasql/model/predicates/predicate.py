"""Predicates on the rows of one table: SQL or filter lists, for data skipping and for engines.

`parse_predicate` parses a predicate once (`parser`). The pruning tree (`pruning`) is derived from
the resolved tree, which engines evaluate. If the caller does not give the SQL flavour, a backslash
is a normal character, as in DataFusion, unless the predicate can only be parsed with Spark's
escapes. Data skipping then ignores literals whose meaning depends on the flavour.

A timestamp without a time zone is in UTC.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql import _core
from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.predicates.filters import filters_to_condition
from deltasql.model.predicates.literals import DOUBTFUL
from deltasql.model.predicates.parser import (
    Flavour,
    PredicateDialect,
    Scope,
    nested_too_deeply,
    parse_expression,
    resolve,
)
from deltasql.model.predicates.pruning import Compiler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.model.predicates.literals import Node
    from deltasql.model.schema.schema import LeafColumn, StructType

LOWEST = b""
HIGHEST = b"\xff"
_RANDOM = (exp.Rand, exp.Randn, exp.Uuid)
_EXAMPLE = "Write a SQL condition such as: day >= '2024-05-01' AND amount > 10."


@dataclass(frozen=True, slots=True)
class Bound:
    """A range of a column's values that every matching file overlaps.

    For such a file, maximum >= low and minimum <= high. The values are encoded as keys that sort in
    the same order. `b""` is below and `b"\\xff"` is above every key.
    """

    path: tuple[str, ...]
    type: str
    low: bytes = LOWEST
    high: bytes = HIGHEST


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on the rows of one table."""

    sql: str
    tree: Node = field(repr=False)
    columns: tuple[LeafColumn, ...]
    partition_only: bool
    expression: exp.Expr = field(repr=False, compare=False)
    """The condition with resolved, unqualified columns (`parser.resolve`)."""
    flavour: Flavour = "datafusion"

    def to_pruning_json(self) -> str:
        """Return the pruning tree in the format of `_core.Predicate`."""
        return json.dumps(self.tree, separators=(",", ":"), ensure_ascii=False)

    def bounds(self) -> list[Bound]:
        """Return a range for each data column that the AND-ed conditions restrict."""
        parts = self.tree["args"] if self.tree["op"] == "and" else [self.tree]
        found: dict[tuple[str, ...], Bound] = {}
        for part in parts:
            if "column" not in part or part.get("partition"):
                continue
            path = tuple(part["column"])
            low, high = _key_range(part)
            if (low, high) != (LOWEST, HIGHEST):
                held = found.get(path, Bound(path, part["type"]))
                found[path] = Bound(path, held.type, max(held.low, low), min(held.high, high))
        return list(found.values())


def parse_predicate(
    predicate: object,
    schema: StructType,
    partition_columns: Sequence[str] = (),
    column_mapping_mode: str | None = None,
    *,
    flavour: Flavour | None = None,
) -> Predicate:
    """Parse a predicate on a table, given as SQL or as filters.

    >>> from deltasql.model.schema.schema import StructField, StructType
    >>> table = StructType((StructField("day", "date"), StructField("n", "integer")))
    >>> parse_predicate("day >= '2024-05-01' AND n < 2.5", table, ["day"]).to_pruning_json()
    '{"op":"and","args":[{"op":">=","column":["day"],"type":"date","partition":true,\
"value":"2024-05-01"},{"op":"<=","column":["n"],"type":"integer","value":"2"}]}'
    """
    try:
        if isinstance(predicate, str):
            condition = resolve(_parse(predicate, flavour), Scope.of(schema), predicate)
            text = predicate
        else:
            condition = resolve(_tree(predicate, schema, partition_columns), Scope.of(schema))
            text = condition.sql(dialect=PredicateDialect)
        compiler = Compiler(schema, partition_columns, column_mapping_mode)
        columns = compiler.columns(condition)
        only_partitions = all(map(compiler.is_partition, columns))
        return Predicate(
            sql=text,
            tree=compiler.tree(condition),
            columns=columns,
            partition_only=only_partitions and condition.find(exp.Query, *_RANDOM) is None,
            expression=condition,
            flavour=flavour or "datafusion",
        )
    except RecursionError:
        raise nested_too_deeply() from None


def _tree(predicate: object, schema: StructType, partition_columns: Sequence[str]) -> exp.Expr:
    if isinstance(predicate, exp.Expr):
        return predicate.copy()
    if isinstance(predicate, list | tuple):
        return filters_to_condition(predicate, schema, partition_columns)
    raise TxnLogSchemaError(
        f"a predicate cannot be a {type(predicate).__name__}",
        help="Give a SQL string, or filters such as [('day', '=', '2024-05-01')].",
    )


def _parse(text: str, flavour: Flavour | None) -> exp.Expr:
    if flavour is None and "\\" in text:
        parsed = _parse_either(text)
    else:
        parsed = parse_expression(text, escapes=flavour == "spark", help=_EXAMPLE)
    if not isinstance(parsed, exp.Condition):
        raise TxnLogSchemaError(
            f"the predicate {text!r} is not one condition",
            help="Give a single SQL condition, without statements or semicolons.",
        )
    return parsed


def _parse_either(text: str) -> exp.Expr:
    """Parse SQL with backslashes as normal characters; if that fails, as escape characters."""
    try:
        parsed = parse_expression(text, help=_EXAMPLE)
    except TxnLogSchemaError:
        with suppress(TxnLogSchemaError):
            return parse_expression(text, escapes=True)
        raise
    for literal in parsed.find_all(exp.Literal):
        literal.meta[DOUBTFUL] = literal.is_string and "\\" in literal.this
    return parsed


def _key_range(part: Node) -> tuple[bytes, bytes]:
    data_type, op = part["type"], part["op"]
    if op == "between":
        return _keys(data_type, part["low"])[0], _keys(data_type, part["high"])[1]
    if op == "in":
        pairs = [_keys(data_type, text) for text in part["values"]]
        return min(low for low, _ in pairs), max(high for _, high in pairs)
    if "value" not in part or op == "<>":
        return LOWEST, HIGHEST
    low, high = _keys(data_type, part["value"])
    if op == "starts_with":
        # UTF-8 has no byte 0xff, so this is above every string with the prefix.
        return low, high + b"\xff"
    if op in ("<", "<="):
        return LOWEST, high
    if op == "=":
        return low, high
    # NaN is above every number, and the maximum in the statistics may not include NaN.
    return (LOWEST if data_type in ("float", "double") else low), HIGHEST


def _keys(data_type: str, text: str) -> tuple[bytes, bytes]:
    return _core.key_bounds(data_type, text) or (LOWEST, HIGHEST)
