"""Opening, listing and committing import no module that only other operations need."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import deltasql
from deltasql import AddFile

if TYPE_CHECKING:
    from tests.api.conftest import Address

# Each of these takes many milliseconds to import, or imports many modules.
HEAVY = (
    "adbc_driver_manager",
    "duckdb",
    "obstore",
    "pandas",
    "polars",
    "psycopg",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.fs",
    "pyarrow.json",
    "pyarrow.parquet",
    "pyspark",
    "sqlglot",
    "deltasql.api.inspect",
    "deltasql.engine.parquet.writer",
    "deltasql.migrate",
    "deltasql.mirror.checkpoint.write",
    "deltasql.mirror.log.read_checkpoint",
    "deltasql.operations.write",
)
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
FILES = 1_200  # enough for a bulk listing

OPEN_AND_LIST = """
snapshot = deltasql.connect(catalog).table("sales").snapshot()
assert list(snapshot.schema.names) == ["id"] and snapshot.protocol
assert len(snapshot.file_paths()) == 1_200
"""
COMMIT = """
file = deltasql.AddFile(path="new.parquet", partition_values={}, size=1, modification_time=0)
with deltasql.begin(catalog) as tx:
    tx.stage_table("sales", [file])
assert tx.versions == {"sales": 2}
"""
DELTA_TABLE = """
table = deltasql.DeltaTable(address)
assert table.version() == 1 and [field.name for field in table.schema().fields] == ["id"]
assert len(table.file_uris()) == 1_200
"""


def added(number: int) -> AddFile:
    return AddFile(path=f"{number}.parquet", partition_values={}, size=1, modification_time=0)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(OPEN_AND_LIST, id="open-and-list"),
        pytest.param(COMMIT, id="commit-a-staged-file"),
        pytest.param(DELTA_TABLE, id="delta-table"),
    ],
)
@pytest.mark.parametrize("mirror", ["off", "sync"])
def test_open_list_and_commit_import_no_heavy_module(
    code: str, mirror: str, sqlite_address: Address
) -> None:
    address = f"{sqlite_address('sales')}&mirror={mirror}"
    catalog = address.replace("table=sales&", "")
    with deltasql.connect(catalog) as opened:
        opened.create_table("sales", SCHEMA)
        with opened.begin() as tx:
            tx.stage_table("sales", [added(number) for number in range(FILES)])
    script = (
        "import sys, deltasql\ncatalog, address, *heavy = sys.argv[1:]\n"
        f"{code}\nprint(*sorted(set(heavy) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, catalog, address, *HEAVY],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")
