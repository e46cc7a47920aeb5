"""Engines share a DuckDB instance without affecting each other."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest

from deltasql.config import Config, EngineSettings
from deltasql.engine.duckdb import connection as duckdb_shared
from deltasql.engine.duckdb.connection import open_database
from deltasql.engine.duckdb.engine import DuckDbEngine
from deltasql.exceptions import MissingDriverError

if TYPE_CHECKING:
    from deltasql import Catalog
    from deltasql.engine.duckdb.connection import EngineDatabase

SETTINGS = EngineSettings(memory_limit="100MB", threads=2)  # used by no other test


def select_seven(lent: EngineDatabase) -> object:
    found = lent.connection.execute("SELECT 7").fetchone()
    return None if found is None else found[0]


@pytest.fixture(autouse=True)
def _nothing_is_left() -> None:
    duckdb_shared.close_idle()


FORKS_IN_USE = """
import os, sys
from deltasql.config import EngineSettings
from deltasql.engine.duckdb.connection import open_database
lent = open_database(EngineSettings(threads=2))
lent.connection.execute("CREATE TABLE t AS SELECT range AS n FROM range(1000000)")
child = os.fork()
if not child:
    own = open_database(EngineSettings(threads=2))
    assert own._instance is not lent._instance
    assert own.connection.execute("SELECT sum(range) FROM range(1000000)").fetchone()
    own.release()
    lent.release()
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert lent.connection.execute("SELECT count(*) FROM t").fetchone() == (1000000,)
lent.release()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_forked_child_does_not_affect_the_engine_of_its_parent() -> None:
    subprocess.run([sys.executable, "-c", FORKS_IN_USE], check=True, timeout=60)


def test_instance_can_be_released_while_the_lock_is_held() -> None:
    lent = open_database(SETTINGS)
    with duckdb_shared._lock:
        lent.release()
    assert lent._instance.users == 0


def test_instance_is_discarded_if_a_table_cannot_be_dropped() -> None:
    broken, other = open_database(SETTINGS), open_database(SETTINGS)
    broken.release({"t": "DROP TABLE no_such_table"})
    assert select_seven(other) == 7
    assert Path(broken._instance.folder).is_dir()
    fresh = open_database(SETTINGS)
    assert fresh._instance is not other._instance
    other.release()
    assert not Path(other._instance.folder).exists()
    with pytest.raises(duckdb.Error):
        other._instance.root.execute("SELECT 1")
    assert select_seven(fresh) == 7
    fresh.release()


def test_closed_engine_drops_its_tables() -> None:
    watcher = open_database(SETTINGS)
    tables = "SELECT count(*) FROM duckdb_tables()"
    before = watcher.connection.execute(tables).fetchone()
    with DuckDbEngine(Config(engine=SETTINGS)) as engine:
        kept = engine.keep(engine.rows(pa.table({"id": [1, 2]})))
        assert watcher.connection.execute(tables).fetchone() != before
        assert engine.collect(kept)["id"].to_pylist() == [1, 2]
    assert watcher.connection.execute(tables).fetchone() == before
    watcher.release()


def test_error_without_duckdb_gives_the_install_command(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['duckdb'] = None\n"
        "import deltasql, pyarrow as pa\n"
        "from deltasql.exceptions import MissingDriverError\n"
        f"uri = 'deltasql://sqlite/{tmp_path}/meta.db?table=t'\n"
        "deltasql.write_deltalake(uri, pa.table({'id': [1]}))\n"
        "try: deltasql.DeltaTable(uri).update({'id': 'id + 1'})\n"
        "except MissingDriverError as error: print(error.help)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == MissingDriverError(extra="duckdb").help


def test_spark_extra_includes_duckdb() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    assert set(extras["duckdb"]) <= set(extras["spark"])


def test_garbage_collected_transaction_releases_its_engine(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("t", pa.table({"id": range(500_000)}))
    before = users()
    forgotten = catalog.begin()
    forgotten.read("t")
    assert users() == before + 1
    del forgotten
    gc.collect()
    assert users() == before
    rows = catalog.begin().read_batches(
        "t"
    )  # the rows can be read although the transaction is garbage
    gc.collect()
    assert users() == before
    assert rows.read_all().num_rows == 500_000


def users() -> int:
    return sum(each.users for each in duckdb_shared._instances.values())
