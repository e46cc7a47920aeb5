"""A table with thousands of small data files, for scans that read a few of them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import deltasql
from benchmarks.contenders import deltalake, ducklake
from benchmarks.contenders import deltasql as ours
from benchmarks.harness import print_progress, timed
from benchmarks.peers import add_json
from benchmarks.rows import DeltaRows
from benchmarks.workload import MODIFIED_MS, ROWS_PER_FILE, SCHEMA, batch, facts
from benchmarks.workspace import CACHE
from deltasql.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.workspace import Workspace


class Scanner:
    """Reads the rows of one percent of the files with one system."""

    def __init__(
        self,
        name: str,
        backend: str,
        files: int,
        read: Callable[[int, int], int],
        close: Callable[[], object] = lambda: None,
    ) -> None:
        self.name, self.backend, self.close = name, backend, close
        share = max(1, files // 100)
        self._wanted = share * ROWS_PER_FILE
        self._low = files // 2 * ROWS_PER_FILE
        self._read = read

    def one(self) -> float:
        """Read once and return the seconds."""
        found: list[int] = []
        high = self._low + self._wanted - 1
        seconds = timed(lambda: found.append(self._read(self._low, high)))
        if found != [self._wanted]:
            raise RuntimeError(f"{self.name}: {found} rows instead of {self._wanted}")
        return seconds


def scanners(workspace: Workspace, files: int) -> list[Scanner]:
    """Create the same table in all systems and return a scanner for each."""
    sizes = _data(files)
    stock, mine = _deltalake(workspace, files, sizes), _deltasql(workspace, files, sizes)
    lake = _ducklake(workspace, files)
    connection: Any = lake.connection

    def duck(low: int, high: int) -> int:
        query = f"SELECT * FROM lake.t0 WHERE id BETWEEN {low} AND {high}"
        return len(connection.execute(query).fetch_arrow_table())

    return [
        Scanner(mine.name, mine.backend, files, mine.scan),
        Scanner(f"{mine.name}-query", mine.backend, files, mine.scan_sql),
        Scanner(stock.name, stock.backend, files, stock.scan),
        Scanner(f"{stock.name}-query", stock.backend, files, stock.scan_sql),
        Scanner(lake.name, lake.backend, files, duck, lake.close),
    ]


def _data(files: int) -> dict[str, int]:
    """Write the files once and return their sizes by name."""
    folder = CACHE / f"rows-{files}"
    done = folder / "done.json"
    if done.exists():
        found: dict[str, int] = json.loads(done.read_text())
        return found
    print_progress(f"  writing {files:,} files")
    shutil.rmtree(folder, ignore_errors=True)
    # As in Delta, the partition column is not in the files.
    schema = pa.schema([field for field in SCHEMA if field.name != "day"])
    sizes = {}
    for number in range(files):
        each = facts(number, files)
        (id_low, id_high), (code_low, code_high), (amount, high) = each.bounds
        step = (high - amount) / (ROWS_PER_FILE - 1)
        table = pa.table(
            {
                "id": range(int(id_low), int(id_high) + 1),
                "code": range(int(code_low), int(code_high) + 1),
                "amount": [amount + step * place for place in range(ROWS_PER_FILE)],
            },
            schema=schema,
        )
        path = folder / each.path
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
        sizes[each.path] = path.stat().st_size
    done.write_text(json.dumps(sizes))
    return sizes


def _link(files: int, target: Path) -> None:
    """Add the files to a table's folder as hard links, without copying them."""
    source = CACHE / f"rows-{files}"
    for path in source.rglob("*.parquet"):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, place)


def _deltalake(workspace: Workspace, files: int, sizes: dict[str, int]) -> DeltaRows:
    table = deltalake(workspace)
    table.create(1)
    root = Path(table.path(0))
    _link(files, root)
    info = {"timestamp": MODIFIED_MS, "operation": "WRITE", "clientVersion": "delta-rs"}
    lines: list[dict[str, Any]] = [{"commitInfo": info}]
    for each in batch(0, files, files):
        lines.append({"add": add_json(each._replace(size=sizes[each.path]))})
    log = root / "_delta_log" / f"{1:020d}.json"
    log.write_text("\n".join(json.dumps(line) for line in lines))
    table.checkpoint(0)
    return DeltaRows("deltalake", "path", str(root))


def _deltasql(workspace: Workspace, files: int, sizes: dict[str, int]) -> DeltaRows:
    table = ours(workspace, "sqlite", mirror="sync")
    table.create(1)
    _link(files, table.folder / "data" / "t0")
    given = [each._replace(size=sizes[each.path]) for each in batch(0, files, files)]
    table.commit(0, table.native(given))
    table.close()
    uri = parse_uri(table.uri).with_table("t0").to_string()
    deltasql.DeltaTable(uri).version()
    return DeltaRows("deltasql-sqlite", "sqlite", uri)


def _ducklake(workspace: Workspace, files: int) -> Any:
    """Return DuckLake with the files registered in place; the partition column is null."""
    lake = ducklake(workspace, "sqlite")
    lake.create(1)
    _link(files, lake.folder / "taken")
    lake.connection.execute(
        f"CALL ducklake_add_data_files('lake', 't0', '{lake.folder}/taken/*/*.parquet', "
        "hive_partitioning => true, allow_missing => true)"
    )
    return lake
