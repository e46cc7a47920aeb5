"""URIs, settings, predicates and queries of any text are accepted or rejected with typed errors."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deltasql import DeltaTable
from deltasql.config import Config
from deltasql.exceptions import TxnLogConfigError, TxnLogUriError, redact
from deltasql.uri import parse_uri
from tests.each import check_each
from tests.hostile.logs import output
from tests.hostile.texts import CRAFTED, MORE, hostile_text
from tests.selection import examples

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql import Catalog

many = settings(
    max_examples=examples(150 * MORE), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
few = settings(many, max_examples=examples(40 * MORE))


@pytest.fixture
def backend() -> str:
    """Parsing does not depend on the database."""
    return "sqlite"


@many
@given(
    st.sampled_from(["", "sqlite//tmp/", "duckdb/", "postgres/", "postgres/u:p@h:1/d/n/"]),
    hostile_text(),
    st.sampled_from(["", "?table=", "?version=", "?timestamp=", "?location=", "?pool_size="]),
    hostile_text(),
)
def test_any_uri_is_parsed_or_rejected(head: str, path: str, name: str, value: str) -> None:
    text = f"deltasql://{head}{path}{name}{value}"
    refused = output(lambda: parse_uri(text, environ={}))
    if refused is None:
        uri = parse_uri(text, environ={})
        assert parse_uri(uri.to_string(), environ={}) == uri
    else:
        assert isinstance(refused, TxnLogUriError)


@many
@given(hostile_text(), st.sampled_from(["toml", "yaml"]))
@example("[" * 100_000, "toml")
@example("a = " + "[" * 100_000, "toml")
@example("a = " + "{a=" * 100_000, "toml")
@example("[" * 20_000, "yaml")
@example("a: &a [*a]", "yaml")
@example("pool: &a {max_size: *a}", "yaml")
@example("!!python/object/apply:os.system ['true']", "yaml")
@example("pool: {max_size: " + "9" * 5000 + "}", "yaml")
@example("pool: {max_size: 2024-99-99}", "yaml")
@example("pool = 1979-05-27", "toml")
@example("? [a]\n: b", "yaml")
@example("1: 2\nnull: 3", "yaml")
def test_any_config_file_is_loaded_or_rejected(tmp_path: Path, text: str, kind: str) -> None:
    path = tmp_path / f"settings.{kind}"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    refused = output(lambda: Config.load(path))
    assert refused is None or isinstance(refused, TxnLogConfigError)


VARIABLES = ("POOL__MAX_SIZE", "POOL", "STORAGE__OPTIONS", "MIRROR__MODE", "A__B__C", "TABLE")


@many
@given(st.sampled_from(VARIABLES), hostile_text())
@example("POOL", "[" * 100_000)
@example("POOL", '{"max_size":' + "9" * 5000 + "}")
def test_any_environment_variable_is_loaded_or_rejected(name: str, value: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        try:
            patch.setenv(f"DELTASQL_{name}", value)
        except (ValueError, UnicodeEncodeError):
            return  # the environment cannot hold this value
        refused = output(Config.load)
        assert refused is None or isinstance(refused, TxnLogConfigError)


@pytest.fixture
def shop(catalog: Catalog) -> Catalog:
    with catalog.begin() as tx:
        tx.write("t", pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
    return catalog


PREDICATES = (
    "id = 1; DROP TABLE t",
    "id IN (SELECT 1)",
    "EXISTS (SELECT * FROM read_csv('/etc/passwd'))",
    "read_text('/etc/passwd') IS NOT NULL",
    "getenv('HOME') = ''",
    "id = 1 --",
    "id = 1 /* ",
    "NOT " * 2000 + "id = 1",
    "(" * 2000 + "id = 1" + ")" * 2000,
    " AND ".join(["id = 99"] * 2000),
    "id = " + "-" * 1001 + "1",
    "id = " + "9" * 5000,
    "id = 1e400",
    "name LIKE '" + "%" * 3000 + "z'",
    "id IN (" + ",".join(map(str, range(10, 5000))) + ")",
    "CASE WHEN " * 500,
    "id BETWEEN 9 AND",
    "x.y.z.id = 1",
    "name = '\0'",
)


def predicate() -> st.SearchStrategy[str]:
    text = hostile_text()
    return text | st.sampled_from(PREDICATES) | text.map(lambda each: f"name = {each}")


@few
@given(predicate())
def test_any_predicate_has_no_side_effects(shop: Catalog, text: str) -> None:
    """A valid predicate only matches rows and has no other effect."""
    uri = shop.table("t").uri
    before = shop.table("t").version()
    for attempt in (
        lambda: DeltaTable(uri).delete(text),
        lambda: DeltaTable(uri).update(predicate=text, updates={"name": "name"}),
        lambda: len(shop.table("t").scan(text).files),
    ):
        output(attempt)
    assert [each.name for each in shop.tables()] == ["t"]
    with shop.begin() as tx:  # restore the rows that matched
        if shop.table("t").version() != before:
            tx.write("t", pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}), mode="overwrite")


@few
@given(
    hostile_text() | st.sampled_from(PREDICATES).map(lambda each: f"SELECT * FROM t WHERE {each}")
)
@example("SELECT * FROM read_csv('/etc/passwd')")
@example("COPY (SELECT 1) TO '/tmp/deltasql-hostile.csv'")
@example("ATTACH '/tmp/deltasql-hostile.db'")
@example("INSTALL httpfs; LOAD httpfs")
@example("SELECT * FROM '/etc/passwd'")
@example("SELECT * FROM dl_tables")
@example("PRAGMA database_list")
@example("SET enable_external_access = true")
@example("WITH RECURSIVE r AS (SELECT 1 AS n) DELETE FROM t")
def test_any_query_is_read_only_and_confined(shop: Catalog, text: str) -> None:
    refused = output(lambda: shop.query(text).read_all())
    assert "root:" not in str(refused)
    assert shop.table("t").version() == 0


def test_redaction_takes_linear_time() -> None:
    """Ten times the text takes ten times the work, not a hundred times."""
    check_each(CRAFTED, check_work, name=repr)


def check_work(text: str) -> None:
    def work(length: int) -> float:
        long = (text or "x") * (length // len(text or "x") + 1)
        start = time.process_time()
        redact(long)
        return time.process_time() - start

    work(1000)
    assert work(20_000) < 0.5 + 100 * work(2000)
