"""The class `DeltaSqlUri` and table names: how they are parsed, checked and written.

An error message never contains anything that may be part of a password. If a password contains a
`/`, `?` or `@` that is not percent-encoded, the URI is split at the wrong places, and all later
parts may contain pieces of the password.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast, get_args
from urllib.parse import quote

from deltasql.exceptions import MASK, TxnLogUriError, redact
from deltasql.uri.parameters import (
    PARAMETERS,
    Backend,
    MirrorMode,
    Pooler,
    SslMode,
    decoded,
    fail,
    is_plain,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEME = "deltasql://"
DEFAULT_NAMESPACE = "default"
MEMORY = ":memory:"
FORMS = {
    "sqlite": "deltasql://sqlite//abs/meta.db?table=name",
    "duckdb": "deltasql://duckdb//abs/meta.duckdb?table=name",
    "postgres": "deltasql://postgres/user:password@host:5432/database?table=name",
}
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
# Compiled at import, so that opening a table does not compile them.
_PARAMETER_NAME = re.compile(r"\w{1,40}")
_ADDRESS = re.compile(r"(?:\[([^\]]*)\]|([^:\[\]]*))(?::([^:]*))?")
_DUCKDB_FILES = (".duckdb", ".ddb")
_NAME_HELP = (
    "A name has 1 to 255 characters, no control character and no '/', and is not '.' or '..'. "
    "Separate namespace and name by one dot; write %2E for a dot inside a name."
)
_LOGIN_SECRET = re.compile(r"^(\w*:/+[^/]*/[^:/@]*:).*(?=@)", re.DOTALL)


@dataclass(frozen=True, repr=False, kw_only=True)
class DeltaSqlUri:
    """A parsed URI; `str()` and `repr()` mask the password, `to_string()` includes it.

    >>> DeltaSqlUri(backend="sqlite", database="/data/meta.db", table="sales").to_string()
    'deltasql://sqlite//data/meta.db?table=sales'
    """

    backend: Backend
    database: str
    """The path of the file, `:memory:`, or the name of the PostgreSQL database."""
    table: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    user: str | None = None
    password: str | None = None
    host: str | None = None
    port: int | None = None
    version: int | None = None
    timestamp: datetime | None = None
    location: str | None = None
    mirror: MirrorMode | None = None
    pool_size: int | None = None
    connect_timeout: int | None = None
    sslmode: SslMode | None = None
    sslrootcert: str | None = None
    sslcert: str | None = None
    sslkey: str | None = None
    application_name: str | None = None
    search_path: str | None = None
    pooler: Pooler | None = None

    def __post_init__(self) -> None:
        _check(self)

    @property
    def is_catalog(self) -> bool:
        """Whether the URI refers to a catalog, without a table."""
        return self.table is None

    @classmethod
    def for_file(cls, path: str) -> DeltaSqlUri:
        """Return the URI of a catalog in a local file, with the default database."""
        return cls(backend="sqlite", database=path)

    @property
    def is_server(self) -> bool:
        """Whether the database is on a server."""
        return self.backend == "postgres"

    @property
    def is_memory(self) -> bool:
        """Whether the database is in memory."""
        return not self.is_server and self.database == MEMORY

    @property
    def is_file(self) -> bool:
        """Whether the database is a file: not on a server, and not in memory."""
        return not self.is_server and self.database != MEMORY

    @property
    def table_name(self) -> str | None:
        """The table in the form of `?table=`, without the default namespace."""
        return None if self.table is None else join_table_name(self.namespace, self.table)

    def catalog(self) -> DeltaSqlUri:
        """Return the URI of the catalog: without table, version, timestamp and location."""
        return replace(
            self,
            table=None,
            namespace=DEFAULT_NAMESPACE,
            version=None,
            timestamp=None,
            location=None,
        )

    def with_table(self, name: str, namespace: str | None = None) -> DeltaSqlUri:
        """Return the URI of a table in this catalog; a dot in `name` is part of the name."""
        return replace(self.catalog(), table=name, namespace=namespace or DEFAULT_NAMESPACE)

    def to_string(self, *, redacted: bool = False) -> str:
        """Return the URI as a string for `parse_uri`, with its password unless `redacted`."""
        given = {name: getattr(self, name) for name in PARAMETERS}
        written = {name: _write(value) for name, value in given.items() if value is not None}
        if self.backend == "postgres":
            path = _write_postgres_path(self, MASK if redacted else self.password)
            if not _is_socket(self.host):
                written.pop("host", None)
        else:
            path = quote(self.database, safe="/:")
        if self.table is not None:
            written["table"] = _write_table_name(self.namespace, self.table)
        query = "&".join(f"{name}={value}" for name, value in written.items())
        return f"{SCHEME}{self.backend}/{path}{'?' if query else ''}{query}"

    def __str__(self) -> str:
        return self.to_string(redacted=True)

    def __repr__(self) -> str:
        return f"DeltaSqlUri({str(self)!r})"


def is_deltasql_uri(text: object) -> bool:
    """Return whether this is a `deltasql://` URI and not a path.

    >>> is_deltasql_uri("deltasql://sqlite/meta.db"), is_deltasql_uri("/data/sales")
    (True, False)
    """
    return isinstance(text, DeltaSqlUri) or (isinstance(text, str) and text.startswith(SCHEME))


def _check(uri: DeltaSqlUri) -> None:
    if uri.backend not in get_args(Backend):
        fail(f"{uri.backend!r} is not a backend", str(uri.backend))
    if not uri.database:
        fail("no database is named", None, f"Write {FORMS[uri.backend]}.")
    if not is_plain(uri.database):
        fail(f"database {uri.database!r} contains a control character", uri.database)
    if uri.backend == "postgres":
        _check_server(uri)
    else:
        _check_file(uri)
    _check_name("namespace", uri.namespace)
    if uri.table is not None:
        _check_name("table", uri.table)
    elif uri.namespace != DEFAULT_NAMESPACE:
        fail(f"namespace {uri.namespace!r} is given without a table", uri.namespace)
    for name, parameter in PARAMETERS.items():
        value = getattr(uri, name)
        if value is None:
            continue
        if uri.backend not in parameter.backends:
            fail(f"{name} is for {' and '.join(parameter.backends)}, not {uri.backend}", name)
        if not parameter.accepts(value):
            parameter.raise_invalid(value)
        if uri.table is None and name in ("version", "timestamp", "location"):
            fail(f"{name} is given without a table", name, f"Write {FORMS[uri.backend]}.")
    if uri.version is not None and uri.timestamp is not None:
        fail("version and timestamp cannot be used together", "timestamp", "Keep one of them.")


def _check_file(uri: DeltaSqlUri) -> None:
    for name in ("user", "password", "host", "port"):
        if getattr(uri, name) is not None:
            fail(f"{name} is for postgres, not {uri.backend}", name)
    if uri.database.endswith("/"):
        fail(f"{uri.database!r} is a directory, not a database file", uri.database)
    if uri.database == MEMORY and uri.backend == "sqlite":
        fail(
            "an in-memory SQLite database cannot be shared by the connections of a store",
            MEMORY,
            "Use a file, or deltasql://duckdb/:memory: for a catalog that ends with the process.",
        )


def _check_server(uri: DeltaSqlUri) -> None:
    for name in ("user", "password", "host"):
        value = getattr(uri, name)
        if value is not None and (value == "" or not is_plain(value)):
            fail(f"the {name} is empty or contains a control character", name)
    if uri.port is not None and not (type(uri.port) is int and 1 <= uri.port <= 65535):
        fail(f"port {uri.port!r} is not a port", str(uri.port), "Write a port from 1 to 65535.")
    if uri.host is None or _is_socket(uri.host):
        return
    try:
        is_name = ":" not in uri.host or ipaddress.IPv6Address(uri.host) is not None
    except ValueError:
        is_name = False
    if not is_name or any(char in " @?#[],/\\" for char in uri.host):
        fail(f"host {uri.host!r} is not a host name or address", uri.host, "Write IPv6 as [::1].")


def _is_socket(host: str | None) -> bool:
    return host is not None and host.startswith("/")


def _write(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return quote(str(value), safe="/:,")


def _write_postgres_path(uri: DeltaSqlUri, password: str | None) -> str:
    server = ""
    host = None if _is_socket(uri.host) else uri.host
    if uri.user or uri.password or host or uri.port is not None:
        login = quote(uri.user or "", safe="")
        if uri.password and password:
            login += f":{password if password == MASK else quote(password, safe='')}"
        address = quote(host or "", safe="")
        if host and ":" in host:
            address = f"[{quote(host, safe=':')}]"
        server = f"{login}@{address}{'' if uri.port is None else f':{uri.port}'}/"
    return server + quote(uri.database, safe="")


def parse_uri(text: str, *, environ: Mapping[str, str] | None = None) -> DeltaSqlUri:
    """Parse a URI; raise TxnLogUriError with the wrong part and the expected syntax.

    >>> parse_uri("deltasql://sqlite/meta.db?tabel=sales")
    Traceback (most recent call last):
    deltasql.exceptions.TxnLogUriError: unknown parameter 'tabel' (uri: deltasql://sqlite/meta.db?tabel=sales)
    Help: Did you mean 'table'? Known: table, version, timestamp, location, mirror, pool_size.
    Docs: deltasql docs TxnLogUriError
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
                fail(shown, None, f"Write {SCHEME} and leave the rest unchanged.")
            fail(f"a URI starts with {SCHEME}, this one has no scheme", None, _of_path(expanded))
        scheme = expanded.partition("://")[0]
        ours = f"{SCHEME}postgres/{expanded.partition('://')[2]}"
        hidden = redact(_LOGIN_SECRET.sub(rf"\g<1>{MASK}", ours))
        hint = f"Write {hidden}." if scheme in ("postgres", "postgresql") else ""
        fail(f"a URI starts with {SCHEME}, this one has {scheme!r}", scheme, hint)
    if "#" in expanded:
        fail("'#' has no meaning in a deltasql URI", "#", "Write %23 for a '#' inside a part.")
    head, _, query = expanded.removeprefix(SCHEME).partition("?")
    backend, _, path = head.partition("/")
    if backend not in FORMS:
        shown = repr(backend) if re.fullmatch(r"\w*", backend) else "what follows deltasql://"
        nearest = get_close_matches(backend, FORMS, 1, 0.4)
        hint = f"Did you mean {nearest[0]!r}? " if nearest else ""
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
    """Return a help text if the user gave a path instead of a URI, otherwise an empty string."""
    if not text or re.search(r"[:@?]", text):
        return ""
    backend = "duckdb" if text.endswith(_DUCKDB_FILES) else "sqlite"
    written = f"a database file is written {SCHEME}{backend}/{text}"
    if is_database_file(text):
        return f"{written}."
    return f"{written}; `deltasql import {text}` imports a Delta table at a path."


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
                f"Set it with: export {name}=…, or give a default: ${{{name}:-value}}.",
            )
        return known

    opening = _VARIABLE.match(text)
    whole, rest = (value(opening), text[opening.end() :]) if opening else ("", text)
    expanded = whole + _VARIABLE.sub(lambda found: quote(value(found), safe=""), rest)
    if "${" in expanded:
        fail(
            "'${' does not start a variable here",
            "${",
            "Write ${NAME} or ${NAME:-default}, %24 for '$'.",
        )
    return expanded


