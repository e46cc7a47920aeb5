"""`catalog.inspect`: lists in pages, history and transactions, on every database."""

from __future__ import annotations

import json
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

from deltasql.exceptions import (
    TxnLogTableNotFoundError,
    TxnLogTransactionError,
    VersionNotFoundError,
)
from deltasql.model.actions import AddFile, RemoveFile
from tests.api.inspect.support import SCHEMA, add, commit, pages

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.inspect.page import Page

pytestmark = pytest.mark.two_databases


def test_tables_are_paged_by_namespace_and_name(catalog: Catalog) -> None:
    names = ["a.z", "b.a", "b.b", "m", "z.a"]
    for name in names:
        catalog.create_table(name, SCHEMA)
    found = pages(catalog.inspect.tables, limit=2)
    assert [each.name for each in found] == names
    assert [each.name for each in pages(catalog.inspect.tables, namespace="b", limit=1)] == [
        "b.a",
        "b.b",
    ]


@pytest.mark.parametrize("order", ["bytes", "files", "rows", "partition"])
def test_partitions_are_paged_in_every_order(sales: Catalog, order: str) -> None:
    whole = sales.inspect.partitions("sales", order=order, limit=10)
    assert whole.next is None
    found = pages(lambda **o: sales.inspect.partitions("sales", order=order, **o), limit=1)
    assert found == list(whole.items)
    firsts = {"bytes": "day=tue", "files": "day=mon", "rows": "day=null", "partition": "day=mon"}
    assert found[0].label == firsts[order]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("order", ["added", "size", "path"])
@pytest.mark.parametrize("predicate", [None, "day <> 'nowhere' OR day IS NULL"])
def test_files_are_paged_in_every_order(
    sales: Catalog, order: str, descending: bool, predicate: str | None
) -> None:
    found = pages(
        lambda **more: sales.inspect.files(
            "sales", order=order, descending=descending, predicate=predicate, **more
        ),
        limit=1,
    )
    assert len(found) == 4
    if order == "size":
        sizes = [each.bytes for each in found]
        assert sizes == sorted(sizes, reverse=descending)
    elif order == "path":
        paths = [each.path for each in found]
        assert paths == sorted(paths, reverse=descending)
    else:
        versions = [each.added_version for each in found]
        assert versions == sorted(versions, reverse=descending)


@pytest.mark.parametrize("order", ["added", "size", "path"])
@pytest.mark.parametrize("descending", [False, True])
def test_few_matching_files_among_many_are_each_listed_once_and_in_order(
    sales: Catalog, order: str, descending: bool
) -> None:
    # The first 40 files match. After them, only every 900th file matches.
    days = ["rare" if n < 40 or n % 900 == 0 else "often" for n in range(2600)]
    many = [add(f"{n * 7919 % 2600:04}", day, n * 31 % 977, n) for n, day in enumerate(days)]
    commit(sales, *many)
    found = pages(
        lambda **more: sales.inspect.files(
            "sales", predicate="day = 'rare'", order=order, descending=descending, **more
        ),
        limit=9,
    )
    wanted = [each for each in many if each.partition_values["day"] == "rare"]
    key: dict[str, Callable[[AddFile], Any]] = {
        "added": many.index,
        "size": lambda each: (each.size, many.index(each)),
        "path": lambda each: each.path,
    }
    ordered = sorted(wanted, key=key[order], reverse=descending)
    assert [each.path for each in found] == [each.path for each in ordered]


def test_files_can_be_limited_to_a_version_and_a_predicate(sales: Catalog) -> None:
    inspect = sales.inspect
    assert {each.path for each in inspect.files("sales", version=1).items} == {
        "day=mon/a.parquet",
        "day=mon/b.parquet",
    }
    (only,) = inspect.files("sales", predicate="day = 'tue'").items
    assert (only.partition, only.bytes, only.rows) == ({"day": "tue"}, 200_000_000, 30)
    assert only.stats == {"numRecords": 30}
    (none,) = inspect.files("sales", predicate="day IS NULL").items
    assert none.partition == {"day": None}


def test_all_pages_of_files_show_the_same_version(sales: Catalog) -> None:
    first = sales.inspect.files("sales", limit=3)
    commit(sales, RemoveFile("day=None/d.parquet", 1, True, partition_values={"day": None}))
    rest = sales.inspect.files("sales", limit=3, cursor=first.next)
    assert len(rest.items) == 1
    assert len(sales.inspect.files("sales").items) == 3


def test_history_is_paged_and_filtered_by_operation(sales: Catalog) -> None:
    with sales.begin() as tx:
        tx.set_table_properties("sales", {"delta.checkpointInterval": "5"})
    found = pages(lambda **more: sales.inspect.history("sales", **more), limit=2)
    assert [each.version for each in found] == [3, 2, 1, 0]
    assert found[-1].operation == "CREATE TABLE"
    only = pages(
        lambda **more: sales.inspect.history("sales", operation="create table", **more), limit=1
    )
    assert [each.version for each in only] == [0]
    assert sales.inspect.commit("sales", 0) == found[-1]
    with pytest.raises(VersionNotFoundError):
        sales.inspect.commit("sales", 9)


