"""What can be done from the console, on every database; and what it never shows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from deltasql.console.server import serving
from tests.console.conftest import TOKEN, Site
from tests.console.test_pages import PAGES

if TYPE_CHECKING:
    from deltasql.api.catalog import Catalog
    from deltasql.uri import DeltaSqlUri


def finished(site: Site, address: str) -> str:
    """Wait for a job and return its page."""
    for _ in range(600):
        shown = site.get(address).text
        if 'data-state="running"' not in shown:
            return shown
        time.sleep(0.1)
    raise AssertionError("the job did not end")


def test_maintenance_runs_with_the_token(site: Site) -> None:
    site.log_in()
    files = site.catalog.table("orders").snapshot().totals().num_files
    started = site.post("/maintenance/orders/optimize")
    assert started.status_code == 303
    assert "Files removed" in finished(site, started.headers["location"])
    assert site.catalog.table("orders").snapshot().totals().num_files < files
    assert site.post("/maintenance/orders/vacuum").headers["location"].endswith("unconfirmed=1")
    vacuumed = site.post("/maintenance/orders/vacuum", {"confirm": "yes"})
    assert "Files deleted" in finished(site, vacuumed.headers["location"])
    assert "Optimize" in site.get("/maintenance").text


def test_a_console_that_stops_finishes_what_it_began(shop: Catalog) -> None:
    files = shop.table("orders").snapshot().totals().num_files
    with (
        serving(shop, allow_writes=True, token=TOKEN) as served,
        httpx.Client(base_url=served.address, timeout=60) as client,
    ):
        site = Site(served, shop, client)
        site.log_in()
        site.post("/maintenance/orders/optimize")
    assert shop.table("orders").snapshot().totals().num_files < files


def test_what_the_mirror_could_not_publish_is_published_again(site: Site) -> None:
    log = Path(site.catalog.table("orders").location) / "_delta_log"
    aside = log.rename(log.with_name("aside"))
    log.write_text("in the way")
    with site.catalog.begin() as tx:
        tx.delete("orders", "id = 5")
    site.log_in()
    listed = site.get("/mirror").text
    assert "failing" in listed
    assert "failed" in site.get("/mirror/orders").text
    assert site.post("/mirror/orders/retry", {"target": "table"}).status_code == 502
    log.unlink()
    aside.rename(log)
    done = site.post("/mirror/orders/retry", {"target": "table"})
    assert done.status_code == 303
    assert "1 version published" in site.get(done.headers["location"]).text
    assert "failing" not in site.get("/mirror").text


def test_no_page_shows_a_secret(site: Site, catalog_uri: DeltaSqlUri) -> None:
    site.log_in()
    for path in [*PAGES, "/metrics", "/tables/nosuch"]:
        shown = site.get(path).text
        assert str(site.served.token) not in shown
        assert not catalog_uri.password or f":{catalog_uri.password}@" not in shown
