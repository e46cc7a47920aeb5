"""Fixtures that run the command line on a catalog of every backend, with or without a table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import deltasql
from deltasql.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri


@dataclass(frozen=True, slots=True)
class Cli:
    """Runs the command line on one catalog."""

    uri: str

    def __call__(self, *arguments: str, exit_code: int = 0, stdin: str | None = None) -> Result:
        result = CliRunner().invoke(main, ["--uri", self.uri, *arguments], input=stdin)
        assert result.exit_code == exit_code, result.output
        return result

    def json(self, *arguments: str) -> Any:
        return json.loads(self("--format", "json", *arguments).stdout)


@pytest.fixture
def cli(catalog_uri: DeltaSqlUri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Return a Cli for an empty catalog; new tables are created in the test's folder."""
    return prepared(catalog_uri, tmp_path, monkeypatch)


@pytest.fixture
def sales(cli: Cli) -> Cli:
    """Create `sales`: version 0 is empty, version 1 has ids 0 and 1, version 2 adds ids 2 and 3."""
    return with_sales(cli)


@pytest.fixture
def sales_in_sqlite(
    sqlite_uri: DeltaSqlUri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Cli:
    """Create `sales` in SQLite, for tests that do not depend on the backend."""
    return with_sales(prepared(sqlite_uri, tmp_path, monkeypatch))


def prepared(uri: DeltaSqlUri, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Return a Cli for a catalog that writes all its files below a folder."""
    monkeypatch.delenv("DELTASQL_URI", raising=False)
    monkeypatch.setenv("DELTASQL_TABLE__DATA_ROOT", str(folder / "lake"))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    return Cli(uri.to_string())


def with_sales(cli: Cli) -> Cli:
    """Create `sales` with three versions."""
    schema = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("day", pa.date32())])
    with deltasql.connect(cli.uri) as catalog:
        catalog.create_table("sales", schema)
        for start in (0, 2):
            ids = [start, start + 1]
            rows = {"id": ids, "price": [each + 0.25 for each in ids], "day": [None, None]}
            with catalog.begin() as transaction:
                transaction.write("sales", pa.table(rows, schema))
    return cli
