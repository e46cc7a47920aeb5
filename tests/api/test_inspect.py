"""`catalog.inspect`: sizes, lists in pages, history and differences, on every database."""

from __future__ import annotations

import json
import random
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from deltasql.exceptions import (
    TxnLogTableNotFoundError,
    TxnLogTransactionError,
    VersionNotFoundError,
)
from deltasql.model.actions import AddFile, DeletionVector, RemoveFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.api.catalog import Catalog
    from deltasql.api.inspect.page import Page

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])


def add(name: str, day: str | None, size: int, records: int | None, **more: Any) -> AddFile:
    stats = None if records is None else json.dumps({"numRecords": records})
    path = f"day={day}/{name}.parquet"
    return AddFile(path, {"day": day}, size, 0, True, stats=stats, **more)


def commit(catalog: Catalog, *actions: Any, table: str = "sales") -> int:
    with catalog.begin() as tx:
        tx.stage_table(table, list(actions))
    return tx.versions[table]


@pytest.fixture
def sales(catalog: Catalog) -> Catalog:
    """A catalog whose table `sales` has files of known sizes, none of which exists."""
    properties = {"delta.enableDeletionVectors": "true"}
    catalog.create_table("sales", SCHEMA, partition_by=["day"], properties=properties)
    commit(catalog, add("a", "mon", 100, 10), add("b", "mon", 2_000_000, 20))
    commit(catalog, add("c", "tue", 200_000_000, 30), add("d", None, 300, 40))
    return catalog


def pages(call: Callable[..., Page[Any]], **options: Any) -> list[Any]:
    """Everything a list holds, read a page at a time."""
    found, cursor = [], None
    while True:
        page = call(**options, cursor=cursor)
        assert len(page.items) <= options["limit"]
        found += page.items
        cursor = page.next
        if cursor is None:
            return found


def test_a_table_is_told_in_one_line(sales: Catalog) -> None:
    found = sales.inspect.table("sales")
    assert (found.name, found.namespace, found.short_name) == ("sales", "default", "sales")
    assert (found.version, found.files, found.bytes, found.rows) == (2, 4, 202_000_400, 100)
    assert (found.published_version, found.pending, found.mirror_state) == (-1, 3, "ACTIVE")
    assert found.lag_s >= 0
    assert not found.is_following
    assert found.committed_at == sales.table("sales").snapshot().committed_at


def test_rows_are_unknown_when_one_file_does_not_tell(sales: Catalog) -> None:
    commit(sales, add("e", "wed", 1, None))
    assert sales.inspect.table("sales").rows is None
    assert sales.inspect.stats("sales").rows is None
    assert sales.inspect.overview().totals.rows is None


def test_totals_move_on_with_what_came_and_went(sales: Catalog) -> None:
    inspect = sales.inspect
    assert inspect.table("sales").files == 4
    gone = RemoveFile("day=mon/a.parquet", 1, True, partition_values={"day": "mon"}, size=100)
    commit(sales, gone, add("e", "wed", 5, 1))
    commit(sales, add("f", "wed", 7, 2))
    commit(sales, RemoveFile("day=wed/f.parquet", 1, True, partition_values={"day": "wed"}))
    found = inspect.table("sales")
    assert (found.files, found.bytes, found.rows) == (4, 202_000_305, 91)
    fresh = sales.table("sales").snapshot().totals()
    assert (fresh.num_files, fresh.size_bytes) == (found.files, found.bytes)


@pytest.mark.parametrize("seed", range(3))
def test_totals_that_moved_on_are_those_that_are_added_up_anew(sales: Catalog, seed: int) -> None:
    chosen = random.Random(seed)
    live = {"day=mon/a.parquet": "mon", "day=mon/b.parquet": "mon", "day=tue/c.parquet": "tue"}
    for step in range(8):
        gone = chosen.sample(sorted(live), chosen.randint(0, min(2, len(live))))
        actions: list[Any] = [
            RemoveFile(path, 1, True, partition_values={"day": live.pop(path)}) for path in gone
        ]
        for number in range(chosen.randint(0, 3)):
            day = chosen.choice(["mon", "tue", "wed"])
            known = chosen.choice([None, 5, 50])
            actions.append(add(f"{step}-{number}", day, chosen.randint(1, 10**9), known))
            live[actions[-1].path] = day
        if actions:
            commit(sales, *actions)
        if chosen.random() < 0.6:
            moved = sales.inspect.table("sales")
            anew = sales.table("sales").snapshot().totals()
            numbers = (anew.num_files, anew.size_bytes, anew.num_records)
            assert (moved.files, moved.bytes, moved.rows) == numbers
            found = sales.inspect.stats("sales")
            assert (found.files, found.bytes, found.rows) == numbers
            assert sum(each.files for each in found.partitions) == found.files
            assert found.growth[-1].bytes == found.bytes
            files = sum(each.files_added - each.files_removed for each in found.growth)
            assert files == found.files


