"""Compare deletion vectors with rewritten files and delta-spark: change 1 % of large files' rows.

All systems run in one process, in turns. A full run has four files of more than 100 MB and takes
about ten minutes on two cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.harness import print_progress, result, timed
from benchmarks.rows import DeltaRows, rows
from benchmarks.spark_systems import DeltaSpark, DeltasqlSpark, session, spark_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from benchmarks.harness import Result
    from benchmarks.workspace import Workspace

TITLE = "Deletion vectors, compared with rewritten files and delta-spark"
ROWS, QUICK_ROWS = 24_000_000, 400_000
FILES = 4
ON = {"delta.enableDeletionVectors": "true"}
_NO_LIMIT = 1 << 40  # a file for each append


class _Embedded(DeltaRows):
    """deltasql on DuckDB."""

    def __init__(self, name: str, place: str, configuration: dict[str, str]) -> None:
        super().__init__(name, "sqlite", place)
        self._configuration = configuration

    def add_file(self, first: int, count: int) -> None:
        """Append rows as one file; the first append creates the table."""
        self._module().write_deltalake(
            self.place,
            rows(first, count),
            mode="append",
            configuration=self._configuration,
            target_file_size=_NO_LIMIT,
        )


class _OnSpark(DeltasqlSpark):
    """deltasql on Spark; its files are written like those of deltasql on DuckDB."""

    name = "deltasql-spark-vectors"

    def add_file(self, first: int, count: int) -> None:
        _Embedded(self.name, self.place, ON).add_file(first, count)


class _Stock(DeltaSpark):
    """delta-spark."""

    name = "delta-spark-vectors"

    def add_file(self, first: int, count: int) -> None:
        """Append rows as one file; the first append creates the table."""
        frame = spark_rows(self.spark, first, count, parts=1)
        options = ON if first == 0 else {}
        frame.write.format("delta").options(**options).mode("append").save(self.place)


def run(workspace: Workspace, *, quick: bool) -> list[Result]:
    """Write the same files for every system, then measure the changes in turns."""
    count = QUICK_ROWS if quick else ROWS
    with session(workspace.new_folder("vectors-spark")) as spark:
        systems = _systems(workspace, spark)
        for number in range(FILES):
            print_progress(f"  file {number + 1} of {FILES}")
            for system in systems:
                system.add_file(count // FILES * number, count // FILES)
        results = []
        for case, step in _steps(count).items():
            print_progress(f"  {case}")
            samples: dict[str, list[float]] = {system.name: [] for system in systems}
            for number in range(1 if quick else 4):
                sums = set()
                for system in systems:
                    seconds = timed(lambda s=system, f=step: f(s))  # type: ignore[misc]
                    if number or quick:  # the first round warms up
                        samples[system.name].append(seconds)
                    found, amount = system.sum()
                    sums.add((found, round(amount, 1)))
                    system.restore(FILES - 1)
                if len(sums) != 1:
                    raise RuntimeError(f"{case}: rows differ: {sums}")
            results += [
                result(
                    system.name,
                    system.backend,
                    [seconds * 1000 for seconds in samples[system.name]],
                    case=case,
                    size=count,
                    metric="latency",
                    unit="ms",
                )
                for system in systems
            ]
    return results


def _systems(workspace: Workspace, spark: SparkSession) -> list[Any]:
    def uri() -> str:
        return f"deltasql://sqlite/{workspace.new_folder('vectors')}/meta.db?table=t0&mirror=sync"

    return [
        _Embedded("deltasql-rewriting", uri(), {}),
        _Embedded("deltasql-vectors", uri(), ON),
        _OnSpark(spark, uri()),
        _Stock(spark, f"{workspace.new_folder('vectors')}/t0"),
    ]


def _steps(count: int) -> dict[str, Callable[[Any], object]]:
    low, high = count // 2, count // 2 + count // 100 - 1
    side_by_side, spread = f"id BETWEEN {low} AND {high}", "id % 100 = 7"
    return {
        "delete range": lambda system: system.delete(side_by_side),
        "delete spread": lambda system: system.delete(spread),
        "update range": lambda system: system.update(side_by_side),
        "update spread": lambda system: system.update(spread),
    }
