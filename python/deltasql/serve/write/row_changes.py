"""Requests of UPDATE, DELETE and MERGE: what Spark did, and how the commit describes it."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from deltasql.engine.base import CHANGE_TYPE
from deltasql.exceptions import TxnLogError
from deltasql.model.predicates.rewrite import without_alias
from deltasql.model.schema.schema import StructField, StructType
from deltasql.model.statements import statement as s
from deltasql.model.statements.parser import parse_statement
from deltasql.operations.external_writes.rows import RowCounts, RowsWritten
from deltasql.operations.merge.plan import Clause, MergeSpec
from deltasql.operations.rewrite import FOLDER, keeps_change_data
from deltasql.operations.sql.normal_form import normal
from deltasql.serve.read.filters import skipping_condition
from deltasql.storage.location import address_url, root_address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.operations.external_writes.files import WrittenFile
    from deltasql.operations.table_stage import TableStage

CHANGE_COLUMN = StructType((StructField(CHANGE_TYPE, "string"),)).to_json()


def change_plan(stage: TableStage, folder: str) -> dict[str, str] | None:
    """Return where Spark writes change data; None if the table has no change data feed.

    An intent is recorded for the folder.
    """
    if not keeps_change_data(stage):
        return None
    stage.plan().intend([f"{change_folder(folder)}/"])
    root = root_address(stage.location).rstrip("/")
    return {"folder": address_url(f"{root}/{change_folder(folder)}"), "column": CHANGE_COLUMN}


def change_folder(folder: str) -> str:
    """Return the folder of the change data of a write; `folder` is that of its files."""
    return f"{FOLDER}{folder}"


def rows_written(
    command: str,
    folder: str,
    files: Sequence[WrittenFile],
    change_data: Sequence[WrittenFile],
    rows: Mapping[str, Any],
    reads: Sequence[str | None],
) -> RowsWritten:
    """Return the field `rows` of a commit as an object."""
    counts = (int(rows[key]) for key in ("copied", "updated", "deleted"))
    return RowsWritten(
        command=command,
        folder=folder,
        files=files,
        replaced=[str(url) for url in rows["replaced"]],
        marked={str(url): base64.b64decode(text) for url, text in rows.get("marked", {}).items()},
        counts=RowCounts(*counts),
        rewrite_ms=int(rows["rewrite_ms"]),
        reads=list(dict.fromkeys([skipping_condition(rows["filters"]), *reads])),
        change_folder=change_folder(folder),
        change_data=change_data,
    )


def operation_parameters(statement: str | None, columns: Sequence[str]) -> dict[str, str]:
    """Return the operation parameters for the commit of an SQL statement.

    They are the same as those of `DeltaTable.delete`, `update` and `merge`.

    They are empty for a DataFrame, and for a statement that only Spark can parse.

    >>> operation_parameters("DELETE FROM lake.crm.orders AS o WHERE o.id < 3", ["id"])
    {'predicate': 'id < 3'}
    """
    if statement is None:
        return {}
    try:
        parsed = parse_statement(statement)
        if isinstance(parsed, s.Merge):
            return _merge_parameters(parsed)
        if isinstance(parsed, s.Update | s.Delete):
            return _row_parameters(parsed, columns)
    except TxnLogError:
        pass
    return {}


def _row_parameters(statement: s.Update | s.Delete, columns: Sequence[str]) -> dict[str, str]:
    if statement.where is None:
        return {"predicate": "true"} if isinstance(statement, s.Update) else {}
    text = statement.where.text
    qualifiers = statement.table.parts if statement.alias is None else (statement.alias,)
    for each in qualifiers:
        text = without_alias(text, each, columns)
    return {"predicate": normal(text, escapes=True)}


def _merge_parameters(statement: s.Merge) -> dict[str, str]:
    spec = MergeSpec(statement.on.text, flavour="spark")
    for each in statement.clauses:
        clauses: list[Clause] = getattr(spec, each.group)
        clauses.append(Clause(each.kind, None if each.condition is None else each.condition.text))
    return spec.parameters()
