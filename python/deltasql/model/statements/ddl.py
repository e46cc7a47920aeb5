"""Parse CREATE, REPLACE, ALTER, DROP, UNDROP, COMMENT ON and CONVERT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.exceptions import InvalidQueryError
from deltasql.model.schema.schema import StructField, StructType
from deltasql.model.statements import statement as s
from deltasql.model.statements.definition import (
    read_column,
    read_columns,
    read_key,
    read_properties,
    read_type,
)

if TYPE_CHECKING:
    from deltasql.model.statements.tokens import Reader

NAMESPACES = ("NAMESPACE", "SCHEMA", "DATABASE")
ROW_WORDS = ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "(")
"""The first words of a query that returns rows."""


def parse_create(reader: Reader) -> s.Statement:
    replaces = reader.accept("OR", "REPLACE")
    if reader.peek() in NAMESPACES and not replaces:
        reader.place += 1
        ignore = reader.accept("IF", "NOT", "EXISTS")
        return s.CreateNamespace(reader.identifier(), ignore)
    if reader.peek() != "TABLE":
        raise InvalidQueryError(
            f"CREATE {reader.peek()} is not supported",
            help="Write CREATE [OR REPLACE] TABLE or CREATE NAMESPACE. To name a part of a "
            "query, use WITH.",
        )
    return _create_table(reader, creates=True, replaces=replaces)


def parse_replace(reader: Reader) -> s.Statement:
    return _create_table(reader, creates=False, replaces=True)


def _create_table(reader: Reader, *, creates: bool, replaces: bool) -> s.CreateTable:
    reader.expect("TABLE")
    ignore = not replaces and reader.accept("IF", "NOT", "EXISTS")
    table = reader.table()
    options: dict[str, Any] = {}
    if reader.peek() in ("SHALLOW", "DEEP", "CLONE"):
        options = {"clone": _clone(reader)} | _options_of_clone(reader)
        return s.CreateTable(
            table, creates=creates, replaces=replaces, if_not_exists=ignore, **options
        )
    if reader.peek() == "(":
        options["columns"], options["constraints"] = read_columns(reader)
    while _table_option(reader, options):
        pass
    if reader.accept("AS") or reader.peek() in ROW_WORDS:
        if "columns" in options:
            raise InvalidQueryError(
                "CREATE TABLE … AS takes its columns from the query",
                help="Leave out the list of columns, or CAST the columns of the query.",
            )
        options["query"] = reader.query()
    elif "columns" not in options:
        raise reader.error("expected columns in parentheses, or AS and a query")
    return s.CreateTable(table, creates=creates, replaces=replaces, if_not_exists=ignore, **options)


def _clone(reader: Reader) -> s.Clone:
    is_shallow = reader.accept("SHALLOW")
    if not is_shallow:
        reader.accept("DEEP")
    reader.expect("CLONE")
    source, at = reader.table(), None
    if reader.peek() in ("VERSION", "TIMESTAMP"):
        at = read_version(reader)
    return s.Clone(source, is_shallow, at)


def _options_of_clone(reader: Reader) -> dict[str, Any]:
    options: dict[str, Any] = {}
    while reader.peek() in ("TBLPROPERTIES", "LOCATION"):
        _table_option(reader, options)
    return options


def read_version(reader: Reader) -> int | str:
    """Read VERSION AS OF a number, or TIMESTAMP AS OF a string."""
    is_version = reader.one_of("VERSION", "TIMESTAMP") == "VERSION"
    reader.expect("AS", "OF")
    if is_version:
        return reader.whole_number()
    reader.accept("TIMESTAMP")
    return reader.string()


def _table_option(reader: Reader, options: dict[str, Any]) -> bool:
    """Read one option of a table; return whether there was one."""
    if reader.accept("USING"):
        options["using"] = reader.identifier().lower()
        if options["using"] not in ("delta", "deltasql"):
            reader.place -= 1
            raise reader.error("every table is a Delta table: expected USING delta")
    elif reader.accept("PARTITIONED", "BY"):
        options["partition_by"] = _partitions(reader, options)
    elif reader.accept("CLUSTER", "BY"):
        options["cluster_by"] = _clustering(reader)
    elif reader.accept("TBLPROPERTIES"):
        options["properties"] = read_properties(reader)
    elif reader.accept("LOCATION"):
        options["location"] = reader.string()
    elif reader.accept("COMMENT"):
        options["comment"] = reader.string()
    elif reader.peek() == "LIKE":
        raise InvalidQueryError(
            "CREATE TABLE … LIKE is not supported",
            help="Write CREATE TABLE … AS SELECT * FROM the other table, or CREATE TABLE … CLONE.",
        )
    else:
        return False
    return True


def _partitions(reader: Reader, options: dict[str, Any]) -> tuple[str, ...]:
    """Read the partition columns; a column with a type is a new column of the table."""

    def read() -> str:
        if reader.peek(1) in (",", ")"):
            return reader.identifier()
        if reader.peek(1) == "(":
            raise InvalidQueryError(
                f"PARTITIONED BY {reader.peek().lower()}(…) is not supported",
                help="Partition by a column. It can be GENERATED ALWAYS AS an expression.",
            )
        field = read_column(reader)
        known = options.get("columns") or StructType()
        options["columns"] = StructType((*known.fields, field))
        return field.name

    return tuple(reader.parenthesized(read))


def _clustering(reader: Reader) -> tuple[str, ...]:
    if reader.peek() == "AUTO":
        raise InvalidQueryError(
            "CLUSTER BY AUTO is not supported", help="Name the columns: CLUSTER BY (day)."
        )
    return reader.columns()


def parse_alter(reader: Reader) -> s.Statement:
    reader.expect("TABLE")
    table = reader.table()
    action = reader.one_of("ADD", "DROP", "RENAME", "SET", "UNSET", "ALTER", "CHANGE", "CLUSTER")
    if action == "ADD":
        return _alter_add(reader, table)
    if action == "DROP":
        return _alter_drop(reader, table)
    if action == "RENAME":
        if reader.accept("TO"):
            return s.RenameTable(table, reader.table())
        reader.expect("COLUMN")
        column = reader.column()
        reader.expect("TO")
        return s.RenameColumn(table, column, reader.identifier())
    if action == "SET":
        if reader.peek() != "TBLPROPERTIES":
            raise reader.error("expected TBLPROPERTIES, because nothing else can be SET")
        reader.expect("TBLPROPERTIES")
        return s.SetProperties(table, read_properties(reader))
    if action == "UNSET":
        reader.expect("TBLPROPERTIES")
        ignore = reader.accept("IF", "EXISTS")
        keys = reader.parenthesized(lambda: read_key(reader))
        return s.UnsetProperties(table, tuple(keys), ignore)
    if action == "CLUSTER":
        reader.expect("BY")
        return s.ClusterBy(table, () if reader.accept("NONE") else _clustering(reader))
    return _alter_column(reader, table)


def _alter_add(reader: Reader, table: s.TableRef) -> s.Statement:
    if reader.accept("CONSTRAINT"):
        name = reader.identifier()
        reader.expect("CHECK")
        return s.AddConstraint(table, name, reader.inside_parentheses().text)
    if not (reader.accept("COLUMNS") or reader.accept("COLUMN")):
        raise reader.error("expected COLUMN, COLUMNS or CONSTRAINT")
    if reader.peek() == "(":
        added = reader.parenthesized(lambda: _added_column(reader))
    else:
        added = [_added_column(reader)]
        while reader.accept(","):
            added.append(_added_column(reader))
    structs = tuple(outer for _, outer in added if outer)
    return s.AddColumns(table, StructType(tuple(field for field, _ in added)), structs)


def _added_column(reader: Reader) -> tuple[StructField, tuple[str, ...]]:
    """Parse a column; return it and the path of its struct, `place` for `place.city STRING`."""
    outer: list[str] = []
    while reader.peek(1) == ".":
        outer.append(reader.identifier())
        reader.expect(".")
    found = read_column(reader)
    for name in reversed(outer):
        found = StructField(name, StructType((found,)))
    return found, tuple(outer)


def _alter_drop(reader: Reader, table: s.TableRef) -> s.Statement:
    if reader.accept("CONSTRAINT"):
        ignore = reader.accept("IF", "EXISTS")
        return s.DropConstraint(table, reader.identifier(), ignore)
    if reader.accept("FEATURE"):
        name = reader.string() if reader.at_string else reader.identifier()
        return s.DropFeature(table, name, reader.accept("TRUNCATE", "HISTORY"))
    if not (reader.accept("COLUMNS") or reader.accept("COLUMN")):
        raise reader.error("expected COLUMN, COLUMNS, CONSTRAINT or FEATURE")
    ignore = reader.accept("IF", "EXISTS")
    columns = reader.columns() if reader.peek() == "(" else (reader.column(),)
    while reader.accept(","):
        columns = (*columns, reader.column())
    return s.DropColumns(table, columns, ignore)


def _alter_column(reader: Reader, table: s.TableRef) -> s.Statement:
    reader.accept("COLUMN")
    column = reader.column()
    if reader.accept("COMMENT"):
        return s.AlterColumn(table, column, reader.string())
    if reader.accept("DROP", "NOT", "NULL"):
        return s.AlterColumn(table, column, nullable=True)
    if reader.accept("SET", "NOT", "NULL"):
        return s.AlterColumn(table, column, nullable=False)
    if reader.accept("TYPE"):
        return s.AlterColumn(table, column, type=read_type(reader))
    if reader.accept("SET", "DEFAULT"):
        return s.AlterDefault(table, column, reader.rest("an expression").text)
    if reader.accept("DROP", "DEFAULT"):
        return s.AlterDefault(table, column, None)
    if reader.accept("SYNC", "IDENTITY"):
        return s.SyncIdentity(table, column)
    raise InvalidQueryError(
        f"ALTER COLUMN {column} {' '.join(word.text for word in reader.words[reader.place :])} is "
        "not supported",
        help="ALTER COLUMN can set a COMMENT, a DEFAULT and a wider TYPE, SET NOT NULL, DROP NOT "
        "NULL and SYNC IDENTITY.",
    )


def parse_drop(reader: Reader) -> s.Statement:
    kind = reader.one_of("TABLE", *NAMESPACES)
    ignore = reader.accept("IF", "EXISTS")
    if kind == "TABLE":
        table = reader.table()
        if reader.accept("PURGE"):
            raise InvalidQueryError(
                "DROP TABLE … PURGE is not supported",
                help="DROP TABLE deletes no files, so that UNDROP TABLE can restore the table.",
            )
        return s.DropTable(table, ignore)
    namespace = reader.identifier()
    if reader.accept("CASCADE"):
        raise InvalidQueryError(
            "DROP NAMESPACE … CASCADE is not supported", help="Drop its tables first."
        )
    reader.accept("RESTRICT")
    return s.DropNamespace(namespace, ignore)


def parse_undrop(reader: Reader) -> s.Statement:
    reader.expect("TABLE")
    return s.UndropTable(reader.table())


def parse_comment(reader: Reader) -> s.Statement:
    reader.expect("ON", "TABLE")
    table = reader.table()
    reader.expect("IS")
    return s.CommentOnTable(table, "" if reader.accept("NULL") else reader.string())


def parse_convert(reader: Reader) -> s.Statement:
    reader.expect("TO", "DELTA")
    parts = reader.names()
    if len(parts) != 2 or parts[0].lower() != "parquet":
        raise InvalidQueryError(
            "CONVERT TO DELTA needs a folder of Parquet files",
            help="Write CONVERT TO DELTA parquet.`/path/to/folder`.",
        )
    reader.accept("NO", "STATISTICS")
    fields = None
    if reader.accept("PARTITIONED", "BY"):
        fields = StructType(tuple(reader.parenthesized(lambda: read_column(reader))))
    return s.Convert(parts[1], fields)
