"""Compare the rows of a version with those that another reader returns from its published log.

The engine counts equal rows of both sides in one query, which can spill to disk. The order of rows
and their distribution over files do not matter. Only the differences are collected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import deltalake
from sqlglot import exp

from deltasql.deltalake_internals import all_rows, raw_table
from deltasql.engine.files.live_files import LiveFiles
from deltasql.engine.inputs import python_rows
from deltasql.mirror.log.read import read_state
from deltasql.operations.sql.queries import column, identifier
from deltasql.storage import open_storage
from deltasql.verify.deltalake_reader import unsupported_by_deltalake
from deltasql.verify.report import Difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.config import Config
    from deltasql.engine.base import Engine, Relation
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.verify.report import Differences

_OURS, _THEIRS = "__deltasql_ours", "__deltasql_theirs"
_SHOWN = 20


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
    unsupported = unsupported_by_deltalake(snapshot.protocol)
    if unsupported:
        reason = f"deltalake does not support {unsupported}"
        return _replay(version, engine, config, location, reason)
    options = config.storage.plain_options(location)
    table = deltalake.DeltaTable(location, version=version, storage_options=options or None)
    return LogReading("deltalake", engine.rows(all_rows(raw_table(table))))


def _delta_spark(engine: Engine, location: str, version: int) -> Relation | None:
    from deltasql.engine.spark.engine import SparkEngine  # lazy import: Spark is an extra

    assert isinstance(engine, SparkEngine)
    return engine.delta_rows(location, version)


def _replay(version: int, engine: Engine, config: Config, location: str, reason: str) -> LogReading:
    state = read_state(open_storage(location, config.storage), version)
    live = LiveFiles(location, state.metadata, state.files, config.storage)
    note = f"rows compared with our own reader of the log, because {reason}"
    return LogReading("replay", engine.scan(live), note)


def compare_rows(
    engine: Engine, ours: Relation, theirs: Relation, names: Sequence[str], found: Differences
) -> None:
    """Compare rows by the values of all columns; NaN equals NaN, null equals null."""
    both = exp.union(_counted("a", names, 1, 0), _counted("b", names, 0, 1), distinct=False)
    columns = [column(name) for name in names]
    sums = {name: exp.Sum(this=column(name)) for name in (_OURS, _THEIRS)}
    query = (
        exp.select(*columns, *(exp.alias_(each, identifier(name)) for name, each in sums.items()))
        .from_(both.subquery("u"))
        .group_by(*(each.copy() for each in columns))
        .having(exp.NEQ(this=sums[_OURS].copy(), expression=sums[_THEIRS].copy()))
    )
    differing = engine.keep(engine.query(query, a=ours, b=theirs))
    total = exp.select(exp.alias_(exp.Count(this=exp.Star()), identifier("n")))
    count = engine.collect(engine.query(total.from_(exp.to_table("t")), t=differing))["n"][0]
    if not count.as_py():
        return
    some = exp.select(exp.Star()).from_(exp.to_table("t")).limit(_SHOWN)
    shown = []
    for row in python_rows(engine.collect(engine.query(some, t=differing))):
        log, data = int(row.pop(_THEIRS)), int(row.pop(_OURS))
        shown.append(Difference.of_data("row", None, _text(row), log=log, data=data))
    found.add_samples(shown, count.as_py())


def _counted(relation: str, names: Sequence[str], ours: int, theirs: int) -> exp.Select:
    sides = ((_OURS, ours), (_THEIRS, theirs))
    return exp.select(
        *(column(name, relation) for name in names),
        *(exp.alias_(exp.Literal.number(side), identifier(name)) for name, side in sides),
    ).from_(exp.to_table(relation))


def _text(row: dict[str, object]) -> str:
    text = ", ".join(f"{name}={value!r}" for name, value in row.items())
    return text if len(text) <= 300 else f"{text[:297]}…"
