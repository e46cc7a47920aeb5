"""Auto compaction: `mirror run` combines the small files of tables that ask for it."""

from __future__ import annotations

import logging
import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

import deltasql
from deltasql import telemetry
from deltasql.api.catalog.auto_compact import AutoCompactor
from deltasql.exceptions import CommitConflictError, TxnLogConfigError
from deltasql.phases import hooked
from deltasql.store.leases import hold_files, is_held, take_compaction
from tests.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases

ON = {"delta.autoOptimize.autoCompact": "true", "deltasql.autoCompact.minFiles": "4"}


def append(catalog: Catalog, *numbers: int, table: str = "t", **options: Any) -> None:
    """Append rows, with one commit and one file for each."""
    for number in numbers:
        with catalog.begin() as tx:
            tx.write(table, pa.table({"id": [number], "part": [number % 2]}), **options)
            options = {}


def filled(catalog: Catalog, files: int = 4, **options: Any) -> Catalog:
    append(catalog, *range(files), **{"properties": ON, **options})
    return catalog


def compact(catalog: Catalog) -> int:
    """Run one round with a new compactor; return the number of commits."""
    return AutoCompactor(catalog, catalog.mirror).run_once()


def ids(catalog: Catalog, table: str = "t") -> list[int]:
    with catalog.begin() as tx:
        found: list[int] = tx.read(table, ["id"])["id"].to_pylist()
    return sorted(found)


def files(catalog: Catalog, table: str = "t") -> int:
    return len(catalog.table(table).files())


def last(catalog: Catalog) -> tuple[str | None, dict[str, Any]]:
    """Return the operation of the last commit and its parameters."""
    (entry,) = catalog.table("t").history(1)
    return entry.info.operation, dict(entry.info.operation_parameters or {})


class Once:
    """A hook that acts when a phase is reached for the first time."""

    def __init__(self, phase: str, act: Callable[[], object]) -> None:
        self._phase, self._act, self.done = phase, act, False

    def __call__(self, phase: str) -> None:
        if phase == self._phase and not self.done:
            self.done = True
            self._act()


@pytest.fixture
def outcomes() -> Iterator[Callable[[], dict[str, float]]]:
    """Count the outcomes of auto compactions."""
    registry = CollectorRegistry()
    telemetry.enable_prometheus(registry)

    def counted() -> dict[str, float]:
        samples = [each for family in registry.collect() for each in family.samples]
        return {
            each.labels["outcome"]: each.value
            for each in samples
            if each.name == "auto_compactions_total"
        }

    yield counted
    telemetry.disable()


# Which files are compacted


def test_small_files_become_one_file_with_the_same_rows(catalog: Catalog) -> None:
    filled(catalog)
    assert compact(catalog) == 1
    assert (files(catalog), ids(catalog)) == (1, [0, 1, 2, 3])
    operation, parameters = last(catalog)
    assert (operation, parameters["auto"]) == ("OPTIMIZE", "true")
    assert catalog.table("t").files()["data_change"].to_pylist() == [False]
    assert compact(catalog) == 0


@pytest.mark.parametrize("value", [None, "false"])
def test_table_is_not_compacted_unless_its_properties_say_so(
    catalog: Catalog, value: str | None
) -> None:
    properties = {"deltasql.autoCompact.minFiles": "4"}
    if value is not None:
        properties["delta.autoOptimize.autoCompact"] = value
    filled(catalog, 6, properties=properties)
    assert compact(catalog) == 0
    assert files(catalog) == 6


def test_value_auto_and_the_default_of_fifty_files(catalog: Catalog) -> None:
    filled(catalog, 49, properties={"delta.autoOptimize.autoCompact": "auto"})
    assert compact(catalog) == 0
    append(catalog, 49)
    assert compact(catalog) == 1
    assert files(catalog) == 1


@pytest.mark.one_database
def test_invalid_policy_is_rejected_when_it_is_set(catalog: Catalog) -> None:
    for name, value in (
        ("delta.autoOptimize.autoCompact", "sometimes"),
        ("deltasql.autoCompact.minFiles", "1"),
    ):
        with pytest.raises(TxnLogConfigError, match=name):
            filled(catalog, 1, properties={name: value})


def test_only_partitions_with_enough_files_are_compacted(catalog: Catalog) -> None:
    append(catalog, 0, 2, 4, 6, 1, 3, partition_by=["part"], properties=ON)
    assert compact(catalog) == 1
    found = catalog.table("t").files()
    assert sorted(found["num_records"].to_pylist()) == [1, 1, 4]


