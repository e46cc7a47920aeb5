"""Invalid requests and unusual states get a clear page."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import deltalake
import pyarrow as pa
import pytest

from deltasql.api.inspect.page import write_cursor
from deltasql.console import request as page_request
from deltasql.console.pages import maintenance, table
from deltasql.console.pages.sql import query_name
from deltasql.console.security import HEADERS
from tests.console.conftest import days
from tests.each import check_each

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri
    from tests.console.conftest import Site


@pytest.fixture
def backend() -> str:
    """Use SQLite only: these pages do not depend on the backend."""
    return "sqlite"


MISTAKES = [
    ("/tables/a.b.c", 404),
    ("/transactions/nosuch", 404),
    (f"/tables/orders/history?cursor={write_cursor('history', 10**30)}", 400),
    (f"/tables/orders/history?cursor={write_cursor('history', 'x')}", 400),
    (f"/?cursor={write_cursor('tables', 'a', chr(0))}", 400),
    (f"/tables/orders/travel?version={'9' * 5000}", 400),
    ("/mirror/orders?target=nosuch", 404),
]


def test_invalid_request_is_a_client_error_and_is_not_logged(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    for path, status in MISTAKES:
        shown = site.get(path)
        assert shown.status_code == status, (path, shown.text)
        assert "Back to the catalog" in shown.text, path
    assert not [each for each in caplog.records if each.name.startswith("deltasql.console")]


def test_invalid_predicate_error_is_shown_next_to_its_field(site: Site) -> None:
    for predicate in ("nosuch > 1", "id >", "id = ("):
        shown = site.get("/tables/orders/files", params={"predicate": predicate})
        assert shown.status_code == 400, predicate
        assert 'role="alert"' in shown.text, predicate
        assert 'name="predicate"' in shown.text, predicate
        assert "No files" not in shown.text, predicate


def test_commands_in_help_texts_are_shown_as_code(site: Site) -> None:
    sql = 'SELECT "`<img src=x>`" FROM orders'
    shown = site.post("/sql", {"sql": sql}).text
    assert "<code>deltasql schema TABLE</code> lists the columns" in shown
    assert "<img src=x>" not in shown  # what the user typed is escaped
    shown = site.get("/tables/nosuch").text
    assert "<code>deltasql table list</code>" in shown


def test_internal_error_is_a_500_and_is_logged(
    site: Site, catalog_uri: DeltaSqlUri, caplog: pytest.LogCaptureFixture
) -> None:
    with sqlite3.connect(catalog_uri.database) as database:
        database.execute("UPDATE dl_table_versions SET operation_metrics = 'not json'")
    shown = site.get("/tables/orders/history")
    assert shown.status_code == 500
    assert "Something went wrong" in shown.text
    assert all(shown.headers[name] == value for name, value in HEADERS.items())
    logged = [each for each in caplog.records if each.name == "deltasql.console.console"]
    assert logged
    assert logged[0].exc_info


def test_time_travel_starts_at_the_first_available_version(site: Site, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    for number in range(7):
        deltalake.write_deltalake(place, pa.table({"id": [number]}), mode="append")
        if number == 4:
            deltalake.DeltaTable(place).create_checkpoint()
    for number in range(4):
        (place / "_delta_log" / f"{number:020}.json").unlink()
    site.catalog.import_table(str(place), name="late")
    first = site.catalog.inspect.first_version("late")
    assert first > 0
    shown = site.get(f"/tables/late/travel?version={first}")
    assert shown.status_code == 200
    assert f'min="{first}" max="6"' in shown.text
    assert "The first version" in shown.text
    assert 'rel="prev"' not in shown.text
    later = site.get(f"/tables/late/travel?version={first + 1}").text
    assert f"version={first}" in later
    assert "Rows added" in later
    assert site.get(f"/tables/late/travel?version={first - 1}").status_code == 404


def test_table_names_are_quoted_in_sql(site: Site) -> None:
    def check(name: str) -> None:
        if name != "orders":
            with site.catalog.begin() as tx:
                tx.write(name, days(1))
        shown = site.get(f"/tables/{quote(name, safe='')}/travel")
        assert shown.status_code == 200
        assert "can no longer be read" not in shown.text
        assert "&lt;b&gt;" in shown.text
        found = next(each for each in site.catalog.tables() if each.full_name == name)
        sql = f"SELECT count(*) FROM {query_name(found.namespace, found.name)}"
        assert site.post("/sql", {"sql": sql}).status_code == 200

    check_each(["values", "cross", "orders", "order by", 'a"b'], check)


def test_secrets_in_operation_parameters_are_masked(site: Site) -> None:
    with site.catalog.begin() as tx:
        tx.delete("orders", "note = 'password=hunter2' OR id = 4")
    shown = site.get("/tables/orders/history").text
    assert "hunter2" not in shown
    assert "password=***" in shown


def test_statistics_of_a_large_table_load_on_request(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "LARGE", 1)
    assert "Would free" not in site.get("/maintenance/orders").text
    shown = site.get("/maintenance/orders?part=1")
    assert shown.status_code == 200
    assert "Would free" in shown.text


def test_page_of_a_large_catalog_loads_its_statistics_later(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "LARGE", 1)
    first = site.get("/?hours=168").text
    assert "Reading the statistics" in first
    assert "Commits per hour" not in first
    assert 'data-load="/?hours=168&amp;part=1"' in first
    part = site.get("/?hours=168&part=1").text
    assert "Commits per hour" in part
    assert "/tables/orders" in part
    assert "<html" not in part
    assert "part=1" not in part, "links lead to whole pages"
    whole = site.get("/?hours=168").text
    assert "Reading the statistics" not in whole, "known from now on"
    assert "Commits per hour" in whole


def test_link_shows_statistics_without_javascript(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "LARGE", 1)
    assert "/?figures=1" in site.get("/").text
    shown = site.get("/?figures=1").text
    assert "<html" in shown
    assert "/tables/orders" in shown


def test_slow_list_marks_values_that_are_not_computed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Not computed yet" not in site.get("/maintenance").text
    monkeypatch.setattr(maintenance, "BUDGET_S", 0.0)
    shown = site.get("/maintenance")
    assert shown.status_code == 200
    assert "Not computed yet" in shown.text


def test_removed_files_count_towards_a_large_table(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.catalog.optimize("orders")
    found = site.catalog.inspect.table("orders")
    assert found.files < found.files_ever
    monkeypatch.setattr(table, "LARGE", found.files)
    assert "Growth" not in site.get("/tables/orders").text
    assert "Growth" in site.get("/tables/orders?figures=1").text


def test_doctor_report_is_cached(shop: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, always = page_request.DoctorReports(), page_request.DoctorReports()
    first = kept.latest(shop)
    with shop.begin() as tx:
        tx.delete("orders", "id = 7")
    assert kept.latest(shop) is first
    monkeypatch.setattr(page_request, "_KEEP_REPORT_S", 0.0)
    before = always.latest(shop)
    assert always.latest(shop) is not before


def test_query_of_a_table_with_a_missing_file_names_the_file(site: Site) -> None:
    place = Path(site.catalog.table("crm.stock").location)
    (file,) = place.glob("*.parquet")
    file.unlink()
    for shown in (
        site.post("/sql", {"sql": "SELECT * FROM crm.stock"}),
        site.post("/sql", {"sql": "SELECT * FROM crm.stock", "format": "csv"}),
    ):
        assert shown.status_code == 400, shown.text
        assert file.name in shown.text
        assert 'role="alert"' in shown.text
