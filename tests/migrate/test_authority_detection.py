"""The authority of a log is detected after a cleanup, restore, rollback or import with force."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltasql.exceptions import OtherAuthorityError
from deltasql.migrate.authority.log_owner import OWNER_FILE
from deltasql.uri import DeltaSqlUri
from tests.migrate.authority_support import IDS, NAME, everything_below, open_catalog, ours, sql_ids
from tests.migrate.sources import HEAD
from tests.mirror.support import commit_lines, commit_path, forget_commits_below

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog

pytestmark = pytest.mark.one_database

SPARK = "Apache-Spark/4.0.0 Delta-Lake/4.0.0"


@pytest.fixture
def catalog(catalog_uri: DeltaSqlUri) -> Iterator[Catalog]:
    with open_catalog(catalog_uri) as opened:
        yield opened


@pytest.fixture
def of_spark(place: Path) -> Path:
    """A table whose in-commit timestamps another program enabled."""
    (created,) = (each["metaData"] for each in commit_lines(place, 0) if "metaData" in each)
    version = HEAD + 1
    enabled = {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": str(version),
        "delta.inCommitTimestampEnablementTimestamp": "1000",
    }
    features = {"writerFeatures": ["appendOnly", "invariants", "inCommitTimestamp"]}
    by_path(
        place,
        version,
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, **features}},
        {"metaData": {**created, "configuration": {**created["configuration"], **enabled}}},
        timestamp=1000,
    )
    return place


def by_path(
    place: Path, version: int, *actions: object, timestamp: int | None = None, engine: str = SPARK
) -> None:
    """Commit as another program, with an in-commit timestamp if one is given."""
    info: dict[str, object] = {"timestamp": 4102444800000, "engineInfo": engine}
    if timestamp is not None:
        info["inCommitTimestamp"] = timestamp
    more = actions or ({"txn": {"appId": "etl", "version": version}},)
    lines = [{"commitInfo": info}, *more]
    commit_path(place, version).write_text("".join(f"{json.dumps(each)}\n" for each in lines))


def cleaned_up(catalog: Catalog, place: Path) -> None:
    """Delete the commits before the latest checkpoint, as a log cleanup does."""
    catalog.mirror.checkpoint(NAME)
    forget_commits_below(place, catalog.table(NAME).version())


# A catalog that was restored from a backup


@pytest.mark.parametrize("is_cleaned_up", [True, False])
def test_restored_catalog_continues_its_own_log(
    sqlite_uri: DeltaSqlUri, place: Path, tmp_path: Path, is_cleaned_up: bool
) -> None:
    with open_catalog(sqlite_uri) as catalog:
        catalog.import_table(str(place))
        catalog.cutover(NAME)
        ours(catalog, 11)
        if is_cleaned_up:
            cleaned_up(catalog, place)
    backup = tmp_path / "backup.sqlite"
    shutil.copy(sqlite_uri.database, backup)
    with open_catalog(sqlite_uri) as catalog:
        for each in range(12, 20):  # more than are read from the end of the log
            ours(catalog, each)
    with open_catalog(DeltaSqlUri(backend="sqlite", database=str(backup))) as restored:
        assert restored.import_table(str(place)).state == "continued"
        assert sql_ids(restored) == [*IDS, *range(11, 20)]


def test_import_is_rejected_after_another_catalog_committed(
    catalog: Catalog, other: Catalog, of_spark: Path
) -> None:
    """Both catalogs imported the same commits, and one of them committed afterwards."""
    catalog.import_table(str(of_spark))
    other.import_table(str(of_spark))
    ours(other, 11)
    with pytest.raises(OtherAuthorityError, match=f"which committed version {HEAD + 2}"):
        catalog.import_table(str(of_spark))
    assert sql_ids(catalog) == IDS


# In-commit timestamps that another program enabled


@pytest.mark.parametrize("way", ["import", "cutover"])
def test_owner_is_detected_if_another_program_enabled_in_commit_timestamps(
    catalog: Catalog, other: Catalog, of_spark: Path, way: str
) -> None:
    other.follow(str(of_spark))
    other.cutover(NAME)
    version = ours(other, 11)
    if way == "cutover":
        catalog.follow(str(of_spark))
    with pytest.raises(OtherAuthorityError) as refused:
        catalog.import_table(str(of_spark)) if way == "import" else catalog.cutover(NAME)
    assert refused.value.version == version


def test_log_without_an_owner_is_imported(catalog: Catalog, of_spark: Path) -> None:
    by_path(of_spark, HEAD + 2, timestamp=2000)
    catalog.import_table(str(of_spark))
    ours(catalog, 11)
    assert sql_ids(catalog) == [*IDS, 11]


@pytest.mark.parametrize("others_went_on", [True, False])
@pytest.mark.parametrize("is_cleaned_up", [True, False])
def test_rolled_back_table_that_keeps_timestamps_is_imported(
    catalog: Catalog, other: Catalog, of_spark: Path, is_cleaned_up: bool, others_went_on: bool
) -> None:
    other.import_table(str(of_spark))
    ours(other, 11)
    if is_cleaned_up:
        cleaned_up(other, of_spark)
    with pytest.raises(OtherAuthorityError):
        catalog.import_table(str(of_spark))
    assert not other.rollback(NAME).timestamps_dropped
    if others_went_on:
        by_path(of_spark, HEAD + 3, timestamp=4102444800000)
    assert catalog.import_table(str(of_spark)).state == "imported"
    ours(catalog, 12)
    assert sql_ids(catalog) == [*IDS, 11, 12]
    with pytest.raises(OtherAuthorityError):  # the catalog committed, so it is an authority now
        other.import_table(str(of_spark))
    before = everything_below(of_spark)
    other.rollback(NAME)  # the second rollback covers only the own commits, not the later ones
    assert everything_below(of_spark) == before


def test_rollback_that_disables_timestamps_writes_no_owner_file(
    catalog: Catalog, place: Path
) -> None:
    catalog.import_table(str(place))
    catalog.cutover(NAME)
    ours(catalog, 11)
    catalog.rollback(NAME)
    assert not (place / OWNER_FILE).exists()


def test_rollback_of_a_followed_table_changes_no_file(
    catalog: Catalog, other: Catalog, of_spark: Path
) -> None:
    other.import_table(str(of_spark))
    ours(other, 11)
    catalog.follow(str(of_spark))
    before = everything_below(of_spark)
    catalog.rollback(NAME)
    assert everything_below(of_spark) == before


# Writers without in-commit timestamps


def test_owner_is_detected_after_a_foreign_commit(
    catalog: Catalog, other: Catalog, place: Path
) -> None:
    other.import_table(str(place))
    other.cutover(NAME)
    version = ours(other, 11)
    by_path(place, version + 1, engine="delta-rs:py-0.25.5")
    with pytest.raises(OtherAuthorityError):
        catalog.import_table(str(place))


# Imports with force


def test_import_is_rejected_after_another_catalog_used_force(
    catalog: Catalog, other: Catalog, place: Path
) -> None:
    other.import_table(str(place))
    other.cutover(NAME)
    ours(other, 11)
    catalog.import_table(str(place), force=True, dry_run=True)
    assert not (place / OWNER_FILE).exists()
    catalog.import_table(str(place), force=True)
    ours(catalog, 12)
    with pytest.raises(OtherAuthorityError):
        other.import_table(str(place))
    assert sql_ids(other) == [*IDS, 11]
    # Then back with force, from its last version.
    assert other.import_table(str(place), force=True).state == "continued"
    ours(other, 13)
    with pytest.raises(OtherAuthorityError):
        catalog.import_table(str(place))
    assert sql_ids(other) == [*IDS, 11, 12, 13]


def test_rolled_back_log_can_be_imported_by_its_first_catalog(
    catalog: Catalog, other: Catalog, place: Path
) -> None:
    other.import_table(str(place))
    other.cutover(NAME)
    catalog.import_table(str(place), force=True)
    ours(catalog, 12)
    catalog.rollback(NAME)
    assert other.import_table(str(place)).state == "continued"
    other.cutover(NAME)  # from here on the other catalog's owner file does not matter
    ours(other, 13)
    other.drop(NAME)
    assert other.import_table(str(place)).state == "imported"
    assert sql_ids(other) == [*IDS, 12, 13]


@pytest.mark.parametrize("text", ["", "[]", "null", '{"lastVersion": "x", "takenBy": 7}'])
def test_damaged_owner_file_does_not_change_the_authority(
    catalog: Catalog, other: Catalog, place: Path, text: str
) -> None:
    other.import_table(str(place))
    other.cutover(NAME)
    (place / OWNER_FILE).write_text(text)
    with pytest.raises(OtherAuthorityError):
        catalog.import_table(str(place))
