"""`catalog.inspect`: sizes and row counts of tables, partitions and files, on every database."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from deltasql.api.inspect.totals import TotalsCache
from deltasql.model.actions import DeletionVector, RemoveFile
from deltasql.model.row_changes import RowChanges
from tests.api.inspect.support import SCHEMA, add, commit

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.api.catalog.catalog import Catalog

pytestmark = pytest.mark.two_databases


def test_table_summary_has_sizes_and_publishing_state(sales: Catalog) -> None:
    found = sales.inspect.table("sales")
    assert (found.name, found.namespace, found.short_name) == ("sales", "default", "sales")
    assert (found.version, found.files, found.bytes, found.rows) == (2, 4, 202_000_400, 100)
    assert (found.published_version, found.pending, found.mirror_state) == (-1, 3, "ACTIVE")
    assert found.lag_s >= 0
    assert not found.is_following
    assert found.committed_at == sales.table("sales").snapshot().committed_at


def test_row_count_of_a_table_is_unknown_if_a_file_has_no_row_count(sales: Catalog) -> None:
    commit(sales, add("e", "wed", 1, None))
    assert sales.inspect.table("sales").rows is None
    assert sales.inspect.stats("sales").rows is None
    assert sales.inspect.overview().totals.rows is None


def test_totals_include_files_added_and_removed_since(sales: Catalog) -> None:
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


def test_totals_omit_a_table_that_is_deleted_during_the_read(
    sales: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltasql.api.inspect.totals._FEW_FILES", 0)
    cache, table_id = TotalsCache(sales.store), sales.resolve("sales").table_id
    assert cache.of({table_id: 2})[table_id].sums.files == 4
    with sales.store.change() as (session, _):
        session.execute("discard_head", table_id=table_id)
    assert cache.of({table_id: 3}) == {}


@pytest.mark.parametrize("seed", range(3))
def test_totals_updated_by_each_commit_equal_a_full_sum(sales: Catalog, seed: int) -> None:
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


def test_partitions_use_current_column_names(sales: Catalog) -> None:
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


def test_overview_sums_all_tables_and_counts_commits_by_hour(sales: Catalog) -> None:
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


def test_stats_has_sizes_skew_and_growth(sales: Catalog) -> None:
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


def test_growth_excludes_rows_that_were_only_copied(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("shop", pa.table({"id": range(100), "v": [0] * 100}))
    with catalog.begin() as tx:
        changes = pa.table({"id": range(95, 110), "v": [1] * 15})
        merge = tx.merge(
            "shop", changes, predicate="s.id = t.id", source_alias="s", target_alias="t"
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    with catalog.begin() as tx:
        tx.update("shop", {"v": "2"}, predicate="id = 1")
    with catalog.begin() as tx:
        tx.delete("shop", "id = 2")
    catalog.optimize("shop")
    found = catalog.inspect.stats("shop", days=2)
    assert found.rows == 109
    assert sum(each.rows_added or 0 for each in found.growth) == 110
    rows = {each.operation: each.rows for each in catalog.inspect.history("shop").items}
    assert rows["MERGE"] == RowChanges(inserted=10, updated=5, deleted=0)
    assert (rows["UPDATE"].inserted, rows["UPDATE"].updated) == (0, 1)
    assert (rows["DELETE"].inserted, rows["DELETE"].deleted) == (0, 1)
    assert catalog.inspect.recent(limit=10)[0].to_dict()["rows"]["inserted"] == 0


def test_growth_counts_removed_files_and_bytes(sales: Catalog) -> None:
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


def test_row_counts_exclude_rows_deleted_by_deletion_vectors(sales: Catalog) -> None:
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
    version = sales.inspect.table("sales").version
    diff = sales.inspect.diff("sales", version - 1, version)
    assert (diff.added.rows, diff.removed.rows) == (14, 20)
    assert [each.rows for each in diff.added_files] == [14]


def test_files_ever_counts_removed_files_too(sales: Catalog) -> None:
    gone = RemoveFile("day=mon/a.parquet", 1, True, partition_values={"day": "mon"}, size=100)
    commit(sales, gone)
    found = sales.inspect.table("sales")
    assert (found.files, found.files_ever) == (3, 4)


def test_concurrent_callers_share_one_read(sales: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_deprecated_name_of_update_file_metrics_still_works(sales: Catalog) -> None:
    with pytest.deprecated_call(match="update_file_metrics"):
        sales.inspect.tell_files()
