"""Import of a Delta table: its whole history is in SQL, and its files stay in place."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.api.catalog.connect import close_all, is_new
from deltasql.exceptions import (
    InvalidActionError,
    MirrorDivergedError,
    TableExistsError,
    TxnLogConfigError,
    VersionGapError,
    VersionNotFoundError,
)
from tests.migrate.sources import (
    CHECKPOINT,
    HEAD,
    append,
    copy_of,
    paths_at,
    read_ids,
    rows,
    stock_paths_at,
)
from tests.mirror.support import commit_path, forget_commits_below, log_bytes, open_mirrored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.model.progress import Progress
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases


@pytest.fixture
def source(pristine: Path, tmp_path: Path) -> Path:
    """A table that a test can change."""
    return copy_of(pristine, tmp_path / "lake" / "events")


@pytest.fixture
def opened(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """An empty catalog that publishes each commit."""
    with open_mirrored(catalog_uri, tmp_path / "own") as catalog:
        yield catalog


def same_history(catalog: Catalog, name: str, place: Path, first: int = 0) -> bool:
    """Assert that SQL has deltalake's files and history at every version; return True."""
    for version in range(first, HEAD + 1):
        assert paths_at(catalog, name, version) == stock_paths_at(place, version)
    theirs = deltalake.DeltaTable(str(place)).history()
    ours = {row.version: row for row in catalog.table(name).history()}
    assert sorted(ours) == list(range(first, HEAD + 1))
    for each in theirs:
        if each["version"] >= first:
            row = ours[each["version"]]
            assert (row.info.operation, row.info.timestamp) == (
                each["operation"],
                each["timestamp"],
            )
    return True


@pytest.mark.every_database
def test_import_keeps_every_version_and_timestamp(pristine: Path, opened: Catalog) -> None:
    before = log_bytes(pristine)
    report = opened.import_table(str(pristine))
    assert (report.state, report.table, report.ok) == ("imported", "events", True)
    assert (report.first_version, report.last_version, report.commits) == (0, HEAD, HEAD + 1)
    assert report.verification is not None
    assert report.verification.ok
    assert same_history(opened, "events", pristine)
    assert opened.table("events").location == str(pristine)
    assert log_bytes(pristine) == before  # nothing is copied or written
    assert [(each.state, each.pending) for each in opened.mirror.status()] == [("ACTIVE", 0)]


@pytest.mark.every_database
def test_commit_to_an_imported_table_is_published(source: Path, opened: Catalog) -> None:
    opened.import_table(str(source), name="crm.events")
    with opened.begin() as tx:
        tx.write("crm.events", rows(20))
    assert tx.versions == {"crm.events": HEAD + 1}
    assert commit_path(source, HEAD + 1).exists()
    assert read_ids(source) == [1, 2, 4, 5, 6, 7, 8, 20]
    assert all(each.ok for each in opened.mirror.verify("crm.events", versions="all"))


def test_repeated_import_changes_nothing(source: Path, opened: Catalog) -> None:
    opened.import_table(str(source))
    before = (log_bytes(source), opened.table("events").row)
    for spelling in (str(source), f"file://{source}", f"{source}/"):
        again = opened.import_table(spelling)
        assert (again.state, again.commits, again.table) == ("up to date", 0, "events")
    assert (log_bytes(source), opened.table("events").row) == before
    assert len(opened.tables()) == 1


@pytest.mark.every_database
def test_repeated_import_loads_new_commits_of_other_writers(source: Path, opened: Catalog) -> None:
    opened.import_table(str(source))
    append(source, 30)
    append(source, 31)
    report = opened.import_table(str(source))
    assert (report.state, report.commits, report.last_version) == ("continued", 2, HEAD + 2)
    found = report.verification
    assert found is not None
    # Only the new commits are verified.
    assert (found.ok, found.commits, found.versions) == (True, 2, [HEAD + 2])
    assert paths_at(opened, "events", HEAD + 2) == stock_paths_at(source, HEAD + 2)
    assert opened.mirror.status("events")[0].pending == 0
    assert opened.import_table(str(source), since=2).state == "up to date"


def test_import_of_foreign_commits_releases_the_mirror(source: Path, opened: Catalog) -> None:
    opened.import_table(str(source))
    append(source, 30)
    opened.mirror.verify("events")
    assert opened.mirror.status("events")[0].state == "QUARANTINED"
    report = opened.import_table(str(source))
    assert report.state == "continued"
    assert opened.mirror.status("events")[0].state == "ACTIVE"


