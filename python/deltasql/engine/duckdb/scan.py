"""Generate the SQL that DuckDB runs to read the files of a table.

The schema comes from the log, never from the files. Columns are read under their physical names
with the types of the table. If a file lacks a column, its values are null. Dropped columns are not
read. The query restores the logical names, also inside structs, arrays and maps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from deltasql.exceptions import TxnLogEngineError, UnsupportedFeatureError
from deltasql.model.schema.schema import ArrayType, DataType, MapType, StructType, decimal_type
from deltasql.model.schema.widening import is_converted

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

ColumnPath: TypeAlias = tuple[str, ...]
NO_PATHS: frozenset[ColumnPath] = frozenset()

_TYPES = {
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
    # DuckDB has no nanosecond type with a zone, so these values have no zone and are in UTC.
    "timestamp_nanos": "TIMESTAMP_NS",
    "timestamp_nanos_ntz": "TIMESTAMP_NS",
    "void": "INTEGER",  # how Parquet stores a column that is always null
}
VARIANT = "STRUCT(metadata BLOB, value BLOB)"
"""Variants are the two binaries that files have, because DuckDB returns no VARIANT as Arrow."""
_GLOB = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class TableShape:
    """What `files_query` needs to know about a table in addition to its files."""

    schema: StructType
    partition_columns: Sequence[str]
    column_mapping_mode: str | None
    files_table: str
    """Name of the table with the partition values of each file, in the columns p0, p1, …"""
    deleted_table: str
    """Name of the table with the deleted rows of each file."""
    file_key: str = "filename"
    """The column that identifies a file in both tables: `filename`, or `file_index`, the position
    in the list of files. Joins by position are faster."""


def files_query(
    shape: TableShape,
    files: str,
    *,
    naive: Set[ColumnPath] = NO_PATHS,
    has_deletions: bool = False,
    also: Sequence[str] = (),
    rows: int | None = None,
) -> str:
    """Return the SELECT over files that have the same column names and types.

    `files` is SQL for a list of glob patterns. `naive` are the physical paths of timestamp columns
    that the files store without a zone. `also` are additional expressions to select, from `r` (the
    rows) or `p` (the files table). `rows` is the expected number of rows. Without it, DuckDB's
    planner assumes 1,000 rows per file.
    """
    mode = shape.column_mapping_mode
    columns = _Columns(mode, naive)
    partitions = {name: number for number, name in enumerate(shape.partition_columns)}
    read: list[str] = []
    shown: list[str] = []
    for column in shape.schema.fields:
        if column.name in partitions:
            value = f"p.p{partitions[column.name]}"
        else:
            path = (column.physical_name(mode),)
            # Use generated names: a column may be called `filename`, like DuckDB's virtual column.
            name = f"c{len(read)}"
            try:
                kind = literal(columns.type(column.type, path))
            except UnsupportedFeatureError as error:
                raise UnsupportedFeatureError(
                    f"column {column.name!r}: {error.message}",
                    features=error.features,
                    help=error.help,
                ) from error
            read.append(
                f"{literal(path[0])}: {{name: '{name}', type: {kind}, default_value: NULL}}"
            )
            value = columns.value(column.type, path, f"r.{name}")
            if is_converted(column):
                value = _without_pushdown(value, column.type)
        shown.append(f"{value} AS {identifier(column.name)}")
    known = "" if rows is None else f", explicit_cardinality = {rows}"
    parts = [
        "SELECT " + ", ".join([*shown, *also]),
        f"FROM read_parquet({files}, schema = MAP {{{', '.join(read)}}}{known}) AS r",
    ]
    if partitions or any(each.startswith("p.") for each in also):
        parts.append(f"JOIN {shape.files_table} AS p ON p.{shape.file_key} = r.{shape.file_key}")
    if has_deletions:
        parts.append(
            f"ANTI JOIN {shape.deleted_table} AS d "
            f"ON d.{shape.file_key} = r.{shape.file_key} AND d.row_number = r.file_row_number"
        )
    return "\n".join(parts)


def _without_pushdown(value: str, data_type: DataType) -> str:
    """Return SQL for the same value in a form for which DuckDB pushes no filter down to the files.

    If a file has another type than the table, DuckDB casts the constant of such a filter to the
    type of the file. In a file of integers, `i < 3.4` would then not match 3.
    """
    is_timestamp = data_type == "timestamp_ntz"
    return f"{value} + INTERVAL 0 SECOND" if is_timestamp else f"-(-{value})"


def empty_query(schema: StructType, also: Sequence[str] = ()) -> str:
    """Return a SELECT without rows, with the columns of a table and the BIGINT columns `also`."""
    kinds = _Columns(None, NO_PATHS, variant=VARIANT)
    columns = [
        f"CAST(NULL AS {kinds.type(f.type, ())}) AS {identifier(f.name)}" for f in schema.fields
    ]
    columns += [f"CAST(NULL AS BIGINT) AS {identifier(name)}" for name in also]
    return f"SELECT {', '.join(columns)} WHERE false"


def duckdb_type(data_type: DataType) -> str:
    """Return DuckDB's type for a Delta type.

    >>> duckdb_type(ArrayType("decimal(10,2)"))
    'DECIMAL(10,2)[]'
    """
    return _Columns(None, NO_PATHS).type(data_type, ())


def identifier(name: str) -> str:
    """Quote an identifier.

    >>> identifier('the "best" one')
    '"the ""best"" one"'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a string.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def as_pattern(address: str) -> str:
    """Escape a path as a glob pattern that matches only this file: DuckDB expands file names.

    >>> as_pattern("/lake/a*[1].parquet")
    '/lake/a[*][[]1].parquet'
    """
    if _GLOB.isdisjoint(address):
        return address
    if "\\" in address:
        raise TxnLogEngineError(
            f"DuckDB cannot open the file {address!r}",
            engine="duckdb",
            help="DuckDB reads the name as a glob pattern, which cannot contain a backslash. "
            "Rewrite the file under another name.",
        )
    return "".join(f"[{c}]" if c in _GLOB else c for c in address)


