"""The console in a browser: every page, keyboard, an action, a hostile name, a sign-in."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
import threading
from base64 import b64encode
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import httpx
import pytest

from deltasql.console.pages import mirror, table
from deltasql.console.server import serving
from tests.conftest import new_catalog_uri
from tests.console.conftest import HOSTILE, TOKEN, Site, new_shop, new_site
from tests.console.test_actions import finished
from tests.console.test_oidc import PORTS, console, issuer, needs_provider  # noqa: F401
from tests.console.test_pages import PAGES
from tests.selection import smoke

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from playwright.sync_api import Browser, Page

    from deltasql.api.catalog.catalog import Catalog


@pytest.fixture
def backend() -> str:
    """Use SQLite only: pages do not depend on the backend, and HTTP tests run on all."""
    return "sqlite"


@contextmanager
def watched(browser: Browser, site: Site, **options: object) -> Iterator[Page]:
    """Open a page that must log no error and send requests only to the console."""
    context = browser.new_context(base_url=site.served.address, **options)  # type: ignore[arg-type]
    page = context.new_page()
    output: list[str] = []
    page.on("console", lambda each: output.append(each.text) if each.type == "error" else None)
    page.on("pageerror", lambda error: output.append(str(error)))
    page.on("dialog", lambda dialog: (output.append(dialog.message), dialog.dismiss()))
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    yield page
    context.close()
    assert output == []
    assert all(url.startswith(site.served.address) for url in requests)


def log_in(page: Page, site: Site) -> None:
    page.goto("/login")
    page.keyboard.type(str(site.served.token))  # the field has focus
    page.keyboard.press("Enter")
    page.get_by_text("Writes allowed").wait_for()


def open_all(page: Page) -> None:
    for path in PAGES:
        page.goto(path)
        assert page.locator("h1").inner_text()
        # No page is wider than the window.
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def optimize(page: Page, site: Site) -> None:
    log_in(page, site)
    page.goto("/maintenance/orders")
    page.get_by_role("button", name="Optimize").click()
    page.locator("[data-state=done]").wait_for(timeout=120_000)
    assert page.get_by_text("Files removed").is_visible()


@pytest.mark.parametrize(
    "scheme", smoke(["light", "dark"], ["light"], "the console in a browser, beyond a smoke test")
)
def test_every_page_opens_without_an_error(browser: Browser, site: Site, scheme: str) -> None:
    with watched(browser, site, color_scheme=scheme) as page:
        open_all(page)
        page.goto("/")
        light = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (light == "rgb(246, 247, 248)") is (scheme == "light")


@pytest.mark.everything("the console in a browser, beyond a smoke test")
def test_pages_fit_a_small_window(browser: Browser, site: Site) -> None:
    with watched(browser, site, viewport={"width": 390, "height": 800}) as page:
        for path in PAGES:
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        page.goto("/tables/orders/travel")
        # The current tab, the last of six, is scrolled into view.
        right = "document.querySelector('{}').getBoundingClientRect().right"
        tab, tabs = (
            page.evaluate(right.format(each)) for each in (".tabs [aria-current]", ".tabs")
        )
        assert tab <= tabs + 1


@pytest.mark.everything("the console in a browser, beyond a smoke test")
def test_pages_work_without_javascript(browser: Browser, site: Site) -> None:
    with watched(browser, site, java_script_enabled=False) as page:
        page.goto("/tables/orders/travel?version=2")
        page.get_by_role("link", name="Next version").click()
        assert "version=3" in page.url
        page.get_by_role("button", name="Compare").click()
        page.goto("/sql")
        page.fill("#sql", "SELECT count(*) AS n FROM orders@0")
        page.get_by_role("button", name="Run").click()
        assert page.locator("#result td").inner_text() == "30"


def test_table_can_be_found_and_opened_by_keyboard(browser: Browser, site: Site) -> None:
    with watched(browser, site) as page:
        page.goto("/")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"
        page.keyboard.press("/")
        page.keyboard.type("stock")
        assert page.locator("#table-list tbody tr:visible").count() == 1
        page.keyboard.press("Enter")
        page.wait_for_url("**/tables/crm.stock")
        page.keyboard.press("g")
        page.keyboard.press("s")
        page.wait_for_url("**/sql")
        page.locator(".cm-focused").wait_for()
        page.keyboard.type("SELECT 6 * 7 AS answer")
        page.keyboard.press("Control+Enter")
        page.locator("#result").wait_for()
        assert page.locator("#result td").inner_text() == "42"
        page.wait_for_url("**run=1")
        page.reload()  # the address has the query and its result
        assert page.locator("#result td").inner_text() == "42"


def test_editor_completes_columns_and_keeps_queries_in_the_browser(
    browser: Browser, site: Site
) -> None:
    with watched(browser, site) as page:
        with page.expect_response("**/sql/schema"):
            page.goto("/sql")
        page.locator(".cm-content").click()
        page.keyboard.type("SELECT max(id) AS n FROM orders WHERE orders.chan")
        page.locator(".cm-tooltip-autocomplete", has_text="channel").wait_for()
        page.keyboard.press("Escape")
        page.keyboard.type("nel = 'web'")
        assert page.locator(".cm-line span").count() > 3  # highlighted words
        page.fill("#save-name", "latest")
        page.get_by_role("button", name="Save").click()
        page.get_by_role("button", name="Run").click()
        page.locator("#result").wait_for()
        page.goto("/sql")
        page.get_by_text("History").click()
        assert page.locator("[data-queries=history] li").count() == 1
        page.get_by_role("button", name="Open the query latest").click()
        page.keyboard.press("Control+Enter")
        page.locator("#result").wait_for()
        assert page.locator("#result td").inner_text() == "200"


@pytest.mark.everything("the console in a browser, beyond a smoke test")
def test_cancel_stops_the_query(
    browser: Browser, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(1000000) b"
    run, ended = site.catalog.query, threading.Event()

    def watched_query(*arguments: Any, **options: Any) -> pa.RecordBatchReader:
        try:
            return run(*arguments, **options)
        finally:
            ended.set()

    monkeypatch.setattr(site.catalog, "query", watched_query)
    with watched(browser, site) as page:
        page.goto(f"/sql?{urlencode({'sql': endless})}")
        # The page clicks for itself, because Playwright waits for a page that is loading.
        click = "setTimeout(() => document.getElementById('{}').click(), {})"
        page.evaluate(click.format("cancel", 1500))
        page.evaluate(click.format("run", 100))
        assert ended.wait(30)
        page.wait_for_function("document.getElementById('cancel').hidden")
        assert page.locator("#cancelled").inner_text() == "The query was cancelled."


@pytest.mark.everything("the console in a browser, beyond a smoke test")
def test_mirror_page_shows_the_new_state_when_publishing_ends(
    browser: Browser, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Path(site.catalog.table("orders").location) / "_delta_log"
    moved = log.rename(log.with_name("moved"))
    log.write_text("in the way")
    with site.catalog.begin() as tx:
        tx.delete("orders", "id = 5")
    log.unlink()
    moved.rename(log)
    publish, is_shown = mirror._publish, threading.Event()

    def publish_later(*arguments: Any) -> Any:
        assert is_shown.wait(60)
        return publish(*arguments)

    monkeypatch.setattr(mirror, "_publish", publish_later)
    with watched(browser, site) as page:
        log_in(page, site)
        page.goto("/mirror/orders")
        page.get_by_role("button", name="Publish missing versions").click()
        page.locator("[data-state=running]").wait_for()
        assert page.locator(".tile", has_text="State").inner_text().endswith("failing")
        is_shown.set()
        page.get_by_text("All versions are published").wait_for()
        assert page.get_by_text("Versions published").is_visible()


AXE = "axe-core@4.14.0"
AXE_SHA512 = (
    "9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ=="
)


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the source of axe-core, which npm fetches."""
    folder = tmp_path_factory.mktemp("axe")
    command = ["npm", "pack", "--silent", AXE]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    packed = folder / found.stdout.strip()
    checksum = b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode()
    assert checksum == AXE_SHA512
    with tarfile.open(packed) as archive:
        source = archive.extractfile("package/axe.min.js")
        assert source is not None
        return source.read().decode()


