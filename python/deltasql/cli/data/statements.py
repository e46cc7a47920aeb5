"""The input of `deltasql shell`: statements, and the help that lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

QUERIES = ("select", "with", "from", "values", "explain", "describe", "summarize", "show")
_STATEMENTS = (
    *("insert", "update", "delete", "merge", "truncate", "create", "replace", "alter", "drop"),
    *("undrop", "comment", "convert", "desc", "begin", "start", "commit"),
)
# Words that start an SQL statement and are also names of commands.
_BOTH = ("optimize", "vacuum", "restore", "rollback")
HELP = """\
SQL ends with a semicolon and may span lines; sales@3 is version 3 of sales. Queries are written in
DuckDB's SQL. Statements that change tables, and all SQL between BEGIN; and COMMIT;, are written as
for `deltasql sql`. OPTIMIZE, VACUUM, RESTORE and ROLLBACK with a semicolon are SQL too.
Everything else is a command as on the command line, without `deltasql`: table list, head sales.

  \\d            tables                     \\d sales     columns of a table
  \\f json       format of results          \\?           this help
  \\x            columns one below the other, or side by side again
  \\q            leave, as exit and Ctrl-D  --help       all commands
"""


def statements(lines: Iterable[str]) -> Iterable[str]:
    """Yield statements: SQL up to its semicolon, or one line that is a command.

    Comment lines between statements are skipped.

    >>> list(statements(["table list", "SELECT 1", "FROM sales;", "# a remark", "mirror status"]))
    ['table list', 'SELECT 1\\nFROM sales;', 'mirror status']
    """
    kept: list[str] = []
    for line in lines:
        text = line.rstrip("\r\n")
        if not kept and text.lstrip().startswith(("#", "--")):
            continue
        kept.append(text)
        if is_complete("\n".join(kept)):
            yield "\n".join(kept)
            kept = []
    if any(each.strip() for each in kept):
        yield "\n".join(kept)


def is_sql(text: str) -> bool:
    """Return whether a string is SQL and not a command.

    The first word decides. If it is also the name of a command, only text with a semicolon at the
    end is SQL.

    >>> is_sql("SELECT 1"), is_sql("(SELECT 1)"), is_sql("table list"), is_sql("show tables")
    (True, True, False, True)
    >>> is_sql("vacuum sales --dry-run"), is_sql("VACUUM sales DRY RUN;"), is_sql("COMMIT;")
    (False, True, True)
    """
    first = first_word(text)
    if first in _BOTH:
        return text.rstrip().endswith(";")
    return first.startswith("(") or first in (*QUERIES, *_STATEMENTS)


def first_word(text: str) -> str:
    """Return the first word in lower case, without a semicolon."""
    first, *_ = [*text.lower().split(maxsplit=1), ""]
    return first.removesuffix(";")


def is_complete(text: str) -> bool:
    """Return whether a statement is complete; an SQL statement must end with a semicolon."""
    return not is_sql(text) or text.rstrip().endswith(";")
