"""The classes of SQL statements. The parser creates them, `deltasql.api.sql` runs them.

Expressions and queries stay text in a statement (`SqlPart`), so that each engine parses them with
its own rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from deltasql.model.schema.schema import DataType, StructType

Columns: TypeAlias = "tuple[str, ...]"


@dataclass(frozen=True, slots=True)
class SqlPart:
    """The text of an expression or a query in a statement.

    Its parameters have names: the first `?` of the statement is `:_1`.
    """

    text: str


@dataclass(frozen=True, slots=True)
class TableRef:
    """A table as it is written in a statement, without quotes: `crm.sales` or delta.`/path`."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement; messages refer to it by `name`."""

    @property
    def name(self) -> str:
        return _NAMES[type(self)]


@dataclass(frozen=True, slots=True)
class Select(Statement):
    """SELECT, WITH, VALUES or EXPLAIN: everything that returns rows and changes nothing."""

    query: SqlPart


# Rows


@dataclass(frozen=True, slots=True)
class Insert(Statement):
    """INSERT INTO, INSERT OVERWRITE and INSERT INTO … REPLACE WHERE."""

    table: TableRef
    query: SqlPart
    columns: Columns | None = None
    by_name: bool = False
    overwrite: bool = False
    replace_where: SqlPart | None = None
    partition: tuple[tuple[str, SqlPart], ...] = ()
    """The values of `PARTITION (day = …)`."""
    evolve: bool = False


@dataclass(frozen=True, slots=True)
class Update(Statement):
    table: TableRef
    alias: str | None
    assignments: tuple[tuple[SqlPart, SqlPart], ...]
    where: SqlPart | None


@dataclass(frozen=True, slots=True)
class Delete(Statement):
    table: TableRef
    alias: str | None
    where: SqlPart | None


@dataclass(frozen=True, slots=True)
class MergeClause:
    """WHEN … THEN …; `assignments` is None for `UPDATE SET *` and `INSERT *`."""

    group: Literal["matched", "not_matched", "not_matched_by_source"]
    kind: Literal["update", "delete", "insert"]
    condition: SqlPart | None = None
    assignments: tuple[tuple[SqlPart, SqlPart], ...] | None = ()


@dataclass(frozen=True, slots=True)
class Merge(Statement):
    table: TableRef
    alias: str | None
    source: SqlPart
    """A query: `SELECT * FROM source` if the source is a table."""
    source_alias: str | None
    on: SqlPart
    clauses: tuple[MergeClause, ...]
    evolve: bool = False


@dataclass(frozen=True, slots=True)
class Truncate(Statement):
    table: TableRef


# Tables


@dataclass(frozen=True, slots=True)
class Clone:
    """The table that a CREATE TABLE … CLONE copies."""

    source: TableRef
    is_shallow: bool = False
    at: int | str | None = None
    """A version or a timestamp; None for the latest version."""


@dataclass(frozen=True, slots=True)
class CreateTable(Statement):
    """CREATE [OR REPLACE] TABLE and REPLACE TABLE: with columns, AS a query, or as a CLONE."""

    table: TableRef
    columns: StructType | None = None
    query: SqlPart | None = None
    using: str | None = None
    creates: bool = True
    replaces: bool = False
    if_not_exists: bool = False
    partition_by: Columns = ()
    cluster_by: Columns = ()
    properties: dict[str, str] = field(default_factory=dict)
    location: str | None = None
    comment: str | None = None
    constraints: tuple[tuple[str, str], ...] = ()
    clone: Clone | None = None


@dataclass(frozen=True, slots=True)
class AddColumns(Statement):
    table: TableRef
    columns: StructType
    structs: tuple[tuple[str, ...], ...] = ()
    """The paths of the structs that get a field: `(("place",),)` for `place.city STRING`."""


@dataclass(frozen=True, slots=True)
class DropColumns(Statement):
    table: TableRef
    columns: Columns
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumn(Statement):
    table: TableRef
    column: str
    new_name: str


@dataclass(frozen=True, slots=True)
class AlterColumn(Statement):
    """ALTER COLUMN … COMMENT, TYPE, SET NOT NULL or DROP NOT NULL; exactly one is not None."""

    table: TableRef
    column: str
    comment: str | None = None
    type: DataType | None = None
    nullable: bool | None = None


@dataclass(frozen=True, slots=True)
class AlterDefault(Statement):
    """ALTER COLUMN … SET DEFAULT, or DROP DEFAULT if `default` is None."""

    table: TableRef
    column: str
    default: str | None


@dataclass(frozen=True, slots=True)
class SyncIdentity(Statement):
    """ALTER COLUMN … SYNC IDENTITY."""

    table: TableRef
    column: str


@dataclass(frozen=True, slots=True)
class SetProperties(Statement):
    table: TableRef
    properties: dict[str, str]


@dataclass(frozen=True, slots=True)
class UnsetProperties(Statement):
    table: TableRef
    keys: Columns
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddConstraint(Statement):
    table: TableRef
    constraint: str
    check: str


