"""An import that dies between two SQL transactions is invisible; the next run completes it."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import deltasql
from deltasql.store.locations import tables_at
from deltasql.store.store import Store
from tests.commit.support import run, values
from tests.conftest import new_catalog_uri
from tests.migrate.sources import CHECKPOINT, HEAD, append, copy_of
from tests.mirror.support import forget_commits_below, log_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases


MANY = 40


class ProcessEnd(BaseException):
    """Raised in place of a process that ends."""


@pytest.fixture(scope="module")
def cleaned(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same table with a log that starts with a checkpoint."""
    place = copy_of(pristine, tmp_path_factory.mktemp("cleaned") / "events")
    forget_commits_below(place, CHECKPOINT)
    return place


@contextmanager
def ending_after(transactions: int, end: Callable[[], None]) -> Iterator[None]:
    """Call a function after this many committed SQL transactions."""
    done = 0

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def wrapper(self: Store, *args: Any, **options: Any) -> Iterator[Any]:
            nonlocal done
            with change(self, *args, **options) as given:
                yield given
            done += 1
            if done == transactions:
                end()

        return wrapper

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "change", counted(Store.change))
        patch.setattr(Store, "relaxed", counted(Store.relaxed))
        yield


def die() -> None:
    raise ProcessEnd


def dies(catalog: Catalog, source: Path, transactions: int, **options: Any) -> bool:
    """Import until this many transactions are committed; return False if fewer were needed."""
    try:
        with ending_after(transactions, die):
            catalog.import_table(str(source), batch_size=1, **options)
    except ProcessEnd:
        return True
    return False


def check_partial(catalog: Catalog, source: Path) -> None:
    """Assert that the partial table is invisible and that the next run completes it."""
    is_done = bool(catalog.tables())
    assert catalog.dropped() == []
    report = catalog.import_table(str(source))
    assert report.state == ("up to date" if is_done else "imported")
    check_complete(catalog, source)


def check_complete(catalog: Catalog, source: Path) -> None:
    assert catalog.table("events").version() == HEAD
    (verified,) = catalog.mirror.verify("events", versions="all")
    assert verified.ok, verified.summary()
    assert len(tables_at(catalog.store.query, str(source))) == 1
    assert [each.pending for each in catalog.mirror.status()] == [0]


@pytest.mark.one_database
@pytest.mark.parametrize("kind", ["pristine", "cleaned"])
def test_interrupted_import_is_continued_without_duplicates(
    backend: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    source: Path = request.getfixturevalue(kind)
    before = log_bytes(source)
    for transactions in range(1, MANY):
        folder = tmp_path / str(transactions)
        folder.mkdir()
        for uri in new_catalog_uri(backend, folder):
            with deltasql.connect(uri, create=True) as catalog:
                died = dies(catalog, source, transactions)
                check_partial(catalog, source)
        if not died:
            break
    commits = HEAD + 1 if kind == "pristine" else HEAD - CHECKPOINT + 1
    assert commits + 2 < transactions < MANY - 1
    assert log_bytes(source) == before


def test_interrupted_repeated_import_is_continued_without_duplicates(
    backend: str, pristine: Path, tmp_path: Path
) -> None:
    for transactions in range(1, MANY):
        folder = tmp_path / str(transactions)
        folder.mkdir()
        for uri in new_catalog_uri(backend, folder):
            with deltasql.connect(uri, create=True) as catalog:
                catalog.import_table(str(pristine), up_to_version=2, verify=False)
                died = dies(catalog, pristine, transactions)
                seen = catalog.table("events").version()
                assert 2 <= seen <= HEAD
                # Loaded commits never count as waiting to be published.
                assert [each.pending for each in catalog.mirror.status()] == [0]
                assert catalog.import_table(str(pristine)).commits == HEAD - seen
                check_complete(catalog, pristine)
        if not died:
            break
    assert HEAD - 2 <= transactions < MANY - 1


@pytest.mark.parametrize("change", ["since", "up_to_version", "recreated"])
def test_partial_table_that_cannot_be_continued_is_deleted(
    catalog: Catalog, pristine: Path, tmp_path: Path, change: str
) -> None:
    source = copy_of(pristine, tmp_path / "events")
    assert dies(catalog, source, HEAD)
    options: dict[str, Any] = {"since": 2} if change == "since" else {"up_to_version": 1}
    if change == "recreated":
        options = {}
        shutil.rmtree(source)
        for number in range(HEAD + 2):
            append(source, number)
    report = catalog.import_table(str(source), **options)
    assert report.state == "imported"
    (verified,) = catalog.mirror.verify("events", versions="all")
    assert {each.kind for each in verified.differences} <= {"foreign-version"}
    assert len(tables_at(catalog.store.query, str(source))) == 1


def test_partial_table_cannot_be_undropped(catalog: Catalog, pristine: Path) -> None:
    assert dies(catalog, pristine, 4)
    assert catalog.tables() == catalog.dropped() == []
    with pytest.raises(deltasql.exceptions.TxnLogTableNotFoundError):
        catalog.undrop("events")


# With several processes


def import_and_die(_: object, uri: DeltaSqlUri, source: str, transactions: int) -> None:
    with (
        deltasql.connect(uri, create=True) as catalog,
        ending_after(transactions, lambda: os.kill(os.getpid(), signal.SIGKILL)),
    ):
        catalog.import_table(source, batch_size=1)


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
@pytest.mark.parametrize("transactions", [2, 5])
def test_killed_import_is_continued_by_another_process(
    backend: str, catalog_uri: DeltaSqlUri, pristine: Path, transactions: int
) -> None:
    [outcome] = run(import_and_die, [(catalog_uri, str(pristine), transactions)])
    assert outcome.exitcode == -signal.SIGKILL, outcome
    with deltasql.connect(catalog_uri) as catalog:
        check_partial(catalog, pristine)


def import_table(barrier: Any, uri: DeltaSqlUri, source: str) -> str:
    with deltasql.connect(uri, create=True) as catalog:
        barrier.wait()
        return catalog.import_table(source, batch_size=1).state


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_concurrent_imports_create_one_table(
    backend: str, catalog_uri: DeltaSqlUri, pristine: Path
) -> None:
    states = values(run(import_table, [(catalog_uri, str(pristine))] * 3))
    assert set(states) <= {"imported", "up to date"}
    with deltasql.connect(catalog_uri) as catalog:
        assert [table.full_name for table in catalog.tables()] == ["events"]
        check_complete(catalog, pristine)
