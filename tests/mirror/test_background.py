"""Mirror mode `async`: commits return at once, one thread publishes them, none is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from deltasql.phases import hooked
from tests.commit.support import file
from tests.mirror.support import open_mirrored, published_versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

SCHEMA = pa.schema([("id", pa.int64())])
THREAD = "deltasql-publisher"


@pytest.fixture
def behind(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_async(catalog_uri, tmp_path) as catalog:
        yield catalog


def open_async(uri: DeltaSqlUri | str, folder: Path, **mirror: float) -> Catalog:
    settings = {"mode": "async", "initial_backoff_s": 60, **mirror}
    return open_mirrored(uri, folder / "lake", mirror=settings)


def append(catalog: Catalog, *names: str, table: str = "t") -> None:
    for name in names:
        with catalog.begin() as tx:
            tx.stage_table(table, [file(name)])


def versions(catalog: Catalog, table: str = "t") -> list[int]:
    return published_versions(catalog.table(table).location)


def test_flush_publishes_everything(behind: Catalog) -> None:
    for name in ("t", "u"):
        behind.create_table(name, SCHEMA)
    append(behind, *"abcde")
    append(behind, *"ab", table="u")
    assert behind.mirror.flush(60)
    assert versions(behind) == [0, 1, 2, 3, 4, 5]
    assert versions(behind, "u") == [0, 1, 2]
    assert all(status.pending == 0 for status in behind.mirror.status())


def test_close_publishes_everything(catalog_uri: DeltaSqlUri, tmp_path: Path) -> None:
    with open_async(catalog_uri, tmp_path) as catalog:
        place = catalog.create_table("t", SCHEMA).location
        append(catalog, *"abc")
    assert published_versions(place) == [0, 1, 2, 3]


def test_commit_does_not_wait_for_publishing(behind: Catalog) -> None:
    behind.create_table("t", SCHEMA)
    assert behind.mirror.flush(60)
    go_on, reached = threading.Event(), threading.Event()

    def hold(phase: str) -> None:
        if threading.current_thread().name == THREAD and phase == "publishing":
            reached.set()
            assert go_on.wait(60)

    with hooked(hold):
        append(behind, *"abc")
        assert reached.wait(60)
        assert versions(behind) == [0]
        assert not behind.mirror.flush(0.01), "it is still at work"
        go_on.set()
        assert behind.mirror.flush(60)
    assert versions(behind) == [0, 1, 2, 3]


def test_commits_of_one_table_are_one_queue_entry(behind: Catalog) -> None:
    behind.create_table("t", SCHEMA)
    assert behind.mirror.flush(60)
    go_on = threading.Event()
    attempts: list[str] = []

    def hold(phase: str) -> None:
        if threading.current_thread().name == THREAD:
            attempts.append(phase)
            assert go_on.wait(60)

    with hooked(hold):
        append(behind, *map(str, range(30)))
        assert len(behind.mirror._background._queue) == 1
        go_on.set()
        assert behind.mirror.flush(60)
    # Commits made during the first one are recorded together.
    assert attempts.count("recorded") <= 3
    assert versions(behind) == list(range(31))


def test_flush_retries_a_failure(behind: Catalog) -> None:
    place = Path(behind.create_table("t", SCHEMA).location)
    assert behind.mirror.flush(60)
    moved = place.with_name("moved")
    place.rename(moved)
    place.write_text("a file where a folder should be")
    append(behind, "a")
    assert not behind.mirror.flush(60)
    [status] = behind.mirror.status("t")
    assert (status.state, status.pending) == ("FAILED", 1)
    place.unlink()
    moved.rename(place)
    assert behind.mirror.flush(60)
    assert versions(behind) == [0, 1]


def test_close_gives_up_a_failing_table_after_the_limit(
    sqlite_uri: DeltaSqlUri, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_async(sqlite_uri, tmp_path, flush_s=0.2) as catalog:
        place = Path(catalog.create_table("t", SCHEMA).location)
        catalog.mirror.flush(60)
        commit = place / "_delta_log" / f"{1:020d}.json"
        commit.mkdir()
        append(catalog, "a")
    assert "catalog closed with unpublished commits" in caplog.text


def test_uri_sets_mode_async(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
    uri = f"{sqlite_uri.to_string()}?mirror=async"
    with open_mirrored(uri, tmp_path / "lake") as catalog:
        catalog.create_table("t", SCHEMA)
        assert catalog.mirror.mode == "async"
        assert catalog.mirror.flush(60)
        assert versions(catalog) == [0]


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_forked_child_has_its_own_publisher_thread(behind: Catalog) -> None:
    behind.create_table("t", SCHEMA)
    append(behind, "a")
    child = os.fork()
    if child == 0:
        append(behind, "b")
        os._exit(0 if behind.mirror.flush(60) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    append(behind, "c")
    assert behind.mirror.flush(60)
    assert versions(behind) == [0, 1, 2, 3]


def test_process_publishes_before_it_exits(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
    program = (
        "import deltasql, pyarrow as pa\n"
        f"catalog = deltasql.connect({sqlite_uri.to_string()!r}, mirror={{'mode': 'async'}})\n"
        "catalog.create_table('t', pa.schema([('id', pa.int64())]), "
        f"location={str(tmp_path / 'place')!r})\n"
        "for number in range(5):\n"
        "    with catalog.begin() as tx:\n"
        "        tx.stage_table('t', [deltasql.AddFile(f'{number}.parquet', {}, 1, 1)])\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    assert published_versions(tmp_path / "place") == [0, 1, 2, 3, 4, 5]