def test_mirror_stays_quarantined_until_the_whole_log_is_imported(
    source: Path, opened: Catalog
) -> None:
    opened.import_table(str(source))
    append(source, 30)
    append(source, 31)
    opened.mirror.verify("events")
    for version in (HEAD, HEAD + 1):
        report = opened.import_table(str(source), up_to_version=version)
        assert f"the log continues to version {HEAD + 2}" in report.summary()
        assert opened.mirror.status("events")[0].state == "QUARANTINED"
    assert "publishing has resumed" in opened.import_table(str(source)).summary()
    assert opened.mirror.status("events")[0].state == "ACTIVE"
    assert "not in the log" not in opened.import_table(str(source), up_to_version=2).summary()


@pytest.mark.parametrize("dry_run", [True, False])
def test_commit_without_in_commit_timestamp_after_cutover_is_rejected(
    source: Path, opened: Catalog, dry_run: bool
) -> None:
    opened.import_table(str(source))
    version = opened.cutover("events").version
    assert version is not None
    foreign = {"commitInfo": {"timestamp": 1, "operation": "WRITE"}}
    commit_path(source, version + 1).write_text(json.dumps(foreign) + "\n")
    with pytest.raises(InvalidActionError, match="no in-commit timestamp"):
        opened.import_table(str(source), dry_run=dry_run)
    assert opened.table("events").version() == version
    foreign["commitInfo"]["inCommitTimestamp"] = 2**41
    commit_path(source, version + 1).write_text(json.dumps(foreign) + "\n")
    assert opened.import_table(str(source)).last_version == version + 1


def test_import_is_rejected_when_sql_and_log_have_diverged(source: Path, catalog: Catalog) -> None:
    """The mirror is off, so SQL's commit is not in the log when another program writes."""
    catalog.import_table(str(source))
    with catalog.begin() as tx:
        tx.write("events", rows(20))
    append(source, 30)
    append(source, 31)
    with pytest.raises(MirrorDivergedError, match="mirror adopt") as failure:
        catalog.import_table(str(source))
    assert f"the database is at version {HEAD + 1}, the log at version {HEAD + 2}" in str(
        failure.value
    )
    assert failure.value.version == HEAD + 1
    assert catalog.table("events").version() == HEAD + 1
    # With force, the import replaces the table in SQL.
    replaced = catalog.import_table(str(source), force=True)
    assert (replaced.state, replaced.last_version) == ("replaced", HEAD + 2)
    assert [row.name for row in catalog.dropped()] == ["events"]
    assert paths_at(catalog, "events", HEAD + 2) == stock_paths_at(source, HEAD + 2)
    assert catalog.mirror.publish() == 0  # the dropped table publishes nothing any more


def test_unpublished_commits_are_not_a_divergence(source: Path, catalog: Catalog) -> None:
    catalog.import_table(str(source))
    with catalog.begin() as tx:
        tx.write("events", rows(20))
    report = catalog.import_table(str(source))
    assert report.state == "up to date"
    assert "not in the log yet" in report.summary()


def test_import_is_rejected_when_another_table_replaced_the_log(
    source: Path, opened: Catalog
) -> None:
    opened.import_table(str(source))
    shutil.rmtree(source)
    for number in range(HEAD + 3):
        append(source, number)
    with pytest.raises(MirrorDivergedError, match="diverged before version"):
        opened.import_table(str(source))
    assert opened.import_table(str(source), force=True).state == "replaced"
    assert read_ids(source) == sorted(range(HEAD + 3))


def test_import_is_rejected_when_the_log_lost_commits(source: Path, opened: Catalog) -> None:
    opened.import_table(str(source))
    commit_path(source, HEAD).unlink()
    with pytest.raises(MirrorDivergedError, match=f"ends at version {HEAD - 1}"):
        opened.import_table(str(source))


def test_since_checks_existing_commits_and_rejects_a_gap(source: Path, opened: Catalog) -> None:
    opened.import_table(str(source))
    with pytest.raises(VersionGapError, match="would leave a gap") as failure:
        opened.import_table(str(source), since=HEAD + 2)
    assert failure.value.first_missing == HEAD + 1
    path = commit_path(source, 2)
    path.write_bytes(path.read_bytes().replace(b'"Append"', b'"Overwrite"'))
    assert opened.import_table(str(source), since=3).state == "up to date"
    with pytest.raises(MirrorDivergedError, match="before version 2"):
        opened.import_table(str(source), since=1)


def test_since_starts_a_new_table_at_a_version(pristine: Path, opened: Catalog) -> None:
    report = opened.import_table(str(pristine), since=3)
    assert (report.first_version, report.commits) == (3, HEAD - 2)
    assert "as requested" in report.summary()
    assert same_history(opened, "events", pristine, first=3)
    assert opened.import_table(str(pristine)).state == "up to date"


def test_up_to_version_limits_the_import(source: Path, opened: Catalog) -> None:
    report = opened.import_table(str(source), up_to_version=2)
    assert (report.last_version, report.ok) == (2, True)
    assert opened.table("events").version() == 2
    assert opened.import_table(str(source), up_to_version=2).state == "up to date"
    rest = opened.import_table(str(source))
    assert (rest.state, rest.commits) == ("continued", HEAD - 2)
    assert same_history(opened, "events", source)
    with pytest.raises(VersionNotFoundError, match=f"no version {HEAD + 9}"):
        opened.import_table(str(source), up_to_version=HEAD + 9)