def test_partitions_are_called_as_their_columns_are_now(sales: Catalog) -> None:
    with sales.begin() as tx:
        tx.set_table_properties("sales", {"delta.columnMapping.mode": "name"})
    with sales.begin() as tx:
        tx.rename_column("sales", "day", "weekday")
    inspect = sales.inspect
    assert inspect.stats("sales").partitions[0].values == {"weekday": "tue"}
    assert inspect.files("sales", limit=1).items[0].partition == {"weekday": "mon"}
    (only,) = inspect.files("sales", predicate="weekday = 'tue'").items
    assert only.partition == {"weekday": "tue"}
    assert inspect.diff("sales", 1, 4).added_files[0].partition == {"weekday": "tue"}


def test_overview_adds_up_all_tables_and_counts_commits_by_hour(sales: Catalog) -> None:
    sales.create_table("crm.people", SCHEMA)
    found = sales.inspect.overview(hours=3, limit=1)
    assert [each.name for each in found.tables] == ["crm.people"]
    assert found.next is not None
    assert (found.totals.tables, found.totals.files, found.totals.commits) == (2, 4, 4)
    assert found.totals.pending == 4
    assert len(found.commits_per_hour) == 3
    assert sum(each.commits for each in found.commits_per_hour) == 4
    assert found.commits_per_hour[0].hour < found.commits_per_hour[-1].hour <= datetime.now(UTC)
    only = sales.inspect.overview(namespace="crm")
    assert (only.totals.tables, only.totals.commits) == (1, 1)
    assert sum(each.commits for each in sales.inspect.activity(table="sales")) == 3


def test_tables_come_in_pages_by_namespace_and_name(catalog: Catalog) -> None:
    names = ["a.z", "b.a", "b.b", "m", "z.a"]
    for name in names:
        catalog.create_table(name, SCHEMA)
    found = pages(catalog.inspect.tables, limit=2)
    assert [each.name for each in found] == names
    assert [each.name for each in pages(catalog.inspect.tables, namespace="b", limit=1)] == [
        "b.a",
        "b.b",
    ]


def test_stats_tell_sizes_skew_and_growth(sales: Catalog) -> None:
    found = sales.inspect.stats("sales", days=3)
    assert (found.files, found.bytes, found.rows) == (4, 202_000_400, 100)
    assert (found.smallest, found.largest) == (100, 200_000_000)
    assert (found.small_files, found.small_bytes) == (3, 2_000_400)
    assert {(each.low, each.files) for each in found.histogram if each.files} == {
        (0, 2),
        (2**20, 1),
        (2**27, 1),
    }
    assert sum(each.bytes for each in found.histogram) == found.bytes
    assert [(each.label, each.files, each.rows) for each in found.partitions] == [
        ("day=tue", 1, 30),
        ("day=mon", 2, 30),
        ("day=null", 1, 40),
    ]
    assert found.skew.partitions == 3
    assert found.skew.ratio == 200_000_000 / 2_000_100
    assert len(found.growth) == 3
    assert found.growth[-1].bytes == found.bytes
    assert sum(each.files_added for each in found.growth) == 4
    assert sum(each.rows_added or 0 for each in found.growth) == 100
    assert (found.first_version, found.commits) == (0, 3)


def test_growth_tells_what_went_and_the_bytes_before(sales: Catalog) -> None:
    commit(sales, RemoveFile("day=tue/c.parquet", 1, True, partition_values={"day": "tue"}))
    found = sales.inspect.stats("sales", days=2)
    assert sum(each.files_removed for each in found.growth) == 1
    assert sum(each.bytes_removed for each in found.growth) == 200_000_000
    assert found.growth[-1].bytes == 2_000_400


def test_an_empty_table_has_stats(catalog: Catalog) -> None:
    catalog.create_table("empty", SCHEMA)
    found = catalog.inspect.stats("empty")
    assert (found.files, found.bytes, found.rows, found.largest) == (0, 0, 0, 0)
    assert (found.skew.largest, found.partitions) == (None, ())
    assert catalog.inspect.files("empty").items == ()


