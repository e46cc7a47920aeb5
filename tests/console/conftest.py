"""Fixtures: a catalog with a few tables, its console over HTTP, and a browser."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pytest

import deltasql
from deltasql.console.server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.console.server import Served
    from deltasql.uri import DeltaSqlUri

TOKEN = "a-token-for-tests"
HOSTILE = "<script>alert(1)<script>\"'`ü{{7*7}}&lt;?#%"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def days(*numbers: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "day": [f"2024-05-{1 + number % 3:02d}" for number in numbers],
            "note": [f"<b>{number}</b>" for number in numbers],
        }
    )


def table_name(name: str) -> str:
    """Return a name in the form that the API accepts."""
    return name.replace("%", "%25").replace(".", "%2E")


@pytest.fixture
def shop(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """Yield a catalog with `orders`, `crm.stock` and a table with a hostile name."""
    with new_shop(catalog_uri, tmp_path) as catalog:
        yield catalog


@contextmanager
def new_shop(uri: DeltaSqlUri, folder: Path) -> Iterator[Catalog]:
    """Create the tables in an empty catalog."""
    root = {"data_root": str(folder / "lake")}
    with deltasql.connect(uri, table=root) as catalog:
        with catalog.begin() as tx:
            tx.write("orders", days(*range(30)), partition_by=["day"])
            tx.write("crm.stock", pa.table({"sku": ["a"], "left": [5]}))
        for number in range(5):
            with catalog.begin() as tx:
                tx.write("orders", days(100 + number))
        with catalog.begin() as tx:
            tx.delete("orders", "id = 3")
        with catalog.begin() as tx:
            more = days(200).append_column("channel", pa.array(["web"]))
            tx.write("orders", more, schema_mode="merge")
        with catalog.begin() as tx:
            tx.write(table_name(HOSTILE), pa.table({"<i>x</i>": ["<img src=x onerror=alert(1)>"]}))
        yield catalog


@dataclass(frozen=True, slots=True)
class Site:
    """A running console and an HTTP client that keeps its cookies."""

    served: Served
    catalog: Catalog
    client: httpx.Client

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(path, **options)

    def post(self, path: str, form: dict[str, str] | None = None, **options: Any) -> httpx.Response:
        """Send a form with its CSRF token, like a page of the console."""
        shown = self.client.get("/login" if self.served.token else "/sql").text
        csrf = shown.split('name="csrf" value="')[1].split('"')[0]
        return self.client.post(path, data={"csrf": csrf, **(form or {})}, **options)

    def log_in(self) -> None:
        assert self.served.token is not None
        assert self.post("/login", {"token": self.served.token}).status_code == 303


@pytest.fixture
def site(shop: Catalog) -> Iterator[Site]:
    """Serve the console with writes allowed; they need the token."""
    with new_site(shop) as found:
        yield found


@contextmanager
def new_site(shop: Catalog) -> Iterator[Site]:
    """Serve the console of a catalog with writes allowed."""
    with (
        serving(shop, allow_writes=True) as served,
        httpx.Client(base_url=served.address, timeout=60) as client,
    ):
        yield Site(served, shop, client)


@pytest.fixture
def read_only(shop: Catalog) -> Iterator[Site]:
    """Serve the console with its default options."""
    with serving(shop) as served, httpx.Client(base_url=served.address, timeout=60) as client:
        yield Site(served, shop, client)


# Module scope: while Playwright runs, no other event loop can run in this thread.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yield a headless Chromium."""
    from playwright.sync_api import sync_playwright

    found = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if found is None:
        pytest.fail("Chromium is needed for the console's tests: install the package chromium")
    arguments = ["--no-sandbox", "--disable-background-networking"]
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=arguments)
        yield opened
        opened.close()
