"""The procedures of `CALL lake.system.…`: each runs a statement of `deltasql.model.statements`.

The service tells its clients which procedures there are, with their parameters. A result is small:
its schema and its rows are one JSON object.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from deltasql.exceptions import InvalidQueryError
from deltasql.model.schema.convert import schema_from_any
from deltasql.model.schema.schema import StructType
from deltasql.model.statements import statement as s
from deltasql.model.statements.definition import read_column
from deltasql.model.statements.parser import parse_statement
from deltasql.model.statements.tokens import Reader
from deltasql.uri import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import tzinfo

    from deltasql.serve.transactions import Transactions

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NULL, _FALSE, _TRUE = "NULL", "false", "true"
_TEXTS = "ARRAY<STRING>"
_AT = (
    ("version", "BIGINT", "the version", _NULL),
    ("timestamp", "TIMESTAMP", "the version at this time", _NULL),
)
_TABLE = ("table", "STRING", "the name of the table, with or without its namespace")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a procedure. `type` and `default` are written in Spark's SQL."""

    name: str
    type: str
    comment: str
    default: str | None = None
    """None for an argument that is required."""


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure, and the statement that a call of it runs."""

    name: str
    comment: str
    parameters: tuple[Parameter, ...]
    statement: Callable[[Call], s.Statement]


class Call:
    """The arguments of a call, and what a name and a timestamp mean in the client's session."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._values: Mapping[str, Any] = body.get("arguments") or {}
        self._catalog = body.get("catalog")
        self._namespace = body.get("namespace") or DEFAULT_NAMESPACE
        self._time_zone = body.get("time_zone") or "Z"

    def __getitem__(self, name: str) -> Any:
        """Return an argument; None if it is not given."""
        return self._values.get(name)

    def required(self, name: str) -> str:
        """Return an argument that must not be null."""
        found = self[name]
        if found is None:
            raise InvalidQueryError(f"the argument {name} is null", help=f"Give a {name}.")
        return str(found)

    def table(self, name: str = "table") -> s.TableRef:
        """Return the table that an argument names."""
        reader = Reader(self.required(name))
        found = reader.table()
        reader.finish()
        return self.qualified(found)

    def qualified(self, table: s.TableRef) -> s.TableRef:
        """Return a table without the name of the catalog in Spark, and with its namespace."""
        parts = table.parts
        if len(parts) == 3 and parts[0] == self._catalog:
            parts = parts[1:]
        return s.TableRef((self._namespace, *parts) if len(parts) == 1 else parts)

    def statement(self) -> s.Statement:
        """Parse the argument `statement`, and return the statement."""
        found: Any = parse_statement(self.required("statement"))
        is_clone = isinstance(found, s.CreateTable) and found.clone is not None
        if not (is_clone or isinstance(found, _EXECUTED)):
            raise InvalidQueryError(
                f"the procedure execute cannot run {found.name}",
                help="Run the statement with spark.sql: Spark supports it without a procedure.",
            )
        names = {each.name: getattr(found, each.name) for each in fields(found)}
        tables = {name: v for name, v in names.items() if isinstance(v, s.TableRef)}
        changed: dict[str, Any] = {name: self.qualified(each) for name, each in tables.items()}
        if isinstance(found, s.Restore) and isinstance(found.to, str):
            changed["to"] = self._in_time_zone(found.to)
        if is_clone:
            clone: s.Clone = found.clone
            at = self._in_time_zone(clone.at) if isinstance(clone.at, str) else clone.at
            changed["clone"] = replace(clone, source=self.qualified(clone.source), at=at)
        statement: s.Statement = replace(found, **changed)
        return statement

    def _in_time_zone(self, text: str) -> str:
        """Return a timestamp with the time zone of the session, unless it has one."""
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            return text  # the statement raises
        return text if found.tzinfo else found.replace(tzinfo=_zone(self._time_zone)).isoformat()


def _zone(name: str) -> tzinfo | None:
    """Return a time zone by its name in Java: a region, `Z` or `+01:00`."""
    if name[0] in "Z+-":
        return datetime.fromisoformat(f"2000-01-01T00:00:00{name}").tzinfo
    return ZoneInfo(name)


def listed() -> dict[str, Any]:
    """Return all procedures with their parameters."""
    found = [
        {
            "name": each.name,
            "comment": each.comment,
            "parameters": [asdict(parameter) for parameter in each.parameters],
            "transaction": _TRANSACTION.get(each.name),
        }
        for each in PROCEDURES.values()
    ]
    return {"procedures": found}


