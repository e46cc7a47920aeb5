"""Rollback: the log is complete and becomes the authority, and other programs can write again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pytest

from deltasql.exceptions import (
    MirrorDivergedError,
    TableExistsError,
)
from deltasql.migrate.authority.log_owner import OWNER_FILE
from deltasql.model.actions import Protocol
from tests.migrate.authority_support import (
    IDS,
    NAME,
    cut_over,
    enable_timestamps_as_spark,
    everything_below,
    is_write_blocked,
    open_catalog,
    ours,
    sql_ids,
    theirs,
    verify_all_versions,
)
from tests.migrate.sources import HEAD, SCHEMA, read_ids, rows
from tests.mirror.support import commit_lines, commit_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.one_database


@pytest.fixture
def catalog(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    settings = {"table": {"data_root": str(tmp_path / "lake")}}
    with open_catalog(catalog_uri, **settings) as opened:
        yield opened


@pytest.mark.every_database
def test_other_writers_continue_after_rollback(catalog: Catalog, place: Path) -> None:
    cut_over(catalog, place)
    assert is_write_blocked(place)
    report = catalog.rollback(NAME)
    assert (report.state, report.version, report.timestamps_dropped) == (
        "rolled back",
        HEAD + 3,
        True,
    )
    assert report.ok
    assert not catalog.exists(NAME)
    assert theirs(place, 12) == HEAD + 4
    table = deltalake.DeltaTable(str(place))
    table.delete("id = 11")
    table.update(updates={"id": "13"}, predicate="id = 12")
    table.optimize.compact()
    table.create_checkpoint()
    (
        table.merge(rows(14), "t.id = s.id", source_alias="s", target_alias="t")
        .when_not_matched_insert_all()
        .execute()
    )
    assert read_ids(place) == [*IDS, 13, 14]
    assert read_ids(place, HEAD + 2) == [*IDS, 11]  # the commits of SQL are in the history


@pytest.mark.every_database
def test_rollback_deletes_nothing_and_adds_one_commit(catalog: Catalog, place: Path) -> None:
    cut_over(catalog, place)
    before = everything_below(place)
    catalog.rollback(NAME)
    after = everything_below(place)
    added = after.keys() - before.keys()
    assert added == {f"_delta_log/{HEAD + 3:020d}.json"}
    assert {name: after[name] for name in before} == before


PROTOCOLS = [
    Protocol(1, 1),
    Protocol(1, 2),
    Protocol(1, 4),
    Protocol(2, 5),
    Protocol(1, 7, None, ("appendOnly",)),
    Protocol(3, 7, ("timestampNtz",), ("appendOnly", "timestampNtz")),
]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=str)
def test_rollback_restores_protocol_and_properties(
    catalog: Catalog, place: Path, protocol: Protocol
) -> None:
    line = json.dumps({"protocol": protocol.body()})
    commit_path(place, HEAD + 1).write_text(f"{line}\n")
    before = deltalake.DeltaTable(str(place))
    cut_over(catalog, place)
    catalog.rollback(NAME)
    after = deltalake.DeltaTable(str(place))
    assert after.protocol() == before.protocol()
    assert after.metadata().configuration == before.metadata().configuration
    assert after.metadata().id == before.metadata().id
    info, *rest = commit_lines(place, after.version())
    assert info["commitInfo"]["operation"] == "DROP FEATURE"
    assert [next(iter(each)) for each in rest] == ["protocol", "metaData"]


@pytest.mark.every_database
def test_rollback_publishes_pending_versions_first(catalog_uri: DeltaSqlUri, place: Path) -> None:
    with open_catalog(catalog_uri, mirror={"mode": "off"}) as catalog:
        cut_over(catalog, place)
        ours(catalog, 12)
        assert catalog.mirror.status(NAME)[0].pending == 2
        report = catalog.rollback(NAME)
        assert report.published == 2
    assert read_ids(place) == [*IDS, 11, 12]
    theirs(place, 13)


def test_table_created_in_sql_can_be_rolled_back(catalog: Catalog) -> None:
    catalog.create_table(NAME, SCHEMA)
    ours(catalog, 1)
    place = Path(catalog.table(NAME).location)
    assert is_write_blocked(place)
    report = catalog.rollback(NAME)
    assert (report.version, report.timestamps_dropped) == (2, True)
    deltalake.write_deltalake(str(place), rows(2), mode="append")
    assert read_ids(place) == [1, 2]


def test_rollback_of_an_imported_table_changes_no_file(catalog: Catalog, place: Path) -> None:
    catalog.import_table(str(place))
    ours(catalog, 11)
    before = everything_below(place)
    report = catalog.rollback(NAME)
    assert (report.version, report.timestamps_dropped) == (HEAD + 1, False)
    assert everything_below(place) == before
    assert theirs(place, 12) == HEAD + 2


def test_rollback_of_a_followed_table_changes_no_file(catalog: Catalog, place: Path) -> None:
    catalog.follow(str(place))
    theirs(place, 11)
    before = everything_below(place)
    assert catalog.rollback(NAME).state == "rolled back"
    assert everything_below(place) == before
    assert catalog.tables() == []


def test_rollback_of_a_follower_does_not_release_another_catalogs_log(
    catalog: Catalog, place: Path, tmp_path: Path
) -> None:
    with open_catalog(f"deltasql://sqlite/{tmp_path}/other.db") as other:
        other.follow(str(place))
        other.cutover(NAME)
        catalog.follow(str(place))
        before = everything_below(place)
        catalog.rollback(NAME)
        assert everything_below(place) == before
        assert is_write_blocked(place)
        assert ours(other, 11) == HEAD + 2


def test_rollback_keeps_original_in_commit_timestamps(catalog: Catalog, place: Path) -> None:
    enable_timestamps_as_spark(place)
    cut_over(catalog, place)
    before = everything_below(place)
    report = catalog.rollback(NAME)
    assert not report.timestamps_dropped
    after = everything_below(place)
    assert json.loads(after.pop(OWNER_FILE)) == {"lastVersion": HEAD + 2, "takenBy": None}
    assert after == before


def test_repeated_rollback_changes_nothing(catalog: Catalog, place: Path) -> None:
    cut_over(catalog, place)
    catalog.rollback(NAME)
    theirs(place, 12)
    before = everything_below(place)
    report = catalog.rollback(NAME)
    assert (report.state, report.version) == ("was rolled back", HEAD + 4)
    assert everything_below(place) == before


def test_dry_run_reports_and_changes_nothing(catalog_uri: DeltaSqlUri, place: Path) -> None:
    with open_catalog(catalog_uri, mirror={"mode": "off"}) as catalog:
        cut_over(catalog, place)
        before = everything_below(place)
        report = catalog.rollback(NAME, dry_run=True)
        assert (report.state, report.published, report.version, report.timestamps_dropped) == (
            "would roll back",
            1,
            HEAD + 3,
            True,
        )
        assert everything_below(place) == before
        assert catalog.exists(NAME)


def test_repeated_cutover_and_rollback_lose_no_row(catalog: Catalog, place: Path) -> None:
    expected = list(IDS)
    for number in range(3):
        assert catalog.follow(str(place)).state == "followed"
        catalog.cutover(NAME)
        ours(catalog, 100 + number)
        assert verify_all_versions(catalog)
        catalog.rollback(NAME)
        theirs(place, 200 + number)
        expected += [100 + number, 200 + number]
    assert read_ids(place) == sorted(expected)
    catalog.import_table(str(place))
    assert sql_ids(catalog) == sorted(expected)
    assert verify_all_versions(catalog)


def test_undrop_is_rejected_after_other_writers_committed(catalog: Catalog, place: Path) -> None:
    cut_over(catalog, place)
    catalog.rollback(NAME)
    theirs(place, 12)
    with pytest.raises(MirrorDivergedError, match=r"Import the log instead"):
        catalog.undrop(NAME)
    assert not catalog.exists(NAME)
    catalog.import_table(str(place))
    assert sql_ids(catalog) == read_ids(place) == [*IDS, 11, 12]
    assert catalog.cutover(NAME).state == "cut over"
    assert verify_all_versions(catalog)


def test_undrop_is_rejected_when_another_table_has_the_location(
    catalog: Catalog, place: Path
) -> None:
    catalog.import_table(str(place))
    catalog.drop(NAME)
    catalog.import_table(str(place), name="again")
    with pytest.raises(TableExistsError, match="again"):
        catalog.undrop(NAME)
    assert [table.name for table in catalog.tables()] == ["again"]
    catalog.drop("again")
    catalog.undrop(NAME)
    assert sql_ids(catalog) == IDS


def test_undropped_table_with_unpublished_versions_can_reject_foreign_commits(
    catalog_uri: DeltaSqlUri, place: Path
) -> None:
    with open_catalog(catalog_uri, mirror={"mode": "off"}) as catalog:
        catalog.import_table(str(place))
        ours(catalog, 11)
        theirs(place, 12)
        catalog.drop(NAME)
        catalog.undrop(NAME)
        assert catalog.mirror.reject(NAME).rejected == [HEAD + 1]
