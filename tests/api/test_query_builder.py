"""SQL over tables by `QueryBuilder`, and DataFusion's own sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

from deltasql import DeltaTable, QueryBuilder, write_deltalake
from deltasql.exceptions import TxnLogEngineError, TxnLogMirrorError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.api.conftest import Address


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def test_queries_see_the_version_of_the_handle(address: Address) -> None:
    uri = address("t")
    write_deltalake(uri, numbers(1, 2))
    write_deltalake(uri, numbers(3), mode="append")
    builder = (
        QueryBuilder()
        .register("now", DeltaTable(uri))
        .register("before", DeltaTable(uri, version=0))
    )
    found = pa.table(
        builder.execute("SELECT n.id FROM now n LEFT ANTI JOIN before b ON n.id = b.id")
    )
    assert found["id"].to_pylist() == [3]


def test_queries_join_with_tables_of_deltalake(sqlite_address: Address, tmp_path: Path) -> None:
    write_deltalake(sqlite_address("t"), numbers(1, 2))
    deltalake.write_deltalake(tmp_path / "plain", numbers(2, 3))
    query = "SELECT count(*) AS n FROM a JOIN b ON a.id = b.id"
    for mirror in ("sync", "off"):
        own = DeltaTable(f"{sqlite_address('t')}&mirror={mirror}")
        if mirror == "off":
            with own._table.catalog.begin() as tx:
                tx.write("t", numbers(3))
            own.update_incremental()
        builder = QueryBuilder().register("a", own).register("b", DeltaTable(tmp_path / "plain"))
        assert pa.table(builder.execute(query))["n"].to_pylist() == [1 if mirror == "sync" else 2]


def test_a_table_that_is_not_published_is_queried_all_the_same(address: Address) -> None:
    uri = address("t")
    uri += f"{'&' if '?' in uri else '?'}mirror=off"
    write_deltalake(uri, numbers(1, 2))
    table = DeltaTable(uri)
    builder = QueryBuilder().register("t", table)
    assert pa.table(builder.execute("SELECT sum(id) AS n FROM t"))["n"].to_pylist() == [3]
    for wrong in ("SELECT FROM WHERE", "DROP TABLE t"):
        with pytest.raises(TxnLogEngineError):
            builder.execute(wrong)
    with pytest.raises(TxnLogMirrorError, match="mirror is off"):
        table._table.published()


def test_a_version_that_waits_for_the_mirror_is_published_first(address: Address) -> None:
    uri = address("t")
    off = f"{uri}{'&' if '?' in uri else '?'}mirror=off"
    write_deltalake(off, numbers(1))
    table = DeltaTable(uri)
    assert table._table.is_published() is False
    found = pa.table(QueryBuilder().register("t", table).execute("SELECT id FROM t"))
    assert found["id"].to_pylist() == [1]
    assert table._table.is_published() is True


def test_datafusion_gets_what_it_gets_of_deltalake(sqlite_address: Address) -> None:
    write_deltalake(sqlite_address("t"), numbers(1, 2))
    own = DeltaTable(sqlite_address("t"))

    def outcome(table: deltalake.DeltaTable) -> str:
        try:
            return type(table.__datafusion_table_provider__()).__name__
        except RuntimeError as error:  # DataFusion is not installed
            return str(error)

    assert outcome(own) == outcome(deltalake.DeltaTable(own.table_uri))
