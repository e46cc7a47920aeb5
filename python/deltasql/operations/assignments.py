"""Values that an operation sets: which columns, to what, and in which type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from deltasql.exceptions import TxnLogEngineError, TxnLogSchemaError
from deltasql.model.schema import DataType, LeafColumn, StructType, nearest, type_name
from deltasql.operations.expressions import Flavour, Scope, assigned_column, scalar
from deltasql.operations.sql_types import cast_to, field_of, identifier

if TYPE_CHECKING:
    from deltasql.engine.base import Engine, Relation

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
}


@dataclass(frozen=True, slots=True)
class Assignment:
    """A column, or the field of a struct, and its new value."""

    column: LeafColumn
    value: exp.Expr
    safe: bool

    @property
    def cast(self) -> exp.Expr:
        return cast_to(self.value.copy(), self.column.type, safe=self.safe)


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
    """Resolve `{column: expression}`; the columns are of `target`, the names in `values`.

    With `copies_may_be_unknown` a column that is only copied under its own name may be missing.
    """
    found: dict[tuple[str, ...], Assignment] = {}
    for name, text in updates.items():
        column = assigned_column(name, target)
        if column is None:
            if copies_may_be_unknown and _is_copy(name, text):
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
        found[column.path] = Assignment(column, scalar(text, values, flavour=flavour), safe)
    return found


def new_value(
    data_type: DataType, path: tuple[str, ...], assigned: Assignments, relation: str
) -> exp.Expr:
    """Return a column after the assignments: itself, another value, or a struct with new fields."""
    whole = assigned.get(path)
    if whole is not None:
        return whole.cast
    inside = any(other[: len(path)] == path for other in assigned)
    if not inside or not isinstance(data_type, StructType):
        return field_of(path, relation)
    return exp.Struct(
        expressions=[
            exp.PropertyEQ(
                this=identifier(member.name),
                expression=new_value(member.type, (*path, member.name), assigned, relation),
            )
            for member in data_type.fields
        ]
    )


def sets_column(assigned: Assignments, name: str) -> bool:
    """Tell whether a column, or a field in it, gets another value."""
    return any(path[0] == name for path in assigned)


@contextmanager
def explained_casts(
    engine: Engine, assigned: Sequence[Assignments], rows: Mapping[str, Relation], source: exp.From
) -> Iterator[None]:
    """Name the value that does not fit its column, when an engine fails on one.

    `source` is where the values are computed, over the relations in `rows`.
    """
    try:
        yield
    except TxnLogEngineError as error:
        for each in assigned:
            for assignment in each.values():
                if not assignment.safe:
                    _refuse_misfit(engine, assignment, rows, source, error)
        raise


def _refuse_misfit(
    engine: Engine,
    assignment: Assignment,
    rows: Mapping[str, Relation],
    source: exp.From,
    cause: TxnLogEngineError,
) -> None:
    kind = assignment.column.type
    value = assignment.value
    misfit = exp.and_(
        exp.not_(exp.Is(this=exp.paren(value.copy()), expression=exp.null())),
        exp.Is(this=cast_to(value.copy(), kind, safe=True), expression=exp.null()),
    )
    query = exp.select(exp.alias_(value.copy(), identifier("value")))
    query.set("from_", source.copy())
    try:
        found = engine.collect(engine.query(query.where(misfit).limit(1), **rows))
    except TxnLogEngineError:
        return  # it is the expression itself that fails
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
    plain = [part.rpartition(".")[2].strip("`\"").casefold() for part in (name, text)]
    return plain[0] == plain[1]
