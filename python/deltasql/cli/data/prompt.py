"""The prompt of `deltasql shell`: input, completion and history."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from click.shell_completion import ShellComplete

from deltasql.cli.data.statements import HELP, is_complete, is_sql
from deltasql.exceptions import MissingDriverError, TxnLogError, redact

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.history import FileHistory
except ImportError as error:  # pragma: no cover - the extra is not installed
    raise MissingDriverError(
        "the interactive shell needs prompt_toolkit", driver="prompt_toolkit", extra="cli"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.cli.context import Context

KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "OFFSET", "JOIN"),
    *("LEFT JOIN", "USING", "ON", "AS", "AND", "OR", "NOT", "IN", "IS", "NULL", "LIKE", "BETWEEN"),
    *("DISTINCT", "UNION", "ALL", "EXCEPT", "INTERSECT", "WITH", "CASE", "WHEN", "THEN", "ELSE"),
    *("END", "CAST", "COUNT", "SUM", "AVG", "MIN", "MAX", "DESC", "ASC", "EXPLAIN", "DESCRIBE"),
    *("SUMMARIZE", "SHOW TABLES", "OVER", "PARTITION BY", "QUALIFY", "DATE", "TIMESTAMP", "TRUE"),
    *("FALSE", "INTERVAL", "EXISTS", "VALUES", "INSERT INTO", "UPDATE", "SET", "DELETE FROM"),
    *("MERGE INTO", "CREATE TABLE", "ALTER TABLE", "BEGIN", "COMMIT"),
)
_BACKSLASH_COMMANDS = tuple(sorted(set(re.findall(r"\\[a-z?]", HELP))))
_WORD = re.compile(r"[\w.\\]*$")
_NAMED = re.compile(r'"?([\w]+(?:\.[\w]+)?)"?')


def lines(context: Context, catalog: Catalog) -> Iterator[str]:
    """Read statements from the terminal and yield them one by one, until Ctrl-D."""
    completer = ShellCompleter(context, catalog)
    prompt: PromptSession[str] = PromptSession(
        history=RedactedHistory(str(history_path())),
        completer=completer,
        complete_while_typing=False,
        multiline=Condition(lambda: not is_complete(prompt.default_buffer.text)),
        prompt_continuation=lambda width, number, wrap: " " * (width - 2) + "> ",
    )
    while True:
        try:
            text = prompt.prompt("deltasql> ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        yield text
        completer.forget()


def history_path() -> Path:
    """Return the path of the history file; only its owner can read it."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    path = Path(home).expanduser() / "deltasql" / "history"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    return path


class RedactedHistory(FileHistory):
    """A history file in which secrets are redacted."""

    def store_string(self, string: str) -> None:
        super().store_string(redact(string))


class ShellCompleter(Completer):
    """Completes commands and options, and in SQL the names of tables, columns and keywords."""

    def __init__(self, context: Context, catalog: Catalog) -> None:
        self._context, self._catalog = context, catalog
        self._names: list[str] | None = None
        self._columns: dict[str, tuple[str, ...]] = {}

    def forget(self) -> None:
        """Drop the cached names of tables and columns: a command may have changed them."""
        self._names = None
        self._columns.clear()

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        text = document.text_before_cursor
        if is_sql(text) and (" " in text or "\n" in text):
            yield from self._sql(text)
        elif text.startswith("\\"):
            yield from self._backslash_command(text)
        else:
            yield from self._command(text)

    def _command(self, text: str) -> Iterator[Completion]:
        from deltasql.cli.main import main

        try:
            arguments = shlex.split(text)
        except ValueError:  # a quote is not closed yet
            return
        last = "" if not text or text[-1].isspace() else arguments.pop()
        found = ShellComplete(main, {"obj": self._context}, "deltasql", "")
        for item in found.get_completions(arguments, last):
            if item.type == "plain":
                yield Completion(str(item.value), -len(last), display_meta=item.help or "")
        if not arguments:
            yield from _starting(last, [*_BACKSLASH_COMMANDS, *KEYWORDS])

    def _backslash_command(self, text: str) -> Iterator[Completion]:
        command, space, rest = text.partition(" ")
        if not space:
            yield from _starting(command, _BACKSLASH_COMMANDS)
        elif command == "\\d":
            yield from _starting(rest, self._tables())

    def _sql(self, text: str) -> Iterator[Completion]:
        match = _WORD.search(text)
        word = match[0] if match else ""
        tables = self._tables()
        mentioned = [name for name in _NAMED.findall(text) if name in tables]
        columns = [column for name in mentioned for column in self._columns_of(name)]
        yield from _starting(word, dict.fromkeys([*columns, *tables, *KEYWORDS]))

    def _tables(self) -> list[str]:
        if self._names is None:
            try:
                self._names = [each.full_name for each in self._catalog.tables()]
            except TxnLogError:
                return []
        return self._names

    def _columns_of(self, name: str) -> tuple[str, ...]:
        if name not in self._columns:
            try:
                found = self._catalog.table(name).snapshot().schema.names
            except TxnLogError:
                return ()
            self._columns[name] = found
        return self._columns[name]


def _starting(word: str, names: Iterable[str]) -> Iterator[Completion]:
    for name in names:
        if name.casefold().startswith(word.casefold()):
            yield Completion(name, -len(word))
