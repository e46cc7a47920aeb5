"""Fixtures that map table names to table URIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import pytest

from deltasql.api.catalog.connect import close_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri

Address: TypeAlias = Callable[[str], str]


@pytest.fixture
def address(
    catalog_uri: DeltaSqlUri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Address]:
    """Return a function from a table name to its URI, in an empty catalog on each backend."""
    monkeypatch.setenv("DELTASQL_TABLE__DATA_ROOT", str(tmp_path / "lake"))
    yield lambda name: catalog_uri.with_table(name).to_string()
    close_all()


@pytest.fixture
def sqlite_address(sqlite_uri: DeltaSqlUri) -> Iterator[Address]:
    """Return the same function for SQLite only, where the backend makes no difference."""
    yield lambda name: sqlite_uri.with_table(name).to_string()
    close_all()