def test_files_are_combined_only_with_files_of_about_their_size(catalog: Catalog) -> None:
    rows = random.Random(1)
    numbers = [rows.getrandbits(62) for _ in range(20_000)]
    with catalog.begin() as tx:
        tx.write("t", pa.table({"id": numbers, "part": [0] * 20_000}), properties=ON)
    append(catalog, 1, 2, 3)
    assert compact(catalog) == 0
    append(catalog, 4)
    assert compact(catalog) == 1
    assert sorted(catalog.table("t").files()["num_records"].to_pylist()) == [4, 20_000]


def test_files_of_half_the_target_size_are_never_compacted(catalog: Catalog) -> None:
    filled(catalog, 6, properties={**ON, "delta.targetFileSize": "1000"})
    assert min(catalog.table("t").files()["size"].to_pylist()) > 500
    assert compact(catalog) == 0


# Features


def test_clustered_table_is_compacted_with_sorted_rows(catalog: Catalog) -> None:
    catalog.create_table(
        "t", pa.schema([("id", pa.int64()), ("part", pa.int64())]), cluster_by=["id"], properties=ON
    )
    append(catalog, 4, 2, 3, 1)
    assert compact(catalog) == 1
    with catalog.begin() as tx:
        assert tx.read("t")["id"].to_pylist() == [1, 2, 3, 4]
    assert catalog.table("t").files()["clustering_provider"].to_pylist() == ["deltasql"]


def test_deletion_vectors_and_row_ids_are_kept(catalog: Catalog) -> None:
    features = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
    for first in range(0, 40, 10):
        with catalog.begin() as tx:
            rows = pa.table({"id": [*range(first, first + 10)]})
            tx.write("t", rows, **({} if first else {"properties": {**ON, **features}}))
    with catalog.begin() as tx:
        tx.delete("t", "id % 10 = 3")
    before = tracked(catalog)
    assert compact(catalog) == 1
    assert (files(catalog), tracked(catalog)) == (1, before)
    assert len(before) == 36


def tracked(catalog: Catalog) -> list[tuple[int, int]]:
    with catalog.begin() as tx:
        found = tx.read("t", row_ids=True)
    return sorted(zip(found["id"].to_pylist(), found["_row_id"].to_pylist(), strict=True))


@pytest.mark.one_database
def test_fenced_table_is_compacted(catalog: Catalog) -> None:
    filled(catalog)
    with catalog.begin() as tx:
        tx.fence("t")
    assert compact(catalog) == 1


@pytest.mark.one_database
def test_followed_table_is_not_compacted(catalog: Catalog, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"create": True, "table": {"data_root": str(tmp_path / "theirs")}}
    with deltasql.connect(f"deltasql://sqlite/{tmp_path}/theirs.db", **settings) as theirs:
        filled(theirs, 5)
        catalog.follow(theirs.table("t").location, name="t")
    assert compact(catalog) == 0
    assert files(catalog) == 5


# Changes by users


@pytest.mark.every_database
def test_delete_that_began_before_the_compaction_wins(
    catalog: Catalog, outcomes: Callable[[], dict[str, float]]
) -> None:
    filled(catalog)
    tx = catalog.begin()
    tx.delete("t", "id = 1")
    assert compact(catalog) == 0
    tx.commit()
    assert (files(catalog), ids(catalog)) == (3, [0, 2, 3])
    assert outcomes() == {"yielded": 1}
    append(catalog, 4)
    assert compact(catalog) == 1


@pytest.mark.parametrize("change", ["delete", "update", "merge", "overwrite", "sql", "replace"])
def test_change_that_begins_while_files_are_rewritten_wins(
    catalog: Catalog, change: str, outcomes: Callable[[], dict[str, float]]
) -> None:
    filled(catalog)
    tx = catalog.begin()
    begin = Once("written", lambda: CHANGES[change](tx))
    with hooked(begin):
        assert compact(catalog) == 0
    assert begin.done
    tx.commit()
    assert outcomes() == {"conflict": 1, "yielded": 1}
    assert ids(catalog) == EXPECTED.get(change, [0, 2, 3])


def merge(tx: Any) -> None:
    source = pa.table({"id": [1]})
    tx.merge("t", source, "t.id = s.id", "s", "t").when_matched_delete().execute()