def called(transactions: Transactions, body: Mapping[str, Any]) -> dict[str, Any]:
    """Call a procedure and return its result."""
    procedure = PROCEDURES.get(str(body["procedure"]))
    if procedure is None:
        raise InvalidQueryError(
            f"there is no procedure {body['procedure']}",
            help=f"The procedures are {', '.join(PROCEDURES)}.",
        )
    statement = procedure.statement(Call(body))
    if isinstance(statement, s.Begin):
        txn_id = transactions.begin(body)
        return {"transaction": txn_id, **_result(pa.table({"transaction": [txn_id]}))}
    if isinstance(statement, s.Commit):
        return _result(transactions.commit(body))
    if isinstance(statement, s.Rollback):
        transactions.rollback(body)
        return _result(pa.table({}))
    return _result(transactions.run(statement, body))


def _result(rows: pa.Table) -> dict[str, Any]:
    columns = [[_value(each) for each in column.to_pylist()] for column in rows.itercolumns()]
    return {
        "schema": schema_from_any(rows.schema).to_json(),
        "rows": [list(row) for row in zip(*columns, strict=True)],
    }


def _value(value: Any) -> Any:
    """Return a value as JSON; a timestamp is microseconds since 1970."""
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, dict):
        return {name: _value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):  # a map is a list of pairs
        return [_value(each) for each in value]
    return value


# The procedures


def _optimize(call: Call) -> s.Statement:
    where = None if call["where"] is None else s.SqlPart(str(call["where"]))
    return s.Optimize(call.table(), where, tuple(call["zorder_by"] or ()))


def _purge(call: Call) -> s.Statement:
    where = None if call["where"] is None else s.SqlPart(str(call["where"]))
    return s.Reorg(call.table(), where)


def _vacuum(call: Call) -> s.Statement:
    return s.Vacuum(
        call.table(), call["retain_hours"], bool(call["dry_run"]), call["full"] is not False
    )


def _restore(call: Call) -> s.Statement:
    to = _version(call)
    if to is None:
        raise InvalidQueryError(
            "restore needs a version or a timestamp", help="Give one of the two arguments."
        )
    return s.Restore(call.table(), to)


def _clone(call: Call) -> s.Statement:
    clone = s.Clone(call.table("source"), bool(call["shallow"]), _version(call))
    return s.CreateTable(
        call.table(),
        clone=clone,
        replaces=bool(call["replace"]),
        location=call["location"],
        properties=dict(call["properties"] or {}),
    )


def _version(call: Call) -> int | str | None:
    """Return the argument `version` or `timestamp`; None if there is none."""
    version, micros = call["version"], call["timestamp"]
    if version is not None and micros is not None:
        raise InvalidQueryError(
            "the call has a version and a timestamp", help="Give one of the two arguments."
        )
    if micros is not None:
        return (_EPOCH + timedelta(microseconds=int(micros))).isoformat()
    return None if version is None else int(version)


def _convert(call: Call) -> s.Statement:
    partitions = None
    if call["partitioned_by"] is not None:
        reader = Reader(f"({call['partitioned_by']})")
        partitions = StructType(tuple(reader.parenthesized(lambda: read_column(reader))))
        reader.finish()
    return s.Convert(call.required("path"), partitions, call.table())


def _set_properties(call: Call) -> s.Statement:
    return s.SetProperties(call.table(), dict(call["properties"] or {}))


def _unset_properties(call: Call) -> s.Statement:
    return s.UnsetProperties(call.table(), tuple(call["keys"] or ()), bool(call["if_exists"]))


def _add_constraint(call: Call) -> s.Statement:
    return s.AddConstraint(call.table(), call.required("name"), call.required("condition"))


def _drop_constraint(call: Call) -> s.Statement:
    return s.DropConstraint(call.table(), call.required("name"), bool(call["if_exists"]))


_EXECUTED = (
    s.Optimize,
    s.Reorg,
    s.Vacuum,
    s.Restore,
    s.Convert,
    s.UndropTable,
    s.DescribeDetail,
    s.DescribeHistory,
    s.SetProperties,
    s.UnsetProperties,
    s.AddConstraint,
    s.DropConstraint,
    s.ClusterBy,
    s.AlterColumn,
    s.SyncIdentity,
    s.DropFeature,
)
"""The statements of `execute`: their results are small, and Spark need not run them."""

_TRANSACTION = {"begin": "begin", "commit": "end", "rollback": "end"}


