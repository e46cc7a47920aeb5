"""A folder belongs to one table, in every spelling of its location and in every mirror mode."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.exceptions import TableExistsError, TxnLogError, TxnLogMirrorError
from deltasql.store.migrations import latest_version
from deltasql.store.open import open_store

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases

ROWS = pa.table({"id": [1, 2, 3]})
NOW: dict[str, Any] = {"retention_hours": 0, "enforce_retention_duration": False}


def spellings(folder: Path) -> list[str]:
    """Return other spellings of a folder named `sales eu`."""
    link = folder.parent / "link"
    if not link.is_symlink():
        link.symlink_to(folder)
    above = folder.parent / "linked"
    if not above.is_symlink():
        above.symlink_to(folder.parent)
    encoded = str(folder).replace(" ", "%20")
    return [
        str(folder),
        f"{folder}/",
        f"{folder}//",
        f"{folder.parent}/./{folder.name}",
        f"{folder}/../{folder.name}",
        f"file://{encoded}",
        f"FILE://{encoded}/",
        f"file:{encoded}",
        f"file://localhost{encoded.replace('sales', 's%61les')}",
        str(link),
        f"file://{link}",
        f"{above}/{folder.name}",
        os.path.relpath(folder),
    ]


def files_below(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def sales(catalog: Catalog, tmp_path: Path) -> Path:
    """Create the table `sales` with three rows in one file and return its folder."""
    folder = tmp_path / "sales eu"
    catalog.create_table("sales", ROWS.schema, location=str(folder))
    with catalog.begin() as tx:
        tx.write("sales", ROWS)
    return folder


def test_second_table_in_a_folder_is_rejected_for_every_spelling_of_the_path(
    catalog: Catalog, sales: Path
) -> None:
    for number, location in enumerate(spellings(sales)):
        with pytest.raises(TableExistsError, match="sales has its files at") as caught:
            catalog.create_table(f"t{number}", ROWS.schema, location=location)
        assert caught.value.table == "sales", location
    assert [table.name for table in catalog.tables()] == ["sales"]


def test_spellings_of_one_bucket_prefix_are_one_location(catalog: Catalog) -> None:
    catalog.create_table("sales", ROWS.schema, location="s3://lake/a b/sales")
    for location in (
        "s3://lake/a%20b/sales/",
        "s3a://lake/a b/sales",
        "s3n://lake/a%20b/s%61les",
        "S3://LAKE/a b/sales",
    ):
        with pytest.raises(TableExistsError, match="sales has its files at"):
            catalog.create_table("other", ROWS.schema, location=location)
    catalog.create_table("other", ROWS.schema, location="s3://lake2/a b/sales")
    assert (
        catalog.table("sales").location == "s3://lake/a b/sales"
    )  # the spelling of the caller is kept


def test_second_import_is_rejected_for_every_spelling_of_the_path(
    catalog: Catalog, tmp_path: Path
) -> None:
    folder = tmp_path / "sales eu"
    deltalake.write_deltalake(folder, ROWS)
    catalog.import_table(str(folder))
    for location in spellings(folder):
        assert catalog.import_table(location).state == "up to date", location
        with pytest.raises(TableExistsError, match="is already in the catalog"):
            catalog.import_table(location, name="second")
    assert [table.name for table in catalog.tables()] == ["sales eu"]


def test_nested_locations_are_rejected_unless_allowed(
    catalog: Catalog, sales: Path, tmp_path: Path
) -> None:
    inside, around = sales / "inner", tmp_path
    with pytest.raises(TableExistsError, match="lies inside the folder of table sales"):
        catalog.create_table("inner", ROWS.schema, location=str(inside))
    with pytest.raises(TableExistsError, match="holds the folder of table sales"):
        catalog.create_table("around", ROWS.schema, location=f"file://{around}")
    deltalake.write_deltalake(inside, ROWS)
    for dry_run in (True, False):
        with pytest.raises(TableExistsError, match="--allow-nested-location"):
            catalog.import_table(str(inside), dry_run=dry_run)
    catalog.create_table(
        "sales eu 2", ROWS.schema, location=f"{sales} 2"
    )  # a sibling folder is allowed
    catalog.import_table(str(inside), allow_nested_location=True)
    catalog.create_table("around", ROWS.schema, location=str(around), allow_nested_location=True)


def test_table_in_the_folder_of_a_replica_is_rejected(
    catalog: Catalog, sales: Path, tmp_path: Path
) -> None:
    """The folder is rejected even if nothing was published to the replica yet."""
    del sales
    replica = tmp_path / "copies" / "sales"
    replica.parent.mkdir()
    catalog.mirror.add_target("sales", "copy", str(replica))
    tx = catalog.begin()
    tx.create_table("late", ROWS.schema, location=str(tmp_path / "late"))
    tx.write("late", ROWS)
    catalog.mirror.add_target("sales", "second", str(tmp_path / "late" / "inside"))
    with pytest.raises(TableExistsError, match="sales is replicated to"):
        tx.commit()
    for number, location in enumerate(spellings(replica)):
        with pytest.raises(TableExistsError, match="sales is replicated to"):
            catalog.create_table(f"t{number}", ROWS.schema, location=location)
    for location in (replica, replica / "inside", replica.parent):
        with pytest.raises(TableExistsError, match="sales is replicated to"):
            catalog.create_table("t", ROWS.schema, location=str(location))
        with pytest.raises(TableExistsError, match="sales is replicated to"):
            catalog.export_table("sales", str(location))
    deltalake.write_deltalake(replica, ROWS)
    for options in ({}, {"allow_nested_location": True}):
        with pytest.raises(TableExistsError, match="sales is replicated to"):
            catalog.import_table(str(replica), **options)
    (found,) = deltasql.rebuild(catalog, str(replica)).tables
    assert found.state == "skipped"
    around = str(replica.parent)
    catalog.create_table("around", ROWS.schema, location=around, allow_nested_location=True)
    catalog.drop("around")
    with pytest.raises(TableExistsError, match="sales is replicated to"):
        catalog.undrop("around")
    catalog.mirror.remove_target("sales", "copy")
    assert catalog.import_table(str(replica), name="imported").last_version == 0


def test_replica_in_the_folder_of_a_table_is_rejected_unless_allowed(
    catalog: Catalog, catalog_uri: DeltaSqlUri, sales: Path, tmp_path: Path
) -> None:
    catalog.create_table("gone", ROWS.schema, location=str(tmp_path / "gone"))
    catalog.drop("gone")
    for location in (*spellings(sales), f"file://{tmp_path}/gone"):
        with pytest.raises(TxnLogMirrorError, match="the location is already in use"):
            catalog.mirror.add_target("sales", "copy", location)
    catalog.mirror.add_target("sales", "first", str(tmp_path / "copies" / "sales"))
    for location in (sales / "copy", tmp_path, tmp_path / "copies"):
        with pytest.raises(TableExistsError, match="sales"):
            catalog.mirror.add_target("sales", "copy", str(location))
    settings = {"table": {"allow_nested_location": True}, "mirror": {"mode": "off"}}
    with deltasql.connect(catalog_uri, **settings) as other:
        other.mirror.add_target("sales", "copy", str(sales / "copy"))


def test_option_allows_nested_locations(
    catalog: Catalog, catalog_uri: DeltaSqlUri, sales: Path
) -> None:
    del catalog
    settings = {"table": {"allow_nested_location": True}, "mirror": {"mode": "off"}}
    with deltasql.connect(catalog_uri, **settings) as other:
        other.create_table("inner", ROWS.schema, location=str(sales / "inner"))


def test_export_to_the_folder_of_another_table_is_rejected(
    catalog: Catalog, sales: Path, tmp_path: Path
) -> None:
    place = tmp_path / "other"
    catalog.create_table("other", ROWS.schema, location=str(place))  # the folder does not exist yet
    link = tmp_path / "to other"
    link.symlink_to(place)
    for target in (place, link, f"file://{place}", place / "inside"):
        with pytest.raises(TableExistsError, match="other"):
            catalog.export_table("sales", str(target))
    own = tmp_path / "to sales"
    own.symlink_to(sales)
    with pytest.raises(TxnLogError, match=r"cannot export sales to"):
        catalog.export_table("sales", str(own / "copy"))


def test_second_transaction_that_creates_a_table_in_a_folder_is_rejected(
    catalog: Catalog, tmp_path: Path
) -> None:
    place = tmp_path / "one"
    first, second, inside = catalog.begin(), catalog.begin(), catalog.begin()
    for tx, name, location in (
        (first, "first", place),
        (second, "second", f"file://{place}"),
        (inside, "inside", place / "inside"),
    ):
        tx.create_table(name, ROWS.schema, location=str(location))
        tx.write(name, ROWS)
    first.commit()
    kept = files_below(place) - files_below(place / "inside")
    for tx in (second, inside):
        with pytest.raises(TableExistsError, match="first"):
            tx.commit()
    assert len(kept) == 2
    assert len(files_below(place)) == 1  # the files of the failed transactions were deleted
    with catalog.begin() as tx:
        assert tx.read("first").num_rows == 3


def test_one_transaction_cannot_create_two_tables_in_one_folder(
    catalog: Catalog, tmp_path: Path
) -> None:
    tx = catalog.begin()
    for name in ("a", "b"):
        tx.create_table(name, ROWS.schema, location=str(tmp_path / "one"))
    with pytest.raises(TableExistsError, match="a has its files at"):
        tx.commit()
    assert catalog.tables() == []


def test_undrop_is_rejected_if_another_table_is_in_the_folder(
    catalog: Catalog, sales: Path
) -> None:
    catalog.drop("sales")
    with pytest.raises(TableExistsError, match="sales has its files at"):
        catalog.create_table("other", ROWS.schema, location=f"file://{sales}")
    catalog.create_table("inner", ROWS.schema, location=str(sales / "inner"))
    with pytest.raises(TableExistsError, match="holds the folder of table inner"):
        catalog.undrop("sales")
    catalog.drop("inner")
    assert catalog.undrop("sales").version() == 1


# Catalogs of earlier releases


def as_release_0_1_0(catalog: Catalog, *tables: tuple[str, Path | str]) -> None:
    """Create tables like a release that compared locations as text, without location keys."""
    for name, location in tables:
        with catalog.begin() as tx:
            tx.create_table(name, ROWS.schema, location=f"{location}-{name}")
            tx.write(name, ROWS)
    with catalog.store.session() as session:
        session.begin()
        for name, location in tables:
            place = f"file://{location}" if name == "second" else str(location)
            session.script(f"UPDATE dl_tables SET location = '{place}' WHERE name = '{name}'")
        session.script("DELETE FROM dl_migrations WHERE version >= 4")
        session.script("DROP TABLE dl_table_locations")
        session.script("DROP TABLE dl_identity_numbers")
        session.script("DROP TABLE dl_audit_log")
        session.script("ALTER TABLE dl_file_stats DROP COLUMN file_bounds")
        if catalog.store.dialect.name != "duckdb":
            session.script("DROP INDEX dl_add_files_outside")
        session.commit()


def test_doctor_reports_shared_folders_of_an_earlier_release(
    catalog: Catalog, catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    one = tmp_path / "one"
    as_release_0_1_0(catalog, ("first", one), ("second", one), ("inside", one / "inside"))
    catalog.close()
    store = open_store(catalog_uri, catalog.config, migrate=False)
    try:
        assert store.migrate() == list(range(4, latest_version() + 1))
    finally:
        store.close()
    with deltasql.connect(catalog_uri, mirror={"mode": "off"}) as opened:
        found = [each for each in opened.inspect.doctor().checks if each.name == "locations"]
        assert {(each.table, each.status) for each in found} == {
            ("second", "failure"),
            ("inside", "warning"),
        }
        assert all(each.suggestion for each in found)
        alone = opened.inspect.doctor(table="inside").checks
        assert [each.table for each in alone if each.name == "locations"] == ["inside"]
        with pytest.raises(TableExistsError):
            opened.create_table("third", ROWS.schema, location=str(one))
        opened.drop("second")
        found = [each for each in opened.inspect.doctor().checks if each.name == "locations"]
        assert [each.table for each in found] == ["inside"]


def forget_location(catalog: Catalog, name: str) -> None:
    """Delete the location row of a table, which a process of 0.1.0 does not write."""
    with catalog.store.change() as (session, _):
        session.script(
            "DELETE FROM dl_table_locations WHERE table_id = "
            f"(SELECT table_id FROM dl_tables WHERE name = '{name}')"
        )


def test_doctor_reports_missing_locations_of_tables_until_migrate_records_them(
    catalog: Catalog, sales: Path, tmp_path: Path
) -> None:
    catalog.create_table("other", ROWS.schema, location=str(tmp_path / "other"))
    forget_location(catalog, "sales")
    found = [each for each in catalog.inspect.doctor().checks if each.name == "locations"]
    assert [(each.table, each.status) for each in found] == [("sales", "failure")]
    assert "deltasql migrate" in (found[0].suggestion or "")
    assert catalog.migrate() == []
    assert catalog.store.record_locations() == 0
    found = [each for each in catalog.inspect.doctor().checks if each.name == "locations"]
    assert [each.status for each in found] == ["ok"]
    with pytest.raises(TableExistsError):
        catalog.create_table("third", ROWS.schema, location=str(sales))


def test_migrate_does_not_record_one_folder_as_unique_for_two_tables(
    catalog: Catalog, sales: Path
) -> None:
    forget_location(catalog, "sales")
    catalog.create_table("second", ROWS.schema, location=str(sales))
    assert catalog.store.record_locations() == 1
    found = [each for each in catalog.inspect.doctor().checks if each.name == "locations"]
    assert [each.status for each in found] == ["failure"]
    assert "is also the folder of table" in found[0].detail


def test_vacuum_keeps_a_nested_table_without_a_recorded_location(
    catalog: Catalog, sales: Path
) -> None:
    inside = sales / "inside"
    with catalog.begin() as tx:
        tx.create_table("inside", ROWS.schema, location=str(inside), allow_nested_location=True)
        tx.write("inside", ROWS)
    forget_location(catalog, "inside")
    kept = files_below(inside)
    catalog.vacuum("sales", dry_run=False, full=True, **NOW)
    assert files_below(inside) == kept


def test_table_that_an_earlier_release_dropped_gives_up_its_unique_location(
    catalog: Catalog, sales: Path
) -> None:
    with catalog.store.change() as (session, _):
        session.script("UPDATE dl_tables SET live_name = NULL, dropped_at_ms = 1")
    assert catalog.store.record_locations() == 1
    assert catalog.store.query("unrecorded_locations") == []


def test_doctor_reports_a_folder_replaced_by_a_symlink(
    catalog: Catalog, sales: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    sales.rename(moved)
    sales.symlink_to(moved)
    with pytest.raises(TableExistsError):  # the location in the catalog is still taken
        catalog.create_table("other", ROWS.schema, location=str(sales))
    found = [each for each in catalog.inspect.doctor().checks if each.name == "locations"]
    assert [(each.table, each.status) for each in found] == [("sales", "warning")]
