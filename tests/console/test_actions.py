"""Actions of the console, on every backend."""

from __future__ import annotations

import re
import threading
import time
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from deltasql.console.console import Console
from deltasql.console.server import Served, serving
from deltasql.model.progress import Progress
from tests.console.conftest import TOKEN, Site
from tests.console.test_pages import PAGES

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog
    from deltasql.model.progress import OnProgress
    from deltasql.uri import DeltaSqlUri


def finished(site: Site, address: str) -> str:
    """Wait until a job ends and return its page."""
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


def test_stopping_the_console_finishes_running_jobs(shop: Catalog) -> None:
    files = shop.table("orders").snapshot().totals().num_files
    with (
        serving(shop, allow_writes=True, token=TOKEN) as served,
        httpx.Client(base_url=served.address, timeout=60) as client,
    ):
        site = Site(served, shop, client)
        site.log_in()
        site.post("/maintenance/orders/optimize")
    assert shop.table("orders").snapshot().totals().num_files < files


def test_failed_publishing_can_be_retried(site: Site) -> None:
    log = Path(site.catalog.table("orders").location) / "_delta_log"
    moved = log.rename(log.with_name("moved"))
    log.write_text("in the way")
    with site.catalog.begin() as tx:
        tx.delete("orders", "id = 5")
    site.log_in()
    listed = site.get("/mirror").text
    assert "failing" in listed
    assert "failed" in site.get("/mirror/orders").text
    failed = site.post("/mirror/orders/retry", {"target": "table"})
    assert failed.status_code == 303
    shown = finished(site, failed.headers["location"])
    assert 'data-state="failed"' in shown
    assert "Publish missing versions" in shown
    for link in re.findall(r'(?:href|action)="(/mirror[^"]*)"', shown):
        if not link.endswith("/retry"):
            assert site.get(unescape(link)).status_code == 200
    log.unlink()
    moved.rename(log)
    done = site.post("/mirror/orders/retry", {"target": "table"})
    assert done.status_code == 303
    shown = finished(site, done.headers["location"])
    assert "<dt>Versions published</dt><dd>1</dd>" in shown
    assert site.post("/mirror/orders/retry", {"target": "nosuch"}).status_code == 404
    assert "failing" not in site.get("/mirror").text


def test_no_page_shows_a_secret(site: Site, catalog_uri: DeltaSqlUri) -> None:
    site.log_in()
    for path in [*PAGES, "/metrics", "/tables/nosuch"]:
        shown = site.get(path).text
        assert str(site.served.token) not in shown
        assert not catalog_uri.password or f":{catalog_uri.password}@" not in shown


@pytest.mark.filterwarnings("ignore:.*starlette.testclient.*")
def test_job_that_must_wait_is_rejected_with_a_message(shop: Catalog) -> None:
    from starlette.testclient import TestClient

    console = Console(shop, token=TOKEN, allow_writes=True)
    client = TestClient(console.application(), base_url="http://127.0.0.1", follow_redirects=False)
    served = Served("http://127.0.0.1", TOKEN, False, False, False)
    site = Site(served, shop, client)
    site.log_in()
    go_on = threading.Event()

    def slow(on_progress: OnProgress) -> list[tuple[str, str]]:
        on_progress(Progress("orders", "rewriting", "bins", 1, 2))
        go_on.wait()
        return []

    try:
        running = console.state.jobs.start("Optimize", "orders", "/maintenance/orders", slow)
        again = site.post("/maintenance/orders/optimize")
        assert again.headers["location"] == f"/jobs/{running.job_id}"
        refused = site.post("/maintenance/orders/vacuum", {"confirm": "yes"})
        shown = site.get(refused.headers["location"]).text
        assert "Vacuum was not started" in shown
        assert "1 of 2 bins" in shown
        published = site.post(
            "/mirror/orders/retry", {"target": "table"}
        )  # publishing does not wait for the running job
        assert "Versions published" in finished(site, published.headers["location"])
    finally:
        go_on.set()
        console.state.jobs.finish()
    vacuumed = site.post("/maintenance/orders/vacuum", {"confirm": "yes"})
    assert "Files deleted" in finished(site, vacuumed.headers["location"])
