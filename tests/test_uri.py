"""The `deltasql://` grammar: parsing, formatting and error messages."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltasql.exceptions import TxnLogUriError
from deltasql.uri import (
    PARAMETERS,
    DeltaSqlUri,
    is_deltasql_uri,
    join_table_name,
    parse_uri,
    split_table_name,
)
from tests.each import check_each

PLAIN = st.characters(exclude_categories=("Cc", "Cs"))
TEXT = st.text(PLAIN, min_size=1, max_size=30)
NAMES = (
    st.text(st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="/"), min_size=1)
    .map(lambda name: name[:255])
    .filter(lambda name: name not in (".", ".."))
)
HOSTS = (
    st.from_regex(r"[a-z][a-z0-9-]{0,20}(\.[a-z]{2,5})?", fullmatch=True)
    | st.ip_addresses().map(str)
    | TEXT.map(lambda text: f"/{text}")
)


@st.composite
def uris(draw: st.DrawFn) -> DeltaSqlUri:
    backend = draw(st.sampled_from(["sqlite", "duckdb", "postgres"]))
    table = draw(st.none() | NAMES)
    parts: dict[str, object] = {
        "pool_size": draw(st.none() | st.integers(1, 1000)),
        "mirror": draw(st.sampled_from([None, "sync", "async", "off"])),
    }
    if table is not None:
        parts |= {"table": table, "namespace": draw(st.just("default") | NAMES)}
        parts["location"] = draw(st.none() | TEXT)
        when = draw(st.sampled_from(["version", "timestamp", None]))
        if when == "version":
            parts["version"] = draw(st.integers(0, 2**63 - 1))
        elif when:
            parts["timestamp"] = draw(st.datetimes(timezones=st.just(UTC)))
    if backend == "postgres":
        parts |= {name: draw(st.none() | TEXT) for name in ("user", "password", "sslkey")}
        parts["host"] = draw(st.none() | HOSTS)
        parts["port"] = draw(st.none() | st.integers(1, 65535))
        parts["connect_timeout"] = draw(st.none() | st.integers(1, 3600))
        parts["sslmode"] = draw(st.sampled_from([None, "require", "verify-full"]))
        parts["application_name"] = draw(st.none() | TEXT)
        parts["search_path"] = draw(st.none() | st.from_regex(r"[a-z_]{1,9}", fullmatch=True))
        database = draw(TEXT)
    else:
        database = draw(TEXT.filter(lambda path: not path.endswith("/") and path != ":memory:"))
        if backend == "duckdb":
            database = draw(st.just(":memory:") | st.just(database))
    return DeltaSqlUri(backend=backend, database=database, **parts)  # type: ignore[arg-type]


@given(uris())
def test_formatted_uri_is_parsed_back(uri: DeltaSqlUri) -> None:
    assert parse_uri(uri.to_string(), environ={}) == uri
    assert pickle.loads(pickle.dumps(uri)) == uri


@given(uris())
def test_catalog_and_table_uris_convert_to_each_other(uri: DeltaSqlUri) -> None:
    catalog = uri.catalog()
    assert catalog.is_catalog
    assert catalog.catalog() == catalog
    table = catalog.with_table("sales", "crm")
    assert (table.table, table.namespace) == ("sales", "crm")
    assert table.catalog() == catalog


@given(uris().filter(lambda uri: uri.password is not None), st.uuids().map(str))
def test_password_is_never_shown(uri: DeltaSqlUri, password: str) -> None:
    secret = DeltaSqlUri(**{**vars(uri), "password": password})
    assert password not in f"{secret} {secret!r} {[secret]}"
    assert password in secret.to_string()


@given(NAMES, st.just("default") | NAMES)
def test_joined_table_name_is_split_back(name: str, namespace: str) -> None:
    assert split_table_name(join_table_name(namespace, name)) == (namespace, name)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("deltasql://sqlite//abs/meta.db?table=sales", ("sqlite", "/abs/meta.db", "default.sales")),
        ("deltasql://sqlite/rel/meta.db?table=crm.sales", ("sqlite", "rel/meta.db", "crm.sales")),
        ("deltasql://duckdb//abs/c.duckdb?table=t", ("duckdb", "/abs/c.duckdb", "default.t")),
        ("deltasql://duckdb/:memory:?table=t", ("duckdb", ":memory:", "default.t")),
        ("deltasql://sqlite/my%20data%3F.db", ("sqlite", "my data?.db", None)),
        ("deltasql://sqlite/x.db?table=v1%2E2", ("sqlite", "x.db", "default.v1.2")),
        ("deltasql://sqlite/x.db?table=Größe%20π", ("sqlite", "x.db", "default.Größe π")),
        ("deltasql://postgres/db", ("postgres", "db", None)),
        ("deltasql://postgres/db/t", ("postgres", "db", "default.t")),
        ("deltasql://postgres/db/crm/t", ("postgres", "db", "crm.t")),
        ("deltasql://postgres/db?table=crm.t", ("postgres", "db", "crm.t")),
        ("deltasql://postgres/u:p@h:5432/db/crm/t", ("postgres", "db", "crm.t")),
    ],
)
def test_grammar_accepts_every_documented_form(
    text: str, parts: tuple[str, str, str | None]
) -> None:
    uri = parse_uri(text)
    named = None if uri.table is None else f"{uri.namespace}.{uri.table}"
    assert (uri.backend, uri.database, named) == parts


@pytest.mark.parametrize(
    ("server", "parts"),
    [
        ("ann:s3%40cret@db.local:5432", ("ann", "s3@cret", "db.local", 5432)),
        ("ann@db.local", ("ann", None, "db.local", None)),
        ("ann:a@b@db.local", ("ann", "a@b", "db.local", None)),
        ("@db.local", (None, None, "db.local", None)),
        ("db.local:5433", (None, None, "db.local", 5433)),
        ("ann@", ("ann", None, None, None)),
        ("[::1]:5432", (None, None, "::1", 5432)),
        ("ann:x@[2001:db8::1]", ("ann", "x", "2001:db8::1", None)),
        ("ann@%2Frun%2Fpostgresql", ("ann", None, "/run/postgresql", None)),
    ],
)
def test_server_part_is_parsed(server: str, parts: tuple[object, ...]) -> None:
    uri = parse_uri(f"deltasql://postgres/{server}/lake/t")
    assert (uri.user, uri.password, uri.host, uri.port) == parts
    assert (uri.database, uri.table) == ("lake", "t")


def test_socket_directory_is_formatted_as_host_parameter() -> None:
    uri = parse_uri("deltasql://postgres/ann@:5433/lake?host=/run/postgresql")
    assert (uri.host, uri.port) == ("/run/postgresql", 5433)
    assert str(uri) == "deltasql://postgres/ann@:5433/lake?host=/run/postgresql"


def test_table_is_formatted_alike_on_every_database() -> None:
    for catalog in ("sqlite//lake/meta.db", "duckdb//lake/meta.duckdb", "postgres/ann@h/lake"):
        table = parse_uri(f"deltasql://{catalog}").with_table("v1.2", "crm")
        assert str(table) == f"deltasql://{catalog}?table=crm.v1%2E2"
    assert (
        str(parse_uri("deltasql://postgres/lake/crm/t")) == "deltasql://postgres/lake?table=crm.t"
    )


def test_parameters_are_typed() -> None:
    uri = parse_uri(
        "deltasql://postgres/db/t?sslmode=require&pool_size=8&connect_timeout=5&mirror=async"
        "&timestamp=2026-01-31T12:00:00+02:00&location=s3://bucket/t&search_path=meta"
    )
    assert (uri.sslmode, uri.pool_size, uri.connect_timeout) == ("require", 8, 5)
    assert uri.timestamp == datetime(2026, 1, 31, 10, tzinfo=UTC)
    assert (uri.mirror, uri.location, uri.search_path) == ("async", "s3://bucket/t", "meta")


def test_timestamp_without_a_zone_is_utc() -> None:
    uri = parse_uri("deltasql://sqlite/x.db?table=t&timestamp=2026-01-31")
    assert uri.timestamp == datetime(2026, 1, 31, tzinfo=UTC)


def test_variable_values_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_PASSWORD", "p@ss/w?rd:#%")
    monkeypatch.setenv("LAKE_PORT", "5433")
    monkeypatch.setenv("LAKE_TABLE", "crm.sales")
    uri = parse_uri("deltasql://postgres/ann:${LAKE_PASSWORD}@${HOST_X:-db}:${LAKE_PORT}/lake")
    assert (uri.password, uri.host, uri.port) == ("p@ss/w?rd:#%", "db", 5433)
    uri = parse_uri("deltasql://sqlite/${NOT_SET:-/tmp/x.db}?table=${LAKE_TABLE}")
    assert (uri.database, uri.namespace, uri.table) == ("/tmp/x.db", "crm", "sales")


def test_variable_can_contain_a_whole_uri() -> None:
    environ = {"LAKE": "deltasql://postgres/ann:x@db/lake"}
    assert parse_uri("${LAKE}/crm/sales", environ=environ).table == "sales"


BROKEN = [
    # (uri, part of the message, part of the help)
    ("", "no scheme", "deltasql://sqlite"),
    ("/data/table", "no scheme", "deltasql import /data/table"),
    ("/data/meta.db", "no scheme", "written deltasql://sqlite//data/meta.db."),
    ("meta.duckdb", "no scheme", "written deltasql://duckdb/meta.duckdb."),
    ("deltasql:/sqlite//data/meta.db", "'deltasql:/'", "Write deltasql:// and leave"),
    ("deltasql:/postgres/u:hunter2@h/db", "'deltasql:/'", "Write deltasql://"),
    ("postgresql://u:hunter2@h/db", "'postgresql'", "Write deltasql://postgres/u:***@h/db."),
    ("deltasql://", "''", "sqlite, duckdb, postgres"),
    ("deltasql://sqlit/x.db", "'sqlit'", "Did you mean 'sqlite'"),
    ("deltasql://postgresql/db", "'postgresql'", "Did you mean 'postgres'"),
    ("deltasql://u:hunter2@h/db", "not a backend", "postgres"),
    ("deltasql://sqlite", "no database", "deltasql://sqlite//abs/meta.db"),
    ("deltasql://sqlite/", "no database", "deltasql://sqlite//abs/meta.db"),
    ("deltasql://sqlite//data/", "'/data/' is a directory", "deltasql://"),
    ("deltasql://sqlite/:memory:", "in-memory", "duckdb/:memory:"),
    ("deltasql://sqlite/a%zz.db", "'a%zz.db'", "%25"),
    ("deltasql://sqlite/a%ff.db", "'a%ff.db'", "UTF-8"),
    ("deltasql://sqlite/a%00.db", "control character", "deltasql://"),
    ("deltasql://sqlite/a.db#x", "'#'", "%23"),
    ("deltasql://sqlite/a.db?tabel=t", "'tabel'", "Did you mean 'table'"),
    ("deltasql://sqlite/a.db?sslmode=require", "'sslmode' is for postgres", "deltasql://"),
    ("deltasql://sqlite/a.db?table", "table name", "1 to 255"),
    ("deltasql://sqlite/a.db?table=", "table name", "1 to 255"),
    ("deltasql://sqlite/a.db?table=a.b.c", "'a.b.c' has 3 parts", "%2E"),
    ("deltasql://sqlite/a.db?table=a.", "''", "1 to 255"),
    ("deltasql://sqlite/a.db?table=a%2Fb", "'a/b'", "no '/'"),
    ("deltasql://sqlite/a.db?table=%2E%2E", "'..'", "not '.' or '..'"),
    ("deltasql://sqlite/a.db?table=a%0Ab", "table name", "control character"),
    (f"deltasql://sqlite/a.db?table={'x' * 256}", "table name", "255"),
    ("deltasql://sqlite/a.db?table=a&table=b", "'table' is given twice", "Keep one"),
    ("deltasql://sqlite/a.db?table=a&mirror=maybe", "'maybe'", "sync, async, off"),
    ("deltasql://sqlite/a.db?table=a&version=one", "version 'one'", "whole number"),
    ("deltasql://sqlite/a.db?table=a&version=-1", "version '-1'", "from 0"),
    ("deltasql://sqlite/a.db?table=a&version=9223372036854775808", "version", "from 0"),
    ("deltasql://sqlite/a.db?table=a&timestamp=noon", "timestamp 'noon'", "ISO 8601"),
    ("deltasql://sqlite/a.db?table=a&timestamp=0001-01-01T00:00:00%2B05:00", "timestamp", "ISO"),
    (
        "deltasql://sqlite/a.db?table=a&version=1&timestamp=2026-01-01",
        "used together",
        "one of them",
    ),
    ("deltasql://sqlite/a.db?version=1", "version is given without a table", "table=name"),
    ("deltasql://sqlite/a.db?&table=a", "no valid name", "?name=value"),
    ("deltasql://sqlite/${DELTASQL_NOT_SET}", "DELTASQL_NOT_SET is not set", ":-value"),
    ("deltasql://sqlite/${", "'${'", "${NAME}"),
    ("deltasql://postgres/", "no database", "host:5432/database"),
    ("deltasql://postgres/ann@h", "no database", "host:5432/database"),
    ("deltasql://postgres/db/", "'db/' has an empty part", "database/table"),
    ("deltasql://postgres/a/b/c/d", "'a/b/c/d' has 4 parts", "database/namespace/table"),
    ("deltasql://postgres/ann@h:port/db", "'port' is not a port", "5432"),
    ("deltasql://postgres/ann@h:0/db", "port 0", "65535"),
    ("deltasql://postgres/ann@h:65536/db", "port 65536", "65535"),
    ("deltasql://postgres/ann@::1/db", "'::1'", "[::1]"),
    ("deltasql://postgres/ann@[::zz]/db", "'::zz'", "[::1]"),
    ("deltasql://postgres/ann@a%20b/db", "'a b'", "[::1]"),
    ("deltasql://postgres/ann@h/db?host=g", "host is given twice", "deltasql://"),
    ("deltasql://postgres/db/t?table=u", "table is given twice", "deltasql://"),
    ("deltasql://postgres/db?sslmode=on", "sslmode 'on'", "verify-full"),
    ("deltasql://postgres/db?pool_size=0", "pool_size 0", "1 to 1000"),
    ("deltasql://postgres/db?pool_size=1_0", "pool_size '1_0'", "1 to 1000"),
    ("deltasql://postgres/db?connect_timeout=soon", "'soon'", "seconds"),
    ("deltasql://postgres/db?search_path=a,b", "search_path 'a,b'", "letters"),
    ("deltasql://postgres/db?password=hunter2", "'password'", "Known: "),
    # Text that may be part of a password is not repeated.
    ("deltasql://postgres/ann:hunter2/x@h/db", "what follows ':' is not a port", "%2F"),
    ("deltasql://postgres/ann:12/hunter2@h/db", "raw '@'", "Percent-encode"),
    ("deltasql://postgres/ann:12?hunter2@h/db", "no valid name", "?name=value"),
    ("deltasql://postgres/ann:hunter2%@h/db", "password contains a '%'", "%25"),
    ("deltasql://postgres/ann:hunter2 x@h", "no database", "database"),
]


def test_invalid_uri_error_names_the_part_and_the_right_form() -> None:
    check_each(BROKEN, check_message)


def check_message(case: tuple[str, str, str]) -> None:
    text, shown, remedy = case
    with pytest.raises(TxnLogUriError) as caught:
        parse_uri(text)
    error = caught.value
    assert shown in error.message
    assert remedy in error.help
    assert "hunter2" not in f"{error} {error!r} {error.fields}"


@given(st.text(st.sampled_from("adlqs:/@?&=%#.[]${}-5 ") | PLAIN, max_size=40))
def test_any_text_parses_or_raises_uri_error(tail: str) -> None:
    for backend in ("sqlite", "duckdb", "postgres"):
        try:
            uri = parse_uri(f"deltasql://{backend}/{tail}", environ={})
        except TxnLogUriError:
            continue
        assert parse_uri(uri.to_string(), environ={}) == uri


@pytest.mark.parametrize(
    "parts",
    [
        {"backend": "oracle", "database": "x"},
        {"backend": "sqlite", "database": ""},
        {"backend": "sqlite", "database": "x", "host": "h"},
        {"backend": "sqlite", "database": "x", "namespace": "crm"},
        {"backend": "sqlite", "database": "x", "table": "t", "timestamp": datetime(2026, 1, 1)},
        {"backend": "sqlite", "database": "x", "table": "t", "version": True},
        {"backend": "sqlite", "database": "x", "sslmode": "require"},
        {"backend": "sqlite", "database": "\ud800"},
        {"backend": "postgres", "database": "x", "user": ""},
        {"backend": "postgres", "database": "x", "port": "5432"},
    ],
)
def test_invalid_parameter_values_are_rejected(parts: dict[str, object]) -> None:
    with pytest.raises(TxnLogUriError):
        DeltaSqlUri(**parts)  # type: ignore[arg-type]


def test_every_parameter_is_a_field_and_is_documented() -> None:
    assert PARAMETERS.keys() <= vars(parse_uri("deltasql://postgres/db")).keys()
    assert all(each.doc and each.allowed for each in PARAMETERS.values())


def test_is_deltasql_uri_accepts_parsed_uris() -> None:
    assert is_deltasql_uri(parse_uri("deltasql://sqlite/x.db"))
    assert not is_deltasql_uri(3)
