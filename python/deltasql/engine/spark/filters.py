"""Translate the filters that Spark pushes down to a scan into SQL for data skipping.

Spark's own SQL for a filter is ambiguous, because it has timestamps in the session's time zone. The
expression tree is therefore read node by node through py4j. A filter that cannot be translated
skips no file.
"""

from __future__ import annotations

import json
import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from deltasql.model.schema.schema import StructType

if TYPE_CHECKING:
    from collections.abc import Iterable

_COMPARISONS = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MOST_VALUES = 1_000
# In a plan, `_metadata.file_name` is a column called `file_name`. These keys in the metadata of
# its field distinguish it from a column of the table with that name.
_METADATA_COLUMN_KEYS = frozenset(
    {
        "__metadata_col",
        "__file_source_metadata_col",
        "__file_source_constant_metadata_col",
        "__file_source_generated_metadata_col",
    }
)
_NUMBERS = ("byte", "short", "integer", "long", "float", "double")


def pruning_sql(filters: Iterable[Any], schema: StructType, mode: str | None) -> str | None:
    """Return a SQL condition that is true for every row that passes the filters.

    Return None if no filter can be translated. `schema` has the columns of the files. The filters
    use their physical names.
    """
    translator = _Translator(schema, mode)
    parts = [part for each in filters if (part := translator.condition(each)) is not None]
    return " AND ".join(f"({part})" for part in parts) if parts else None


class _Translator:
    def __init__(self, schema: StructType, mode: str | None) -> None:
        self._schema, self._mode = schema, mode

    def condition(self, node: Any) -> str | None:
        """Return a condition that is true for every row for which the node is true."""
        kind = _kind(node)
        if kind == "And":
            sides = [self.condition(node.left()), self.condition(node.right())]
            known = [side for side in sides if side is not None]
            return " AND ".join(f"({side})" for side in known) if known else None
        if kind == "Or":
            left, right = self.condition(node.left()), self.condition(node.right())
            return None if left is None or right is None else f"({left}) OR ({right})"
        if kind in _COMPARISONS:
            return self._comparison(_COMPARISONS[kind], node.left(), node.right())
        if kind in ("IsNull", "IsNotNull"):
            column = self._column(node.child())
            return None if column is None else f"{column} IS {'NOT ' * (kind != 'IsNull')}NULL"
        if kind == "In":
            return self._in(node.value(), [_literal(each) for each in _items(node.list())])
        if kind == "InSet":
            type_name = node.child().dataType().typeName()
            values = _items(node.hset().toSeq())
            return self._in(node.child(), [_text(value, type_name) for value in values])
        return None

    def _comparison(self, sign: str, left: Any, right: Any) -> str | None:
        column, value = self._column(left), _literal(right)
        if column is None:
            column, value, sign = self._column(right), _literal(left), _MIRRORED[sign]
        return None if column is None or value is None else f"{column} {sign} {value}"

    def _in(self, column: Any, values: list[str | None]) -> str | None:
        name = self._column(column)
        known = [value for value in values if value is not None]
        if name is None or len(known) < len(values) or not 0 < len(known) <= _MOST_VALUES:
            return None
        return f"{name} IN ({', '.join(known)})"

    def _column(self, node: Any) -> str | None:
        path = _physical_path(node)
        here: Any = self._schema
        names = []
        for part in path or ():
            if not isinstance(here, StructType):
                return None
            found = [f for f in here.fields if f.physical_name(self._mode) == part]
            if len(found) != 1:
                return None
            names.append("`" + found[0].name.replace("`", "``") + "`")
            here = found[0].type
        return ".".join(names) or None


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _items(sequence: Any) -> list[Any]:
    if sequence.size() > _MOST_VALUES:
        return [None]
    return [sequence.apply(number) for number in range(sequence.size())]


def _physical_path(node: Any) -> list[str] | None:
    kind = _kind(node)
    if kind == "AttributeReference":
        metadata = json.loads(node.metadata().json())
        return None if _METADATA_COLUMN_KEYS.intersection(metadata) else [str(node.name())]
    if kind == "GetStructField":
        outer = _physical_path(node.child())
        return None if outer is None else [*outer, str(node.extractFieldName())]
    return None


def _literal(node: Any) -> str | None:
    if node is None or _kind(node) != "Literal":
        return None
    return _text(node.value(), node.dataType().typeName())


def _text(value: Any, type_name: str) -> str | None:
    """Return a value in Spark's internal form as SQL; None if it has no unambiguous literal."""
    if value is None:
        return None
    if type_name in _NUMBERS:
        return repr(value) if math.isfinite(value) else None
    if type_name.startswith("decimal"):
        return f"{_decimal(str(value.toString()))}"
    if type_name == "boolean":
        return "true" if value else "false"
    if type_name == "string":
        text = str(value.toString())
        return None if "\\" in text else "'" + text.replace("'", "''") + "'"
    try:
        if type_name == "date":
            return f"DATE '{date(1970, 1, 1) + timedelta(days=value)}'"
        if type_name in ("timestamp", "timestamp_ntz"):
            timestamp = datetime(1970, 1, 1) + timedelta(microseconds=value)
            return f"'{timestamp.isoformat()}{'Z' if type_name == 'timestamp' else ''}'"
    except OverflowError:
        return None
    return None


def _decimal(text: str) -> str:
    return format(Decimal(text), "f")
