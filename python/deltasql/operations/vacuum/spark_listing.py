"""A table's folder listed on the executors of Spark, for more files than one process should see.

Executors look only for what may go: the driver sends each of them the names that are needed in its
range, and gets back the rest. Where executors cannot list, the driver does.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltasql import telemetry
from deltasql.engine.spark.errors import spark_errors
from deltasql.engine.spark.session import active_session
from deltasql.exceptions import MissingDriverError, TxnLogEngineError
from deltasql.operations.vacuum.unreferenced import Strays, find_strays, list_range, ranges_of
from deltasql.storage import open_storage
from deltasql.store.dialect import chunks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Set

    from deltasql.config import StorageSettings
    from deltasql.model.progress import Meter
    from deltasql.operations.vacuum.unreferenced import Range, StrayRule
    from deltasql.storage import Storage

_log = logging.getLogger(__name__)
_FEW_RANGES = 8
_WAVE = 16
_TASKS = pa.schema(
    [("first", pa.string()), ("end", pa.string()), ("needed", pa.list_(pa.string()))]
)
_FOUND = "name string, size long"
_OTHER_TABLE = -1
"""In the place of a size: the name is a folder with a log of its own."""


class SparkListing:
    """Finds strays on executors; a table of few folders is listed by the driver.

    Unless it `needs_spark`, the driver lists as well where there is no session.
    """

    def __init__(
        self, session: Any, settings: StorageSettings, *, needs_spark: bool = True
    ) -> None:
        self._session = session
        self._settings = settings
        self._needs_spark = needs_spark

    def __call__(self, rule: StrayRule, storage: Storage, needed: Set[str], meter: Meter) -> Strays:
        """List the files below a location."""
        session = self._session
        if session is None:
            try:
                session = active_session()
            except (TxnLogEngineError, MissingDriverError):
                if self._needs_spark:
                    raise
                return find_strays(rule, storage, needed, meter)
        ranges = ranges_of(storage)
        if len(ranges) < _FEW_RANGES:
            return find_strays(rule, storage, needed, meter)
        try:
            return self._on_executors(session, rule, ranges, sorted(needed), meter)
        # This package need not be there, nor Python; and Spark's text is UTF-8, names need not be.
        except (TxnLogEngineError, UnicodeEncodeError) as error:
            telemetry.log(
                _log,
                logging.WARNING,
                "listed by the driver",
                location=rule.location,
                reason=error.message if isinstance(error, TxnLogEngineError) else error.reason,
            )
        return find_strays(rule, storage, needed, meter)

    def _on_executors(
        self,
        session: Any,
        rule: StrayRule,
        ranges: Sequence[Range],
        needed: Sequence[str],
        meter: Meter,
    ) -> Strays:
        found, settings = Strays(), self._settings

        def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            storage = open_storage(rule.location, settings)
            for batch in batches:
                for task in batch.to_pylist():
                    here = Strays()
                    files = list_range(storage, (task["first"], task["end"]))
                    rule.sift(files, frozenset(task["needed"]), here)
                    yield _as_batch(here)

        meter.begin("listing", "ranges", len(ranges))
        for wave in chunks(ranges, _WAVE):
            tasks = pa.Table.from_pylist([_task(each, needed) for each in wave], _TASKS)
            with spark_errors(f"list {rule.location}"):
                frame = session.createDataFrame(tasks).repartition(len(wave))
                answer = frame.mapInArrow(look, _FOUND).toArrow()
            for name, size in zip(*answer.to_pydict().values(), strict=True):
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


def _as_batch(found: Strays) -> pa.RecordBatch:
    sizes = [*found.sizes.values(), *(_OTHER_TABLE for _ in found.tables)]
    names = [*found.sizes, *found.tables]
    return pa.record_batch(
        {"name": pa.array(names, pa.string()), "size": pa.array(sizes, pa.int64())}
    )
