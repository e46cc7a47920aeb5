"""An operation sends few statements to DuckDB and parses each expression once."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import sqlglot

from deltasql.engine.duckdb import connection as duckdb_shared
from deltasql.model.predicates import parser
from deltasql.operations.merge import plan
from tests.operations.dml import handle, make

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql.api.catalog.catalog import Catalog

SOURCE = pa.table({"id": [3, 99], "v": [-1.0, -2.0]})


class _Counted:
    """A connection that records the statements sent to DuckDB."""

    def __init__(self, connection: Any, sent: list[str]) -> None:
        self._connection, self._sent = connection, sent

    def execute(self, query: str, *parameters: object) -> Any:
        self._sent.append(query)
        return self._connection.execute(query, *parameters)

    def cursor(self) -> _Counted:
        return _Counted(self._connection.cursor(), self._sent)

    def __enter__(self) -> _Counted:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """The statements that engines send to DuckDB."""
    sent: list[str] = []
    real = duckdb_shared.connect
    gc.collect()  # an engine of an earlier test may keep its database open
    duckdb_shared.close_idle()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duckdb_shared, "connect", lambda *given: _Counted(real(*given), sent))
        yield sent
        duckdb_shared.close_idle()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that sqlglot parses."""
    texts: list[str] = []
    real = sqlglot.parse_one

    def parse_one(text: str, **options: Any) -> Any:
        texts.append(text)
        return real(text, **options)

    monkeypatch.setattr(sqlglot, "parse_one", parse_one)
    return texts


def merge(catalog: Catalog, condition: str | None = None) -> None:
    with catalog.begin() as tx:
        merger = tx.merge("t", SOURCE, "t.id = s.id", source_alias="s", target_alias="t")
        merger.when_matched_update_all(predicate=condition)
        merger.when_not_matched_insert_all().execute()


@pytest.mark.parametrize(
    ("change", "most"),
    [
        (merge, 5),
        (lambda catalog: merge(catalog, "s.v < t.v + 9"), 7),  # pairs and decisions are stored
        (lambda catalog: handle(catalog).update({"v": "v + 1"}, "id = 3"), 2),
        (lambda catalog: handle(catalog).delete("id = 3"), 2),
    ],
    ids=["merge", "conditional merge", "update", "delete"],
)
def test_operation_sends_few_statements_to_duckdb(
    catalog: Catalog, statements: list[str], change: Callable[[Catalog], object], most: int
) -> None:
    rows = [pa.table({"id": [n, n + 1], "v": [1.0, 2.0]}) for n in range(0, 10, 2)]
    make(catalog, *rows)
    merge(catalog)  # the first operation starts DuckDB
    statements.clear()
    change(catalog)
    assert 0 < len(statements) <= most, statements


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        (lambda catalog: merge(catalog, "s.v < t.v"), ["t.id = s.id", "s.v < t.v"]),
        (
            lambda catalog: handle(catalog).update({"v": "v + 1"}, "id = 3 AND v > 0"),
            ["v + 1", "id = 3 AND v > 0"],
        ),
        (lambda catalog: handle(catalog).delete("id = 3 AND v > 0"), ["id = 3 AND v > 0"]),
    ],
    ids=["merge", "update", "delete"],
)
def test_user_expression_is_parsed_once(
    catalog: Catalog,
    parsed: list[str],
    change: Callable[[Catalog], object],
    texts: list[str],
) -> None:
    make(catalog, pa.table({"id": [1, 3], "v": [1.0, 2.0]}))
    merge(catalog)  # the first operation of a process parses the texts of functions, too
    for cached in (parser._parsed, plan._resolved):  # other tests may use the same texts
        cached.cache_clear()
    parsed.clear()
    change(catalog)
    assert [parsed.count(text) for text in texts] == [1] * len(texts), parsed
    assert len(parsed) == len(set(parsed)), parsed
