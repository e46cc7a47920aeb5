"""Tables with up to a million files, created once and kept in build/bench/cache.

Only DuckLake opens data files to plan a query, so only the files that match the predicates are
written.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.contenders import deltasql
from benchmarks.ducklake import COLUMNS, DuckLake
from benchmarks.harness import print_progress
from benchmarks.ours import Deltasql
from benchmarks.peers import Deltalake, add_json
from benchmarks.workload import (
    MODIFIED_MS,
    ROWS_PER_FILE,
    SCHEMA,
    STRIDE,
    batch,
    facts,
    predicates,
)
from benchmarks.workspace import CACHE

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

    from benchmarks.workload import Facts
    from benchmarks.workspace import Workspace

FILES_PER_COMMIT = 100_000
Table: TypeAlias = Deltalake | Deltasql | DuckLake


def deltalake_table(files: int) -> Deltalake:
    """Return a deltalake table of this size: commits of 100,000 files, then a checkpoint."""
    folder = CACHE / f"deltalake-{files}"
    done = folder / "done"
    table = Deltalake(folder)
    if done.exists():
        return table
    print_progress(f"  making deltalake's table of {files:,} files")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    table.create(1)
    log = folder / "t0" / "_delta_log"
    info = {"timestamp": MODIFIED_MS, "operation": "WRITE", "clientVersion": "delta-rs"}
    for version, first in enumerate(range(0, files, FILES_PER_COMMIT), 1):
        with (log / f"{version:020d}.json").open("w") as file:
            file.write(json.dumps({"commitInfo": info}))
            for number in range(first, min(first + FILES_PER_COMMIT, files)):
                file.write("\n" + json.dumps({"add": add_json(facts(number, files))}))
    table.checkpoint(0)
    done.touch()
    return table


def deltasql_table(workspace: Workspace, backend: str, files: int) -> Deltasql:
    """Return a deltasql table of this size: that of the bulk scenario if it ran, or a new one."""
    made = workspace.datasets.get((f"deltasql-{backend}", files))
    if isinstance(made, Deltasql):
        return made
    contender = deltasql(workspace, backend)
    print_progress(f"  making {contender.name}'s table of {files:,} files")
    contender.create(1)
    for first in range(0, files, FILES_PER_COMMIT):
        count = min(FILES_PER_COMMIT, files - first)
        contender.commit(0, contender.native(batch(first, count, files)))
    contender.close()
    workspace.datasets[contender.name, files] = contender
    return contender


def ducklake_table(workspace: Workspace, backend: str, files: int) -> DuckLake:
    """Return a DuckLake table of this size.

    Registering a million files with `ducklake_add_data_files` would need a million Parquet files.
    Instead, the metadata rows that its own inserts create are inserted directly.
    """
    folder = CACHE / f"ducklake-{backend}-{files}"
    database = f"cache_ducklake_{files}"
    table = DuckLake(backend, folder).on_database(database)
    done = folder / "done"
    if done.exists() and (backend != "postgres" or workspace.cached_database(database)[1]):
        return table
    print_progress(f"  making DuckLake's table of {files:,} files on {backend}")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "data").mkdir(parents=True)
    if backend == "postgres":
        workspace.drop_database(database)
        workspace.cached_database(database)
    table.connect()
    sizes = _write_matching_files(folder / "data" / "main" / "t0", files)
    table.connection.register("real_files", sizes)
    _fill_ducklake(table.connection, files)
    _check_ducklake(table.connection, files)
    table.close()
    done.touch()
    return table


def writable_copy(workspace: Workspace, table: Table) -> Table:
    """Copy a table, without its data files, so that commits do not change the original."""
    copy = table.unconnected()
    copy.folder = workspace.new_folder(f"copy-{table.name}")
    ignored = shutil.ignore_patterns("data")
    shutil.copytree(table.folder, copy.folder, ignore=ignored, dirs_exist_ok=True)
    if isinstance(copy, DuckLake):
        copy.style = "parquet"  # each commit adds a file, as in the other systems
    if not isinstance(copy, Deltalake) and copy.database:
        copy.database = workspace.new_database(template=copy.database)
    return copy


def parquet_files(count: int) -> Path:
    """Return a folder with this many small Parquet files."""
    folder = CACHE / f"parquet-{count}" / "t0"
    done = folder.parent / "done"
    if not done.exists():
        print_progress(f"  writing {count:,} Parquet files")
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pq.write_table(_rows(facts(number, count)), folder / f"part-{number:05d}.parquet")
        done.touch()
    return folder


def _fill_ducklake(db: duckdb.DuckDBPyConnection, files: int) -> None:
    meta = "__ducklake_metadata_lake"
    db.execute(f"CREATE TABLE lake.t0 {COLUMNS}")
    db.execute("ALTER TABLE lake.t0 SET PARTITIONED BY (day)")
    partition_id, table_id = db.execute(
        f"SELECT partition_id, table_id FROM {meta}.ducklake_partition_info"
    ).fetchone() or (0, 0)
    snapshot_id, schema_version, next_catalog_id = db.execute(
        f"SELECT snapshot_id, schema_version, next_catalog_id FROM {meta}.ducklake_snapshot"
        " ORDER BY snapshot_id DESC LIMIT 1"
    ).fetchone() or (0, 0, 0)
    new = snapshot_id + 1
    db.execute("BEGIN")
    db.execute(
        f"INSERT INTO {meta}.ducklake_snapshot VALUES"
        f" ({new}, now(), {schema_version}, {next_catalog_id}, {files})"
    )
    db.execute(
        f"INSERT INTO {meta}.ducklake_snapshot_changes VALUES"
        f" ({new}, 'inserted_into_table:{table_id}', NULL, NULL, NULL)"
    )
    db.execute(
        f"""INSERT INTO {meta}.ducklake_data_file
        SELECT i, {table_id}, {new}, NULL, NULL, {_path(files)}, true, 'parquet', {ROWS_PER_FILE},
          coalesce(size, 1000000 + i % 4096), coalesce(footer_size, 900), i * {ROWS_PER_FILE},
          {partition_id}, NULL, NULL, NULL
        FROM range({files}) r (i) LEFT JOIN real_files ON number = i ORDER BY i"""
    )
    db.execute(
        f"""INSERT INTO {meta}.ducklake_file_partition_value
        SELECT i, {table_id}, 0, {_day(files)} FROM range({files}) r (i)"""
    )
    amount = "(i * 7 % 1000)::DOUBLE"
    slot = f"(i * {STRIDE} % {files} * {ROWS_PER_FILE})"
    bounds = {
        1: (_day(files), _day(files)),
        2: (f"i * {ROWS_PER_FILE}", f"i * {ROWS_PER_FILE} + {ROWS_PER_FILE - 1}"),
        3: (slot, f"{slot} + {ROWS_PER_FILE - 1}"),
        4: (amount, f"{amount} + 5000.5"),
    }
    last = files * ROWS_PER_FILE - 1
    ends = {1: ("d0000", "d0999"), 2: (0, last), 3: (0, last), 4: (0.0, 5999.5)}
    for column_id, (low, high) in bounds.items():
        nan = "false" if column_id == 4 else "NULL"
        db.execute(
            f"""INSERT INTO {meta}.ducklake_file_column_stats
            SELECT i, {table_id}, {column_id}, 4000, {ROWS_PER_FILE}, 0,
              ({low})::VARCHAR, ({high})::VARCHAR, {nan}, NULL
            FROM range({files}) r (i)"""
        )
        least, most = ends[column_id]
        db.execute(
            f"INSERT INTO {meta}.ducklake_table_column_stats VALUES"
            f" ({table_id}, {column_id}, false, {nan}, '{least}', '{most}', NULL)"
        )
    rows = files * ROWS_PER_FILE
    db.execute(
        f"INSERT INTO {meta}.ducklake_table_stats VALUES"
        f" ({table_id}, {rows}, {rows}, {files * 1_000_000})"
    )
    db.execute("COMMIT")


def _day(files: int) -> str:
    return f"format('d{{:04d}}', i * 1000 // {files})"


def _path(files: int) -> str:
    return (
        f"format('day={{}}/ducklake-01a1ddd3-9034-7f41-b843-{{:012d}}.parquet', {_day(files)}, i)"
    )


def _write_matching_files(folder: Path, files: int) -> pa.Table:
    """Write the files that match the predicates, and return their sizes."""
    sizes: list[dict[str, int]] = []
    wanted = {number for predicate in predicates(files) for number in predicate.files}
    for number in sorted(wanted):
        file = facts(number, files)
        path = (
            folder / f"day={file.day}" / f"ducklake-01a1ddd3-9034-7f41-b843-{number:012d}.parquet"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(_rows(file), path)
        with path.open("rb") as written:
            written.seek(-8, 2)
            footer_size = int.from_bytes(written.read(4), "little")
        size = path.stat().st_size
        sizes.append({"number": number, "size": size, "footer_size": footer_size})
    return pa.Table.from_pylist(sizes)


def _rows(file: Facts) -> pa.Table:
    """Return the rows of a file, with the column ids that DuckLake's own files have."""
    fields = [
        field.with_metadata({"PARQUET:field_id": str(number)})
        for number, field in enumerate(SCHEMA, 1)
    ]
    (id_low, id_high), (code_low, code_high), (amount, _) = file.bounds
    columns = {
        "day": [file.day] * ROWS_PER_FILE,
        "id": range(int(id_low), int(id_high) + 1),
        "code": range(int(code_low), int(code_high) + 1),
        "amount": [amount] * ROWS_PER_FILE,
    }
    return pa.table(columns, schema=pa.schema(fields))


def _check_ducklake(db: duckdb.DuckDBPyConnection, files: int) -> None:
    """Fail unless DuckLake finds every matching row and skips all other files."""
    for predicate in predicates(files):
        found = db.execute(f"SELECT count(id) FROM lake.t0 WHERE {predicate.sql}").fetchone()
        if found != (len(predicate.files) * ROWS_PER_FILE,):
            raise RuntimeError(f"DuckLake finds {found} rows where {predicate.sql}")