class _Columns:
    """Generates the types to read from a group of files, and SQL for the values of the table."""

    def __init__(
        self, mode: str | None, naive: Set[ColumnPath], variant: str | None = None
    ) -> None:
        """`variant` is the type of variants if no file is read: DuckDB does not read variants."""
        self._mode, self._naive, self._variant = mode, naive, variant

    def type(self, data_type: DataType, path: ColumnPath) -> str:
        """Return the type to read, with physical names."""
        if isinstance(data_type, StructType):
            members = []
            for member in data_type.fields:
                name = member.physical_name(self._mode)
                members.append(f"{identifier(name)} {self.type(member.type, (*path, name))}")
            return f"STRUCT({', '.join(members)})"
        if isinstance(data_type, ArrayType):
            return f"{self.type(data_type.element_type, (*path, 'element'))}[]"
        if isinstance(data_type, MapType):
            key = self.type(data_type.key_type, (*path, "key"))
            return f"MAP({key}, {self.type(data_type.value_type, (*path, 'value'))})"
        decimal = decimal_type(data_type)
        if decimal is not None:
            return f"DECIMAL({decimal[0]},{decimal[1]})"
        if data_type == "variant" and self._variant is not None:
            return self._variant
        if data_type not in _TYPES:
            raise UnsupportedFeatureError(
                f"DuckDB does not read columns of type {data_type}",
                features=(data_type,),
                help="Read this table with another engine, or exclude it with tables=[…].",
            )
        return "TIMESTAMP" if path in self._naive else _TYPES[data_type]

    def value(self, data_type: DataType, path: ColumnPath, read: str, depth: int = 0) -> str:
        """Return SQL that converts the value `read` from a file to the value of the table.

        If nothing has to change, this is `read` itself.
        """
        if isinstance(data_type, StructType):
            return self._struct(data_type, path, read, depth)
        item = f"x{depth}"
        if isinstance(data_type, ArrayType):
            element = self.value(data_type.element_type, (*path, "element"), item, depth + 1)
            return read if element == item else f"list_transform({read}, lambda {item}: {element})"
        if isinstance(data_type, MapType):
            key = self.value(data_type.key_type, (*path, "key"), f"{item}.key", depth + 1)
            value = self.value(data_type.value_type, (*path, "value"), f"{item}.value", depth + 1)
            if (key, value) == (f"{item}.key", f"{item}.value"):
                return read
            entry = f"{{'key': {key}, 'value': {value}}}"
            return f"map_from_entries(list_transform(map_entries({read}), lambda {item}: {entry}))"
        # A timestamp without a zone is in UTC, but a cast would treat it as local time.
        return f"make_timestamptz(epoch_us({read}))" if path in self._naive else read

    def _struct(self, data_type: StructType, path: ColumnPath, read: str, depth: int) -> str:
        members = []
        same = True
        for member in data_type.fields:
            physical = member.physical_name(self._mode)
            inner = f"struct_extract({read}, {literal(physical)})"
            value = self.value(member.type, (*path, physical), inner, depth + 1)
            same = same and value == inner and physical == member.name
            members.append(f"{literal(member.name)}: {value}")
        if same:
            return read
        return f"CASE WHEN {read} IS NULL THEN NULL ELSE {{{', '.join(members)}}} END"