def _read_query(backend: str, query: str) -> dict[str, Any]:
    pieces = [piece.partition("=") for piece in query.split("&")] if query else []
    # This may be the rest of a password with an unencoded '?' or '&', so do not show it.
    if not all(_PARAMETER_NAME.fullmatch(name) for name, _, _ in pieces):
        fail("a parameter has no valid name", None, "Write ?name=value&name=value.")
    known = [name for name, parameter in PARAMETERS.items() if backend in parameter.backends]
    values: dict[str, Any] = {}
    for name, _, raw in pieces:
        if name not in PARAMETERS:
            nearest = get_close_matches(name, known, 1)
            hint = f"Did you mean {nearest[0]!r}? " if nearest else ""
            fail(f"unknown parameter {name!r}", name, f"{hint}Known: {', '.join(known)}.")
        parameter = PARAMETERS[name]
        if name not in known:
            only = " and ".join(parameter.backends)
            fail(f"parameter {name!r} is for {only}, not for {backend}", name)
        if name in values:
            fail(f"parameter {name!r} is given twice", name, f"Keep one {name}=….")
        if name == "table":
            values["namespace"], values["table"] = split_table_name(raw)
            continue
        text = decoded(raw, name)
        try:
            values[name] = parameter.read(text)
        except (ValueError, OverflowError):
            parameter.raise_invalid(text)
    return values


