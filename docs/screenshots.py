"""Take the screenshots `docs/images/console-*.png`: the pages of the console, light and dark.

python docs/screenshots.py [page …]     needs Chromium (the package chromium)

The catalog is that of a shop with two weeks of history. To write it, the clock of this process is
set to times in these two weeks.
"""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from PIL import Image
from playwright.sync_api import sync_playwright

import deltasql
from deltasql.console.server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from deltasql.api.catalog.catalog import Catalog

IMAGES = Path(__file__).parent / "images"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-background-networking", "--force-color-profile=srgb"]
WIDTH, HEIGHT = 1280, 860
PLACE = Path("/tmp/shop-catalog")
TOKEN = "shown-on-no-picture"
QUERY = """SELECT day,
  round(sum(amount)) AS revenue,
  round(sum(amount) FILTER (region = 'north')) AS north
FROM orders
GROUP BY day
ORDER BY day"""
PAGES = {
    "overview": "/?hours=168",
    "table": "/tables/orders",
    "rows": "/tables/orders/rows?where=region+%3D+%27north%27&sort=amount&descending=1",
    "history": "/tables/orders/history",
    "commit": "/tables/orders/versions/216",
    "files": "/tables/orders/files",
    "schema": "/tables/orders/schema",
    "travel": "/tables/orders/travel",
    "transactions": "/transactions",
    "mirror": "/mirror",
    "mirror-table": "/mirror/audit.events",
    "maintenance": "/maintenance",
    "maintenance-table": "/maintenance/orders",
    "migration": "/migration",
    "sql": "/sql",
    "health": "/health",
}
QUIET = ("overview",)


def main(names: list[str]) -> None:
    """Take the screenshots of the named pages, or of all."""
    IMAGES.mkdir(exist_ok=True)
    wanted = [name for name in PAGES if not names or name in names]
    with place() as folder, shop(folder) as catalog, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        # The overview shows a healthy catalog in a read-only console.
        with serving(catalog) as served:
            take_all(browser, served.address, [name for name in wanted if name in QUIET])
        with (
            unwritable(folder / "lake" / "audit" / "events" / "_delta_log", catalog),
            serving(catalog, allow_writes=True, token=TOKEN, import_from=["/data/lake"]) as served,
        ):
            take_all(browser, served.address, [n for n in wanted if n not in QUIET], TOKEN)
        browser.close()


def chromium() -> str:
    """Return the path of Chromium."""
    found = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if found is None:
        sys.exit("Chromium is needed for pictures: install the package chromium")
    return found


def take_all(browser: Browser, address: str, names: list[str], token: str = "") -> None:
    """Take screenshots of pages in the light and in the dark colour scheme."""
    for scheme in ("light", "dark") if names else ():
        page = visit(browser, address, scheme, token, (WIDTH, HEIGHT))
        for name in names:
            take(page, address, name, IMAGES / f"console-{name}-{scheme}.png")
        page.close()


