"""Assignments of UPDATE and MERGE: resolve them and compute the new value of every column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deltasql.exceptions import TxnLogEngineError, TxnLogSchemaError
from deltasql.model.features.row_tracking import changes_with_row
from deltasql.model.predicates.filters import timestamp_text
from deltasql.model.schema.schema import (
    NANOSECOND_TYPES,
    ArrayType,
    DataType,
    LeafColumn,
    StructField,
    StructType,
    nearest,
    type_name,
)
from deltasql.operations.rules.schema_merge import GENERATED
from deltasql.operations.sql.defaults import default_value, is_default_keyword
from deltasql.operations.sql.expressions import assigned_column, scalar
from deltasql.operations.sql.queries import identifier
from deltasql.operations.sql.timestamps import MICROSECOND_TYPES
from deltasql.operations.sql.types import cast_to, loses_nanoseconds, sql_type, typed_null

if TYPE_CHECKING:
    from deltasql.engine.base import Engine, Relation
    from deltasql.model.predicates.parser import Flavour, Scope

_ARROW_NAMES = {
    "byte": "Int8",
    "short": "Int16",
    "integer": "Int32",
    "long": "Int64",
    "float": "Float32",
    "double": "Float64",
    "boolean": "Boolean",
    "string": "Utf8",
    "binary": "Binary",
    "date": "Date32",
    "timestamp": "Timestamp(µs, UTC)",
    "timestamp_ntz": "Timestamp(µs)",
    "timestamp_nanos": "Timestamp(ns, UTC)",
    "timestamp_nanos_ntz": "Timestamp(ns)",
}


def expressions_of(
    updates: Mapping[str, str] | None,
    new_values: Mapping[str, Any] | None,
    *,
    escapes: bool = False,
) -> dict[str, str]:
    """Return SQL expressions by column, from either `updates` or `new_values`.

    Set `escapes` for SQL in which a backslash is an escape character.

    >>> expressions_of(None, {"n": 1, "s": "it's", "tags": ["a"]})
    {'n': '1', 's': "'it''s'", 'tags': "['a']"}
    """
    if updates is not None and new_values is not None:
        raise ValueError("Passing updates and new_values at same time is not allowed, pick one.")
    if updates is None and new_values is None:
        raise ValueError("Either updates or new_values need to be passed to update the table.")
    if new_values is not None:
        return {name: _expression(value, escapes) for name, value in new_values.items()}
    given = dict(updates or {})
    for name, text in given.items():
        if not isinstance(text, str) or not isinstance(name, str):
            raise TypeError(
                "The values of the updates parameter must all be SQL strings. "
                f"Got {given}. Did you mean to use the new_values parameter?"
            )
    return given


@dataclass(frozen=True, slots=True)
class Assignment:
    """A column or a struct field, and its new value."""

    column: LeafColumn
    value: exp.Expr
    safe: bool

    @property
    def cast(self) -> exp.Expr:
        given: DataType | None = self.value.meta.get("delta_type")
        if given is None:
            return cast_to(self.value.copy(), self.column.type, safe=self.safe)
        return conformed(self.value.copy(), given, self.column.type, safe=self.safe)


Assignments = Mapping[tuple[str, ...], Assignment]


def assignments(
    updates: Mapping[str, str],
    target: Scope,
    values: Scope,
    *,
    safe: bool,
    flavour: Flavour,
    copies_may_be_unknown: bool = False,
) -> dict[tuple[str, ...], Assignment]:
    """Resolve `{column: expression}`: columns in the scope `target`, expressions in `values`.

    The expression DEFAULT is the default of the column. If the table does not have a column, the
    assignment is ignored in deltalake's SQL and an error in Spark's. With `copies_may_be_unknown`,
    it is also ignored if the expression is a column of the same name.
    """
    found: dict[tuple[str, ...], Assignment] = {}
    for name, text in updates.items():
        column = assigned_column(name, target)
        if column is None:
            if copies_may_be_unknown and _is_copy(name, text):
                continue
            if flavour == "datafusion":
                scalar(text, values, flavour=flavour)  # raises for an invalid expression
                continue
            known = [field for schema in target.relations.values() for field in schema.names]
            raise TxnLogSchemaError(
                f"No field named {name}: the table has no such column to set",
                column=name,
                help=f"{nearest(name, known)}Valid fields are {', '.join(known)}.",
            )
        for path in found:
            if path[: len(column.path)] == column.path or column.path[: len(path)] == path:
                raise TxnLogSchemaError(
                    f"column {'.'.join(column.path)!r} is set twice",
                    column=".".join(column.path),
                    help="Set every column once.",
                )
        if not is_default_keyword(text, values):
            found[column.path] = Assignment(column, scalar(text, values, flavour=flavour), safe)
        elif GENERATED not in column.metadata:  # a generated column is computed without assignment
            default = default_value(column) or typed_null(column.type)
            found[column.path] = Assignment(column, default, safe)
    return found


def new_value(
    data_type: DataType, path: tuple[str, ...], assigned: Assignments, old: exp.Expr
) -> exp.Expr:
    """Return an expression for a column's value after the assignments.

    This is `old`, the assigned value, or a struct in which some fields have new values.
    """
    whole = assigned.get(path)
    if whole is not None:
        return whole.cast
    inside = any(other[: len(path)] == path for other in assigned)
    if not inside or not isinstance(data_type, StructType):
        return old
    members = []
    for member in data_type.fields:
        present = exp.Dot(this=exp.paren(old.copy()), expression=identifier(member.name))
        value = new_value(member.type, (*path, member.name), assigned, present)
        members.append(exp.PropertyEQ(this=identifier(member.name), expression=value))
    return exp.Struct(expressions=members)


def generated_value(
    expression: exp.Expr, values: Mapping[str, exp.Expr], data_type: DataType
) -> exp.Expr:
    """Return an expression that computes a generated column from new values of other columns."""

    def replaced(node: exp.Expr) -> exp.Expr:
        return exp.paren(values[node.name].copy()) if isinstance(node, exp.Column) else node

    return cast_to(exp.paren(expression.copy().transform(replaced)), data_type)


def row_values(
    schema: StructType,
    assigned: Assignments,
    generated: Mapping[str, exp.Expr],
    old: Callable[[StructField], exp.Expr],
    *,
    is_new: bool = False,
) -> dict[str, exp.Expr]:
    """Return expressions for the new values of all columns.

    `old` returns the value of a column to which nothing is assigned; if the row is new, the column
    gets its default. A generated column without an assignment is computed if the row is new, or if
    a column that it uses has an assignment.
    """

    def unassigned(member: StructField) -> exp.Expr:
        fills = is_new and not sets_column(assigned, member.name)
        return (default_value(member) if fills else None) or old(member)

    values = {
        member.name: typed_null(member.type)
        if changes_with_row(member)
        else new_value(member.type, (member.name,), assigned, unassigned(member))
        for member in schema.fields
    }
    for name, expression in generated.items():
        member = schema.find(name)
        uses = {node.name for node in expression.find_all(exp.Column)}
        follows = is_new or any(sets_column(assigned, used) for used in uses)
        if member is not None and follows and not sets_column(assigned, name):
            values[name] = generated_value(expression, values, member.type)
    return values


def sets_column(assigned: Assignments, name: str) -> bool:
    """Return whether there is an assignment to a column or to a field in it."""
    return any(path[0] == name for path in assigned)


@dataclass(frozen=True, slots=True)
class Computed:
    """Assignments, and the query and the relations from which their values are computed."""

    assigned: Assignments
    source: exp.Select
    relations: Mapping[str, Relation]


@contextmanager
def explained_casts(engine: Engine, *computed: Computed) -> Iterator[None]:
    """If a query fails because a value does not fit its column, raise an error with the value."""
    try:
        yield
    except TxnLogEngineError as error:
        for each in computed:
            for assignment in each.assigned.values():
                if not assignment.safe:
                    _raise_cast_error(engine, assignment, each, error)
        raise


def _raise_cast_error(
    engine: Engine, assignment: Assignment, computed: Computed, cause: TxnLogEngineError
) -> None:
    kind = assignment.column.type
    value = assignment.value
    misfit = exp.and_(
        exp.not_(exp.Is(this=exp.paren(value.copy()), expression=exp.null())),
        exp.Is(this=cast_to(value.copy(), kind, safe=True), expression=exp.null()),
    )
    query = computed.source.select(exp.alias_(value.copy(), identifier("value")), append=False)
    try:
        found = engine.collect(engine.query(query.where(misfit).limit(1), **computed.relations))
    except TxnLogEngineError:
        return  # the expression itself fails, not the cast
    if found.num_rows:
        shown = found["value"][0].as_py()
        word = "string" if isinstance(shown, str) else "value"
        name = ".".join(assignment.column.path)
        wanted = _ARROW_NAMES.get(type_name(kind), type_name(kind))
        raise TxnLogSchemaError(
            f"Cast error: Cannot cast {word} '{shown}' to value of {wanted} type",
            column=name,
            help="Change the expression, or pass error_on_type_mismatch=False to get nulls.",
        ) from cause


def _is_copy(name: str, text: str) -> bool:
    plain = [part.rpartition(".")[2].strip('`"').casefold() for part in (name, text)]
    return plain[0] == plain[1]


def _expression(value: Any, escapes: bool) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | Decimal():
            return str(value)
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case str():
            text = value.replace("\\", "\\\\") if escapes else value
            return "'" + text.replace("'", "''") + "'"
        case datetime():
            text = timestamp_text(value if value.tzinfo is None else value.astimezone(UTC), "T")
            return f"CAST('{text}Z' AS TIMESTAMP)" if value.tzinfo else f"'{text}'"
        case date():
            return f"CAST('{value.isoformat()}' AS DATE)"
        case list() | tuple():
            return "[" + ", ".join(_expression(each, escapes) for each in value) + "]"
        case _:
            raise TypeError(
                # This is deltalake's message, with its misspelled "or accepted".
                "Invalid datatype provided in new_values, only int, float, bool, list, str or "
                "datetime or accepted."
            )


def conformed(
    value: exp.Expr, given: DataType, wanted: DataType, *, safe: bool = False
) -> exp.Expr:
    """Cast a value from one Delta type to another; struct fields are matched by name.

    A field that is missing in the value becomes null.

    >>> from deltasql.model.schema.schema import StructField
    >>> wider = StructType((StructField("a", "long"), StructField("b", "long")))
    >>> from deltasql.operations.sql.queries import column
    >>> conformed(column("x"), StructType((StructField("b", "long"),)), wider).sql("spark")
    'CASE WHEN `x` IS NULL THEN NULL ELSE STRUCT(CAST(NULL AS BIGINT) AS `a`, (`x`).`b` AS `b`) END'
    """
    if given == wanted:
        return value
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        members = []
        for member in wanted.fields:
            present = given.find(member.name)
            inner = exp.null() if present is None else _member(value, present.name)
            kind = "void" if present is None else present.type
            made = conformed(inner, kind, member.type, safe=safe)
            members.append(exp.PropertyEQ(this=identifier(member.name), expression=made))
        missing = exp.Is(this=value.copy(), expression=exp.null())
        return exp.Case(
            ifs=[exp.If(this=missing, true=exp.null())], default=exp.Struct(expressions=members)
        )
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        if sql_type(given) != sql_type(wanted):
            item = exp.to_identifier("item")
            made = conformed(item, given.element_type, wanted.element_type, safe=safe)
            return exp.Transform(
                this=value, expression=exp.Lambda(this=made, expressions=[item.copy()])
            )
        return value
    if given in NANOSECOND_TYPES and wanted in MICROSECOND_TYPES:
        raise loses_nanoseconds(value, wanted)
    if isinstance(given, StructType):
        value.type = sql_type(given)  # an engine copies structs to variants
    return cast_to(value, wanted, safe=safe)


def _member(value: exp.Expr, name: str) -> exp.Expr:
    return exp.Dot(this=exp.paren(value.copy()), expression=identifier(name))