@dataclass(frozen=True, slots=True)
class DropConstraint(Statement):
    table: TableRef
    constraint: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropFeature(Statement):
    table: TableRef
    feature: str
    truncate_history: bool = False


@dataclass(frozen=True, slots=True)
class ClusterBy(Statement):
    table: TableRef
    columns: Columns


@dataclass(frozen=True, slots=True)
class CommentOnTable(Statement):
    table: TableRef
    comment: str


@dataclass(frozen=True, slots=True)
class RenameTable(Statement):
    table: TableRef
    new_name: TableRef


@dataclass(frozen=True, slots=True)
class DropTable(Statement):
    table: TableRef
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class UndropTable(Statement):
    table: TableRef


@dataclass(frozen=True, slots=True)
class Convert(Statement):
    """CONVERT TO DELTA parquet.`/path`; by default, the table has the name of the folder."""

    path: str
    partition_by: StructType | None = None
    table: TableRef | None = None


@dataclass(frozen=True, slots=True)
class CreateNamespace(Statement):
    namespace: str
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropNamespace(Statement):
    namespace: str
    if_exists: bool = False


# Reports


@dataclass(frozen=True, slots=True)
class Describe(Statement):
    table: TableRef
    extended: bool = False


@dataclass(frozen=True, slots=True)
class DescribeDetail(Statement):
    table: TableRef


@dataclass(frozen=True, slots=True)
class DescribeHistory(Statement):
    table: TableRef
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ShowTables(Statement):
    namespace: str | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class ShowNamespaces(Statement):
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class ShowColumns(Statement):
    table: TableRef


@dataclass(frozen=True, slots=True)
class ShowProperties(Statement):
    table: TableRef
    key: str | None = None


# Maintenance


@dataclass(frozen=True, slots=True)
class Optimize(Statement):
    table: TableRef
    where: SqlPart | None = None
    z_order: Columns = ()


@dataclass(frozen=True, slots=True)
class Reorg(Statement):
    """REORG TABLE … APPLY (PURGE)."""

    table: TableRef
    where: SqlPart | None = None


@dataclass(frozen=True, slots=True)
class Vacuum(Statement):
    table: TableRef
    retain_hours: float | None = None
    dry_run: bool = False
    full: bool = True


@dataclass(frozen=True, slots=True)
class Restore(Statement):
    """RESTORE TABLE … TO VERSION AS OF (an int) or TIMESTAMP AS OF (a string)."""

    table: TableRef
    to: int | str


# Transactions


@dataclass(frozen=True, slots=True)
class Begin(Statement):
    pass


@dataclass(frozen=True, slots=True)
class Commit(Statement):
    pass


@dataclass(frozen=True, slots=True)
class Rollback(Statement):
    pass


_NAMES: dict[type[Statement], str] = {
    Select: "SELECT",
    Insert: "INSERT",
    Update: "UPDATE",
    Delete: "DELETE",
    Merge: "MERGE",
    Truncate: "TRUNCATE TABLE",
    CreateTable: "CREATE TABLE",
    AddColumns: "ALTER TABLE ADD COLUMNS",
    DropColumns: "ALTER TABLE DROP COLUMNS",
    RenameColumn: "ALTER TABLE RENAME COLUMN",
    AlterColumn: "ALTER TABLE ALTER COLUMN",
    AlterDefault: "ALTER TABLE ALTER COLUMN",
    SyncIdentity: "ALTER TABLE ALTER COLUMN",
    SetProperties: "ALTER TABLE SET TBLPROPERTIES",
    UnsetProperties: "ALTER TABLE UNSET TBLPROPERTIES",
    AddConstraint: "ALTER TABLE ADD CONSTRAINT",
    DropConstraint: "ALTER TABLE DROP CONSTRAINT",
    DropFeature: "ALTER TABLE DROP FEATURE",
    ClusterBy: "ALTER TABLE CLUSTER BY",
    CommentOnTable: "COMMENT ON TABLE",
    RenameTable: "ALTER TABLE RENAME TO",
    DropTable: "DROP TABLE",
    UndropTable: "UNDROP TABLE",
    Convert: "CONVERT TO DELTA",
    CreateNamespace: "CREATE NAMESPACE",
    DropNamespace: "DROP NAMESPACE",
    Describe: "DESCRIBE TABLE",
    DescribeDetail: "DESCRIBE DETAIL",
    DescribeHistory: "DESCRIBE HISTORY",
    ShowTables: "SHOW TABLES",
    ShowNamespaces: "SHOW NAMESPACES",
    ShowColumns: "SHOW COLUMNS",
    ShowProperties: "SHOW TBLPROPERTIES",
    Optimize: "OPTIMIZE",
    Reorg: "REORG TABLE",
    Vacuum: "VACUUM",
    Restore: "RESTORE TABLE",
    Begin: "BEGIN",
    Commit: "COMMIT",
    Rollback: "ROLLBACK",
}