def _read_postgres_path(path: str) -> dict[str, Any]:
    first, *rest = path.split("/")
    has_server = "@" in first or ":" in first
    place = _read_server(first) if has_server else {}
    segments = rest if has_server else [first, *rest]
    if not segments or segments == [""]:
        fail("no database is named", None, f"Write {FORMS['postgres']}.")
    if any("@" in segment or ":" in segment for segment in segments):
        fail(
            "there is a raw '@' or ':' after the server part",
            None,
            "Percent-encode user, password and names: / is %2F, @ is %40, : is %3A, ? is %3F.",
        )
    names = [decoded(segment, "path") for segment in segments]
    if "" in names or len(names) > 3:
        what = "has an empty part" if "" in names else f"has {len(names)} parts"
        fail(
            f"the path {'/'.join(names)!r} {what}",
            "/".join(names),
            "Write database?table=namespace.name, database/table or database/namespace/table.",
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
            "Write host, host:5432 or, for IPv6, [::1]:5432.",
        )
    bracketed, plain, port = found.groups()
    if port and not re.fullmatch(r"[0-9]{1,5}", port):
        # Without an '@', this may be the start of a password with an unencoded slash.
        shown = repr(decoded(port, "port")) if at else "what follows ':'"
        fail(
            f"{shown} is not a port",
            port if at else None,
            "Write host:5432; in a password, write %2F for a '/' and %40 for a '@'.",
        )
    parts = {
        "user": decoded(user, "user"),
        "password": decoded(password, "password"),
        "host": decoded(bracketed or plain or "", "host"),
        "port": int(port) if port else None,
    }
    return {name: value for name, value in parts.items() if value not in ("", None)}


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
    _check_name("namespace", namespace)
    _check_name("table", name)
    return namespace, name


def join_table_name(namespace: str, name: str) -> str:
    """Return the string that `split_table_name` parses.

    >>> join_table_name("crm", "v1.2")
    'crm.v1%2E2'
    """
    quoted = [part.replace("%", "%25").replace(".", "%2E") for part in (namespace, name)]
    return quoted[1] if namespace == DEFAULT_NAMESPACE else ".".join(quoted)


def _write_table_name(namespace: str, name: str) -> str:
    """Return namespace and name for a URI, with all special characters percent-encoded."""
    quoted = [quote(part, safe="").replace(".", "%2E") for part in (namespace, name)]
    return quoted[1] if namespace == DEFAULT_NAMESPACE else ".".join(quoted)


def _check_name(what: str, name: str) -> None:
    """Raise TxnLogUriError if a name is not valid for a table or namespace."""
    if name in ("", ".", "..") or len(name) > 255 or "/" in name or not is_plain(name):
        shown = repr(name) if len(name) <= 60 else f"{name[:60]!r}…"
        fail(f"{shown} is not a valid {what} name", name, _NAME_HELP)
