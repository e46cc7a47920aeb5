"""Default values of columns: Spark's SQL in the field metadata, without references to columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.exceptions import TxnLogError, TxnLogSchemaError
from deltasql.model.schema.schema import CURRENT_DEFAULT, StructType
from deltasql.operations.sql.expressions import scalar
from deltasql.operations.sql.types import cast_to

if TYPE_CHECKING:
    from deltasql.model.predicates.parser import Scope
    from deltasql.model.schema.schema import LeafColumn, StructField

_VARYING = (exp.Rand, exp.Uuid, exp.AggFunc, exp.Window)
_KEYWORD = "DEFAULT"


def default_value(column: StructField | LeafColumn) -> exp.Expr | None:
    """Return the default of a column as an expression of its type; None if it has no default.

    >>> from deltasql.model.schema.schema import StructField
    >>> field = StructField("n", "long", metadata={"CURRENT_DEFAULT": "1 + 2"})
    >>> default_value(field).sql(dialect="spark")
    'CAST(1 + 2 AS BIGINT)'
    """
    text = column.metadata.get(CURRENT_DEFAULT)
    return None if text is None else cast_to(_parsed(str(text)), column.type)


def check_default(name: str, text: str) -> None:
    """Raise if a text cannot be the default of a column.

    >>> try:
    ...     check_default("n", "m + 1")
    ... except TxnLogSchemaError as error:
    ...     print(error.message)
    the default of column 'n' is not a constant: m + 1
    """
    try:
        varies = _parsed(text).find(*_VARYING) is not None
    except TxnLogError as error:
        if getattr(error, "column", None) is None:  # the problem is not a column
            raise
        varies = True
    if varies:
        raise TxnLogSchemaError(
            f"the default of column {name!r} is not a constant: {text}",
            column=name,
            help="Write a literal, or an expression without columns such as current_timestamp().",
        )


def check_defaults(schema: StructType) -> None:
    """Check the defaults of all columns of a new table."""
    for field in schema.fields:
        if CURRENT_DEFAULT in field.metadata:
            check_default(field.name, str(field.metadata[CURRENT_DEFAULT]))


def is_default_keyword(text: str, columns: Scope) -> bool:
    """Return whether an assigned value is the keyword DEFAULT, not a column with this name."""
    return text.strip().upper() == _KEYWORD and columns.find([text.strip()]) is None


def _parsed(text: str) -> exp.Expr:
    return scalar(text, StructType(), flavour="spark")
