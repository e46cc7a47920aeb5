"""A log has one authority: another catalog can follow it, but takes it over only with force."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deltasql.exceptions import OtherAuthorityError
from deltasql.migrate.authority.log_owner import COPY_FILE
from tests.migrate.authority_support import (
    IDS,
    NAME,
    everything_below,
    open_catalog,
    ours,
    sql_ids,
    theirs,
)
from tests.migrate.sources import SCHEMA, read_ids

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.one_database


@pytest.fixture
def catalog(catalog_uri: DeltaSqlUri) -> Iterator[Catalog]:
    with open_catalog(catalog_uri) as opened:
        yield opened


def test_log_can_be_cut_over_by_one_catalog_only(
    catalog: Catalog, other: Catalog, place: Path
) -> None:
    catalog.follow(str(place))
    other.follow(str(place))
    other.cutover(NAME)
    ours(other, 11)
    with pytest.raises(OtherAuthorityError, match="belongs to another catalog"):
        catalog.cutover(NAME)
    assert sql_ids(catalog) == [*IDS, 11]  # it still follows
    other.rollback(NAME)
    catalog.cutover(NAME)
    ours(catalog, 12)
    assert other.follow(str(place)).state == "followed"
    assert sql_ids(other) == sql_ids(catalog) == [*IDS, 11, 12]


def test_table_created_in_another_catalog_belongs_to_it(catalog: Catalog, other: Catalog) -> None:
    other.create_table(NAME, SCHEMA)
    ours(other, 1)
    location = other.table(NAME).location
    with pytest.raises(OtherAuthorityError, match="which committed version 0"):
        catalog.import_table(location)
    catalog.follow(location)
    with pytest.raises(OtherAuthorityError, match="belongs to another catalog"):
        catalog.cutover(NAME)
    assert ours(other, 2) == 2
    catalog.refresh(NAME)
    assert sql_ids(catalog) == [1, 2]


@pytest.mark.parametrize("dry_run", [False, True])
def test_import_of_a_log_of_another_catalog_is_rejected(
    catalog: Catalog, other: Catalog, place: Path, dry_run: bool
) -> None:
    other.import_table(str(place))
    version = other.cutover(NAME).version
    ours(other, 11)
    before = everything_below(place)
    with pytest.raises(OtherAuthorityError) as refused:
        catalog.import_table(str(place), dry_run=dry_run)
    assert (refused.value.version, refused.value.location) == (version, str(place))
    for way in ("deltasql rollback", f"deltasql import {place} --force", "deltasql follow"):
        assert way in str(refused.value)
    assert catalog.tables() == []
    assert everything_below(place) == before


def test_rolled_back_log_can_be_imported(catalog: Catalog, other: Catalog, place: Path) -> None:
    other.import_table(str(place))
    other.cutover(NAME)
    ours(other, 11)
    other.rollback(NAME)
    assert catalog.import_table(str(place)).state == "imported"
    assert sql_ids(catalog) == [*IDS, 11]


def test_repeated_import_is_rejected_after_a_cutover_in_another_catalog(
    catalog: Catalog, other: Catalog, place: Path
) -> None:
    """This catalog can write the table as well, so the table would have two authorities."""
    catalog.import_table(str(place))
    theirs(place, 11)
    other.import_table(str(place))
    other.cutover(NAME)
    with pytest.raises(OtherAuthorityError):
        catalog.import_table(str(place))
    with pytest.raises(OtherAuthorityError):
        catalog.cutover(NAME)
    assert sql_ids(catalog) == IDS
    other.rollback(NAME)
    catalog.import_table(str(place))
    assert sql_ids(catalog) == [*IDS, 11]


def test_log_of_a_lost_catalog_is_taken_over_with_force(
    catalog: Catalog, other: Catalog, place: Path
) -> None:
    """The help text of the refused cutover recommends this."""
    other.import_table(str(place))
    other.cutover(NAME)
    ours(other, 11)
    catalog.follow(str(place))
    with pytest.raises(OtherAuthorityError) as refused:
        catalog.cutover(NAME)
    assert f"`deltasql rollback {NAME}`" in str(refused.value)
    assert f"`deltasql import {place} --force`" in str(refused.value)
    before = everything_below(place)
    catalog.rollback(NAME)
    assert everything_below(place) == before
    assert catalog.import_table(str(place), force=True).state == "imported"
    assert catalog.cutover(NAME).state == "was cut over"
    ours(catalog, 12)
    assert read_ids(place) == sql_ids(catalog) == [*IDS, 11, 12]
    # From then on the log belongs to this catalog.
    assert catalog.import_table(str(place)).state == "up to date"


def test_table_dropped_by_this_catalog_can_be_imported_again(catalog: Catalog, place: Path) -> None:
    catalog.import_table(str(place))
    catalog.cutover(NAME)
    ours(catalog, 11)
    catalog.drop(NAME)
    assert catalog.import_table(str(place)).state == "imported"
    assert sql_ids(catalog) == [*IDS, 11]


@pytest.mark.parametrize("way", ["imported", "followed"])
def test_export_belongs_to_no_catalog(
    catalog: Catalog, other: Catalog, place: Path, tmp_path: Path, way: str
) -> None:
    other.import_table(str(place))
    other.cutover(NAME)
    ours(other, 11)
    copy = tmp_path / "copies" / NAME
    other.export_table(NAME, str(copy), with_data=True)
    assert (copy / COPY_FILE).exists()
    if way == "imported":
        catalog.import_table(str(copy))
    else:
        catalog.follow(str(copy))
        catalog.cutover(NAME)
    ours(catalog, 12)
    assert read_ids(copy) == [*IDS, 11, 12]
    assert read_ids(place) == [*IDS, 11]
    other.drop(NAME)
    with pytest.raises(OtherAuthorityError):  # the first catalog committed to the copy
        other.import_table(str(copy))
