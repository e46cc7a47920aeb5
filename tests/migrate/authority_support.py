"""Helpers for tests of follow, cutover and rollback: writers, readers and killed processes."""

from __future__ import annotations

import json
import os
import signal
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

import deltasql
from deltasql.model.actions import Protocol
from deltasql.phases import hooked
from deltasql.store.store import Store
from tests.migrate.sources import HEAD, append, rows
from tests.mirror.support import LOG, commit_lines, commit_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

NAME = "events"
IDS = [1, 2, 4, 5, 6, 7, 8]
"""The rows of the table before the cutover."""


def open_catalog(uri: DeltaSqlUri | str, **settings: Any) -> Catalog:
    """Open a catalog that publishes before a commit returns."""
    return deltasql.connect(uri, create=True, **{"mirror": {"mode": "sync"}, **settings})


def theirs(place: Path | str, *ids: int) -> int:
    """Append rows with deltalake, outside SQL."""
    return append(place, *ids)


def ours(catalog: Catalog, *ids: int) -> int:
    """Write rows through SQL to an existing table."""
    with catalog.begin() as tx:
        tx.snapshot(NAME)
        tx.write(NAME, rows(*ids))
    return tx.versions[NAME]


def cut_over(catalog: Catalog, place: Path) -> None:
    """Follow a table, cut it over and write to it."""
    catalog.follow(str(place))
    catalog.cutover(NAME)
    ours(catalog, 11)


def sql_ids(catalog: Catalog, version: int | None = None) -> list[int]:
    """Return the ids that our engine reads."""
    table = catalog.table(NAME)
    with catalog.begin() as tx:
        tx.pin(NAME, table.snapshot(version))
        found: list[int] = tx.read(NAME)["id"].to_pylist()
    return sorted(found)


def verify_all_versions(catalog: Catalog) -> bool:
    """Assert that SQL and the log agree at every version; return True."""
    (report,) = catalog.mirror.verify(NAME, versions="all")
    assert report.ok, report.summary()
    return True


def enable_timestamps_as_spark(place: Path) -> None:
    """Add a commit of delta-spark that enables in-commit timestamps."""
    metadata = commit_lines(place, 0)[2]["metaData"]
    metadata["configuration"] = {
        **metadata["configuration"],
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": str(HEAD + 1),
        "delta.inCommitTimestampEnablementTimestamp": "1",
    }
    lines = [
        {"commitInfo": {"inCommitTimestamp": 4102444800000, "engineInfo": "Apache-Spark/4.2"}},
        {"protocol": Protocol(1, 7, None, ("inCommitTimestamp",)).body()},
        {"metaData": metadata},
    ]
    commit_path(place, HEAD + 1).write_text("".join(f"{json.dumps(each)}\n" for each in lines))


def is_write_blocked(place: Path | str) -> bool:
    """Assert that deltalake cannot write to the table; return whether its log is unchanged."""
    log = Path(place) / LOG
    before = everything_below(log)
    with pytest.raises(deltalake.exceptions.CommitFailedError, match="InCommitTimestamp"):
        theirs(place, 99)
    return everything_below(log) == before


def everything_below(place: Path) -> dict[str, bytes]:
    """Return all files of a table, including its log."""
    files = (path for path in place.rglob("*") if path.is_file())
    return {str(path.relative_to(place)): path.read_bytes() for path in files}


def die_at(phase: str) -> Callable[[str], None]:
    """Return a hook that kills this process at a phase."""

    def hook(reached: str) -> None:
        if reached == phase:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


def kill_after(transactions: int) -> None:
    """Kill this process after this many committed SQL transactions."""
    done = count(1)

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def wrapper(self: Store, *args: Any, **options: Any) -> Iterator[Any]:
            with change(self, *args, **options) as given:
                yield given
            if next(done) == transactions:
                os.kill(os.getpid(), signal.SIGKILL)

        return wrapper

    Store.change = counted(Store.change)  # type: ignore[method-assign]
    Store.relaxed = counted(Store.relaxed)  # type: ignore[method-assign]


def once_at(phase: str, act: Callable[[], object]) -> Callable[[str], None]:
    """Return a hook that calls a function when a phase is reached for the first time."""
    done: list[str] = []

    def hook(reached: str) -> None:
        if reached == phase and not done:
            done.append(reached)
            act()

    return hook


def cut_over_and_die(_: Any, uri: DeltaSqlUri, phase: str, fence: bool = False) -> None:
    with open_catalog(uri) as catalog, hooked(die_at(phase)):
        catalog.cutover(NAME, fence=fence)


def roll_back_and_die(_: Any, uri: DeltaSqlUri, phase: str) -> None:
    with open_catalog(uri) as catalog, hooked(die_at(phase)):
        catalog.rollback(NAME)
