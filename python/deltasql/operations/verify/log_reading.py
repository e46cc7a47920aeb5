"""Read a version from its published log, with deltalake, delta-spark or our own log reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import deltalake

from deltasql.engine.files.live_files import LiveFiles
from deltasql.mirror.log.read import read_state
from deltasql.mirror.verify.verify import STOCK_READER_FEATURES
from deltasql.model.protocol import reader_features
from deltasql.storage import open_storage

if TYPE_CHECKING:
    from deltasql.config import Config
    from deltasql.engine.base import Engine, Relation
    from deltasql.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class LogReading:
    """The rows of a version, read from its published log, and the reader that was used."""

    source: str
    rows: Relation
    note: str | None = None


def read_rows_from_log(
    snapshot: Snapshot, engine: Engine, config: Config, location: str
) -> LogReading:
    """Read a version from the log at a location.

    An independent reader is preferred: delta-spark if the Spark session has it, deltalake for an
    engine in this process. If neither can read the table, our own log reader lists the files.
    """
    version = snapshot.version
    if engine.name == "spark":
        frame = _delta_spark(engine, location, version)
        if frame is not None:
            return LogReading("delta-spark", frame)
        return _replay(version, engine, config, location, "the Spark session has no delta-spark")
    beyond = reader_features(snapshot.protocol) - STOCK_READER_FEATURES
    if beyond:
        names = ", ".join(sorted(beyond))
        return _replay(version, engine, config, location, f"deltalake does not support {names}")
    options = config.storage.plain_options(location)
    table = deltalake.DeltaTable(location, version=version, storage_options=options or None)
    return LogReading("deltalake", engine.rows(table.scan()))


def _delta_spark(engine: Engine, location: str, version: int) -> Relation | None:
    from deltasql.engine.spark.engine import SparkEngine

    assert isinstance(engine, SparkEngine)
    return engine.delta_rows(location, version)


def _replay(version: int, engine: Engine, config: Config, location: str, why: str) -> LogReading:
    state = read_state(open_storage(location, config.storage), version)
    live = LiveFiles(location, state.metadata, state.files, config.storage)
    note = f"rows compared with our own reader of the log, because {why}"
    return LogReading("replay", engine.scan(live), note)
