"""A DuckDB catalog file is updated atomically, and blocks neither readers nor writers."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

import deltasql
from deltasql.exceptions import MissingDriverError, TxnLogConfigError, TxnLogMirrorError
from deltasql.mirror.duckdb import catalog_file
from deltasql.mirror.duckdb import refresh as duckdb_refresh
from tests.conftest import new_catalog_uri
from tests.mirror.duckdb_support import IDS, append, elsewhere, view_rows, views
from tests.mirror.support import open_mirrored
from tests.oracles.deletion_vectors import inline_vector
from tests.oracles.writing import create

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.duckdb"


# When it is updated


def test_commit_of_two_tables_updates_the_views_atomically(lake: Catalog, path: Path) -> None:
    for name in ("a", "b"):
        lake.create_table(name, IDS)
    deltasql.mirror_duckdb(lake, path)
    copies = []
    replace_file = os.replace

    def record_replace(source: Any, target: Any) -> None:
        replace_file(source, target)
        if Path(target) == path:
            copies.append(
                elsewhere(path, "SELECT count(*) FROM a UNION ALL SELECT count(*) FROM b")
            )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duckdb_refresh.os, "replace", record_replace)
        with lake.begin() as tx:
            tx.write("a", pa.table({"id": [1]}))
            tx.write("b", pa.table({"id": [1]}))
    assert copies == [[(1,), (1,)]]


def test_views_follow_create_rename_drop_and_undrop(lake: Catalog, path: Path) -> None:
    deltasql.mirror_duckdb(lake, path)
    lake.create_table("one", IDS)
    append(lake, "one", 1)
    assert elsewhere(path, "SELECT * FROM one") == [(1,)]
    lake.rename("one", "crm.two")
    assert views(path) == {"crm.two"}
    lake.create_table("one", IDS)
    assert views(path) == {"crm.two", "main.one", "default.one"}
    lake.drop("crm.two")
    assert views(path) == {"main.one", "default.one"}
    lake.undrop("crm.two")
    assert elsewhere(path, "SELECT * FROM crm.two") == [(1,)]


def test_only_selected_tables_have_views(lake: Catalog, path: Path) -> None:
    for name in ("a", "b"):
        lake.create_table(name, IDS)
    assert deltasql.mirror_duckdb(lake, path, tables=["a"]) == {"a": 0}
    lake.create_table("c", IDS)
    append(lake, "a", 1)
    append(lake, "b", 1)
    assert views(path) == {"main.a", "default.a"}
    assert [target.kind for target in lake.mirror.targets("b")] == ["delta"]
    assert deltasql.mirror_duckdb(lake, path) == {"a": 1, "b": 1, "c": 0}


def test_two_catalog_files_can_be_maintained(lake: Catalog, path: Path) -> None:
    other = path.with_name("other.duckdb")
    lake.create_table("t", IDS)
    for each in (path, other):
        deltasql.mirror_duckdb(lake, each)
    append(lake, "t", 5)
    assert [elsewhere(each, "FROM t") for each in (path, other)] == [[(5,)], [(5,)]]


def test_every_database_can_maintain_a_catalog_file(
    catalog_uri: DeltaSqlUri, tmp_path: Path, path: Path
) -> None:
    with open_mirrored(catalog_uri, tmp_path / "lake") as catalog:
        deltasql.mirror_duckdb(catalog, path)
        catalog.create_table("t", IDS)
        append(catalog, "t", 1, 2)
        assert elsewhere(path, "SELECT sum(id) FROM t") == [(3,)]
        states = {each.target: each.state for each in catalog.mirror.status("t")}
        assert states == {"table": "ACTIVE", f"duckdb:{path}": "ACTIVE"}


# Concurrent readers and writers


def test_open_reader_does_not_block_updates_and_keeps_its_view(lake: Catalog, path: Path) -> None:
    lake.create_table("t", IDS)
    append(lake, "t", 1)
    deltasql.mirror_duckdb(lake, path)
    code = (
        "import duckdb, sys; db = duckdb.connect(sys.argv[1])\n"
        "for line in sys.stdin: print(*db.execute('SELECT count(*) FROM t').fetchone(), flush=True)"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        for _ in range(2):
            reader.stdin.write("\n")
            reader.stdin.flush()
            assert reader.stdout.readline() == "1\n"
            append(lake, "t", 2)
        reader.stdin.close()
    assert elsewhere(path, "SELECT count(*) FROM t") == [(3,)]


def test_concurrent_updates_of_the_catalog_file_lose_nothing(
    lake: Catalog, sqlite_uri: DeltaSqlUri, path: Path
) -> None:
    names = ["a", "b", "c"]
    for name in names:
        lake.create_table(name, IDS)
    deltasql.mirror_duckdb(lake, path)
    code = (
        "import deltasql, pyarrow as pa, sys\n"
        "from deltasql.mirror.duckdb import refresh\n"
        "refresh._LOCK_TIMEOUT_S = 200\n"  # three processes wait for each other on a busy machine
        "with deltasql.connect(sys.argv[1]) as catalog:\n"
        "    for number in range(4):\n"
        "        with catalog.begin() as tx: tx.write(sys.argv[2], pa.table({'id': [number]}))"
    )
    commands = [[sys.executable, "-c", code, sqlite_uri.to_string(), name] for name in names]
    workers = [subprocess.Popen(command) for command in commands]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    counts = " UNION ALL ".join(f"SELECT count(*) FROM {name}" for name in names)
    assert elsewhere(path, counts) == [(4,), (4,), (4,)]
    assert [file.name for file in path.parent.iterdir() if file.suffix == ".tmp"] == []


def test_locked_catalog_file_is_a_failure_and_is_retried(
    lake: Catalog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create_table("t", IDS)
    deltasql.mirror_duckdb(lake, path)
    monkeypatch.setattr(duckdb_refresh, "_LOCK_TIMEOUT_S", 0.05)
    with path.with_name(f".{path.name}.lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        append(lake, "t", 1)
    assert elsewhere(path, "SELECT count(*) FROM t") == [(0,)]
    [own, view] = lake.mirror.status("t")
    assert (own.state, own.published_version) == ("ACTIVE", 1)
    assert (view.state, view.pending) == ("FAILED", 1)
    assert "another process has been updating" in str(view.last_error)
    assert lake.mirror.publish("t") == 1
    assert elsewhere(path, "SELECT count(*) FROM t") == [(1,)]


def test_wal_of_another_writer_is_not_replayed(lake: Catalog, path: Path) -> None:
    lake.create_table("t", IDS)
    deltasql.mirror_duckdb(lake, path)
    code = (
        "import duckdb, os, sys; db = duckdb.connect(sys.argv[1]); "
        "db.execute('CREATE TABLE mine AS SELECT 1'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert path.with_name(f"{path.name}.wal").exists()
    append(lake, "t", 1)
    assert (
        elsewhere(path, "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main'") == []
    )
    assert elsewhere(path, "FROM t") == [(1,)]


@pytest.mark.everything("many commits to one file")
def test_catalog_file_does_not_grow_with_commits(lake: Catalog, path: Path) -> None:
    lake.create_table("t", IDS)
    deltasql.mirror_duckdb(lake, path)
    append(lake, "t", 1)
    size = path.stat().st_size
    for _ in range(30):
        with lake.begin() as tx:
            tx.write("t", pa.table({"id": [1]}), mode="overwrite")
    assert path.stat().st_size <= 4 * size


# Limits and errors


def test_table_without_a_view_does_not_block_others(lake: Catalog, path: Path) -> None:
    deltasql.mirror_duckdb(lake, path)
    lake.create_table("t", IDS)
    variant = (
        '{"type":"struct","fields":[{"name":"v","type":"variant","nullable":true,"metadata":{}}]}'
    )
    lake.create_table("odd", variant)
    append(lake, "t", 1)
    assert elsewhere(path, "FROM t") == [(1,)]
    [(error,)] = elsewhere(path, "SELECT error FROM deltasql.tables WHERE name = 'odd'")
    assert "columns of type variant" in error
    states = {each.table: each.state for each in lake.mirror.status() if each.kind == "duckdb"}
    assert states == {"t": "ACTIVE", "odd": "FAILED"}
    with pytest.raises(TxnLogMirrorError, match=r"views of odd could not be created"):
        deltasql.mirror_duckdb(lake, path)


def test_missing_data_file_is_reported_and_the_old_view_stays(lake: Catalog, path: Path) -> None:
    written = create(lake, "t", IDS)
    written.append([{"id": 1}])
    deltasql.mirror_duckdb(lake, path)
    file = written.file(pa.table({"id": [2]}), name="late.parquet")
    late = Path(written.table.location) / "late.parquet"
    away = late.rename(late.with_suffix(".away"))
    written.stage([file], [{"id": 1}, {"id": 2}])
    assert elsewhere(path, "FROM t") == [(1,)]
    [(version, error)] = elsewhere(path, "SELECT version, error FROM deltasql.tables")
    assert (version, "late.parquet" in error) == (2, True)
    away.rename(late)
    lake.mirror.publish()
    assert view_rows(path, "t") == written.states[-1]


def test_names_that_collide_in_duckdb_are_an_error(lake: Catalog, path: Path) -> None:
    for name in ("sales", "Sales", "main.sales", "deltasql.sales"):
        lake.create_table(name, IDS)
    append(lake, "sales", 1)
    with pytest.raises(TxnLogMirrorError) as caught:
        deltasql.mirror_duckdb(lake, path)
    assert caught.value.table == "Sales, deltasql.sales, main.sales"
    assert elsewhere(path, "FROM sales") == [(1,)]
    lake.drop("Sales")
    assert elsewhere(path, "FROM sales") == [(1,)]
    lake.drop("sales")
    append(lake, "main.sales", 7)
    assert elsewhere(path, "FROM sales") == [(7,)]


def test_other_duckdb_database_is_not_overwritten(lake: Catalog, path: Path) -> None:
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE mine AS SELECT 1 AS x")
    text = path.with_name("notes.txt")
    text.write_text("not a database")
    with pytest.raises(TxnLogMirrorError, match="did not create"):
        deltasql.mirror_duckdb(lake, path)
    with pytest.raises(TxnLogMirrorError, match="cannot be opened"):
        deltasql.mirror_duckdb(lake, text)
    assert elsewhere(path, "FROM mine") == [(1,)]
    assert text.read_text() == "not a database"
    with pytest.raises(TxnLogConfigError, match="local"):
        deltasql.mirror_duckdb(lake, "s3://bucket/catalog.duckdb")


def test_file_of_another_catalog_is_not_overwritten(
    lake: Catalog, path: Path, tmp_path: Path
) -> None:
    lake.create_table("t", IDS)
    deltasql.mirror_duckdb(lake, path)
    [other] = new_catalog_uri("sqlite", tmp_path / "other")
    with open_mirrored(other, tmp_path / "other") as catalog:
        catalog.create_table("u", IDS)
        with pytest.raises(TxnLogMirrorError, match="another catalog"):
            deltasql.mirror_duckdb(catalog, path)
    assert views(path) == {"main.t", "default.t"}


def test_missing_duckdb_error_names_the_install_command(
    lake: Catalog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingDriverError, match=r"pip install 'deltasql\[duckdb\]'"):
        catalog_file.CatalogFile.open(path)


def test_damaged_deletion_vector_is_an_error_of_the_view(lake: Catalog, path: Path) -> None:
    written = create(lake, "t", IDS, properties={"delta.enableDeletionVectors": "true"})
    deltasql.mirror_duckdb(lake, path)
    wrong = replace(inline_vector([0, 1]), cardinality=77)
    file = written.file(pa.table({"id": [1, 2, 3]}), deletion_vector=wrong)
    written.stage([file], [{"id": 3}])
    [(error,)] = elsewhere(path, "SELECT error FROM deltasql.tables")
    assert "the log says 77" in str(error)


def test_single_table_can_have_a_catalog_file_as_target(lake: Catalog, path: Path) -> None:
    for name in ("a", "b"):
        lake.create_table(name, IDS)
    lake.mirror.add_target("a", "views", str(path), kind="duckdb")
    assert lake.mirror.publish() == 1
    append(lake, "b", 1)
    append(lake, "a", 1)
    assert views(path) == {"main.a", "default.a"}
    path.unlink()
    append(lake, "a", 2)
    assert elsewhere(path, "SELECT sum(id) FROM a") == [(3,)]