def test_rows_deleted_by_vectors_do_not_count(sales: Catalog) -> None:
    vector = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, offset=4)
    old = RemoveFile("day=mon/b.parquet", 1, True, partition_values={"day": "mon"})
    commit(sales, old, add("b", "mon", 2_000_000, 20, deletion_vector=vector))
    assert sales.inspect.table("sales").rows == 94
    found = sales.inspect.stats("sales")
    assert (found.rows, found.vector_files, found.deleted_rows) == (94, 1, 6)
    assert found.deleted_share == 6 / 100
    by_label = {each.label: each.rows for each in found.partitions}
    assert by_label["day=mon"] == 24
    (file,) = [each for each in sales.inspect.files("sales").items if each.has_deletion_vector]
    assert (file.rows, file.deleted_rows) == (14, 6)


@pytest.mark.parametrize("order", ["bytes", "files", "rows", "partition"])
def test_partitions_come_in_pages_in_every_order(sales: Catalog, order: str) -> None:
    whole = sales.inspect.partitions("sales", order=order, limit=10)
    assert whole.next is None
    found = pages(lambda **o: sales.inspect.partitions("sales", order=order, **o), limit=1)
    assert found == list(whole.items)
    firsts = {"bytes": "day=tue", "files": "day=mon", "rows": "day=null", "partition": "day=mon"}
    assert found[0].label == firsts[order]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("order", ["added", "size", "path"])
@pytest.mark.parametrize("predicate", [None, "day <> 'nowhere' OR day IS NULL"])
def test_files_come_in_pages_in_every_order(
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
def test_few_of_many_files_come_in_order_and_once(
    sales: Catalog, order: str, descending: bool
) -> None:
    # Close together at one end, where the next page is near, and far apart at the other.
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


def test_files_are_those_of_a_version_and_of_a_predicate(sales: Catalog) -> None:
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


def test_pages_of_files_stay_with_the_version_they_began_with(sales: Catalog) -> None:
    first = sales.inspect.files("sales", limit=3)
    commit(sales, RemoveFile("day=None/d.parquet", 1, True, partition_values={"day": None}))
    rest = sales.inspect.files("sales", limit=3, cursor=first.next)
    assert len(rest.items) == 1
    assert len(sales.inspect.files("sales").items) == 3


def test_history_comes_in_pages_and_by_operation(sales: Catalog) -> None:
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


def test_a_transaction_over_tables_is_one_event(sales: Catalog) -> None:
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


def test_watch_tells_every_commit_once(sales: Catalog) -> None:
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


def test_plain_values_come_out_of_everything(sales: Catalog) -> None:
    for found in (
        sales.inspect.overview(),
        sales.inspect.stats("sales"),
        sales.inspect.diff("sales", 0, 2),
        sales.inspect.advice("sales"),
        sales.inspect.doctor(),
    ):
        json.dumps(found.to_dict(), default=str)


def test_a_page_costs_as_many_statements_wherever_it_is(
    sales: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        with sales.begin() as tx:
            tx.set_table_properties("sales", {"delta.checkpointInterval": str(number + 1)})
    asked: list[str] = []
    ask = sales.store.query
    monkeypatch.setattr(
        sales.store, "query", lambda name, /, **more: (asked.append(name), ask(name, **more))[1]
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
            asked.clear()
            read(limit=limit)
            counts.append(len(asked))
        assert counts[0] == counts[1] <= 6, (name, asked)


def test_wrong_questions_are_refused(sales: Catalog) -> None:
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


def test_files_that_are_gone_count_for_how_large_a_table_is(sales: Catalog) -> None:
    gone = RemoveFile("day=mon/a.parquet", 1, True, partition_values={"day": "mon"}, size=100)
    commit(sales, gone)
    found = sales.inspect.table("sales")
    assert (found.files, found.files_ever) == (3, 4)


def test_who_asks_at_once_waits_for_one_reading(
    sales: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    original: Callable[..., pa.Table] = sales.store.arrow
    monkeypatch.setattr(
        sales.store, "arrow", lambda name, /, **p: read.append(name) or original(name, **p)
    )
    together = threading.Barrier(6)

    def look() -> None:
        together.wait()
        sales.inspect.stats("sales")

    threads = [threading.Thread(target=look) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read.count("files_measured") == 1
    first = sales.inspect.advice("sales")
    assert sales.inspect.advice("sales") is first  # nothing is counted again
    commit(sales, add("e", "wed", 5, 1))
    assert sales.inspect.advice("sales").version == first.version + 1
    assert read.count("files_measured") == 2


def test_transactions_are_found_close_by_and_far_back(catalog: Catalog) -> None:
    for name in ("a", "b"):
        catalog.create_table(name, SCHEMA)
    for _ in range(6):
        with catalog.begin() as tx:
            tx.stage_table("a", [AddFile(f"{random.random()}", {}, 1, 0, True)])
            tx.stage_table("b", [AddFile(f"{random.random()}", {}, 1, 0, True)])
    # One table tells a later time than the other, in days that lie far apart.
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
