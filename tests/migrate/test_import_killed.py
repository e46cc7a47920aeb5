"""kill -9 between any two SQL transactions of an import: nobody sees half, the next run ends it."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import deltasql
from deltasql.mirror.log_files import commits_between
from deltasql.store.store import Store
from tests.commit.support import run, values
from tests.conftest import new_catalog_uri
from tests.migrate.sources import CHECKPOINT, HEAD, append, copy_of, make_table
from tests.mirror.support import forget_commits_below, log_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = [pytest.mark.heavy, pytest.mark.parametrize("backend", ["sqlite", "postgres"])]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_table(tmp_path_factory.mktemp("pristine") / "events")


def content(catalog: Catalog) -> list[Any]:
    """Everything that SQL has of the table, commit by commit."""
    table = catalog.table("events").row
    low, high = catalog.store.query("version_bounds", table_id=table.table_id)[0]
    with catalog.store.session() as session:
        commits = commits_between(session, table.table_id, low, high)
    return [(version, data) for version, data in commits]


def kill_after(transactions: int) -> None:
    """End this process when so many SQL transactions have been committed."""
    done = 0

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def wrapper(self: Store, *args: Any) -> Iterator[Any]:
            nonlocal done
            with change(self, *args) as given:
                yield given
            done += 1
            if done == transactions:
                os.kill(os.getpid(), signal.SIGKILL)

        return wrapper

    Store.change = counted(Store.change)  # type: ignore[method-assign]
    Store.relaxed = counted(Store.relaxed)  # type: ignore[method-assign]


def import_and_die(
    uri: DeltaSqlUri, source: str, transactions: int, options: dict[str, Any]
) -> None:
    with deltasql.connect(uri) as catalog:
        kill_after(transactions)
        catalog.import_table(source, batch_size=1, **options)


def test_a_killed_import_is_continued_without_duplicates(
    backend: str, pristine: Path, tmp_path: Path
) -> None:
    expected = None
    for number, source in sources(pristine, tmp_path).items():
        before = log_bytes(source)
        expected = None
        for transactions in range(1, 50):
            folder = tmp_path / f"{number}-{transactions}"
            folder.mkdir()
            for uri in new_catalog_uri(backend, folder):
                [outcome] = run(import_and_die, [(uri, str(source), transactions, {})])
                with deltasql.connect(uri) as catalog:
                    if outcome.exitcode == 0:
                        expected = content(catalog)
                        break
                    assert outcome.exitcode == -signal.SIGKILL
                    check_half(catalog, source)
            if expected is not None:
                break
        assert expected is not None
        assert transactions > HEAD - CHECKPOINT + 2
        assert log_bytes(source) == before


def sources(pristine: Path, tmp_path: Path) -> dict[str, Path]:
    """A log with all its commits, and one that begins with a checkpoint."""
    cleaned = copy_of(pristine, tmp_path / "cleaned" / "events")
    forget_commits_below(cleaned, CHECKPOINT)
    return {"whole": pristine, "cleaned": cleaned}


def check_half(catalog: Catalog, source: Path) -> None:
    """Nobody sees the half; the next run makes it whole, whatever it left."""
    is_done = bool(catalog.tables())
    assert catalog.dropped() == []
    report = catalog.import_table(str(source))
    assert report.state == ("up to date" if is_done else "imported")
    assert catalog.table("events").version() == HEAD
    (verified,) = catalog.mirror.verify("events", versions="all")
    assert verified.ok, verified.summary()
    rows = catalog.store.query("tables_with_location", location=str(source))
    assert len(rows) == 1
    assert [each.pending for each in catalog.mirror.status()] == [0]


def test_a_killed_catch_up_is_continued_without_duplicates(
    backend: str, pristine: Path, tmp_path: Path
) -> None:
    source = copy_of(pristine, tmp_path / "events")
    for transactions in range(1, 20):
        folder = tmp_path / f"run-{transactions}"
        folder.mkdir()
        for uri in new_catalog_uri(backend, folder):
            deltasql.import_table(str(source), uri, up_to_version=2)
            [outcome] = run(import_and_die, [(uri, str(source), transactions, {})])
            with deltasql.connect(uri) as catalog:
                seen = catalog.table("events").version()
                assert 2 <= seen <= HEAD
                report = catalog.import_table(str(source))
                assert report.commits == HEAD - seen
                (verified,) = catalog.mirror.verify("events", versions="all")
                assert verified.ok, verified.summary()
                assert [each.pending for each in catalog.mirror.status()] == [0]
        if outcome.exitcode == 0:
            break
    assert outcome.exitcode == 0
    assert transactions > HEAD - 2


@pytest.mark.parametrize("change", ["since", "up_to_version", "recreated"])
def test_a_half_that_is_of_no_use_is_cleared(
    backend: str, catalog_uri: DeltaSqlUri, pristine: Path, tmp_path: Path, change: str
) -> None:
    source = copy_of(pristine, tmp_path / "events")
    [outcome] = run(import_and_die, [(catalog_uri, str(source), HEAD, {})])
    assert outcome.exitcode == -signal.SIGKILL
    options: dict[str, Any] = {"since": 2} if change == "since" else {"up_to_version": 1}
    if change == "recreated":
        options = {}
        shutil.rmtree(source)
        for number in range(HEAD + 2):
            append(source, number)
    with deltasql.connect(catalog_uri) as catalog:
        report = catalog.import_table(str(source), **options)
        assert report.state == "imported"
        (verified,) = catalog.mirror.verify("events", versions="all", checkpoints=False)
        assert {each.kind for each in verified.differences} <= {"foreign-version"}
        assert len(catalog.store.query("tables_with_location", location=str(source))) == 1


def import_it(uri: DeltaSqlUri, source: str) -> str:
    return deltasql.import_table(source, uri, batch_size=1).state


def test_of_many_that_import_at_once_one_does_and_the_others_find_it(
    backend: str, catalog_uri: DeltaSqlUri, pristine: Path
) -> None:
    states = values(run(import_it, [(catalog_uri, str(pristine))] * 4))
    assert set(states) <= {"imported", "up to date"}
    with deltasql.connect(catalog_uri) as catalog:
        assert [table.full_name for table in catalog.tables()] == ["events"]
        assert len(catalog.store.query("tables_with_location", location=str(pristine))) == 1
        (verified,) = catalog.mirror.verify("events", versions="all")
        assert verified.ok, verified.summary()