@pytest.mark.everything("npm fetches axe-core")
def test_pages_have_no_serious_accessibility_issue(browser: Browser, site: Site, axe: str) -> None:
    finished(site, optimized(site))
    pages = [*PAGES, optimized(site)]
    query = urlencode({"sql": "SELECT day, count(*) AS n FROM orders GROUP BY day"})
    issues = []
    for scheme, width in (("light", 1280), ("dark", 390)):
        size = {"width": width, "height": 900}
        with watched(browser, site, color_scheme=scheme, viewport=size) as page:
            log_in(page, site)
            for path in [*pages, f"/sql?{query}&run=1"]:
                page.goto(path)
                page.evaluate(axe)
                found = page.evaluate("axe.run({resultTypes: ['violations']})")
                issues += [
                    (path, scheme, each["id"], each["nodes"][0]["html"][:200])
                    for each in found["violations"]
                    if each["impact"] in ("serious", "critical")
                ]
    assert issues == []


def optimized(site: Site) -> str:
    """Start an optimize and return the address of its job."""
    site.log_in()
    return str(site.post("/maintenance/orders/optimize").headers["location"])


@pytest.mark.everything("the console in a browser, beyond a smoke test")
def test_arrow_keys_move_the_version_slider(browser: Browser, site: Site) -> None:
    with watched(browser, site) as page:
        page.goto("/tables/orders/travel?version=3")
        page.locator("#version").focus()
        page.keyboard.press("ArrowLeft")
        assert page.locator("[data-version]").inner_text() == "2"
        page.wait_for_url("**version=2*")
        assert page.locator("h2", has_text="Version 2").count() == 1
        page.keyboard.press("Tab")


