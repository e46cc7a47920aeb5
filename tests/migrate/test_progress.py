"""Verification, cutover and rollback report the progress of each phase."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import pytest

from deltasql.cli.progress import facts_text, title_text
from deltasql.model.progress import Progress
from tests.migrate.authority_support import NAME, open_catalog, ours, theirs
from tests.migrate.sources import HEAD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri


@pytest.fixture
def catalog(sqlite_uri: DeltaSqlUri) -> Iterator[Catalog]:
    with open_catalog(sqlite_uri) as opened:
        yield opened


def ends(steps_reported: list[Progress]) -> dict[str, tuple[int, int, str]]:
    """Return done, total and unit of each phase at its end; `done` must grow or restart."""
    found = {}
    for phase, steps in groupby(steps_reported, key=lambda each: each.phase):
        seen = [*steps]
        assert all(a.done <= b.done or b.done == 0 for a, b in pairwise(seen))
        found[phase] = (seen[-1].done, seen[-1].total, seen[-1].unit)
    return found


def test_verification_reports_the_progress_of_each_phase(catalog: Catalog, place: Path) -> None:
    catalog.import_table(str(place))
    files = len(catalog.table(NAME).files()["path"])
    steps_reported: list[Progress] = []
    (report,) = catalog.mirror.verify(
        NAME, versions="all", data="counts", on_progress=steps_reported.append
    )
    assert report.ok, report.summary()
    every = (HEAD + 1, HEAD + 1)
    assert ends(steps_reported) == {
        "comparing commits": (*every, "commits"),
        "comparing states": (*every, "versions"),
        "comparing with deltalake": (*every, "versions"),
        "comparing checkpoints": (1, 1, "checkpoints"),
        "looking for files": (files, files, "files"),
        "reading data": (files, files, "files"),
    }
    assert {each.table for each in steps_reported} == {NAME}


def test_cutover_and_rollback_report_progress(catalog: Catalog, place: Path) -> None:
    catalog.follow(str(place))
    theirs(place, 11)
    steps_reported: list[Progress] = []
    catalog.cutover(NAME, on_progress=steps_reported.append)
    found = ends(steps_reported)
    assert found["catching up"] == (1, 1, "commits")
    assert found["comparing commits"] == (HEAD + 2, HEAD + 2, "commits")
    ours(catalog, 12)
    steps_reported.clear()
    catalog.rollback(NAME, on_progress=steps_reported.append)
    found = ends(steps_reported)
    assert found["comparing commits"] == (HEAD + 4, HEAD + 4, "commits")
    done, total, unit = found["flushing"]
    assert (done, unit) == (total, "files")


def test_rollback_reports_published_versions(sqlite_uri: DeltaSqlUri, place: Path) -> None:
    with open_catalog(sqlite_uri, mirror={"mode": "off"}) as catalog:
        catalog.import_table(str(place))
        for number in range(3):
            ours(catalog, 20 + number)
        steps_reported: list[Progress] = []
        catalog.rollback(NAME, on_progress=steps_reported.append)
        assert ends(steps_reported)["publishing"] == (3, 3, "versions")


def test_progress_is_shown_with_rate_and_remaining_time() -> None:
    progress = Progress("sales", "comparing commits", "commits", 500, 1500, 10.0)
    assert title_text(progress) == "sales: comparing commits"
    assert facts_text(progress) == "500 of 1,500, 50 commits/s, 0:00:20 left"


def test_export_without_data_counts_commits(catalog: Catalog, place: Path, tmp_path: Path) -> None:
    catalog.import_table(str(place))
    reported: list[Progress] = []
    catalog.export_table(NAME, str(tmp_path / "copy"), on_progress=reported.append)
    assert ends(reported) == {"exporting": (HEAD + 1, HEAD + 1, "commits")}


def test_names_and_callbacks_of_earlier_versions_are_deprecated(catalog: Catalog) -> None:
    progress = Progress("sales", "loading", "commits", 5, 9, bytes=7)
    for old, value in {"commits": 5, "total_commits": 9, "log_bytes": 7, "source": "sales"}.items():
        with pytest.warns(DeprecationWarning, match=rf"Progress\.{old} is deprecated"):
            assert getattr(progress, old) == value
    with pytest.raises(AttributeError, match="unknown"):
        getattr(progress, "unknown")  # noqa: B009
    counts: list[tuple[int, int]] = []

    def two_counts(done: int, total: int) -> None:
        counts.append((done, total))

    with pytest.warns(DeprecationWarning, match="two arguments"):
        catalog.mirror.publish(on_progress=two_counts)
    assert counts == [(0, 0)]
