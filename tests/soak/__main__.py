"""Run all roles on one database after the other, and write the page: `make soak`.

Problems are printed, together with the folder that contains the records.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tests.conftest import new_catalog_uri
from tests.soak.ledger import Place
from tests.soak.report import figures, tables
from tests.soak.run import run

_PAGE = Path(__file__).parents[2] / "docs" / "reliability" / "soak.md"
_FROM, _TO = "<!-- figures -->", "<!-- end of figures -->"
_TITLES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "duckdb": "DuckDB, in threads"}


def main(arguments: list[str]) -> int:
    """Run the soak; return 1 if something was lost, partial or failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="on each database")
    parser.add_argument("--seed", default=secrets.token_hex(4))
    parser.add_argument("--backends", default="postgres,sqlite")
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--retention", type=float, default=60, help="of the vacuum, in seconds")
    parser.add_argument("--page", type=Path, default=_PAGE, help="where the figures are put")
    options = parser.parse_args(arguments)
    found = []
    for backend in options.backends.split(","):
        folder = Path(tempfile.mkdtemp(prefix=f"soak-{backend}-"))
        for uri in new_catalog_uri(backend, folder):
            soak = run(
                Place(uri, folder, options.retention),
                seed=options.seed,
                seconds=60 * options.minutes,
                writers=options.writers,
                readers=options.readers,
                threads=backend == "duckdb",
            )
        load = round(os.getloadavg()[1])
        reported = figures(
            soak, title=_TITLES[backend], seed=options.seed, backend=backend, load=load
        )
        print(tables(reported), flush=True)
        print("\n".join([*reported["problems"][:20], f"what was done is in {folder}"]), flush=True)
        found.append(reported)
    about = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "writers": options.writers,
        "readers": options.readers,
        "retention_s": options.retention,
    }
    _write(options.page, about, found)
    return 1 if any(each["problems"] for each in found) else 0


def _write(page: Path, about: dict[str, object], found: list[dict[str, object]]) -> None:
    page.with_suffix(".json").write_text(json.dumps({**about, "runs": found}, indent=1) + "\n")
    text = page.read_text() if page.exists() else f"# Soak\n\n{_FROM}\n{_TO}\n"
    before, _, rest = text.partition(_FROM)
    details = (
        f"{about['date']}, {about['cpus']} CPUs, Python {about['python']}: {about['writers']} "
        f"writers, {about['readers']} readers, a reconciler, an optimizer and a vacuum with "
        f"a retention of {about['retention_s']:g} s.\n"
    )
    parts = [_FROM, "", details, *(tables(each) for each in found), _TO]
    page.write_text(before + "\n".join(parts) + rest.partition(_TO)[2])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