@pytest.mark.everything("the console in a browser, beyond a smoke test")
def test_charts_of_a_large_table_load_after_the_page(
    browser: Browser, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "LARGE", 1)
    with watched(browser, site) as page:
        page.goto("/")
        page.get_by_role("heading", name="Tables").wait_for()
        page.get_by_role("searchbox").fill("stock")
        assert page.locator("#table-list tbody tr:visible").count() == 1
    assert "Growth" not in site.get("/tables/orders").text
    with watched(browser, site) as page:
        for path, title in (
            ("/tables/orders", "Growth"),
            ("/tables/orders/files", "Partitions"),
            ("/maintenance/orders", "Files by size"),
        ):
            page.goto(path)
            page.get_by_role("heading", name=title).wait_for()
            assert page.locator("svg.chart").count() >= 1
    with watched(browser, site, java_script_enabled=False) as page:
        page.goto("/tables/orders")
        page.get_by_role("link", name="Show them").click()
        assert page.get_by_role("heading", name="Growth").is_visible()


@pytest.mark.everything("the console in a browser, beyond a smoke test")
def test_pages_and_maintenance_work_on_other_backends(browser: Browser, tmp_path: Path) -> None:
    for backend in ("duckdb", "postgres"):
        folder = tmp_path / backend
        folder.mkdir()
        with (
            contextmanager(new_catalog_uri)(backend, folder) as uri,
            new_shop(uri, folder) as shop,
            new_site(shop) as site,
            watched(browser, site) as page,
        ):
            open_all(page)
            optimize(page, site)


def test_maintenance_runs_and_shows_its_result(browser: Browser, site: Site) -> None:
    files = site.catalog.table("orders").snapshot().totals().num_files
    with watched(browser, site) as page:
        page.goto("/maintenance/orders")
        assert page.get_by_role("button", name="Optimize").is_disabled()
        optimize(page, site)
        page.get_by_role("link", name="Back to orders").click()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_text("Read-only").wait_for()
    assert site.catalog.table("orders").snapshot().totals().num_files < files


def test_hostile_name_runs_no_script(browser: Browser, site: Site) -> None:
    with watched(browser, site) as page:
        page.goto("/")
        page.get_by_role("link", name=HOSTILE, exact=True).click()
        assert page.locator("h1").inner_text().startswith(HOSTILE)
        parts = {
            "Rows": "rows",
            "History": "history",
            "Files": "files",
            "Schema": "schema",
            "Time travel": "travel",
        }
        for tab, part in parts.items():
            page.get_by_role("link", name=tab, exact=True).click()
            page.wait_for_url(f"**/{part}")
            assert page.locator("h1").inner_text().startswith(HOSTILE)
        assert page.get_by_text("<img src=x onerror=alert(1)>").first.is_visible()
        page.goto("/sql")
        page.locator("aside a", has_text="script").click()
        page.get_by_role("button", name="Run").click()
        assert page.locator("#result td").inner_text() == "<img src=x onerror=alert(1)>"


def test_expired_session_redirects_to_login(browser: Browser, shop: Catalog) -> None:
    with (
        serving(shop, allow_writes=True, token=TOKEN) as served,
        httpx.Client(base_url=served.address) as client,
    ):
        site = Site(served, shop, client)
        with watched(browser, site) as page:
            log_in(page, site)
            page.goto("/tables/orders")
            page.context.clear_cookies()
            # A request that a page sends in the background.
            page.evaluate("void fetchPart('/tables/orders/figures')")
            page.wait_for_url("**/login?next=%2Ftables%2Forders")
            page.get_by_role("heading", name="Sign in").wait_for()


@needs_provider
@pytest.mark.everything("the console in a browser, beyond a smoke test")
def test_user_of_a_provider_signs_in_and_out(
    browser: Browser,
    shop: Catalog,
    issuer: str,  # noqa: F811
) -> None:
    with console(shop, issuer, PORTS[1]) as site:
        context = browser.new_context(base_url=site.served.address)
        page = context.new_page()
        page.goto("/tables/orders")  # leads to the page for signing in
        page.get_by_role("link", name="Sign in with").click()
        page.wait_for_url(f"{issuer}/**")  # another site, so strict cookies are not sent back
        page.fill("[name=login]", "olga")
        page.fill("[name=password]", "any")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Continue").click()
        page.wait_for_url("**/tables/orders")  # the page that was asked for
        assert page.get_by_text("olga@example.com").is_visible()
        assert page.get_by_text("Writes allowed").is_visible()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("heading", name="Sign in").wait_for()
        context.close()
