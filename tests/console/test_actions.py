"""Actions of the console, on every backend."""

from __future__ import annotations

import re
import threading
import time
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import httpx
import pyarrow as pa
import pytest

import deltasql
from deltasql.console.console import Console
from deltasql.console.jobs import Done
from deltasql.console.server import Served, serving
from deltasql.console.units import size
from deltasql.model.progress import Progress
from deltasql.store.audit import acting_as
from tests.console.conftest import TOKEN, Site
from tests.console.test_pages import PAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def test_vacuum_shows_the_size_of_the_files_that_it_deleted(site: Site) -> None:
    site.log_in()
    table = site.catalog.table("orders")
    folder = Path(table.location)
    keep_nothing = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
    with site.catalog.begin() as tx:
        tx.set_table_properties("orders", keep_nothing)
    for _ in range(2):  # the undo makes removed files live, and they are removed again
        finished(site, site.post("/maintenance/orders/optimize").headers["location"])
        version = str(table.version())
        undone = site.post("/maintenance/orders/undo", {"version": version})
        finished(site, undone.headers["location"])

    def stored() -> int:
        return sum(each.stat().st_size for each in folder.rglob("*.parquet"))

    before = stored()
    vacuumed = site.post("/maintenance/orders/vacuum", {"confirm": "yes"})
    shown = finished(site, vacuumed.headers["location"])
    assert before > stored()
    assert f"<dt>Freed, about</dt><dd>{size(before - stored())}</dd>" in shown


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


