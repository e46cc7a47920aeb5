"""The command line on a catalog of every database, with a table to work at."""

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
    """Calls the command line on one catalog."""

    uri: str

    def __call__(self, *words: str, wanted: int = 0, answer: str | None = None) -> Result:
        result = CliRunner().invoke(main, ["--uri", self.uri, *words], input=answer)
        assert result.exit_code == wanted, result.output
        return result

    def json(self, *words: str) -> Any:
        return json.loads(self("--format", "json", *words).stdout)


@pytest.fixture
def cli(catalog_uri: DeltaSqlUri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line on an empty catalog; new tables go under the test's folder."""
    monkeypatch.delenv("DELTASQL_URI", raising=False)
    monkeypatch.setenv("DELTASQL_TABLE__DATA_ROOT", str(tmp_path / "lake"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Cli(catalog_uri.to_string())


@pytest.fixture
def sales(cli: Cli) -> Cli:
    """The same with the table `sales`: 0 is empty, 1 has the ids 0 and 1, 2 has 2 and 3 too."""
    schema = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("day", pa.date32())])
    with deltasql.connect(cli.uri) as catalog:
        catalog.create_table("sales", schema)
        for start in (0, 2):
            ids = [start, start + 1]
            rows = {"id": ids, "price": [each + 0.25 for each in ids], "day": [None, None]}
            with catalog.begin() as transaction:
                transaction.write("sales", pa.table(rows, schema))
    return cli
