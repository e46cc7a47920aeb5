"""Read a statement token by token: words, names, literals, and parts that stay text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import sqlglot
from sqlglot.dialects.databricks import Databricks
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from deltasql.exceptions import InvalidQueryError
from deltasql.model.statements.statement import SqlPart, TableRef

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import TypeVar

    T = TypeVar("T")

_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
_QUOTED = (TokenType.IDENTIFIER, TokenType.STRING)


class StatementDialect(Databricks):
    """Spark's SQL as Databricks writes it, with `OPTIMIZE`, `SHOW` and others as plain words."""

    class Tokenizer(Databricks.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()


@dataclass(frozen=True, slots=True)
class Word:
    """A token: a word, a sign, a quoted name or a string, and its place in the text."""

    text: str
    kind: TokenType
    start: int
    end: int

    @property
    def upper(self) -> str:
        """The word in upper case; empty for quoted names and strings."""
        return "" if self.kind in _QUOTED else self.text.upper()


def words_of(text: str) -> list[Word]:
    """Return the tokens of a text; each word of ORDER BY and similar keywords is a token.

    >>> [word.text for word in words_of("OPTIMIZE t ORDER BY `a b`")]
    ['OPTIMIZE', 't', 'ORDER', 'BY', 'a b']
    """
    try:
        tokens = sqlglot.tokenize(text, read=StatementDialect)
    except SqlglotError as error:
        raise InvalidQueryError(
            "the statement cannot be read: a quote or a comment is not closed",
            help="Close every quote, backquote and comment.",
        ) from error
    found: list[Word] = []
    for token in tokens:
        if token.token_type in _QUOTED or not re.search(r"\s", token.text):
            found.append(Word(token.text, token.token_type, token.start, token.end + 1))
            continue
        for word in re.finditer(r"\S+", text[token.start : token.end + 1]):
            start, end = token.start + word.start(), token.start + word.end()
            found.append(Word(word[0], token.token_type, start, end))
    return found


def split_statements(text: str) -> list[str]:
    """Split a script at its semicolons, except those in quotes and comments.

    >>> split_statements("BEGIN; INSERT INTO t VALUES (';'); COMMIT;")
    ['BEGIN', "INSERT INTO t VALUES (';')", 'COMMIT']
    """
    found, start, first = [], 0, True
    for word in words_of(text):
        if word.kind is TokenType.SEMICOLON:
            if not first:
                found.append(text[start : word.start].strip())
            start, first = word.end, True
        elif first:
            start, first = word.start, False
    if not first:
        found.append(text[start:].strip())
    return found


class Reader:
    """Reads the tokens of one statement from left to right."""

    def __init__(self, text: str) -> None:
        text, words = _named(text)
        while words and words[-1].kind is TokenType.SEMICOLON:
            words.pop()
        if any(word.kind is TokenType.SEMICOLON for word in words):
            raise InvalidQueryError(
                "the text has several statements, but only one can be run",
                help="Run them one after the other, or write them to a file for `deltasql sql -f`.",
            )
        self.text, self.words, self.place = text, words, 0

    # Words

    def peek(self, ahead: int = 0) -> str:
        """Return the next word, or the word `ahead` places after it, in upper case.

        If there is no such word, return an empty string.
        """
        place = self.place + ahead
        return self.words[place].upper if place < len(self.words) else ""

    @property
    def at_end(self) -> bool:
        return self.place >= len(self.words)

    def accept(self, *words: str) -> bool:
        """Skip these words if they come next; return whether they did."""
        if all(self.peek(ahead) == word for ahead, word in enumerate(words)):
            self.place += len(words)
            return True
        return False

    def expect(self, *words: str) -> None:
        """Skip these words; raise an error if something else comes next."""
        if not self.accept(*words):
            raise self.error(f"expected {' '.join(words)}")

    def one_of(self, *words: str) -> str:
        """Skip one of these words and return it."""
        for word in words:
            if self.accept(word):
                return word
        raise self.error(f"expected {', '.join(words[:-1])} or {words[-1]}")

    def finish(self) -> None:
        """Raise an error if there are more tokens."""
        if not self.at_end:
            raise self.error("the statement should end here")

    def error(self, problem: str) -> InvalidQueryError:
        """Return an error that shows where the problem is."""
        if self.at_end:
            found = "the statement ends"
        else:
            word = self.words[self.place]
            line = self.text.count("\n", 0, word.start) + 1
            found = f"found {self.text[word.start : word.end][:40]!r}, line {line}"
        return InvalidQueryError(
            f"cannot parse the statement: {problem}, but {found}",
            help="`deltasql docs sql` lists the statements and their grammar.",
        )

    # Names and literals

    def identifier(self) -> str:
        """Read one name, quoted or not."""
        if self.at_end:
            raise self.error("expected a name")
        word = self.words[self.place]
        is_name = word.kind is TokenType.IDENTIFIER or (
            word.kind is not TokenType.STRING and re.fullmatch(r"\w+", word.text)
        )
        if not is_name:
            raise self.error("expected a name")
        self.place += 1
        return word.text

    def names(self) -> tuple[str, ...]:
        """Read names that are separated by dots."""
        found = [self.identifier()]
        while self.peek() == ".":
            self.place += 1
            found.append(self.identifier())
        return tuple(found)

    def table(self) -> TableRef:
        return TableRef(self.names())

    def column(self) -> str:
        """Read the name of a column or of a field in it, as the Python API writes it."""
        return ".".join(_quoted(part) for part in self.names())

    def columns(self) -> tuple[str, ...]:
        """Read column names in parentheses."""
        return tuple(self.parenthesized(self.column))

    def parenthesized(self, read: Callable[[], T]) -> list[T]:
        """Read a list in parentheses that has at least one element."""
        self.expect("(")
        found = [read()]
        while self.accept(","):
            found.append(read())
        self.expect(")")
        return found

    @property
    def at_string(self) -> bool:
        return not self.at_end and self.words[self.place].kind is TokenType.STRING

    def string(self) -> str:
        """Read a string literal."""
        if not self.at_string:
            raise self.error("expected a string in quotes")
        return self.any_text()

    def any_text(self) -> str:
        """Read one token: a word, a number, or a string without its quotes."""
        if self.at_end or self.peek() in (",", *_OPENING, *_CLOSING):
            raise self.error("expected a value")
        self.place += 1
        return self.words[self.place - 1].text

    def number(self) -> str:
        """Read a number without a sign."""
        if self.at_end or self.words[self.place].kind is not TokenType.NUMBER:
            raise self.error("expected a number")
        self.place += 1
        return self.words[self.place - 1].text

    def whole_number(self) -> int:
        if self.at_end or not self.words[self.place].text.isdecimal():
            raise self.error("expected a whole number")
        return int(self.number())

    # Parts that stay text

    def part(self, *until: str, what: str = "an expression") -> SqlPart:
        """Read up to one of these words outside of parentheses and CASE, or up to the end."""
        start = self.place
        self._skip(until)
        if self.place == start:
            raise self.error(f"expected {what}")
        return self._between(start, self.place)

    def rest(self, what: str) -> SqlPart:
        """Read everything up to the end."""
        return self.part(what=what)

    def query(self) -> SqlPart:
        """Read a query up to the end; `TABLE sales` is `SELECT * FROM sales`."""
        if self.accept("TABLE"):
            name = self.rest("a table").text
            return SqlPart(f"SELECT * FROM {name}")  # noqa: S608 - text of the user's statement
        return self.rest("a query")

    def inside_parentheses(self) -> SqlPart:
        """Read an expression in parentheses, and return it without the parentheses."""
        self.expect("(")
        found = self.part(")")
        self.expect(")")
        return found

    def _skip(self, until: Collection[str]) -> None:
        depth = cases = 0
        while not self.at_end:
            word = self.peek()
            if depth == 0 and cases == 0 and word in until:
                return
            if word in _OPENING:
                depth += 1
            elif word in _CLOSING:
                if depth == 0:
                    return
                depth -= 1
            elif word == "CASE":
                cases += 1
            elif word == "END" and cases:
                cases -= 1
            self.place += 1

    def _between(self, start: int, end: int) -> SqlPart:
        return SqlPart(self.text[self.words[start].start : self.words[end - 1].end])


def _named(text: str) -> tuple[str, list[Word]]:
    """Give each `?` of a statement a name: `:_1`, `:_2` and so on."""
    words = words_of(text)
    asked = [word for word in words if word.kind is TokenType.PLACEHOLDER]
    if not asked:
        return text, words
    for number, word in reversed([*enumerate(asked, 1)]):
        text = f"{text[: word.start]}:_{number}{text[word.end :]}"
    return text, words_of(text)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else "`" + name.replace("`", "``") + "`"


def matching(names: Sequence[str], pattern: str | None) -> list[str]:
    """Return the names that match a pattern of SHOW: `*` is any text and `|` separates patterns.

    >>> matching(["orders", "stock"], "or*|x"), matching(["orders"], None)
    (['orders'], ['orders'])
    """
    if pattern is None:
        return list(names)
    options = ["".join(".*" if c == "*" else re.escape(c) for c in p) for p in pattern.split("|")]
    return [name for name in names if any(re.fullmatch(o, name, re.I) for o in options)]