@pytest.mark.every_database
def test_cleaned_log_is_imported_from_its_checkpoint(source: Path, opened: Catalog) -> None:
    forget_commits_below(source, CHECKPOINT)
    report = opened.import_table(str(source))
    assert (report.first_version, report.commits) == (CHECKPOINT, HEAD - CHECKPOINT + 1)
    assert "older commits were cleaned up" in report.summary()
    for version in range(CHECKPOINT, HEAD + 1):
        assert paths_at(opened, "events", version) == stock_paths_at(source, version)
    append(source, 40)
    assert opened.import_table(str(source)).commits == 1


def test_log_cleaned_beyond_sql_can_be_imported_with_force(source: Path, opened: Catalog) -> None:
    opened.import_table(str(source), up_to_version=1)
    forget_commits_below(source, CHECKPOINT)
    with pytest.raises(VersionGapError, match="versions 2 to 3 are missing"):
        opened.import_table(str(source))
    assert opened.table("events").version() == 1
    report = opened.import_table(str(source), force=True)
    assert (report.state, report.first_version) == ("replaced", CHECKPOINT)
    assert opened.table("events").version() == HEAD


def test_name_comes_from_argument_uri_log_or_folder(
    pristine: Path, sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    def copied(name: str) -> str:
        return str(copy_of(pristine, tmp_path / "lake" / name))

    named = tmp_path / "lake" / "raw"
    deltalake.write_deltalake(str(named), rows(1), name="orders")
    table = sqlite_uri.with_table("by_uri", "crm")
    found = [
        deltasql.import_table(copied("a"), sqlite_uri, name="called").table,
        deltasql.import_table(copied("b"), sqlite_uri, name="eu.called").table,
        deltasql.import_table(copied("c"), sqlite_uri, name="x", namespace="us").table,
        deltasql.import_table(copied("d"), table).table,
        deltasql.import_table(copied("e f%g"), sqlite_uri).table,
        deltasql.import_table(str(named), sqlite_uri).table,
    ]
    assert found == ["called", "eu.called", "us.x", "crm.by_uri", "e f%25g", "orders"]


def test_name_in_use_is_rejected_without_force(
    source: Path, pristine: Path, opened: Catalog, tmp_path: Path
) -> None:
    opened.import_table(str(source))
    other = copy_of(pristine, tmp_path / "other" / "events")
    with pytest.raises(TableExistsError, match="events already exists") as failure:
        opened.import_table(str(other))
    assert str(source) in str(failure.value)
    with pytest.raises(TableExistsError, match="in the catalog as events"):
        opened.import_table(str(source), name="second")
    assert len(opened.tables()) == 1
    assert opened.import_table(str(other), force=True).state == "replaced"
    assert opened.table("events").location == str(other)
    assert [row.location for row in opened.dropped()] == [str(source)]
    assert read_ids(source) == read_ids(other)  # no file was changed


def test_dry_run_reports_everything_and_writes_nothing(
    pristine: Path, sqlite_uri: DeltaSqlUri
) -> None:
    report = deltasql.import_table(str(pristine), sqlite_uri, dry_run=True)
    assert not Path(sqlite_uri.database).exists()
    reported = (
        report.state,
        report.table,
        report.commits,
        report.first_version,
        report.last_version,
    )
    assert reported == ("would import", "events", HEAD + 1, 0, HEAD)
    assert report.live_files == len(stock_paths_at(pristine, HEAD))
    assert report.protocol == {"minReaderVersion": 1, "minWriterVersion": 2}
    deltasql.import_table(str(pristine), sqlite_uri, up_to_version=3)
    again = deltasql.import_table(str(pristine), sqlite_uri, dry_run=True)
    assert (again.state, again.commits) == ("would continue", HEAD - 3)
    with deltasql.connect(sqlite_uri) as catalog:
        assert catalog.table("events").version() == 3


@pytest.mark.parametrize("is_known", [False, True], ids=["new", "known"])
def test_dry_run_reports_only_missing_live_files(
    source: Path, opened: Catalog, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    monkeypatch.setattr("deltasql.migrate.importing.checks._PAGE", 2)
    forget_commits_below(source, CHECKPOINT)
    if is_known:
        opened.import_table(str(source))
    for each in range(80, 85):
        append(source, each)
    deltalake.DeltaTable(str(source)).delete("id = 81")
    before, after = (set(stock_paths_at(source, HEAD + each)) for each in (5, 6))
    for path in before - after:
        (source / path).unlink()
    report = opened.import_table(str(source), dry_run=True)
    assert report.missing == 0
    lost = min(after - set(stock_paths_at(source, HEAD)))
    (source / lost).unlink()
    report = opened.import_table(str(source), dry_run=True)
    assert (report.missing, report.missing_files) == (1, [lost])
    if not is_known:
        theirs = deltalake.DeltaTable(str(source)).get_add_actions(flatten=True)
        sizes = pa.table(theirs)["size_bytes"].to_pylist()
        assert (report.live_files, report.live_bytes) == (len(sizes), sum(sizes))


def test_dry_run_creates_no_catalog(backend: str, catalog_uri: DeltaSqlUri, pristine: Path) -> None:
    report = deltasql.import_table(str(pristine), catalog_uri, dry_run=True)
    assert report.state == "would import"
    assert is_new(catalog_uri)
    assert deltasql.import_table(str(pristine), catalog_uri).state == "imported"
    assert not is_new(catalog_uri)


def test_progress_is_reported_after_every_transaction(pristine: Path, opened: Catalog) -> None:
    reported: list[Progress] = []

    opened.import_table(str(pristine), batch_size=1, on_progress=reported.append)
    loading = [each for each in reported if each.phase == "loading"]
    assert [each.done for each in loading] == list(range(HEAD + 2))
    assert {(each.unit, each.total) for each in loading} == {("commits", HEAD + 1)}
    assert {each.table for each in reported} == {"events"}
    assert all(each.eta_s is None or each.eta_s >= 0 for each in reported)
    phases = dict.fromkeys(each.phase for each in reported)
    assert [*phases] == [
        "loading",
        "checking files",
        "verifying",
        "comparing commits",
        "comparing states",
        "comparing with deltalake",
        "comparing checkpoints",
        "done",
    ]
    assert (reported[-1].done, reported[-1].files) == (HEAD + 1, 8)
    assert reported[-1].bytes == sum(path.stat().st_size for path in pristine.rglob("*.json"))


def test_report_has_text_and_json_forms(pristine: Path, opened: Catalog) -> None:
    report = opened.import_table(str(pristine))
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["ok"]
    assert plain["verification"]["ok"]
    assert plain["files"] == 8
    text = report.summary()
    assert "events: imported" in text
    assert f"versions 0 to {HEAD}" in text
    assert f"verified: {HEAD + 1} commits" in text


def test_import_without_verification_compares_nothing(pristine: Path, opened: Catalog) -> None:
    report = opened.import_table(str(pristine), verify=False)
    assert report.verification is None
    assert same_history(opened, "events", pristine)


def test_dropped_table_can_be_imported_again(source: Path, opened: Catalog) -> None:
    opened.import_table(str(source))
    opened.drop("events")
    append(source, 50)
    report = opened.import_table(str(source))
    assert (report.state, report.last_version) == ("imported", HEAD + 1)
    assert opened.table("events").version() == HEAD + 1


def test_import_is_rejected_while_a_dropped_table_has_unpublished_versions(
    source: Path, catalog: Catalog
) -> None:
    catalog.import_table(str(source))
    with catalog.begin() as tx:
        tx.write("events", rows(20))
    catalog.drop("events")
    with pytest.raises(TableExistsError, match="lacks 1 version of the dropped table"):
        catalog.import_table(str(source))
    assert catalog.import_table(str(source), force=True).state == "imported"
    assert catalog.mirror.publish() == 0


@pytest.mark.parametrize(
    ("key", "value"), [("up_to_version", -1), ("since", -1), ("batch_size", 0)]
)
def test_options_out_of_range_are_rejected(
    pristine: Path, sqlite_uri: DeltaSqlUri, key: str, value: int
) -> None:
    options: dict[str, Any] = {key: value}
    with pytest.raises(TxnLogConfigError, match=key):
        deltasql.import_table(str(pristine), sqlite_uri, **options)


def test_time_travel_uses_modification_times_of_commit_files(
    catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    """Every reader does so for a log without in-commit timestamps."""
    place = tmp_path / "lake" / "t"
    for number in range(4):
        deltalake.write_deltalake(place, pa.table({"id": [number]}), mode="append")
    days = [datetime(2020, 5, day, tzinfo=UTC) for day in (1, 3, 3, 7)]
    for number, day in enumerate(days):
        os.utime(place / "_delta_log" / f"{number:020}.json", (day.timestamp(),) * 2)
    uri = catalog_uri.with_table("t").to_string()
    with deltasql.connect(catalog_uri) as catalog:
        catalog.import_table(str(place), name="t")
    ours, theirs = deltasql.DeltaTable(uri), deltalake.DeltaTable(place)
    for day in range(1, 10):
        for table in (ours, theirs):
            table.load_as_version(datetime(2020, 5, day, 12, tzinfo=UTC))
        assert ours.version() == theirs.version(), day
    close_all()
