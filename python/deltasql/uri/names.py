"""Names of tables and namespaces, and functions that all parts of the URI parser use."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import NoReturn
from urllib.parse import quote, unquote

from deltasql.exceptions import TxnLogUriError

DEFAULT_NAMESPACE = "default"

_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NAME_HELP = (
    "A name has 1 to 255 characters, no control character and no '/', and is not '.' or '..'. "
    "Separate namespace and name by one dot; write %2E for a dot inside a name."
)


@lru_cache(maxsize=4096)
def split_table_name(text: str) -> tuple[str, str]:
    """Parse `name` or `namespace.name`; a dot in a name is written `%2E`.

    >>> split_table_name("crm.sales"), split_table_name("v1%2E2")
    (('crm', 'sales'), ('default', 'v1.2'))
    """
    parts = [decoded(part, "table name") for part in text.split(".")]
    if len(parts) > 2:
        fail(f"table name {text!r} has {len(parts)} parts", text, _NAME_HELP)
    namespace, name = parts if len(parts) == 2 else (DEFAULT_NAMESPACE, parts[0])
    check_name("namespace", namespace)
    check_name("table", name)
    return namespace, name


def join_table_name(namespace: str, name: str) -> str:
    """Return the string that `split_table_name` parses.

    >>> join_table_name("crm", "v1.2")
    'crm.v1%2E2'
    """
    quoted = [part.replace("%", "%25").replace(".", "%2E") for part in (namespace, name)]
    return quoted[1] if namespace == DEFAULT_NAMESPACE else ".".join(quoted)


def write_table_name(namespace: str, name: str) -> str:
    """Return namespace and name for a URI, with all special characters percent-encoded."""
    quoted = [quote(part, safe="").replace(".", "%2E") for part in (namespace, name)]
    return quoted[1] if namespace == DEFAULT_NAMESPACE else ".".join(quoted)


def check_name(what: str, name: str) -> None:
    """Raise TxnLogUriError if a name is not valid for a table or namespace."""
    if name in ("", ".", "..") or len(name) > 255 or "/" in name or not is_plain(name):
        shown = repr(name) if len(name) <= 60 else f"{name[:60]!r}…"
        fail(f"{shown} is not a valid {what} name", name, _NAME_HELP)


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