def test_transaction_over_several_tables_is_one_event(sales: Catalog) -> None:
    sales.create_table("crm.people", SCHEMA)
    with sales.begin() as tx:
        tx.stage_table("sales", [add("x", "fri", 1, 1)])
        tx.stage_table("crm.people", [AddFile("p.parquet", {}, 1, 0, True)])
    with sales.begin() as tx:
        tx.stage_table("sales", [add("y", "fri", 1, 1)])
        tx.stage_table("crm.people", [AddFile("q.parquet", {}, 1, 0, True)])
    found = pages(sales.inspect.transactions, limit=1)
    assert len(found) == 2
    assert [each.table for each in found[0].participants] == ["crm.people", "sales"]
    assert [each.version for each in found[0].participants] == [2, 4]
    assert found[0].committed_at >= found[1].committed_at
    of_table = pages(lambda **more: sales.inspect.transactions(table="sales", **more), limit=1)
    assert [each.txn_id for each in of_table] == [each.txn_id for each in found]
    assert sales.inspect.transaction(found[0].txn_id) == found[0]
    assert sales.inspect.history("sales").items[0].group_size == 2
    with pytest.raises(TxnLogTransactionError):
        sales.inspect.transaction("nobody's")


def test_watch_returns_every_commit_once(sales: Catalog) -> None:
    watch = sales.inspect.watch()
    assert watch.poll() == ()
    sales.create_table("crm.people", SCHEMA)
    barrier = threading.Barrier(2)

    def write(number: int) -> None:
        barrier.wait()
        for each in range(5):
            commit(sales, add(f"{number}-{each}", "sat", 1, 1))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    seen = []
    while any(thread.is_alive() for thread in threads):
        seen += watch.poll(limit=3)
    for thread in threads:
        thread.join()
    while more := watch.poll(limit=3):
        seen += more
    assert sorted((each.table, each.version) for each in seen) == [
        ("crm.people", 0),
        *(("sales", version) for version in range(3, 13)),
    ]
    latest = sales.inspect.recent(limit=2)
    assert latest[0].committed_at >= latest[1].committed_at
    assert len(sales.inspect.recent(limit=100)) == 14


def test_every_result_converts_to_plain_values(sales: Catalog) -> None:
    for found in (
        sales.inspect.overview(),
        sales.inspect.stats("sales"),
        sales.inspect.diff("sales", 0, 2),
        sales.inspect.advice("sales"),
        sales.inspect.doctor(),
    ):
        json.dumps(found.to_dict(), default=str)


def test_every_page_needs_the_same_number_of_statements(
    sales: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        with sales.begin() as tx:
            tx.set_table_properties("sales", {"delta.checkpointInterval": str(number + 1)})
    statements: list[str] = []
    run_statement = sales.store.query
    monkeypatch.setattr(
        sales.store,
        "query",
        lambda name, /, **more: (statements.append(name), run_statement(name, **more))[1],
    )
    inspect = sales.inspect
    lists: dict[str, Callable[..., Page[Any]]] = {
        "history": lambda **page: inspect.history("sales", **page),
        "schema": lambda **page: inspect.schema_changes("sales", **page),
        "mirror": lambda **page: inspect.mirror_versions("sales", **page),
        "transactions": inspect.transactions,
        "tables": inspect.tables,
    }
    for name, read in lists.items():
        counts = []
        for limit in (2, 10):
            read(limit=limit)  # what never changes is known then
            statements.clear()
            read(limit=limit)
            counts.append(len(statements))
        assert counts[0] == counts[1] <= 6, (name, statements)


def test_invalid_arguments_are_rejected(sales: Catalog) -> None:
    inspect = sales.inspect
    wrong: list[Callable[[], object]] = [
        lambda: inspect.files("sales", order="colour"),
        lambda: inspect.files("sales", limit=0),
        lambda: inspect.history("sales", limit=10_001),
        lambda: inspect.history("sales", cursor="nonsense"),
        lambda: inspect.history("sales", cursor=inspect.files("sales", limit=1).next),
        lambda: inspect.overview(hours=0),
        lambda: inspect.stats("sales", days=0),
        lambda: inspect.mirror_versions("sales", only="DONE"),
    ]
    for call in wrong:
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TxnLogTableNotFoundError, match="Did you mean sales"):
        inspect.stats("sale")


def test_transactions_of_any_age_are_found(catalog: Catalog) -> None:
    for name in ("a", "b"):
        catalog.create_table(name, SCHEMA)
    for _ in range(6):
        with catalog.begin() as tx:
            tx.stage_table("a", [AddFile(f"{random.random()}", {}, 1, 0, True)])
            tx.stage_table("b", [AddFile(f"{random.random()}", {}, 1, 0, True)])
    # The commits of `b` are later than those of `a`, on days that are far apart.
    days = (0, 0, 3, 40, 400, 4000)
    with catalog.store.session() as session:
        session.begin()
        for version, day in enumerate(reversed(days), start=1):
            moved = f"committed_at_ms = committed_at_ms - {day * 86_400_000}"
            session.script(f"UPDATE dl_table_versions SET {moved} WHERE version = {version}")
        session.script(
            "UPDATE dl_table_versions SET committed_at_ms = committed_at_ms - 500 "
            "WHERE table_id = (SELECT table_id FROM dl_tables WHERE name = 'a')"
        )
        session.commit()
    expected = [each.txn_id for each in catalog.inspect.history("b", limit=6).items]
    for limit in (1, 2, 4, 6, 10):
        found = pages(catalog.inspect.transactions, limit=limit)
        assert [each.txn_id for each in found] == expected
        assert {each.tables for each in found} == {2}
        of_one = pages(catalog.inspect.transactions, limit=limit, table="a")
        assert [each.txn_id for each in of_one] == expected
    lately = pages(catalog.inspect.transactions, limit=2, hours=24 * 100)
    assert [each.txn_id for each in lately] == expected[:4]