@pytest.mark.two_databases
def test_foreign_commit_is_shown_with_the_commands_that_resolve_it(
    site: Site, catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    rows = pa.table({"id": [1]})
    options = {"data_root": str(tmp_path / "lake"), "in_commit_timestamps": False}
    with deltasql.connect(catalog_uri, table=options) as catalog, catalog.begin() as tx:
        tx.write("open events", rows)
    location = site.catalog.table("open events").location
    deltalake.write_deltalake(location, rows, mode="append")  # bypasses the database
    with site.catalog.begin() as tx:
        tx.write("open events", rows)
    site.log_in()
    shown = unescape(site.get("/mirror/open events").text)
    assert "quarantined" in shown
    for command in ("adopt", "reject"):
        assert f"<code>deltasql mirror {command} 'open events'</code>" in shown
    assert "Publishing fails until" in shown
    failed = site.post("/mirror/open events/retry", {"target": "table"})
    assert 'data-state="failed"' in finished(site, failed.headers["location"])
    site.catalog.mirror.adopt("open events")
    assert "All versions are published" in site.get("/mirror/open events").text


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
        assert "Rewriting: 1 of 2 bins" in shown
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


@pytest.mark.two_databases
def test_actions_are_in_the_audit_log_and_optimize_can_be_undone(site: Site) -> None:
    site.log_in()
    table = site.catalog.table("orders")
    files, version = table.snapshot().totals().num_files, table.version()
    assert "No actions yet" in site.get("/audit").text
    started = site.post("/maintenance/orders/optimize")
    shown = finished(site, started.headers["location"])
    assert f'name="version" value="{version + 1}"' in shown
    assert audited(site) == [("token", "optimize", "orders", version + 1)]
    job = f"{site.served.address}{started.headers['location']}"
    assert "to run this" not in shown
    assert "Sign in</a> to run this" in httpx.get(job).text  # without the session
    undone = site.post("/maintenance/orders/undo", {"version": str(version + 1)})
    assert f"<dd>{version}</dd>" in finished(site, undone.headers["location"])
    assert table.snapshot().totals().num_files == files
    assert audited(site)[0] == ("token", "undo", "orders", version + 2)
    # Another commit followed: an undo would also remove that commit.
    again = site.post("/maintenance/orders/undo", {"version": str(version + 1)})
    failed = finished(site, again.headers["location"])
    assert "of orders is no longer the latest" in failed
    assert "would also undo the later commits" in failed
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


@contextmanager
def lake(shop: Catalog, folder: Path, **options: Any) -> Iterator[Site]:
    """Serve a console whose operators may import the tables `lake/sales` and `lake/old`."""
    for name in ("sales", "old"):
        deltalake.write_deltalake(folder / "other" / name, pa.table({"id": [1, 2]}))
    with (
        serving(shop, allow_writes=True, import_from=[str(folder / "other")], **options) as served,
        httpx.Client(base_url=served.address, timeout=60) as client,
    ):
        yield Site(served, shop, client)


@pytest.mark.two_databases
def test_import_follow_cutover_and_rollback_can_be_previewed_and_undone(
    shop: Catalog, tmp_path: Path
) -> None:
    source = str(tmp_path / "other" / "sales")
    form = {"source": source, "name": "crm.sales"}
    with lake(shop, tmp_path) as site:
        site.log_in()

        def run(path: str, **form: str) -> str:
            started = site.post(path, form)
            assert started.status_code == 303, started.text
            shown = finished(site, started.headers["location"])
            assert 'data-state="done"' in shown, shown
            return shown

        def undo(shown: str) -> str:
            """Send the form of the button Undo."""
            part = shown.split('<form class="inline"')[1].split("</form>")[0]
            path = unescape(part.split('action="')[1].split('"')[0])
            fields = re.findall(r'name="([^"]+)" value="([^"]*)"', part)
            return run(path, **{key: unescape(value) for key, value in fields if key != "csrf"})

        def names() -> set[str]:
            return {each.full_name for each in shop.tables()}

        before = names()
        assert "<dd>would import</dd>" in run("/migrate", **form, action="check")
        assert names() == before
        imported = run("/migrate", **form, action="import")
        assert "<dd>imported</dd>" in imported
        assert "/tables/crm.sales" in imported
        assert names() == {*before, "crm.sales"}
        assert "<dd>rolled back</dd>" in undo(imported)
        assert names() == before

        followed = run("/migrate", **form, action="follow")
        assert shop.inspect.table("crm.sales").is_following
        deltalake.write_deltalake(source, pa.table({"id": [3]}), mode="append")
        shown = site.get("/migration/crm.sales").text
        assert "the log" in shown
        assert "<dt>Commits added</dt><dd>1</dd>" in run("/migration/crm.sales/refresh")
        assert "<dd>rolled back</dd>" in undo(followed)
        assert names() == before

        run("/migrate", **form, action="follow")
        assert "would cut over" in run("/migration/crm.sales/cutover", check="yes")
        unconfirmed = site.post("/migration/crm.sales/cutover").headers["location"]
        assert "tick the box" in site.get(unconfirmed).text
        assert shop.inspect.table("crm.sales").is_following
        cut_over = run("/migration/crm.sales/cutover", confirm="yes")
        assert "<dd>cut over</dd>" in cut_over
        assert "Version 2 enables in-commit timestamps" in cut_over
        assert "deltalake before 1.0 and delta-spark are not blocked" in cut_over
        assert not shop.inspect.table("crm.sales").is_following
        assert "would roll back" in run("/migration/crm.sales/rollback", check="yes")
        assert site.post("/migration/crm.sales/rollback").headers["location"].endswith("=1")
        assert "crm.sales" in names()
        rolled_back = undo(cut_over)
        shown = site.get("/audit").text
        assert "not in the catalog" in shown
        assert "/tables/crm.sales" not in shown  # such a link would lead nowhere
        assert "<dd>rolled back</dd>" in rolled_back
        assert "Version 3 drops in-commit timestamps" in rolled_back
        assert "imports the log again as crm.sales" in rolled_back
        assert "<dd>imported</dd>" in undo(rolled_back)
        assert shop.table("crm.sales").snapshot().totals().num_files == 2
        actions = {each[:3] for each in audited(site)}
        wanted = ("import", "follow", "refresh", "cutover", "rollback")
        assert actions == {("token", each, "crm.sales") for each in wanted}


def test_failed_migration_shows_the_command_to_run(shop: Catalog, tmp_path: Path) -> None:
    with lake(shop, tmp_path) as site:
        site.log_in()
        source = str(tmp_path / "other" / "nothing here")
        for action in ("check", "import", "follow"):
            started = site.post("/migrate", {"source": source, "name": "", "action": action})
            shown = unescape(finished(site, started.headers["location"]))
            assert 'data-state="failed"' in shown
            command = "follow" if action == "follow" else "import"
            assert f"deltasql {command} '{source}'" in shown
        (data,) = (tmp_path / "other" / "old").glob("*.parquet")
        data.unlink()
        form = {"source": str(tmp_path / "other" / "old"), "name": "", "action": "check"}
        shown = finished(site, site.post("/migrate", form).headers["location"])
        assert 'data-state="failed"' in shown
        assert data.name in shown
        back = unescape(shown.split('<a href="/migration?')[1].split('"')[0])
        assert f'value="{form["source"]}"' in site.get(f"/migration?{back}").text


def test_only_logs_below_the_allowed_locations_are_imported(shop: Catalog, tmp_path: Path) -> None:
    with lake(shop, tmp_path) as site:
        site.log_in()
        deltalake.write_deltalake(tmp_path / "secret", pa.table({"id": [1]}))
        (tmp_path / "other" / "link").symlink_to(tmp_path / "secret")
        other = tmp_path / "other"
        for source in (
            tmp_path / "secret",
            other / ".." / "secret",
            other / "link",
            "/",
            f"{other}2",
        ):
            for action in ("check", "import", "follow"):
                form = {"source": str(source), "name": "x", "action": action}
                refused = site.post("/migrate", form)
                assert refused.status_code == 403, source
                assert "--import-from" in refused.text
        assert site.post("/migrate", {"source": "", "action": "import"}).status_code == 400
        form = {"source": str(other / "sales"), "action": "drop"}
        assert site.post("/migrate", form).status_code == 400
        assert "x" not in {each.full_name for each in shop.tables()}
    with (
        serving(shop, allow_writes=True, token=TOKEN) as served,
        httpx.Client(base_url=served.address) as client,
    ):
        site = Site(served, shop, client)
        site.log_in()
        assert "--import-from LOCATION" in site.get("/migration").text
        form = {"source": str(other / "sales"), "action": "import"}
        assert site.post("/migrate", form).status_code == 403
