"""The query parameters of a URI, and checks of the text of any part of a URI."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args
from urllib.parse import unquote

from deltasql.exceptions import TxnLogUriError

if TYPE_CHECKING:
    from collections.abc import Callable

Backend = Literal["sqlite", "duckdb", "postgres"]
MirrorMode = Literal["sync", "async", "off"]
Pooler = Literal["auto", "none", "transaction"]
SslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]

_POSTGRES = ("postgres",)
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter: how it is parsed, and which values are allowed."""

    name: str
    allowed: str
    doc: str
    read: Callable[[str], object]
    accepts: Callable[[Any], bool]
    backends: tuple[str, ...] = get_args(Backend)

    def raise_invalid(self, value: object) -> NoReturn:
        """Raise TxnLogUriError for a value that is not allowed."""
        fail(f"{self.name} {value!r} is not allowed", str(value), f"{self.name} is {self.allowed}.")


def _parse_int(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,19}", text):
        raise ValueError(text)
    return int(text)


def _instant(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)


def _between(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _one_of(choices: tuple[str, ...]) -> Callable[[Any], bool]:
    return lambda value: value in choices


def _is_instant(value: object) -> bool:
    return isinstance(value, datetime) and value.utcoffset() is not None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != "" and is_plain(value)


def _is_identifier(value: object) -> bool:
    return (
        isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", value) is not None
    )


def _choices(choices: tuple[str, ...]) -> str:
    return f"one of {', '.join(choices)}"


_MIRROR, _SSL, _POOLERS = get_args(MirrorMode), get_args(SslMode), get_args(Pooler)

PARAMETERS: dict[str, Parameter] = {
    each.name: each
    for each in (
        Parameter("table", "name or namespace.name", "the table", str, _is_text),
        Parameter(
            "version",
            "a whole number from 0",
            "read the table at this version",
            _parse_int,
            _between(0, 2**63 - 1),
        ),
        Parameter(
            "timestamp",
            "an ISO 8601 time such as 2026-01-31T12:00:00Z; without a zone it is UTC",
            "read the table as it was at this time; cannot be combined with `version`",
            _instant,
            _is_instant,
        ),
        Parameter(
            "location",
            "an absolute path, a file:// URL or a URL of a bucket",
            "location of the data files of a new table",
            str,
            _is_text,
        ),
        Parameter(
            "mirror", _choices(_MIRROR), "when `_delta_log` is written", str, _one_of(_MIRROR)
        ),
        Parameter(
            "pool_size",
            "a whole number from 1 to 1000",
            "maximum number of connections",
            _parse_int,
            _between(1, 1000),
        ),
        Parameter(
            "host",
            "a host name, an address or a socket directory",
            "the server, when it is not in the path",
            str,
            _is_text,
            _POSTGRES,
        ),
        Parameter(
            "connect_timeout",
            "whole seconds from 1 to 3600",
            "how long to wait for a connection",
            _parse_int,
            _between(1, 3600),
            _POSTGRES,
        ),
        Parameter(
            "sslmode",
            _choices(_SSL),
            "how the connection is encrypted",
            str,
            _one_of(_SSL),
            _POSTGRES,
        ),
        Parameter("sslrootcert", "a path", "trusted certificates", str, _is_text, _POSTGRES),
        Parameter("sslcert", "a path", "the client's certificate", str, _is_text, _POSTGRES),
        Parameter("sslkey", "a path", "the client's private key", str, _is_text, _POSTGRES),
        Parameter(
            "application_name",
            "any text",
            "name of the connections in pg_stat_activity",
            str,
            _is_text,
            _POSTGRES,
        ),
        Parameter(
            "search_path",
            "a schema name of letters, digits and _",
            "the PostgreSQL schema that holds the `dl_*` tables",
            str,
            _is_identifier,
            _POSTGRES,
        ),
        Parameter(
            "pooler",
            _choices(_POOLERS),
            "whether a connection pooler is in front of the server; see `store.pooler`",
            str,
            _one_of(_POOLERS),
            _POSTGRES,
        ),
    )
}


def is_plain(text: str) -> bool:
    """Return whether a string has no control characters and no lone surrogates."""
    return not any(unicodedata.category(char) in ("Cc", "Cs") for char in text)


def decoded(text: str, what: str) -> str:
    """Percent-decode a string; raise TxnLogUriError, without the password, if it is not valid."""
    shown = "" if what == "password" else f" {text!r}"
    if _BARE_PERCENT.search(text):
        fail(f"{what}{shown} contains a '%' without two hex digits", None, "Write %25 for a '%'.")
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        fail(f"{what}{shown} does not decode to UTF-8", None, "Percent-encode its UTF-8 bytes.")


def fail(message: str, part: str | None = None, help: str = "") -> NoReturn:
    """Raise TxnLogUriError."""
    raise TxnLogUriError(message, part=part, help=help)
