"""Parse SQL statements in the grammar that Delta has on Spark.

Expressions, queries and names of columns are not resolved here. `t VERSION AS OF 3` and `t@3` in a
query are read by `deltasql.model.predicates.query_text`.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

from deltasql.exceptions import InvalidQueryError
from deltasql.model.statements import ddl
from deltasql.model.statements import statement as s
from deltasql.model.statements.ddl import ROW_WORDS
from deltasql.model.statements.definition import read_key
from deltasql.model.statements.statement import SqlPart
from deltasql.model.statements.tokens import Reader

if TYPE_CHECKING:
    from collections.abc import Callable

_QUERY_WORDS = (*ROW_WORDS, "EXPLAIN")
_ELSEWHERE = {
    "USE": "Write the namespace before the name of a table: crm.sales.",
    "SET": "Pass settings to deltasql.connect or deltasql.begin.",
    "CALL": "Write the statement itself, such as OPTIMIZE, VACUUM or RESTORE.",
    "GRANT": "Use the permissions of the database.",
    "REVOKE": "Use the permissions of the database.",
    "COPY": "Read the files, for example with pyarrow, and pass the rows to tx.write.",
    "LOAD": "Read the files, for example with pyarrow, and pass the rows to tx.write.",
    "ANALYZE": "Every write collects statistics.",
    "REFRESH": "Every statement reads the current version.",
    "FSCK": "Use tx.repair, or `deltasql verify`.",
    "GENERATE": "Use catalog.mirror.write_manifests.",
    "MSCK": "Partitions are part of the log and need no repair.",
    "SUMMARIZE": "Use catalog.query, which has DuckDB's SQL.",
}
"""Maps the first word of an unsupported statement to advice about what to use instead."""


def parse_statement(text: str) -> s.Statement:
    """Parse one statement.

    >>> parse_statement("VACUUM crm.sales RETAIN 200 HOURS DRY RUN")
    Vacuum(table=TableRef(parts=('crm', 'sales')), retain_hours=200.0, dry_run=True, full=True)
    """
    reader = Reader(text)
    if reader.at_end:
        raise InvalidQueryError("the statement is empty", help=_supported())
    word = reader.peek()
    if word in _QUERY_WORDS:
        return _query(reader)
    parse = _PARSERS.get(word)
    if parse is None:
        raise _unsupported(word or reader.words[0].text)
    reader.place += 1
    found = parse(reader)
    reader.finish()
    return found


def _unsupported(word: str) -> InvalidQueryError:
    shown = word.upper()[:40]
    near = get_close_matches(shown, [*_PARSERS, *_QUERY_WORDS], n=1, cutoff=0.8)
    if near:
        return InvalidQueryError(
            f"no statement starts with {shown}", help=f"Did you mean {near[0]}?"
        )
    return InvalidQueryError(
        f"the statement {shown} is not supported",
        help=f"{_ELSEWHERE.get(shown, '')} {_supported()}".strip(),
    )


def _supported() -> str:
    return f"A statement starts with SELECT, WITH, VALUES, {', '.join(_PARSERS)}."


# Rows


def _query(reader: Reader) -> s.Statement:
    place = _insert_after_with(reader)
    if place is None:
        return s.Select(reader.query())
    # WITH … INSERT INTO … SELECT: the WITH clause belongs to the query.
    clause = reader.text[reader.words[0].start : reader.words[place].start]
    reader.place = place + 1
    found = _insert(reader)
    if found.query.text.upper().startswith("WITH"):
        raise InvalidQueryError(
            "the statement has two WITH clauses", help="Write one WITH clause, before INSERT."
        )
    return replace(found, query=SqlPart(f"{clause} {found.query.text}"))


def _insert_after_with(reader: Reader) -> int | None:
    """Return the place of INSERT in WITH … INSERT; None for any other query."""
    depth = 0
    for place, word in enumerate(reader.words if reader.peek() == "WITH" else ()):
        depth += (word.upper == "(") - (word.upper == ")")
        if depth == 0 and word.upper in ("SELECT", "FROM", "VALUES"):
            return None
        if depth == 0 and word.upper == "INSERT":
            return place
    return None


def _insert(reader: Reader) -> s.Insert:
    evolve = reader.accept("WITH", "SCHEMA", "EVOLUTION")
    overwrite = reader.one_of("INTO", "OVERWRITE") == "OVERWRITE"
    reader.accept("TABLE")
    table = reader.table()
    partition: list[tuple[str, SqlPart]] = []
    if reader.accept("PARTITION"):
        partition = reader.parenthesized(lambda: _partition_value(reader))
    columns, by_name, where = None, False, None
    if reader.peek() == "(" and reader.peek(1) not in (*ROW_WORDS, "("):
        columns = tuple(reader.parenthesized(reader.identifier))
    if reader.accept("BY", "NAME"):
        by_name = True
    if not overwrite and reader.accept("REPLACE"):
        if reader.peek() != "WHERE":
            raise reader.error("expected WHERE after INSERT INTO … REPLACE")
        reader.expect("WHERE")
        where = reader.part(*ROW_WORDS[:-1], what="a condition")
    if reader.peek() not in ROW_WORDS:
        raise reader.error("expected VALUES or a query")
    return s.Insert(
        table, reader.query(), columns, by_name, overwrite, where, tuple(partition), evolve
    )


def _partition_value(reader: Reader) -> tuple[str, SqlPart]:
    name = reader.identifier()
    if reader.peek() != "=":
        raise InvalidQueryError(
            f"PARTITION ({name}) without a value is not supported",
            help="Write PARTITION (name = value), or INSERT INTO … REPLACE WHERE with a condition "
            "on the partition columns.",
        )
    reader.expect("=")
    return name, reader.part(",", ")")


def _alias(reader: Reader, *next_words: str) -> str | None:
    if reader.accept("AS"):
        return reader.identifier()
    if reader.at_end or reader.peek() in next_words:
        return None
    return reader.identifier()


def _update(reader: Reader) -> s.Update:
    table = reader.table()
    alias = _alias(reader, "SET")
    reader.expect("SET")
    assigned = _assignments(reader, "WHERE")
    where = reader.rest("a condition") if reader.accept("WHERE") else None
    return s.Update(table, alias, assigned, where)


def _assignments(reader: Reader, *until: str) -> tuple[tuple[SqlPart, SqlPart], ...]:
    found = []
    while True:
        column = reader.part("=", what="a column")
        reader.expect("=")
        found.append((column, reader.part(",", *until)))
        if not reader.accept(","):
            return tuple(found)


def _delete(reader: Reader) -> s.Delete:
    reader.expect("FROM")
    table = reader.table()
    alias = _alias(reader, "WHERE")
    where = reader.rest("a condition") if reader.accept("WHERE") else None
    return s.Delete(table, alias, where)


def _merge(reader: Reader) -> s.Merge:
    evolve = reader.accept("WITH", "SCHEMA", "EVOLUTION")
    reader.expect("INTO")
    table = reader.table()
    alias = _alias(reader, "USING")
    reader.expect("USING")
    source, name = _merge_source(reader)
    source_alias = _alias(reader, "ON") or name
    if reader.peek() == "(":  # USING (VALUES …) AS s(id, name)
        columns = ", ".join(reader.parenthesized(lambda: reader.part(",", ")").text))
        text = f"SELECT * FROM ({source.text}) AS s({columns})"  # noqa: S608 - the user's own text
        source = SqlPart(text)
    reader.expect("ON")
    on = reader.part("WHEN", what="a condition")
    clauses = []
    while reader.accept("WHEN"):
        clauses.append(_merge_clause(reader))
    if not clauses:
        raise reader.error("expected at least one WHEN clause")
    return s.Merge(table, alias, source, source_alias, on, tuple(clauses), evolve)


def _merge_source(reader: Reader) -> tuple[SqlPart, str | None]:
    """Return the source of a merge as a query, and its name if it is a table."""
    if reader.peek() == "(":
        return reader.inside_parentheses(), None
    start = reader.place
    name = reader.names()[-1]
    if reader.peek() == "@":  # sales@3
        reader.place += 2
    elif reader.peek() in ("VERSION", "TIMESTAMP") and reader.peek(1) == "AS":
        reader.place += 4
    text = reader.text[reader.words[start].start : reader.words[reader.place - 1].end]
    return SqlPart(f"SELECT * FROM {text}"), name  # noqa: S608 - text of the user's own statement


def _merge_clause(reader: Reader) -> s.MergeClause:
    group: Literal["matched", "not_matched", "not_matched_by_source"] = "matched"
    if reader.accept("NOT"):
        group = "not_matched"
    reader.expect("MATCHED")
    by = reader.one_of("TARGET", "SOURCE") if reader.accept("BY") else "TARGET"
    if by == "SOURCE":
        if group == "matched":
            raise reader.error("expected WHEN NOT MATCHED BY SOURCE")
        group = "not_matched_by_source"
    condition = reader.part("THEN", what="a condition") if reader.accept("AND") else None
    reader.expect("THEN")
    if group == "not_matched":
        reader.expect("INSERT")
        return s.MergeClause(group, "insert", condition, _inserted(reader))
    if reader.one_of("UPDATE", "DELETE") == "DELETE":
        return s.MergeClause(group, "delete", condition)
    reader.expect("SET")
    if group == "matched" and reader.accept("*"):
        return s.MergeClause(group, "update", condition, None)
    return s.MergeClause(group, "update", condition, _assignments(reader, "WHEN"))


def _inserted(reader: Reader) -> tuple[tuple[SqlPart, SqlPart], ...] | None:
    if reader.accept("*"):
        return None
    columns = reader.parenthesized(lambda: reader.part(",", ")", what="a column"))
    reader.expect("VALUES")
    values = reader.parenthesized(lambda: reader.part(",", ")"))
    if len(columns) != len(values):
        raise InvalidQueryError(
            f"INSERT has {len(columns)} columns but {len(values)} values",
            help="Give one value for each column.",
        )
    return tuple(zip(columns, values, strict=True))


# Reports


def _describe(reader: Reader) -> s.Statement:
    # DETAIL and HISTORY can also be names of tables.
    if reader.peek() in ("DETAIL", "HISTORY") and len(reader.words) > reader.place + 1:
        if reader.accept("DETAIL"):
            reader.accept("TABLE")
            return s.DescribeDetail(reader.table())
        reader.accept("HISTORY")
        reader.accept("TABLE")
        table = reader.table()
        return s.DescribeHistory(table, reader.whole_number() if reader.accept("LIMIT") else None)
    reader.accept("TABLE")
    extended = reader.accept("EXTENDED") or reader.accept("FORMATTED")
    return s.Describe(reader.table(), extended)


def _show(reader: Reader) -> s.Statement:
    what = reader.peek()
    if what in ("NAMESPACES", "SCHEMAS", "DATABASES"):
        reader.place += 1
        return s.ShowNamespaces(_like(reader))
    if reader.accept("TABLES"):
        within = reader.accept("IN") or reader.accept("FROM")
        namespace = reader.identifier() if within else None
        return s.ShowTables(namespace, _like(reader))
    if reader.accept("COLUMNS"):
        reader.one_of("IN", "FROM")
        return s.ShowColumns(reader.table())
    if reader.accept("TBLPROPERTIES"):
        table = reader.table()
        key = reader.parenthesized(lambda: read_key(reader))[0] if reader.peek() == "(" else None
        return s.ShowProperties(table, key)
    raise InvalidQueryError(
        f"SHOW {what} is not supported",
        help="Write SHOW TABLES [IN namespace], SHOW NAMESPACES, SHOW COLUMNS IN table, "
        "SHOW TBLPROPERTIES table, or DESCRIBE [DETAIL | HISTORY] table.",
    )


def _like(reader: Reader) -> str | None:
    liked = reader.accept("LIKE")
    return reader.string() if liked or not reader.at_end else None


# Maintenance


def _optimize(reader: Reader) -> s.Statement:
    reader.accept("TABLE")
    table = reader.table()
    reader.accept("FULL")
    where = reader.part("ZORDER", what="a condition") if reader.accept("WHERE") else None
    columns: tuple[str, ...] = ()
    if reader.accept("ZORDER", "BY"):
        columns = reader.columns() if reader.peek() == "(" else (reader.column(),)
        while reader.accept(","):
            columns = (*columns, reader.column())
    return s.Optimize(table, where, columns)


def _reorg(reader: Reader) -> s.Statement:
    reader.expect("TABLE")
    table = reader.table()
    where = reader.part("APPLY", what="a condition") if reader.accept("WHERE") else None
    reader.expect("APPLY", "(", "PURGE", ")")
    return s.Reorg(table, where)


def _vacuum(reader: Reader) -> s.Statement:
    reader.accept("TABLE")
    table = reader.table()
    hours, dry_run, full = None, False, True
    while not reader.at_end:
        if reader.accept("RETAIN"):
            hours = float(reader.number())
            reader.one_of("HOURS", "HOUR")
        elif reader.accept("DRY", "RUN"):
            dry_run = True
        elif reader.peek() == "USING":
            raise InvalidQueryError(
                "VACUUM … USING INVENTORY is not supported",
                help="VACUUM lists the table's folder itself; VACUUM … LITE uses only the log.",
            )
        else:
            full = reader.one_of("FULL", "LITE") == "FULL"
    return s.Vacuum(table, hours, dry_run, full)


def _restore(reader: Reader) -> s.Statement:
    reader.accept("TABLE")
    table = reader.table()
    reader.accept("TO")
    return s.Restore(table, ddl.read_version(reader))


def _truncate(reader: Reader) -> s.Statement:
    reader.expect("TABLE")
    table = reader.table()
    if reader.peek() == "PARTITION":
        raise InvalidQueryError(
            "TRUNCATE TABLE … PARTITION is not supported",
            help="Write DELETE FROM … WHERE with a condition on the partition columns.",
        )
    return s.Truncate(table)


# Transactions


def _begin(reader: Reader) -> s.Statement:
    _ = reader.accept("TRANSACTION") or reader.accept("WORK")
    return s.Begin()


def _start(reader: Reader) -> s.Statement:
    reader.expect("TRANSACTION")
    return s.Begin()


def _commit(reader: Reader) -> s.Statement:
    _ = reader.accept("TRANSACTION") or reader.accept("WORK")
    return s.Commit()


def _rollback(reader: Reader) -> s.Statement:
    _ = reader.accept("TRANSACTION") or reader.accept("WORK")
    return s.Rollback()


_PARSERS: dict[str, Callable[[Reader], s.Statement]] = {
    "INSERT": _insert,
    "UPDATE": _update,
    "DELETE": _delete,
    "MERGE": _merge,
    "CREATE": ddl.parse_create,
    "REPLACE": ddl.parse_replace,
    "ALTER": ddl.parse_alter,
    "DROP": ddl.parse_drop,
    "UNDROP": ddl.parse_undrop,
    "TRUNCATE": _truncate,
    "COMMENT": ddl.parse_comment,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "SHOW": _show,
    "OPTIMIZE": _optimize,
    "REORG": _reorg,
    "VACUUM": _vacuum,
    "RESTORE": _restore,
    "CONVERT": ddl.parse_convert,
    "BEGIN": _begin,
    "START": _start,
    "COMMIT": _commit,
    "ROLLBACK": _rollback,
}
