"""Parse a string into a `DeltaSqlUri`.

An error never contains what may be a part of a password: a `/`, `?` or `@` in a password that is
not percent-encoded shifts the boundaries of all parts after it.
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from deltasql.exceptions import MASK, TxnLogUriError, redact
from deltasql.uri.names import DEFAULT_NAMESPACE, decoded, fail, split_table_name
from deltasql.uri.parameters import PARAMETERS, Backend
from deltasql.uri.value import FORMS, SCHEME, DeltaSqlUri

if TYPE_CHECKING:
    from collections.abc import Mapping

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
# Compiled at import, so that opening a table does not compile them.
_PARAMETER_NAME = re.compile(r"\w{1,40}")
_ADDRESS = re.compile(r"(?:\[([^\]]*)\]|([^:\[\]]*))(?::([^:]*))?")
_DUCKDB_FILES = (".duckdb", ".ddb")
_LOGIN_SECRET = re.compile(r"^(\w*:/+[^/]*/[^:/@]*:).*(?=@)", re.DOTALL)


def parse_uri(text: str, *, environ: Mapping[str, str] | None = None) -> DeltaSqlUri:
    """Parse a URI; raise TxnLogUriError with the wrong part and the expected form.

    >>> parse_uri("deltasql://sqlite/meta.db?tabel=sales")
    Traceback (most recent call last):
    deltasql.exceptions.TxnLogUriError: unknown parameter 'tabel' (uri: deltasql://sqlite/meta.db?tabel=sales)
    Help: did you mean 'table'? Known: table, version, timestamp, location, mirror, pool_size.
    Docs: docs/reference/errors.md#txnlogurierror
    """
    try:
        if "$" not in text:
            return _parse_fixed(text)
        return _parse(text, os.environ if environ is None else environ)
    except TxnLogUriError as error:
        error.uri = redact(_LOGIN_SECRET.sub(rf"\g<1>{MASK}", text))
        raise


@lru_cache(maxsize=256)
def _parse_fixed(text: str) -> DeltaSqlUri:
    """Parse a URI without variables; the result is cached."""
    return _parse(text, {})


def _parse(text: str, environ: Mapping[str, str]) -> DeltaSqlUri:
    expanded = _expand(text, environ)
    if not expanded.startswith(SCHEME):
        if "://" not in expanded:
            if found := re.match(r"deltasql:/*", expanded):
                shown = f"a URI starts with {SCHEME}, this one with {found[0]!r}"
                fail(shown, None, f"write {SCHEME} and the rest as it is.")
            fail(f"a URI starts with {SCHEME}, this one has no scheme", None, _of_path(expanded))
        scheme = expanded.partition("://")[0]
        fail(f"a URI starts with {SCHEME}, this one has {scheme!r}", scheme)
    if "#" in expanded:
        fail("'#' has no meaning in a deltasql URI", "#", "write %23 for a '#' inside a part.")
    head, _, query = expanded.removeprefix(SCHEME).partition("?")
    backend, _, path = head.partition("/")
    if backend not in FORMS:
        shown = repr(backend) if re.fullmatch(r"\w*", backend) else "what follows deltasql://"
        nearest = get_close_matches(backend, FORMS, 1, 0.4)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        fail(f"{shown} is not a backend", None, f"{hint}Backends: {', '.join(FORMS)}.")
    parts: dict[str, Any] = _read_query(backend, query)
    place = (
        _read_postgres_path(path) if backend == "postgres" else {"database": decoded(path, "path")}
    )
    twice = next((name for name in ("table", "host") if name in parts and name in place), None)
    if twice:
        fail(f"{twice} is given twice, in the path and as a parameter", twice)
    return DeltaSqlUri(backend=cast("Backend", backend), **place, **parts)


def is_database_file(text: str) -> bool:
    """Return whether a string looks like the name of a database file.

    >>> is_database_file("meta.db"), is_database_file("prod")
    (True, False)
    """
    return text.endswith((*_DUCKDB_FILES, ".db", ".sqlite", ".sqlite3"))


def _of_path(text: str) -> str:
    """Return the help text for a path instead of a URI; empty if it is not a path."""
    if not text or re.search(r"[:@?]", text):
        return ""
    backend = "duckdb" if text.endswith(_DUCKDB_FILES) else "sqlite"
    written = f"a database file is written {SCHEME}{backend}/{text}"
    if is_database_file(text):
        return f"{written}."
    return f"{written}; a Delta table at a path is brought in by `deltasql import {text}`."


def _expand(text: str, environ: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        name, default = found.groups()
        known = environ.get(name)
        if default is not None and not known:
            return cast("str", default)
        if known is None:
            fail(
                f"environment variable {name} is not set",
                found.group(0),
                f"export {name}=…, or give a default: ${{{name}:-value}}.",
            )
        return known

    opening = _VARIABLE.match(text)
    whole, rest = (value(opening), text[opening.end() :]) if opening else ("", text)
    expanded = whole + _VARIABLE.sub(lambda found: quote(value(found), safe=""), rest)
    if "${" in expanded:
        fail("'${' opens no variable here", "${", "write ${NAME} or ${NAME:-default}, %24 for '$'.")
    return expanded


def _read_query(backend: str, query: str) -> dict[str, Any]:
    pieces = [piece.partition("=") for piece in query.split("&")] if query else []
    # This may be the rest of a password with a raw '?' or '&': do not show it.
    if not all(_PARAMETER_NAME.fullmatch(name) for name, _, _ in pieces):
        fail("a parameter has no proper name", None, "write ?name=value&name=value.")
    known = [name for name, parameter in PARAMETERS.items() if backend in parameter.backends]
    values: dict[str, Any] = {}
    for name, _, raw in pieces:
        if name not in PARAMETERS:
            nearest = get_close_matches(name, known, 1)
            hint = f"did you mean {nearest[0]!r}? " if nearest else ""
            fail(f"unknown parameter {name!r}", name, f"{hint}Known: {', '.join(known)}.")
        parameter = PARAMETERS[name]
        if name not in known:
            only = " and ".join(parameter.backends)
            fail(f"parameter {name!r} is for {only}, not for {backend}", name)
        if name in values:
            fail(f"parameter {name!r} is given twice", name, f"keep one {name}=….")
        if name == "table":
            values["namespace"], values["table"] = split_table_name(raw)
            continue
        text = decoded(raw, name)
        try:
            values[name] = parameter.read(text)
        except (ValueError, OverflowError):
            parameter.refuse(text)
    return values


def _read_postgres_path(path: str) -> dict[str, Any]:
    first, *rest = path.split("/")
    has_server = "@" in first or ":" in first
    place = _read_server(first) if has_server else {}
    segments = rest if has_server else [first, *rest]
    if not segments or segments == [""]:
        fail("no database is named", None, f"write {FORMS['postgres']}.")
    if any("@" in segment or ":" in segment for segment in segments):
        fail(
            "a raw '@' or ':' stands after the server part",
            None,
            "percent-encode user, password and names: / is %2F, @ is %40, : is %3A, ? is %3F.",
        )
    names = [decoded(segment, "path") for segment in segments]
    if "" in names or len(names) > 3:
        what = "has an empty part" if "" in names else f"has {len(names)} parts"
        fail(
            f"the path {'/'.join(names)!r} {what}",
            "/".join(names),
            "write database, database/table or database/namespace/table.",
        )
    place["database"] = names[0]
    if len(names) > 1:
        place["table"] = names[-1]
        place["namespace"] = names[1] if len(names) == 3 else DEFAULT_NAMESPACE
    return place


def _read_server(text: str) -> dict[str, Any]:
    login, at, address = text.rpartition("@")
    user, _, password = login.partition(":")
    found = _ADDRESS.fullmatch(address)
    if not found:
        fail(
            "the host is not understood" if not at else f"host {address!r} is not understood",
            address if at else None,
            "write host, host:5432 or, for IPv6, [::1]:5432.",
        )
    bracketed, plain, port = found.groups()
    if port and not re.fullmatch(r"[0-9]{1,5}", port):
        # Without an '@' this may be the start of a password with a raw slash.
        shown = repr(decoded(port, "port")) if at else "what follows ':'"
        fail(
            f"{shown} is not a port",
            port if at else None,
            "write host:5432; a '/' or '@' in a password is percent-encoded, %2F or %40.",
        )
    parts = {
        "user": decoded(user, "user"),
        "password": decoded(password, "password"),
        "host": decoded(bracketed or plain or "", "host"),
        "port": int(port) if port else None,
    }
    return {name: value for name, value in parts.items() if value not in ("", None)}
