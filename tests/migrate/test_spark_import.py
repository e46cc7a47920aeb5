"""An import on Spark gives SQL the same rows as an import in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.config import StorageSettings
from deltasql.exceptions import LogParseError, TxnLogEngineError
from deltasql.migrate.importing import log_source
from deltasql.migrate.importing.load_log import LogLoader
from deltasql.migrate.importing.log_source import LocalLog, open_log
from deltasql.mirror.log.listing import list_log
from deltasql.storage import open_storage
from tests.migrate.small_logs import everything, hidden_table, random_commits, write_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from deltasql.migrate.importing.log_source import LogSource
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow


@pytest.fixture
def catalogs(tmp_path: Path) -> Iterator[tuple[Catalog, Catalog]]:
    uris = [f"deltasql://sqlite/{tmp_path}/{name}.db" for name in ("here", "spark")]
    with (
        deltasql.connect(uris[0], create=True) as one,
        deltasql.connect(uris[1], create=True) as other,
    ):
        yield one, other


def load(catalog: Catalog, storage: Storage, log: LogSource, *, state: bool) -> TableRow:
    """Load a log from its first version, or from its last checkpoint."""
    table = hidden_table(catalog.store, storage)
    loader = LogLoader(catalog.store, table, batch_files=4)
    listing = list_log(storage)
    first = 0
    if state:
        first = listing.checkpoints[-1].version
        loader.start(log.state(first), None, 7)
        first += 1
    if first <= listing.last_version:
        loader.append(list(log.commits(first, listing.last_version)))
    return table


def rows_of(
    catalogs: tuple[Catalog, Catalog], spark: SparkSession, storage: Storage, *, state: bool
) -> list[dict[str, list[tuple[object, ...]]]]:
    listing, settings = list_log(storage), StorageSettings()
    logs = [LocalLog(storage, listing), open_log(storage, listing, settings, spark)]
    return [
        everything(catalog.store, load(catalog, storage, log, state=state))
        for catalog, log in zip(catalogs, logs, strict=True)
    ]


@pytest.mark.everything("Spark, beyond a smoke test of each API")
@pytest.mark.parametrize("seed", range(3))
def test_commits_parsed_on_spark_give_the_same_rows(
    catalogs: tuple[Catalog, Catalog],
    spark: SparkSession,
    tmp_path: Path,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_source, "_COMMITS_PER_TASK", 3)
    monkeypatch.setattr(log_source, "_WAVE", 2)
    storage = write_log(tmp_path / "t", random_commits(seed, 20))
    here, there = rows_of(catalogs, spark, storage, state=False)
    assert here["dl_add_files"]
    assert there == here


@pytest.mark.everything("Spark, beyond a smoke test of each API")
def test_checkpoint_read_on_spark_gives_the_same_rows(
    catalogs: tuple[Catalog, Catalog], spark: SparkSession, tmp_path: Path
) -> None:
    folder = str(tmp_path / "t")
    for number in range(12):
        rows = pa.table({"id": [number], "p": [f"{number % 3}"]})
        mode = "overwrite" if number == 5 else "append"
        deltalake.write_deltalake(folder, rows, mode=mode, partition_by=["p"])
    deltalake.DeltaTable(folder).create_checkpoint()
    deltalake.write_deltalake(folder, pa.table({"id": [12], "p": ["x"]}), mode="append")
    here, there = rows_of(catalogs, spark, open_storage(folder), state=True)
    assert len(here["dl_add_files"]) == 8
    assert here["dl_remove_files"]
    assert there == here


def test_error_names_file_and_line_of_a_damaged_commit(spark: SparkSession, tmp_path: Path) -> None:
    storage = write_log(tmp_path / "t", random_commits(1))
    damaged = tmp_path / "t" / "_delta_log" / f"{3:020d}.json"
    damaged.write_text('{"commitInfo":{}}\n{"add":')
    log = open_log(storage, list_log(storage), StorageSettings(), "spark")
    with pytest.raises(LogParseError) as refused:
        list(log.commits(0, 11))
    assert damaged.name in str(refused.value)
    assert refused.value.line == 2


def test_unknown_engine_is_rejected(tmp_path: Path) -> None:
    storage = write_log(tmp_path / "t", random_commits(1))
    with pytest.raises(TxnLogEngineError, match="flink"):
        open_log(storage, list_log(storage), StorageSettings(), "flink")
