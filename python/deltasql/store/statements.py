"""Load the SQL statements by name.

A file in `sql/` consists of blocks that start with `-- name: verb_noun` and use `$name`
parameters. A block marked `[postgres]` replaces the common one for that database. `{in:ids}`
tests membership in a list parameter, for which each database has its own syntax; `{use:part}`
inserts a `-- part:` block that several statements share.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_FOLDER = Path(__file__).parent / "sql"
_HEADER = re.compile(r"^-- (name|part): (\w+)(?: \[(\w+)\])?\s*$")
PARAMETER = re.compile(r"\$(\w+)")
_USE = re.compile(r"\{use:(\w+)\}")
LIST_PARAMETER = re.compile(r"\{in:(\w+)\}")


@cache
def blocks(kind: str = "name") -> dict[str, dict[str | None, str]]:
    """Return all blocks of a kind (`name` or `part`): name → database (None = all) → SQL."""
    found: dict[str, dict[str | None, str]] = {}
    for _, source in sorted(_sql_files()):
        header: re.Match[str] | None = None
        lines: list[str] = []
        for line in [*source.splitlines(), "-- name: end"]:
            starts = _HEADER.match(line)
            if starts is None:
                if not line.startswith("--"):
                    lines.append(line)
                continue
            if header is not None and header[1] == kind:
                text = "\n".join(lines).strip().rstrip(";")
                found.setdefault(header[2], {})[header[3]] = text
            header, lines = starts, []
    return found


@cache
def statement(name: str, database: str) -> str:
    """Return the SQL of a statement for a database, with `$name` parameters.

    >>> "FOR UPDATE" in statement("lock_heads", "postgres")
    True
    """
    variants = blocks()[name]
    text = variants.get(database) or variants[None]
    return _USE.sub(lambda match: blocks("part")[match[1]][None], text)


@cache
def list_parameter(name: str, database: str) -> str | None:
    """Return the name of the list parameter of a statement; None if it has none."""
    match = LIST_PARAMETER.search(statement(name, database))
    return match[1] if match else None


def with_inline_integers(name: str, database: str, params: Mapping[str, Any]) -> str:
    """Return a bulk read with its parameters as literals. All parameters must be integers.

    >>> with_inline_integers("read_head", "sqlite", {"table_id": 7})[-12:]
    'table_id = 7'
    """

    def in_list(match: re.Match[str]) -> str:
        return "IN (" + ", ".join(str(int(value)) for value in params[match[1]]) + ")"

    text = LIST_PARAMETER.sub(in_list, statement(name, database))
    return PARAMETER.sub(lambda match: str(int(params[match[1]])), text)


@cache
def _numbered(name: str) -> tuple[str, tuple[str, ...]]:
    """Return a PostgreSQL statement with numbered parameters, and their names in order."""
    text = LIST_PARAMETER.sub(r"= ANY($\1)", statement(name, "postgres"))
    names = tuple(dict.fromkeys(PARAMETER.findall(text)))
    return PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", text), names


def numbered(name: str, params: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """Return a PostgreSQL statement with numbered parameters, and their values.

    >>> numbered("clear_staged_files", {"txn_id": "one"})
    ('DELETE FROM dl_staged_files WHERE txn_id = $1', ['one'])
    """
    text, names = _numbered(name)
    return text, [params[each] for each in names]


@cache
def insert_shape(name: str, database: str) -> tuple[str, tuple[str, ...]]:
    """Return the table and the columns of an INSERT statement.

    >>> insert_shape("insert_namespace", "sqlite")
    ('dl_namespaces', ('namespace', 'created_at_ms'))
    """
    match = re.match(r"INSERT INTO (\w+) \(([^)]*)\)", statement(name, database))
    if match is None:
        raise ValueError(f"{name} is not an insert")
    return match[1], tuple(column.strip() for column in match[2].split(","))


@cache
def insert_many(name: str, database: str, count: int, placeholder: str) -> str:
    """Return an INSERT statement for several rows, with positional placeholders.

    >>> insert_many("insert_namespace", "duckdb", 2, "?").partition("VALUES ")[2].splitlines()[0]
    '(?, ?), (?, ?)'
    """
    columns = insert_shape(name, database)[1]
    row = "(" + ", ".join([placeholder] * len(columns)) + ")"
    rows = "VALUES " + ", ".join([row] * count)
    return re.sub(r"VALUES \([^)]*\)", lambda _: rows, statement(name, database))


@cache
def insert_some(name: str, database: str, positions: tuple[int, ...], placeholder: str) -> str:
    """Return an INSERT statement for some of its columns; the other columns become NULL.

    >>> insert_some("insert_partition", "sqlite", (0, 2), "?").splitlines()[0]
    'INSERT INTO dl_partitions (table_id, partition_values)'
    """
    columns = insert_shape(name, database)[1]
    named = ", ".join(columns[position] for position in positions)
    lists = iter((named, ", ".join([placeholder] * len(positions))))
    return re.sub(r"\([^)]*\)", lambda _: f"({next(lists)})", statement(name, database))


@cache
def migration_files() -> list[tuple[int, str, str]]:
    """Return (number, name, SQL) of every migration, in order."""
    out = []
    for file in (_FOLDER / "migrations").glob("*.sql"):
        number, _, name = file.stem.partition("_")
        out.append((int(number), name, file.read_text("utf-8")))
    return sorted(out)


def _sql_files() -> list[tuple[str, str]]:
    return [(file.name, file.read_text("utf-8")) for file in _FOLDER.glob("*.sql")]


# Read the files on import, so that the first open of a catalog is not slower.
blocks(), blocks("part"), migration_files()
