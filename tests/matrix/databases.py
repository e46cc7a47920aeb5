"""The databases of the matrix: PostgreSQL and what is in front of it, SQLite and DuckDB."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.matrix.cell import Cell, run_behaviours
from tests.matrix.postgres import EMBEDDED, debian, embedded, newest, running


def cells() -> list[Cell]:
    """Return the cells of all databases."""
    servers = {release.rpartition(".")[0]: partial(embedded, release) for release in EMBEDDED}
    servers["15, Debian"] = partial(debian, 15)
    servers["18"] = newest
    return [
        Cell("PostgreSQL", release, partial(_postgres, find)) for release, find in servers.items()
    ]


def _postgres(find: Callable[[], Path], folder: Path) -> dict[str, str]:
    with running(find(), folder / "server") as server:
        catalog = server.uri().to_string()
        return run_behaviours(sys.executable, catalog, str(folder / "lake"), {}, folder)
