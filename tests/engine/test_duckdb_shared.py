"""Engines share a DuckDB, and none is harmed by what happens to another."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from deltasql.config import EngineSettings
from deltasql.engine import duckdb_shared
from deltasql.engine.duckdb_shared import lend
from deltasql.exceptions import MissingDriverError, TxnLogEngineError

if TYPE_CHECKING:
    from deltasql.engine.duckdb_shared import Lent

SETTINGS = EngineSettings(memory_limit="100MB", threads=2)  # of no other test


def answer(lent: Lent) -> object:
    found = lent.connection.execute("SELECT 7").fetchone()
    return None if found is None else found[0]


@pytest.fixture(autouse=True)
def _nothing_is_left() -> None:
    duckdb_shared.close_idle()


FORKS_IN_USE = """
import os, sys
from deltasql.config import EngineSettings
from deltasql.engine.duckdb_shared import lend
lent = lend(EngineSettings(threads=2))
lent.connection.execute("CREATE TABLE t AS SELECT range AS n FROM range(1000000)")
child = os.fork()
if not child:
    own = lend(EngineSettings(threads=2))
    assert own._instance is not lent._instance
    assert own.connection.execute("SELECT sum(range) FROM range(1000000)").fetchone()
    own.give_back()
    lent.give_back()
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert lent.connection.execute("SELECT count(*) FROM t").fetchone() == (1000000,)
lent.give_back()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_child_of_a_process_with_an_open_engine_ends_and_leaves_it_alone() -> None:
    subprocess.run([sys.executable, "-c", FORKS_IN_USE], check=True, timeout=60)


def test_lock_can_be_taken_again_by_what_the_garbage_collector_closes() -> None:
    lent = lend(SETTINGS)
    with duckdb_shared._lock:
        lent.give_back()
    assert lent._instance.users == 0


def test_database_that_cannot_be_detached_takes_its_instance_out_of_use() -> None:
    broken, other = lend(SETTINGS), lend(SETTINGS)
    broken.connection.execute(f"USE memory; DETACH {broken.name}")
    broken.give_back()
    assert answer(other) == 7
    assert Path(broken._instance.folder).is_dir()
    fresh = lend(SETTINGS)
    assert fresh._instance is not other._instance
    other.give_back()
    assert not Path(other._instance.folder).exists()
    with pytest.raises(duckdb.Error):
        other._instance.root.execute("SELECT 1")
    assert answer(fresh) == 7
    fresh.give_back()


def test_error_that_is_not_fatal_leaves_an_instance_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lent = lend(SETTINGS)
    with monkeypatch.context() as patch:
        patch.setattr(duckdb_shared, "_numbers", iter([int(lent.name.removeprefix("engine_"))]))
        with pytest.raises(TxnLogEngineError, match="already"):
            lend(SETTINGS)
    again = lend(SETTINGS)
    assert again._instance is lent._instance
    for each in (again, lent):
        each.give_back()


@pytest.mark.parametrize("limit", ["1.99GiB", "1999MB", None])
def test_memory_is_given_back_any_number_of_times_and_the_limit_stays(limit: str | None) -> None:
    lent = lend(EngineSettings(memory_limit=limit, threads=3))
    if limit is None:
        lent.give_back_memory()  # what DuckDB chose itself is told in round figures, once
    before = lent.connection.execute("SELECT current_setting('memory_limit')").fetchone()
    for _ in range(5):
        lent.give_back_memory()
    assert lent.connection.execute("SELECT current_setting('memory_limit')").fetchone() == before
    lent.give_back()


def test_tables_that_are_set_aside_are_read_back() -> None:
    lent = lend(SETTINGS)
    lent.connection.execute("CREATE TABLE t AS SELECT range AS n FROM range(1000000)")
    lent.set_aside()
    assert _bytes_in_memory(lent) < 4_000_000
    assert lent.connection.execute("SELECT sum(n) FROM t").fetchone() == (499999500000,)
    limit = lent.connection.execute("SELECT current_setting('memory_limit')").fetchone()
    assert limit == ("95.3 MiB",)
    lent.give_back()


def test_tables_stay_in_memory_while_others_use_the_same_duckdb() -> None:
    lent, other = lend(SETTINGS), lend(SETTINGS)
    lent.connection.execute("CREATE TABLE t AS SELECT range AS n FROM range(1000000)")
    lent.set_aside()
    assert _bytes_in_memory(lent) > 4_000_000
    for each in (lent, other):
        each.give_back()


def _bytes_in_memory(lent: Lent) -> int:
    query = "SELECT sum(memory_usage_bytes) FROM duckdb_memory()"
    [(found,)] = lent.connection.execute(query).fetchall()
    return int(found)


def test_work_without_duckdb_gives_the_command_that_installs_it(tmp_path: Path) -> None:
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


def test_the_extra_of_spark_brings_the_engine_that_its_data_source_reads_by() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    assert set(extras["duckdb"]) <= set(extras["spark"])
