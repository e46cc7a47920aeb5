"""Statements and memory do not grow with the size of a catalog."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import deltasql
from tests.conftest import BACKENDS, add_file, new_catalog_uri
from tests.counting import counting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri
    from tests.counting import Statements

pytestmark = pytest.mark.two_databases

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
_new = itertools.count()


def files(number: int, days: int) -> list[deltasql.AddFile]:
    return [
        add_file(
            f"{next(_new)}.parquet", i * 10, i * 10 + 9, partition_values={"day": f"d{i % days}"}
        )
        for i in range(number)
    ]


class Grown:
    """A catalog with 10 * `scale` tables; the first has 8 * `scale` commits and a delete.

    Every operation is counted in a newly opened catalog, so nothing is cached.
    """

    def __init__(self, uri: DeltaSqlUri, folder: Path, scale: int) -> None:
        self.uri, self.scale = uri, scale
        self.settings = {"mirror": {"mode": "off"}, "table": {"data_root": str(folder)}}
        with self.open() as catalog:
            with catalog.begin() as tx:
                for number in range(10 * scale):
                    tx.create_table(f"t{number}", SCHEMA, partition_by="day")
            for _ in range(8 * scale):
                with catalog.begin() as tx:
                    tx.stage_table("t0", files(10, 3 * scale))
            paths = catalog.table("t0").snapshot().file_paths()["path"].to_pylist()
            gone = [deltasql.RemoveFile(path, deletion_timestamp=1) for path in paths[: 20 * scale]]
            with catalog.begin() as tx:
                tx.stage_table("t0", gone, operation="DELETE")

    def open(self) -> Catalog:
        return deltasql.connect(self.uri, **self.settings)

    def count(self, operate: Callable[[Catalog], object]) -> Statements:
        """Return the statements that an operation sends, including connecting."""
        with counting() as sent, self.open() as catalog:
            operate(catalog)
        return sent


@pytest.fixture(scope="module", params=BACKENDS)
def grown(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Grown, Grown]]:
    """Yield two catalogs, one ten times as large as the other."""
    places = [tmp_path_factory.mktemp(name) for name in ("small", "large")]
    small, large = (new_catalog_uri(request.param, place) for place in places)
    yield (
        Grown(next(small), places[0] / "lake", 1),
        Grown(next(large), places[1] / "lake", 10),
    )
    for each in (small, large):
        next(each, None)


def open_table(catalog: Catalog) -> object:
    snapshot = catalog.table("t0").snapshot()
    return snapshot.schema, snapshot.protocol


def append(catalog: Catalog, tables: int = 1) -> None:
    with catalog.begin() as tx:
        for number in range(tables):
            tx.stage_table(f"t{number}", files(1, 1))


def append_rows(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("t0", pa.table({"id": [1], "day": ["d0"]}, SCHEMA))


NOW: dict[str, Any] = {"retention_hours": 0, "enforce_retention_duration": False}
# Run in this order on both catalogs: each operation changes the state for the next one. The
# number is the maximum on any backend; two of the statements check the applied migrations.
OPERATIONS: dict[str, tuple[int, Callable[[Catalog], object]]] = {
    "open": (6, open_table),
    "plan by partition": (8, lambda catalog: catalog.table("t0").scan("day = 'd1'").paths()),
    "plan by range": (10, lambda catalog: catalog.table("t0").scan("id < 30").paths()),
    "list all files": (6, lambda catalog: catalog.table("t0").files()),
    # The first commit of a process checks whether the log is ahead of the database.
    "append": (16, append),
    "append rows": (21, append_rows),
    "history page": (4, lambda catalog: catalog.inspect.history("t0", limit=5)),
    "list tables": (3, lambda catalog: catalog.tables()),
    "page of tables": (4, lambda catalog: catalog.inspect.tables(limit=10)),
    "catalog overview": (6, lambda catalog: catalog.inspect.overview(limit=10)),
    "health": (4, lambda catalog: catalog.health()),
    "describe": (7, lambda catalog: catalog.describe("t0")),
    "page of files": (8, lambda catalog: catalog.inspect.files("t0", limit=10)),
    "figures": (11, lambda catalog: catalog.inspect.stats("t0")),
    # One statement checks that the versions that were read have not expired.
    "publish": (42, lambda catalog: catalog.mirror.publish("t0")),
    "publish nothing": (4, lambda catalog: catalog.mirror.publish("t0")),
    "checkpoint": (16, lambda catalog: catalog.mirror.checkpoint("t0")),
    "mirror status": (3, lambda catalog: catalog.mirror.status(files=False)),
    # The newest commits of each published table are compared with their files.
    "mirror status with files": (14, lambda catalog: catalog.mirror.status()),
    # Both look for tables that are inside, around or cloned from the folder.
    "vacuum, dry run": (18, lambda catalog: catalog.vacuum("t0", **NOW)),
    # Two of the statements read the kept versions from the last VACUUM START and VACUUM END.
    "vacuum": (49, lambda catalog: catalog.vacuum("t0", dry_run=False, **NOW)),
    "advice": (10, lambda catalog: catalog.inspect.advice("t0")),
}


def test_number_of_statements_does_not_depend_on_the_size_of_the_catalog(
    grown: tuple[Grown, Grown],
) -> None:
    small, large = grown
    for name, (most, operate) in OPERATIONS.items():
        few, many = small.count(operate), large.count(operate)
        assert len(few) == len(many) <= most, (
            name,
            few.counts_by_statement(),
            many.counts_by_statement(),
        )


def test_each_table_of_a_transaction_adds_few_statements(grown: tuple[Grown, Grown]) -> None:
    sent = {}
    with grown[1].open() as catalog:
        append(catalog, 100)  # fills the caches
        for tables in (1, 2, 10, 100):
            with counting() as counted:
                append(catalog, tables)
            sent[tables] = len(counted)
    # BEGIN, the lock and COMMIT are shared; a single table may take fewer statements.
    each, rest = divmod(sent[10] - sent[2], 8)
    assert (each <= 5, rest) == (True, 0), sent
    assert sent[100] == sent[10] + 90 * each, sent
    assert sent[1] <= sent[2] <= 3 + 2 * each, sent


# Measures the peak memory growth of each operation in a new process. Each operation runs
# once before, so that late imports are not counted.
GROWTH = """
import gc, json, sys
from pathlib import Path
import deltasql

