"""List a table's folder on Spark executors, for tables with too many files for one process.

The driver sends each executor a range of names and the needed names in this range. The executor
returns the names that may be deleted. If executors cannot list the folder, the driver lists it.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltasql import telemetry
from deltasql.engine.spark.errors import spark_errors
from deltasql.engine.spark.session import active_session
from deltasql.engine.spark.workers import map_in_arrow
from deltasql.exceptions import MissingDriverError, TxnLogEngineError
from deltasql.operations.vacuum.unreferenced import (
    UnreferencedFiles,
    find_unreferenced,
    list_range,
    ranges_of,
)
from deltasql.storage import open_storage
from deltasql.store.dialect import chunks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Set

    from deltasql.config import StorageSettings
    from deltasql.model.progress import Meter
    from deltasql.operations.vacuum.unreferenced import Range, VacuumRule
    from deltasql.storage import Storage

_log = logging.getLogger(__name__)
_FEW_RANGES = 8
_WAVE = 16
_TASKS = pa.schema(
    [("first", pa.string()), ("end", pa.string()), ("needed", pa.list_(pa.string()))]
)
_FOUND = "name string, size long"
_OTHER_TABLE = -1
"""A special value for the size: the name is not a file but the folder of another table."""


class SparkListing:
    """Finds unreferenced files on executors; a table with few folders is listed by the driver.

    If there is no Spark session, it raises if `needs_spark` is set. Otherwise this process lists
    the folder.
    """

    def __init__(
        self, session: Any, settings: StorageSettings, *, needs_spark: bool = True
    ) -> None:
        self._session = session
        self._settings = settings
        self._needs_spark = needs_spark

    def __call__(
        self, rule: VacuumRule, storage: Storage, needed: Set[str], meter: Meter
    ) -> UnreferencedFiles:
        """Find the unreferenced files below a location."""
        session = self._session
        if session is None:
            try:
                session = active_session()
            except (TxnLogEngineError, MissingDriverError):
                if self._needs_spark:
                    raise
                return find_unreferenced(rule, storage, needed, meter)
        ranges = ranges_of(storage)
        if len(ranges) < _FEW_RANGES:
            return find_unreferenced(rule, storage, needed, meter)
        try:
            return self._on_executors(session, rule, ranges, sorted(needed), meter)
        # Executors may lack this package or Python, and file names may be invalid UTF-8. The driver
        # then lists the folder.
        except (TxnLogEngineError, UnicodeEncodeError) as error:
            telemetry.log(
                _log,
                logging.WARNING,
                "the folder is listed by the driver instead of by executors",
                location=rule.location,
                reason=error.message if isinstance(error, TxnLogEngineError) else error.reason,
            )
        return find_unreferenced(rule, storage, needed, meter)

    def _on_executors(
        self,
        session: Any,
        rule: VacuumRule,
        ranges: Sequence[Range],
        needed: Sequence[str],
        meter: Meter,
    ) -> UnreferencedFiles:
        found, settings = UnreferencedFiles(), self._settings

        def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            storage = open_storage(rule.location, settings)
            for batch in batches:
                for task in batch.to_pylist():
                    here = UnreferencedFiles()
                    files = list_range(storage, (task["first"], task["end"]))
                    rule.collect(files, frozenset(task["needed"]), here)
                    yield _as_batch(here)

        meter.begin("listing", "ranges", len(ranges))
        for wave in chunks(ranges, _WAVE):
            tasks = pa.Table.from_pylist([_task(each, needed) for each in wave], _TASKS)
            with spark_errors(f"list {rule.location}"):
                frame = session.createDataFrame(tasks).repartition(len(wave))
                result = map_in_arrow(frame, look, _FOUND).toArrow()
            for name, size in zip(*result.to_pydict().values(), strict=True):
                if size == _OTHER_TABLE:
                    found.tables.add(name)
                else:
                    found.sizes[name] = size
            meter.step(len(wave))
        return found


def _task(wanted: Range, needed: Sequence[str]) -> dict[str, Any]:
    first, end = wanted
    begin = bisect_left(needed, first)
    until = bisect_left(needed, end) if end else len(needed)
    return {"first": first, "end": end, "needed": needed[begin:until]}


def _as_batch(found: UnreferencedFiles) -> pa.RecordBatch:
    sizes = [*found.sizes.values(), *(_OTHER_TABLE for _ in found.tables)]
    names = [*found.sizes, *found.tables]
    return pa.record_batch(
        {"name": pa.array(names, pa.string()), "size": pa.array(sizes, pa.int64())}
    )
