"""The class of parsed URIs, which validates and formats them."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import get_args
from urllib.parse import quote

from deltasql.exceptions import MASK
from deltasql.uri.names import (
    DEFAULT_NAMESPACE,
    check_name,
    fail,
    is_plain,
    join_table_name,
    write_table_name,
)
from deltasql.uri.parameters import PARAMETERS, Backend, MirrorMode, Pooler, SslMode

SCHEME = "deltasql://"
MEMORY = ":memory:"
FORMS = {
    "sqlite": "deltasql://sqlite//abs/meta.db?table=name",
    "duckdb": "deltasql://duckdb//abs/meta.duckdb?table=name",
    "postgres": "deltasql://postgres/user:password@host:5432/database/namespace/table",
}


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
        """Whether the URI is that of a catalog: it has no table."""
        return self.table is None

    @property
    def is_memory(self) -> bool:
        """Whether the database is in memory."""
        return self.backend != "postgres" and self.database == MEMORY

    @property
    def is_file(self) -> bool:
        """Whether the database is a file: not on a server, and not in memory."""
        return self.backend != "postgres" and self.database != MEMORY

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
        """Return the URI as text for `parse_uri`, with its password unless `redacted`."""
        given = {name: getattr(self, name) for name in PARAMETERS}
        written = {name: _write(value) for name, value in given.items() if value is not None}
        if self.backend == "postgres":
            path = _write_postgres_path(self, MASK if redacted else self.password)
            written.pop("table", None)
            if not _is_socket(self.host):
                written.pop("host", None)
        else:
            path = quote(self.database, safe="/:")
            if self.table is not None:
                written["table"] = write_table_name(self.namespace, self.table)
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
        fail("no database is named", None, f"write {FORMS[uri.backend]}.")
    if not is_plain(uri.database):
        fail(f"database {uri.database!r} holds a control character", uri.database)
    if uri.backend == "postgres":
        _check_server(uri)
    else:
        _check_file(uri)
    check_name("namespace", uri.namespace)
    if uri.table is not None:
        check_name("table", uri.table)
    elif uri.namespace != DEFAULT_NAMESPACE:
        fail(f"namespace {uri.namespace!r} is given without a table", uri.namespace)
    for name, parameter in PARAMETERS.items():
        value = getattr(uri, name)
        if value is None:
            continue
        if uri.backend not in parameter.backends:
            fail(f"{name} is for {' and '.join(parameter.backends)}, not {uri.backend}", name)
        if not parameter.accepts(value):
            parameter.refuse(value)
        if uri.table is None and name in ("version", "timestamp", "location"):
            fail(f"{name} is given without a table", name, f"write {FORMS[uri.backend]}.")
    if uri.version is not None and uri.timestamp is not None:
        fail("version and timestamp exclude each other", "timestamp", "keep one of them.")


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
            "use a file, or deltasql://duckdb/:memory: for a throw-away catalog.",
        )


def _check_server(uri: DeltaSqlUri) -> None:
    for name in ("user", "password", "host"):
        value = getattr(uri, name)
        if value is not None and (value == "" or not is_plain(value)):
            fail(f"the {name} is empty or holds a control character", name)
    if uri.port is not None and not (type(uri.port) is int and 1 <= uri.port <= 65535):
        fail(f"port {uri.port!r} is not a port", str(uri.port), "a port is 1 to 65535.")
    if uri.host is None or _is_socket(uri.host):
        return
    try:
        is_name = ":" not in uri.host or ipaddress.IPv6Address(uri.host) is not None
    except ValueError:
        is_name = False
    if not is_name or any(char in " @?#[],/\\" for char in uri.host):
        fail(f"host {uri.host!r} is no host name or address", uri.host, "IPv6 is written [::1].")


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
    names = [uri.database]
    if uri.table is not None:
        names += [uri.table] if uri.namespace == DEFAULT_NAMESPACE else [uri.namespace, uri.table]
    return server + "/".join(quote(name, safe="") for name in names)