def visit(browser: Browser, address: str, scheme: str, token: str, size: tuple[int, int]) -> Page:
    """Open the console, and sign in if a token is given."""
    page = browser.new_page(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    if token:
        page.goto(f"{address}/login")
        page.fill("input[name=token]", token)
        page.press("input[name=token]", "Enter")
        page.wait_for_url(f"{address}/")
    return page


def take(page: Page, address: str, name: str, path: Path) -> None:
    """Take one screenshot."""
    page.goto(address + PAGES[name])
    if name == "sql":
        page.locator(".cm-content").fill(QUERY)
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("#result")
        page.evaluate("document.activeElement.blur()")
    page.mouse.move(0, 0)
    save(page, path)


def save(page: Page, path: Path, colours: int = 256) -> None:
    """Save what the page shows; a palette reduces the file to a third."""
    page.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(colours, dither=Image.Dither.NONE).save(
        path, optimize=True
    )
    print(f"{path.name}: {path.stat().st_size // 1024} KB")


@contextmanager
def place() -> Iterator[Path]:
    """Create the folder of the catalog; its name is fixed, because screenshots show it."""
    try:
        PLACE.mkdir()
    except FileExistsError:
        sys.exit(f"{PLACE} is in the way: move it away, it is deleted after the pictures")
    try:
        yield PLACE
    finally:
        shutil.rmtree(PLACE)


@contextmanager
def shop(folder: Path) -> Iterator[Catalog]:
    """Open a catalog with two weeks of history."""
    uri = f"deltasql://sqlite/{folder}/shop.db"
    with deltasql.connect(uri, table={"data_root": str(folder / "lake")}) as catalog:
        fill(catalog, datetime.now(UTC) - timedelta(days=14))
        yield catalog


@contextmanager
def unwritable(log: Path, catalog: Catalog) -> Iterator[None]:
    """Make the log of one table unwritable while the block runs, and commit to it."""
    hidden = log.rename(log.with_name("_delta_log_kept"))
    log.write_text("not a folder")
    for number in range(3):
        with at(datetime.now(UTC) - timedelta(minutes=9 - number)), catalog.begin() as tx:
            tx.write("audit.events", event(datetime.now(UTC), f"import {number}"))
    yield
    log.unlink()
    hidden.rename(log)


def fill(catalog: Catalog, start: datetime) -> None:
    """Write the commits of two weeks, in order."""
    random = np.random.default_rng(8)
    first = 1
    with at(start), catalog.begin() as tx:
        tx.write("orders", orders(random, start.date(), 9000, first), partition_by=["day"])
        tx.write("stock", stock(random))
        tx.write("crm.customers", customers(random))
    for hour in range(3, 14 * 24, 3):
        timestamp = start + timedelta(hours=hour)
        busy = max(1, round(3 + 3 * np.sin((timestamp.hour - 6) / 24 * 2 * np.pi)))
        for number in range(busy):
            then = timestamp + timedelta(minutes=number * 11)
            first += 400
            rows = int(random.integers(120, 700))
            with at(then), catalog.begin() as tx:
                more = orders(random, then.date(), rows, first)
                tx.write("orders", more, schema_mode="merge")
                if number == 0:
                    tx.write("stock", stock(random), mode="overwrite")
                if hour % 12 == 0 and number == 0:
                    tx.write("audit.events", event(then, f"stock counted, {rows} orders"))
        if hour == 150:
            with at(timestamp + timedelta(minutes=70)), catalog.begin() as tx:
                tx.delete("orders", "amount < 4")
        if hour == 240:
            with at(timestamp + timedelta(minutes=70)):
                more = orders(random, timestamp.date(), 200, first).append_column(
                    "channel", pa.array(["web"] * 200)
                )
                with catalog.begin() as tx:
                    tx.write("orders", more, schema_mode="merge")
    with at(start + timedelta(days=13)):
        catalog.optimize("stock")
        with catalog.begin() as tx:
            tx.write("crm.leads", pa.table({"id": range(400), "score": random.random(400)}))


@contextmanager
def at(timestamp: datetime) -> Iterator[None]:
    """Set the clock of this process to a timestamp while the block runs."""
    ahead = int(timestamp.timestamp() * 1e9) - time.time_ns()
    real = time.time_ns
    with patch("time.time_ns", lambda: real() + ahead):
        yield


def orders(random: np.random.Generator, day: date, rows: int, first: int) -> pa.Table:
    return pa.table(
        {
            "order_id": pa.array(range(first, first + rows), pa.int64()),
            "day": pa.array([day] * rows, pa.date32()),
            "customer": [f"C{number:05d}" for number in random.integers(1, 4000, rows)],
            "region": random.choice(["north", "south", "east", "west"], rows),
            "amount": np.round(random.gamma(2.0, 40.0, rows), 2),
            "items": pa.array(random.integers(1, 9, rows), pa.int32()),
        }
    )


def stock(random: np.random.Generator) -> pa.Table:
    skus = [f"SKU-{number:04d}" for number in range(400)]
    return pa.table({"sku": skus, "on_hand": pa.array(random.integers(0, 500, 400), pa.int32())})


def customers(random: np.random.Generator) -> pa.Table:
    since = [date(2019, 1, 1) + timedelta(days=int(day)) for day in random.integers(0, 1900, 4000)]
    return pa.table(
        {
            "customer": [f"C{number:05d}" for number in range(1, 4001)],
            "country": random.choice(["AT", "CH", "DE", "FR", "IT"], 4000),
            "since": pa.array(since, pa.date32()),
        }
    )


def event(timestamp: datetime, what: str) -> pa.Table:
    return pa.table({"at": pa.array([timestamp], pa.timestamp("us", "UTC")), "what": [what]})


if __name__ == "__main__":
    main(sys.argv[1:])