def memory(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))

operations = {
    "history page": lambda catalog, table: catalog.inspect.history(table, limit=50),
    "open and plan": lambda catalog, table: catalog.table(table).scan("id < 500").paths(),
    "checkpoint": lambda catalog, table: catalog.mirror.checkpoint(table),
}
grown = {name: {} for name in operations}
for table in ("small", "small", "large"):
    for name, operate in operations.items():
        with deltasql.connect(sys.argv[1], mirror={"mode": "off"}) as catalog:
            gc.collect()
            Path("/proc/self/clear_refs").write_text("5")  # the highest mark is now what is used
            before = memory("VmRSS")
            operate(catalog, table)
            grown[name][table] = memory("VmHWM") - before
print(json.dumps(grown))
"""
# Megabytes that 200,000 files may need more than 2,000; as Python objects they would need 150.
MORE_MB = {"history page": 4, "open and plan": 8, "checkpoint": 80}


@pytest.mark.everything("half a minute of writing")
@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux reports the peak of the memory"
)
def test_memory_does_not_grow_with_the_files_of_a_table(
    sqlite_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    settings = {"mirror": {"mode": "off"}, "table": {"data_root": str(tmp_path / "lake")}}
    with deltasql.connect(sqlite_uri, **settings) as catalog:
        for table, commits, number in (("small", 4, 500), ("large", 4, 50_000)):
            catalog.create_table(table, SCHEMA, partition_by="day")
            for _ in range(commits):
                with catalog.begin() as tx:
                    tx.stage_table(table, files(number, 20))
            catalog.mirror.publish(table)
    command = [sys.executable, "-c", GROWTH, sqlite_uri.to_string()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for name, grown in json.loads(done.stdout).items():
        assert grown["large"] <= grown["small"] + MORE_MB[name], (name, grown)
