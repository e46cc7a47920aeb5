"""A driver that is killed with its JVM during a write; `test_spark_killed` runs it.

Arguments: the catalog URI, the folder of its tables, the operation, the point at which to wait for
the kill, and a file to create when the point is reached.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from deltasql.phases import hooked
from tests.mirror.support import open_mirrored

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


def main(uri: str, folder: str, what: str, point: str, mark: str) -> None:
    """Write, and wait at the point."""

    parent = os.getppid()

    def wait(reached: str) -> None:
        if reached == point:
            Path(mark).touch()
            while os.getppid() == parent:  # it must not outlive the test
                time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGKILL)

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        # The other task has passed all of its rows, and this one half of them.
        if point == "writing" and context is not None and context.partitionId() == 1:
            Path(mark).touch()
            time.sleep(600)

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    frame = spark.range(1000, 3000, 1, 2).selectExpr("id", "id % 3 AS p", "1L AS v")
    slow = frame.mapInArrow(rows, frame.schema)
    with open_mirrored(uri, folder) as catalog, hooked(wait), catalog.begin() as tx:
        if what == "merge":
            merger = tx.merge("t", slow, "t.id = s.id", source_alias="s", target_alias="t")
            merger.when_matched_update_all().when_not_matched_insert_all().execute()
        else:
            tx.write("t", slow, mode=what)
        tx.write("u", frame)


if __name__ == "__main__":
    main(*sys.argv[1:])
