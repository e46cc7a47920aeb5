"""The streaming source of `format("deltasql")`; `StreamPlanner` decides what a batch contains."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from deltasql.api.catalog.connect import connect
from deltasql.api.stream.planner import StreamPlanner
from deltasql.api.stream.rules import Offset, StreamRules
from deltasql.exceptions import TxnLogConfigError
from deltasql.spark.source.read import Reading, change_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.spark.source.options import SourceOptions

_LIMITS = ("maxFilesPerTrigger", "maxBytesPerTrigger")


class TableStream(DataSourceStreamReader):
    """Plans batches on the driver; workers read them with `reading`."""

    def __init__(self, options: SourceOptions, reading: Reading, version: int) -> None:
        self.options, self.reading, self.version = options, reading, version
        self.rules = StreamRules.of(options)
        self._opened: Catalog | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Spark sends this to workers, so leave out the connection and the URI of the database.
        return {"reading": self.reading}

    def initialOffset(self) -> dict[str, Any]:
        return asdict(self._planner().initial_offset())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return change_parts(self._planner().batch(Offset(**start), Offset(**end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.reading.read(partition)

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _planner(self) -> StreamPlanner:
        if self._opened is None:
            self._opened = connect(self.options.table(), self.reading.config)
        return StreamPlanner(
            self._opened,
            str(self.options.table().table_name),
            self.rules,
            schema=self.reading.state.schema,
            version=self.version,
        )


class UnlimitedStream(TableStream):
    """A stream for PySpark 4.0 and 4.1, which do not tell a source where a batch begins.

    A batch therefore contains everything up to the latest version.
    """

    def __init__(self, options: SourceOptions, reading: Reading, version: int) -> None:
        super().__init__(options, reading, version)
        self._stopped_at: int | None = None
        given = next((name for name in _LIMITS if options.text(name) is not None), None)
        if given is not None:
            raise TxnLogConfigError(
                f"the option {given} needs PySpark 4.2 or newer",
                key=given,
                help=f"Leave out {given}: a batch then contains all new rows.",
            )

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        planner = self._planner()
        found = asdict(planner.after_head())
        changed = planner.columns_change(self.version + 1, found["version"] - 1)
        if changed is None:
            return found
        # Spark asks again only after it has read everything before the change.
        if self._stopped_at == changed:
            raise planner.other_columns_error(changed)
        self._stopped_at = changed
        return {**found, "version": changed}
