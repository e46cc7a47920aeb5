"""Actions of the console, on every backend."""

from __future__ import annotations

import re
import threading
import time
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import httpx
import pyarrow as pa
import pytest

from deltasql.console.console import Console
from deltasql.console.jobs import Done
from deltasql.console.server import Served, serving
from deltasql.model.progress import Progress
from deltasql.store.audit import acting_as
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
    assert "deltasql mirror publish orders -v" in shown
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

    def slow(on_progress: OnProgress) -> Done:
        on_progress(Progress("orders", "rewriting", "bins", 1, 2))
        go_on.wait()
        return Done()

    try:
        running = console.state.jobs.start(
            "Optimize", "orders", "/maintenance/orders", slow, user="", command=""
        )
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


def audited(site: Site) -> list[tuple[str, str, str | None, int | None]]:
    entries = site.catalog.inspect.audit_log(limit=20).items
    return [(each.user, each.action, each.table, each.version) for each in entries]


@pytest.mark.every_database
def test_actions_are_in_the_audit_log_and_optimize_can_be_undone(site: Site) -> None:
    site.log_in()
    table = site.catalog.table("orders")
    files, version = table.snapshot().totals().num_files, table.version()
    assert "No actions yet" in site.get("/audit").text
    started = site.post("/maintenance/orders/optimize")
    shown = finished(site, started.headers["location"])
    assert f'name="version" value="{version + 1}"' in shown
    assert audited(site) == [("token", "optimize", "orders", version + 1)]
    undone = site.post("/maintenance/orders/undo", {"version": str(version + 1)})
    assert f"<dd>{version}</dd>" in finished(site, undone.headers["location"])
    assert table.snapshot().totals().num_files == files
    assert audited(site)[0] == ("token", "undo", "orders", version + 2)
    # Another commit followed: an undo would also remove that commit.
    again = site.post("/maintenance/orders/undo", {"version": str(version + 1)})
    failed = finished(site, again.headers["location"])
    assert "is not the latest version" in failed
    assert f"deltasql restore orders {version} -v" in failed
    published = site.post("/mirror/orders/retry", {"target": "table"})
    finished(site, published.headers["location"])
    assert audited(site)[0] == ("token", "publish", "orders", None)
    assert "token" in site.get("/audit").text
    # Commits that nobody started through the console are not in the log.
    with site.catalog.begin() as tx:
        tx.delete("orders", "id = 7")
    assert len(audited(site)) == 3


def test_audit_row_is_written_in_the_transaction_of_the_commit(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = site.catalog.table("crm.stock")
    version = table.version()

    def fail(*_: object) -> None:
        raise RuntimeError("the process ends before COMMIT")

    with monkeypatch.context() as patch, acting_as("ann", "write"):
        patch.setattr("deltasql.store.append.write_head", fail)
        with pytest.raises(RuntimeError), site.catalog.begin() as tx:
            tx.write("crm.stock", pa.table({"sku": ["z"], "left": [1]}))
    assert audited(site) == []
    assert table.version() == version
    with acting_as("ann", "write"), site.catalog.begin() as tx:
        tx.write("crm.stock", pa.table({"sku": ["z"], "left": [1]}))
    assert audited(site) == [("ann", "write", "crm.stock", version + 1)]


def test_cutover_shows_what_it_would_do_then_does_it(site: Site, tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "other", pa.table({"id": [1]}))
    site.catalog.follow(str(tmp_path / "other"), name="other")
    site.log_in()
    assert "Cutover" in site.get("/maintenance/other").text
    assert "Cutover" not in site.get("/maintenance/orders").text
    assert site.post("/maintenance/other/cutover").headers["location"].endswith("unconfirmed=1")
    checked = site.post("/maintenance/other/cutover", {"check": "yes"})
    assert "would cut over" in finished(site, checked.headers["location"])
    assert site.catalog.inspect.table("other").is_following
    done = site.post("/maintenance/other/cutover", {"confirm": "yes"})
    shown = finished(site, done.headers["location"])
    assert "<dd>cut over</dd>" in shown
    assert "deltasql rollback other" in shown
    assert not site.catalog.inspect.table("other").is_following
    assert {each[:3] for each in audited(site)} == {("token", "cutover", "other")}