CHANGES: dict[str, Callable[[Any], object]] = {
    "delete": lambda tx: tx.delete("t", "id = 1"),
    "update": lambda tx: tx.update("t", {"id": "9"}, predicate="id = 1"),
    "merge": merge,
    "overwrite": lambda tx: tx.write("t", pa.table({"id": [7], "part": [1]}), mode="overwrite"),
    "sql": lambda tx: tx.sql("DELETE FROM t WHERE id = 1"),
    "replace": lambda tx: tx.sql("CREATE OR REPLACE TABLE t (id BIGINT)"),
}
EXPECTED = {"update": [0, 2, 3, 9], "overwrite": [7], "replace": []}


@pytest.mark.one_database
@pytest.mark.parametrize("change", ["merge", "enable row tracking"])
def test_auto_compaction_gives_up_during_a_change_of_an_opened_table(
    catalog: Catalog, change: str
) -> None:
    filled(catalog)
    opened = deltasql.DeltaTable(catalog.uri.with_table("t").to_string())
    rounds: list[int] = []
    meanwhile = Once("staged", lambda: rounds.append(compact(catalog)))
    with hooked(meanwhile):
        if change == "merge":
            source = pa.table({"id": [1]})
            opened.merge(source, "t.id = s.id", "s", "t").when_matched_delete().execute()
        else:
            opened.alter.set_table_properties({"delta.enableRowTracking": "true"})
    assert rounds == [0]
    assert ids(catalog) == ([0, 2, 3] if change == "merge" else [0, 1, 2, 3])


@pytest.mark.every_database
def test_change_sees_a_compaction_that_committed_just_before_it(catalog: Catalog) -> None:
    filled(catalog)
    tx = catalog.begin()
    assert tx.has_table("t")  # from now on, the transaction sees the version before the compaction
    assert compact(catalog) == 1
    tx.delete("t", "id = 1")
    tx.commit()
    assert ids(catalog) == [0, 2, 3]


def test_transaction_that_has_read_the_table_conflicts_with_a_compaction_before_its_change(
    catalog: Catalog,
) -> None:
    filled(catalog)
    tx = catalog.begin()
    tx.read("t")
    assert compact(catalog) == 1
    tx.delete("t", "id = 1")
    with pytest.raises(CommitConflictError):
        tx.commit()


def test_transaction_that_reads_and_appends_does_not_conflict(catalog: Catalog) -> None:
    filled(catalog)
    tx = catalog.begin()
    total = sum(tx.read("t")["id"].to_pylist())
    assert compact(catalog) == 1
    tx.write("t", pa.table({"id": [total], "part": [0]}))
    tx.commit()
    assert ids(catalog) == [0, 1, 2, 3, 6]


def test_delete_that_commits_during_the_compaction_wins(
    catalog: Catalog, outcomes: Callable[[], dict[str, float]]
) -> None:
    filled(catalog, 6)

    def delete() -> None:
        with catalog.begin() as tx:
            tx.delete("t", "id = 1")

    with hooked(Once("written", delete)):
        assert compact(catalog) == 1
    assert (files(catalog), ids(catalog)) == (1, [0, 2, 3, 4, 5])
    assert outcomes() == {"conflict": 1, "committed": 1}


def test_append_during_the_compaction_is_no_conflict(catalog: Catalog) -> None:
    filled(catalog)
    with hooked(Once("written", lambda: append(catalog, 9))):
        assert compact(catalog) == 1
    assert (files(catalog), ids(catalog)) == (2, [0, 1, 2, 3, 9])


@pytest.mark.one_database
def test_undo_skips_auto_compactions(catalog: Catalog) -> None:
    filled(catalog)
    assert compact(catalog) == 1
    for expected in ([0, 1, 2], [0, 1, 2, 3]):
        with catalog.begin() as tx:
            tx.undo("t")
        assert ids(catalog) == expected


def test_rolled_back_and_failed_transactions_let_compaction_continue(catalog: Catalog) -> None:
    filled(catalog)
    tx = catalog.begin()
    tx.delete("t", "id = 1")
    tx.rollback()
    failing = catalog.begin()
    failing.delete("t", "id = 2")
    with catalog.begin() as winner:
        winner.delete("t", "id = 2")
    with pytest.raises(CommitConflictError):
        failing.commit()
    append(catalog, 4)
    assert compact(catalog) == 1


