"""Checks arguments of DeltaTable methods, with the error messages of delta-spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from pyspark.sql import Column

from deltasql.exceptions import UnsupportedFeatureError
from deltasql.model.protocol import FEATURES, reader_features, writer_features
from deltasql.spark.exceptions import argument_error

if TYPE_CHECKING:
    from deltasql.model.actions import Protocol

_HIGHEST_READER, _HIGHEST_WRITER = 3, 7
ColumnOrText: TypeAlias = "str | Column"


def condition_text(
    condition: ColumnOrText | None, write: Callable[[Column], str], name: str = "'condition'"
) -> str | None:
    """Return a condition as SQL, or None if there is none."""
    if condition is None or isinstance(condition, str):
        return condition
    if isinstance(condition, Column):
        return write(condition)
    raise TypeError(
        f"{name} must be a Spark SQL Column or a string (expression in SQL syntax), "
        f"found to be of type {type(condition)}"
    )


def assignment_texts(given: Any, write: Callable[[Column], str], name: str) -> dict[str, str]:
    """Return assignments as SQL: column → expression."""
    if given is None:
        raise ValueError(f"{name} cannot be None")
    if not isinstance(given, dict):
        raise TypeError(f"{name} must be a dict, found to be {type(given)}")
    found = {}
    for key, value in given.items():
        if not isinstance(key, str):
            raise TypeError(
                f"Keys of dict in {name} must contain only strings with column names, "
                f"found '{key}' of type '{type(key)}"
            )
        if isinstance(value, Column):
            found[key] = write(value)
        elif isinstance(value, str):
            found[key] = value
        else:
            raise TypeError(
                f"Values of dict in {name} must contain only Spark SQL Columns or strings "
                f"(expressions in SQL syntax) as values, found '{value}' of type '{type(value)}'"
            )
    return found


def require(value: Any, kind: type, name: str, shown: str) -> None:
    """Raise if an argument is not an instance of `kind`; a bool is not accepted as an int."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{name} needs to be {shown} but got '{type(value)}'.")


def text_list(cols: Any, problem: str) -> list[str]:
    """Return the names in `cols`: several arguments, or one argument that is a list."""
    given = cols[0] if len(cols) == 1 and isinstance(cols[0], list | tuple) else cols
    for each in given:
        if not isinstance(each, str):
            reject_type(problem, [each])
    return list(given)


def reject_type(problem: str, given: Iterable[Any]) -> NoReturn:
    """Raise `TypeError` with delta-spark's message for arguments of the wrong type."""
    raise TypeError(problem + "".join(f" Found {each} with type {type(each)}" for each in given))


def check_protocol_versions(reader: int, writer: int) -> None:
    """Raise if the Delta protocol does not have these versions."""
    for name, given, highest in (
        ("minReaderVersion", reader, _HIGHEST_READER),
        ("minWriterVersion", writer, _HIGHEST_WRITER),
    ):
        if not 1 <= given <= highest:
            versions = ", ".join(map(str, range(1, highest + 1)))
            raise argument_error(
                f"requirement failed: delta.{name} needs to be one of {versions}.",
                "DELTA_INVALID_PROTOCOL_VERSION",
                help="Choose versions of Delta's protocol.",
            )


def check_feature(name: str) -> None:
    """Raise if there is no table feature with this name."""
    if name not in FEATURES:
        raise UnsupportedFeatureError(
            f"[DELTA_UNSUPPORTED_FEATURES_IN_CONFIG] {name} is not a known table feature",
            features=(name,),
            help=f"Known features are {', '.join(sorted(FEATURES))}.",
        )


def check_droppable(name: str, table: str, protocol: Protocol) -> None:
    """Raise if there is no such table feature, or if the table does not have it."""
    if name not in FEATURES:
        problem = f"UNSUPPORTED_CLIENT_FEATURE] Cannot drop {name}: it is not a known table feature"
        advice = f"Known features are {', '.join(sorted(FEATURES))}."
    elif name not in reader_features(protocol) | writer_features(protocol):
        problem = f"FEATURE_NOT_PRESENT] Cannot drop {name}: the table's protocol does not have it"
        advice = "detail() lists the features of the table."
    else:
        return
    raise UnsupportedFeatureError(
        f"[DELTA_FEATURE_DROP_{problem}", table=table, features=(name,), help=advice
    )