def _procedure(
    name: str,
    comment: str,
    statement: Callable[[Call], s.Statement],
    *parameters: tuple[str, ...],
) -> Procedure:
    return Procedure(name, comment, tuple(Parameter(*each) for each in parameters), statement)


def _by_name(procedures: Iterable[Procedure]) -> dict[str, Procedure]:
    return {each.name: each for each in procedures}


PROCEDURES: Mapping[str, Procedure] = _by_name(
    (
        _procedure(
            "optimize",
            "Rewrite small files as fewer, larger ones",
            _optimize,
            _TABLE,
            ("where", "STRING", "a condition on partition columns", _NULL),
            ("zorder_by", _TEXTS, "columns whose similar values share files", _NULL),
        ),
        _procedure(
            "purge",
            "Rewrite the files that have a deletion vector",
            _purge,
            _TABLE,
            ("where", "STRING", "a condition on partition columns", _NULL),
        ),
        _procedure(
            "vacuum",
            "Delete files that no version needs any more",
            _vacuum,
            _TABLE,
            ("retain_hours", "DOUBLE", "how long removed files are kept", _NULL),
            ("dry_run", "BOOLEAN", "list the files, and delete none", _FALSE),
            ("full", "BOOLEAN", "also look for files that no version has", _TRUE),
        ),
        _procedure(
            "restore",
            "Restore an earlier version",
            _restore,
            _TABLE,
            *_AT,
        ),
        _procedure(
            "history",
            "List the commits, newest first",
            lambda call: s.DescribeHistory(call.table(), call["limit"]),
            _TABLE,
            ("limit", "INT", "how many commits", _NULL),
        ),
        _procedure(
            "detail",
            "Describe location, size, properties and protocol",
            lambda call: s.DescribeDetail(call.table()),
            _TABLE,
        ),
        _procedure(
            "convert",
            "Create a table of the Parquet files in a folder, which stay where they are",
            _convert,
            _TABLE,
            ("path", "STRING", "the folder"),
            ("partitioned_by", "STRING", "the partition columns, such as 'day DATE'", _NULL),
        ),
        _procedure(
            "clone",
            "Create a table with the rows and the definition of another one",
            _clone,
            _TABLE,
            ("source", "STRING", "the table to copy"),
            ("shallow", "BOOLEAN", "share the files of the other table", _FALSE),
            ("replace", "BOOLEAN", "replace the table if it exists", _FALSE),
            *_AT,
            ("properties", "MAP<STRING, STRING>", "more properties", _NULL),
            ("location", "STRING", "the folder of the table", _NULL),
        ),
        _procedure(
            "undrop", "Restore a dropped table", lambda call: s.UndropTable(call.table()), _TABLE
        ),
        _procedure(
            "set_properties",
            "Set table properties",
            _set_properties,
            _TABLE,
            ("properties", "MAP<STRING, STRING>", "values by property"),
        ),
        _procedure(
            "unset_properties",
            "Remove table properties",
            _unset_properties,
            _TABLE,
            ("keys", _TEXTS, "the properties"),
            ("if_exists", "BOOLEAN", "ignore properties that are not set", _FALSE),
        ),
        _procedure(
            "add_constraint",
            "Add a CHECK constraint, which all rows must meet",
            _add_constraint,
            _TABLE,
            ("name", "STRING", "the name of the constraint"),
            ("condition", "STRING", "the condition"),
        ),
        _procedure(
            "drop_constraint",
            "Drop a CHECK constraint",
            _drop_constraint,
            _TABLE,
            ("name", "STRING", "the name of the constraint"),
            ("if_exists", "BOOLEAN", "ignore a constraint that does not exist", _FALSE),
        ),
        _procedure(
            "cluster_by",
            "Set the clustering columns, by which optimize sorts rows",
            lambda call: s.ClusterBy(call.table(), tuple(call["columns"] or ())),
            _TABLE,
            ("columns", _TEXTS, "the columns; an empty array removes the clustering"),
        ),
        _procedure(
            "execute",
            "Run a statement that Spark's SQL does not have, such as DESCRIBE HISTORY",
            Call.statement,
            ("statement", "STRING", "the text of the statement"),
        ),
        _procedure("begin", "Begin a transaction over several statements", lambda _: s.Begin()),
        _procedure("commit", "Commit the transaction", lambda _: s.Commit()),
        _procedure("rollback", "Roll back the transaction", lambda _: s.Rollback()),
    )
)
