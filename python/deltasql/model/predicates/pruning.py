"""Convert a resolved condition to a pruning tree, which is evaluated on the statistics of a file.

The tree decides whether the condition can be TRUE for a row of the file. NOT is pushed down to the
leaves by the rules of three-valued logic. A part for which statistics are no help becomes
`unknown`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.model.predicates.literals import (
    FALSE,
    TRUE,
    UNKNOWN,
    Node,
    Value,
    compare,
    has_byte_order,
    in_one_type,
    leaf,
    literal_value,
)
from deltasql.model.predicates.parser import column_path, references
from deltasql.model.schema.schema import LeafColumn, is_primitive, resolve_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltasql.model.schema.schema import StructType

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


class Compiler:
    """Converts resolved conditions on the columns of one table to pruning trees."""

    def __init__(
        self,
        schema: StructType,
        partition_columns: Sequence[str],
        column_mapping_mode: str | None = None,
    ) -> None:
        self._schema = schema
        self._partitions = frozenset(partition_columns)
        self._mode = column_mapping_mode

    def tree(self, node: exp.Expr, *, negated: bool = False) -> Node:
        """Return the pruning tree of a condition; with `negated`, of its negation."""
        if isinstance(node, exp.Paren):
            return self.tree(node.this, negated=negated)
        if isinstance(node, exp.Not):
            return self.tree(node.this, negated=not negated)
        if isinstance(node, exp.And | exp.Or):
            parts = [self.tree(part, negated=negated) for part in node.flatten()]
            return conjunction(parts) if isinstance(node, exp.And) != negated else _any(parts)
        if isinstance(node, exp.Boolean):
            return TRUE if bool(node.this) != negated else FALSE
        if isinstance(node, exp.Null):
            return FALSE
        if type(node) in _OPERATORS:
            op = _OPERATORS[type(node)]
            return self._comparison(node, _OPPOSITE[op] if negated else op)
        if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
            return self._null_safe(node, equal=isinstance(node, exp.NullSafeEQ) != negated)
        if isinstance(node, exp.In):
            return self._in(node, negated=negated)
        if isinstance(node, exp.Between):
            return self._between(node, negated=negated)
        if isinstance(node, exp.Is):
            # Depending on the dialect, IS NOT is parsed as NOT … IS or with the argument `negate`.
            return self._is(node, negated=negated != bool(node.args.get("negate")))
        if isinstance(node, exp.Like | exp.Escape | exp.StartsWith):
            return UNKNOWN if negated else self._like(node)
        if column_path(node):
            flag = self._column(node)
            return self._compare(flag, "=", Value("boolean", not negated))
        return UNKNOWN

    def columns(self, condition: exp.Expr) -> tuple[LeafColumn, ...]:
        """Return the columns that a condition uses."""
        used = map(self._column, references(condition))
        return tuple({column.path: column for column in used}.values())

    def is_partition(self, column: LeafColumn) -> bool:
        """Return whether the column is a partition column."""
        return len(column.path) == 1 and column.path[0] in self._partitions

    def _comparison(self, node: exp.Expr, op: str) -> Node:
        column, value = self._column_of(node.this), literal_value(node.expression)
        if column is not None and value is not None:
            return self._compare(column, op, value)
        column, value = self._column_of(node.expression), literal_value(node.this)
        if column is not None and value is not None:
            return self._compare(column, _MIRRORED[op], value)
        return UNKNOWN

    def _null_safe(self, node: exp.Expr, *, equal: bool) -> Node:
        for left, right in ((node.this, node.expression), (node.expression, node.this)):
            column, value = self._column_of(left), literal_value(right)
            if column is None or value is None:
                continue
            if value.kind == "null":
                return self._null_test(column, is_null=equal)
            if equal:
                return self._compare(column, "=", value)
            differs = self._compare(column, "<>", value)
            return _any([differs, self._null_test(column, is_null=True)])
        return UNKNOWN

    def _in(self, node: exp.In, *, negated: bool) -> Node:
        column = self._column_of(node.this)
        values = self._values(column, node.expressions)
        if column is None or not values:
            return UNKNOWN
        op = "<>" if negated else "="
        leaves = [self._compare(column, op, value) for value in values]
        if negated:
            return conjunction(leaves)
        possible = [part for part in leaves if part != FALSE]
        if len(possible) > 1 and all(part["op"] == "=" for part in possible):
            texts = [part["value"] for part in possible]
            return leaf(column, "in", partition=self.is_partition(column), values=texts)
        return _any(possible)

    def _between(self, node: exp.Between, *, negated: bool) -> Node:
        column = self._column_of(node.this)
        values = self._values(column, [node.args["low"], node.args["high"]])
        if column is None or not values or node.args.get("symmetric"):
            return UNKNOWN
        low, high = values
        if negated:
            return _any([self._compare(column, "<", low), self._compare(column, ">", high)])
        return conjunction([self._compare(column, ">=", low), self._compare(column, "<=", high)])

    def _is(self, node: exp.Is, *, negated: bool) -> Node:
        if isinstance(node.expression, exp.Null):
            column = self._column_of(node.this)
            return UNKNOWN if column is None else self._null_test(column, is_null=not negated)
        if not isinstance(node.expression, exp.Boolean):
            return UNKNOWN
        wanted = bool(node.expression.this)
        holds = self.tree(node.this, negated=wanted == negated)
        if not negated:
            return holds
        column = self._column_of(node.this)
        return UNKNOWN if column is None else _any([holds, self._null_test(column, is_null=True)])

    def _like(self, node: exp.Expr) -> Node:
        stops = "%_\\"
        like = node
        if isinstance(node, exp.Escape):
            escape, like = literal_value(node.expression), node.this
            stops += str(escape.value) if escape else ""
        if not isinstance(like, exp.Like | exp.StartsWith) or like.args.get("negate"):
            return UNKNOWN
        column, pattern = self._column_of(like.this), like.expression.unnest()
        if column is None or column.type != "string" or not has_byte_order(column):
            return UNKNOWN
        if not isinstance(pattern, exp.Literal | exp.RawString):
            return UNKNOWN
        if isinstance(pattern, exp.Literal) and not pattern.is_string:
            return UNKNOWN
        text = str(pattern.this)
        if isinstance(like, exp.StartsWith):
            prefix = text.partition("\\")[0]
        else:
            # A backslash is an escape character only in some engines, so end the prefix before it.
            prefix = re.split(f"[{re.escape(stops)}]", text, maxsplit=1)[0]
            if prefix == text:
                return self._compare(column, "=", Value("string", text))
        if not prefix:
            return self._null_test(column, is_null=False)
        return leaf(column, "starts_with", partition=self.is_partition(column), value=prefix)

    def _values(self, column: LeafColumn | None, nodes: Sequence[exp.Expr]) -> list[Value]:
        values = [literal_value(node) for node in nodes]
        known = [value for value in values if value is not None]
        if column is None or len(known) < len(values):
            return []
        return in_one_type(column.type, known) or []

    def _compare(self, column: LeafColumn, op: str, value: Value) -> Node:
        node = compare(column, op, value, partition=self.is_partition(column))
        if column.type == "boolean" and not self.is_partition(column) and "column" in node:
            # Use only the null count: some old writers wrote wrong bounds for booleans, and the
            # log does not say which writer wrote a file.
            return self._null_test(column, is_null=False)
        return node

    def _null_test(self, column: LeafColumn, *, is_null: bool) -> Node:
        known = isinstance(column.type, str) and is_primitive(column.type)
        if not known or column.type == "variant":
            return UNKNOWN
        op = "is_null" if is_null else "is_not_null"
        return leaf(column, op, partition=self.is_partition(column))

    def _column_of(self, node: exp.Expr) -> LeafColumn | None:
        plain = node.unnest()
        return self._column(plain) if column_path(plain) else None

    def _column(self, reference: exp.Expr) -> LeafColumn:
        found = resolve_column(self._schema, column_path(reference), self._mode)
        assert found is not None, "the condition is not resolved"
        return found


def conjunction(parts: Sequence[Node]) -> Node:
    """Combine conditions with AND.

    Drop `unknown`. Replace a lower and an upper bound of a float column by one `between`: a lower
    bound alone can skip no file, because NaN is above every number and the maximum in the
    statistics may not include NaN. With an upper bound, NaN does not match.
    """
    flat = list(_flattened(parts, "and"))
    if FALSE in flat:
        return FALSE
    useful = _joined_ranges([part for part in flat if part not in (TRUE, UNKNOWN)])
    if not useful:
        return UNKNOWN if UNKNOWN in flat else TRUE
    return useful[0] if len(useful) == 1 else {"op": "and", "args": useful}


def _any(parts: Sequence[Node]) -> Node:
    flat = list(_flattened(parts, "or"))
    for decided in (TRUE, UNKNOWN):
        if decided in flat:
            return decided
    possible = [part for part in flat if part != FALSE]
    if not possible:
        return FALSE
    return possible[0] if len(possible) == 1 else {"op": "or", "args": possible}


def _flattened(parts: Sequence[Node], op: str) -> Iterator[Node]:
    for part in parts:
        if part["op"] == op:
            yield from part["args"]
        else:
            yield part


def _joined_ranges(parts: list[Node]) -> list[Node]:
    bounds: dict[tuple[str, ...], dict[str, Node]] = {}
    for part in parts:
        if part.get("type") not in ("float", "double") or part.get("partition"):
            continue
        sides = bounds.setdefault(tuple(part["column"]), {})
        if part["op"] in (">", ">="):
            held = sides.setdefault("low", part)
            sides["low"] = max(held, part, key=lambda bound: float(bound["value"]))
        elif part["op"] in ("<", "<="):
            held = sides.setdefault("high", part)
            sides["high"] = min(held, part, key=lambda bound: float(bound["value"]))
    joined: list[Node] = []
    paired = {column for column, sides in bounds.items() if len(sides) == 2}
    for part in parts:
        column = tuple(part.get("column", ()))
        if column not in paired or part["op"] not in ("<", "<=", ">", ">="):
            joined.append(part)
            continue
        sides = bounds[column]
        if part is sides["low"]:
            low, high = sides["low"]["value"], sides["high"]["value"]
            joined.append(
                {
                    "op": "between",
                    **{k: part[k] for k in ("column", "type")},
                    "low": low,
                    "high": high,
                }
            )
    return joined