def test_hold_of_a_killed_process_ends_after_an_hour(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(catalog)
    table = catalog.table("t").row
    hold_files(catalog.store, table, "killed")
    clock = Clock(monkeypatch)
    clock.ahead_s = 3590
    assert compact(catalog) == 0
    clock.ahead_s = 3610
    assert compact(catalog) == 1
    clock.ahead_s = 0
    assert not is_held(catalog.store.query, table.table_id)  # its row was deleted


@pytest.mark.one_database
def test_change_of_a_table_without_auto_compaction_writes_no_hold(catalog: Catalog) -> None:
    filled(catalog, 2, properties={})
    tx = catalog.begin()
    tx.delete("t", "id = 1")
    assert not is_held(catalog.store.query, catalog.table("t").row.table_id)
    tx.rollback()


# Several processes


@pytest.mark.every_database
def test_two_processes_do_not_compact_one_table_at_once(catalog: Catalog) -> None:
    filled(catalog)
    others: list[int] = []
    with hooked(Once("written", lambda: others.append(compact(catalog)))):
        assert compact(catalog) == 1
    assert others == [0]
    assert (files(catalog), ids(catalog)) == (1, [0, 1, 2, 3])


def test_lease_of_a_killed_process_is_taken_over(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(catalog)
    assert take_compaction(catalog.store, catalog.table("t").row.table_id, "killed", 30) is not None
    assert compact(catalog) == 0
    Clock(monkeypatch).ahead_s = 31
    assert compact(catalog) == 1


def test_lease_of_a_clock_that_was_far_ahead_is_taken_over(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(catalog)
    clock = Clock(monkeypatch)
    clock.ahead_s = 100 * 86_400
    assert take_compaction(catalog.store, catalog.table("t").row.table_id, "ahead", 30) is not None
    clock.ahead_s = 0
    assert compact(catalog) == 1


# Failures


def test_failure_is_logged_and_counted_and_other_tables_are_compacted(
    catalog: Catalog, outcomes: Callable[[], dict[str, float]], caplog: pytest.LogCaptureFixture
) -> None:
    filled(catalog)
    append(catalog, 0, 1, 2, 3, table="u", properties=ON)
    path = catalog.table("t").files()["path"][0].as_py()
    (Path(catalog.table("t").location) / path).unlink()
    compactor = AutoCompactor(catalog, catalog.mirror)
    with caplog.at_level(logging.WARNING, "deltasql"):
        assert compactor.run_once() == 1
    assert (files(catalog), files(catalog, "u")) == (4, 1)
    assert outcomes() == {"failed": 1, "committed": 1}
    assert "auto compaction failed" in caplog.text
    assert "table=t" in caplog.text
    assert compactor.run_once() == 0  # waits before it tries again
    assert outcomes() == {"failed": 1, "committed": 1}


# mirror run


def test_mirror_run_keeps_the_number_of_files_bounded(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    """Without compaction, there would be 60 files."""
    options: dict[str, Any] = {
        "create": True,
        "mirror": {"mode": "off", "auto_compact_s": 0.05, "poll_s": 0.05},
        "table": {"data_root": str(tmp_path / "lake"), "in_commit_timestamps": False},
    }
    stop = threading.Event()
    with deltasql.connect(catalog_uri, **options) as catalog:
        filled(catalog, 1)
        runner = threading.Thread(target=catalog.mirror.run, args=(stop,))
        runner.start()
        try:
            append(catalog, *range(1, 60))
            for _ in range(600):
                if files(catalog) <= 8 or stop.wait(0.05):
                    break
        finally:
            stop.set()
            runner.join()
        assert files(catalog) <= 8
        catalog.mirror.publish()
        assert ids(catalog) == [*range(60)]
        published = deltalake.DeltaTable(catalog.table("t").location)
        assert sorted(published.to_pyarrow_table()["id"].to_pylist()) == [*range(60)]
        assert len(published.file_uris()) == files(catalog)


@pytest.mark.one_database
def test_mirror_run_once_compacts_and_publishes(catalog_uri: DeltaSqlUri, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "create": True,
        "mirror": {"mode": "off"},
        "table": {"data_root": str(tmp_path / "lake")},
    }
    with deltasql.connect(catalog_uri, **options) as catalog:
        filled(catalog)
        assert catalog.mirror.run(once=True) == 5
        assert files(catalog) == 1
        (status,) = catalog.mirror.status()
        assert status.pending == 0
