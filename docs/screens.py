"""Take the pictures in docs/internals/screens: places in the command line and the console.

python -m docs.screens after [name …]     needs Chromium

The pictures of 0.1.0 are taken with the package that `make baseline` builds:
PYTHONPATH=~/.cache/deltasql/baseline-107527057a1a/site python -m docs.screens before
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

from deltasql.console.server import serving
from docs.screenshots import ARGUMENTS, PLACE, QUERY, TOKEN, chromium, place, save, shop, visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from deltasql.api.catalog.catalog import Catalog

SCREENS = Path(__file__).parent / "internals" / "screens"
COLUMNS, LINES = 80, 90
COLOURS, TERMINAL_COLOURS = 64, 8
_PROGRAM = 'from deltasql.cli.main import main; main(prog_name="deltasql")'
# What rich draws between hiding and showing the cursor.
_PROGRESS = re.compile(r"\x1b\[\?25l.*?\x1b\[\?25h(?:\r?\x1b\[1A\x1b\[2K)?", re.DOTALL)
URI = f"deltasql://sqlite/{PLACE}/shop.db"
# Each command runs on a terminal that is 80 characters wide.
COMMANDS = {
    "query-20-columns": "deltasql query 'SELECT * FROM wide20'",
    "query-60-columns": "deltasql query 'SELECT * FROM wide60'",
    "query-300-columns": "deltasql query 'SELECT * FROM wide300'",
    "null-and-empty": "deltasql query 'SELECT * FROM notes'",
    "history": "deltasql history orders --limit 8",
    "watch": "deltasql watch --once --limit 8",
    "mirror-status": "deltasql mirror status",
    "help": "deltasql --help",
    "help-of-a-command": "deltasql history --help",
    "error-missing-file": "deltasql query -f missing.sql",
    "error-host": "deltasql ui --host nope",
    "error-variable": "unset DELTASQL_URI; DELTASQL_URL=x deltasql table list",
}
PHONE, DESKTOP, LARGE = (390, 1500), (1280, 860), (2560, 1100)
# The address, the size of the window and the colour scheme of each page of the console.
PAGES: dict[str, tuple[str, tuple[int, int], str]] = {
    "console-overview-phone": ("/?hours=168", PHONE, "light"),
    "console-table-phone": ("/tables/orders", PHONE, "dark"),
    "console-new-table-phone": ("/tables/notes", PHONE, "light"),
    "console-partitions-phone": ("/tables/regions", PHONE, "light"),
    "console-history-phone": ("/tables/orders/history", PHONE, "light"),
    "console-files-desktop": ("/tables/orders/files", DESKTOP, "dark"),
    "console-maintenance-desktop": ("/maintenance/orders", DESKTOP, "light"),
    "console-table-large": ("/tables/orders", LARGE, "light"),
}
QUERIES = {
    "console-sql-desktop": (QUERY, DESKTOP, "dark"),
    "console-sql-phone": (QUERY, PHONE, "light"),
    "console-sql-wide-phone": ("SELECT * FROM wide300", PHONE, "light"),
}


def main(when: str, names: list[str]) -> None:
    """Take the named pictures, or all; `when` ends the names of their files."""
    SCREENS.mkdir(exist_ok=True)

    def wanted(name: str) -> Path | None:
        return SCREENS / f"{name}-{when}.png" if not names or name in names else None

    with place() as folder, shop(folder) as catalog, sync_playwright() as playwright:
        fill(catalog)
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        for name, command in COMMANDS.items():
            if path := wanted(name):
                take_terminal(browser, command, path)
        with serving(catalog, allow_writes=True, token=TOKEN) as served:
            for name, (address, size, scheme) in (PAGES | QUERIES).items():
                if path := wanted(name):
                    page = visit(browser, served.address, scheme, TOKEN, size)
                    page.goto(served.address + ("/sql" if name in QUERIES else address))
                    if name in QUERIES:
                        page.locator(".cm-content, textarea#sql").first.fill(address)
                        page.keyboard.press("Control+Enter")
                        page.wait_for_selector("#result")
                    page.wait_for_timeout(500)  # parts of a page are loaded after it
                    save(page, path, COLOURS)
                    page.close()
        browser.close()


def take_terminal(browser: Browser, command: str, path: Path) -> None:
    """Run a command on a terminal, and take a picture of its output."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), color_system="truecolor")
    console.print(Text(f"$ {command}", style="bold"))
    console.print(Text.from_ansi(output(command)))
    body = console.export_html(inline_styles=True, code_format="{code}")
    page = browser.new_page(viewport={"width": 700, "height": 200})
    page.set_content(
        "<body style='margin:0'><pre style='margin:0;padding:12px;font:13px/1.35 monospace;"
        f"background:#fff;color:#111;display:inline-block;min-width:{COLUMNS}ch'>{body}</pre>"
    )
    box = page.locator("pre").bounding_box()
    assert box is not None
    page.set_viewport_size({"width": round(box["width"]), "height": round(box["height"])})
    save(page, path, TERMINAL_COLOURS)
    page.close()


def output(command: str) -> str:
    """Return what a command prints on a terminal of 80 characters, without progress."""
    process, descriptor = pty.fork()
    if process == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        os.chdir(PLACE)
        program = f"deltasql() {{ '{sys.executable}' -c '{_PROGRAM}' \"$@\"; }}; "
        variables = {"DELTASQL_URI": URI, "PAGER": "cat", "TERM": "xterm-256color"}
        os.execvpe("bash", ["bash", "-c", program + command], os.environ | variables)
    printed = b""
    while True:
        try:
            part = os.read(descriptor, 65_536)
        except OSError:  # the process has closed the terminal
            break
        if not part:
            break
        printed += part
    os.waitpid(process, 0)
    text = printed.decode().replace("\r\n", "\n")
    return _PROGRESS.sub("", text).rstrip()


def fill(catalog: Catalog) -> None:
    """Add wide tables, a table with NULL, and one with long names of partitions."""
    with catalog.begin() as tx:
        for count in (20, 60, 300):
            tx.write(f"wide{count}", wide(count))
        tx.write("notes", pa.table({"id": [1, 2, 3], "note": ["paid", "", None]}))
        regions = [f"region-with-a-long-name-{number}" for number in range(4)]
        tx.write("regions", pa.table({"name": regions, "n": range(4)}), partition_by=["name"])


def wide(count: int) -> pa.Table:
    columns = {
        f"column_{number}": [
            number + row / 7 if number % 2 else f"a text of row {row}" for row in (0, 1)
        ]
        for number in range(count)
    }
    return pa.table(columns)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
