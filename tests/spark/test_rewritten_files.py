"""Every reader returns the same rows of files that delete, update and merge rewrote."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from deltasql.engine.parquet import file_shape
from tests.oracles.fixed_set import READERS
from tests.oracles.readers import DeltaSpark, Place
from tests.oracles.states import arrow_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltasql import Catalog

ROWS = 900
GROUP = 250


def table(rows: range) -> pa.Table:
    """Return rows with columns of several types and nulls in all but the id."""

    def some(values: list[object], each: int) -> list[object]:
        return [None if n % each == 0 else value for n, value in zip(rows, values, strict=True)]

    words = [f"word {n * 7919 % 1000} é" for n in rows]
    return pa.table(
        {
            "id": pa.array(rows, pa.int64()),
            "name": pa.array(some([*words], 7), pa.string()),
            "price": pa.array(some([Decimal(n) / 100 for n in rows], 11), pa.decimal128(12, 2)),
            "at": pa.array(
                some([datetime(2026, 1, 1, n % 24, tzinfo=UTC) for n in rows], 13),
                pa.timestamp("us", "UTC"),
            ),
            "day": pa.array(some([date(2026, 1, 1 + n % 28) for n in rows], 5), pa.date32()),
            "flag": pa.array(some([n % 3 == 0 for n in rows], 4), pa.bool_()),
            "deep": pa.array(
                some([{"n": n, "word": f"w{n % 5}"} for n in rows], 6),
                pa.struct([("n", pa.int32()), ("word", pa.string())]),
            ),
        }
    )


@pytest.fixture
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_shape, "_ROW_GROUP", GROUP)


@pytest.mark.everything("Spark, beyond a smoke test of each API")
@pytest.mark.usefixtures("_small_row_groups")
def test_every_reader_returns_the_rows_of_rewritten_files(
    spark: SparkSession, lake: Catalog
) -> None:
    first = table(range(2 * ROWS))
    kept = {row["id"]: row for row in first.to_pylist()}
    states = [dict(kept)]
    with lake.begin() as tx:
        tx.write("t", first.slice(0, ROWS))
        tx.write("t", first.slice(ROWS))
    with lake.begin() as tx:
        tx.delete("t", "id % 97 = 3")
    kept = {n: row for n, row in kept.items() if n % 97 != 3}
    states.append(dict(kept))
    with lake.begin() as tx:
        tx.update("t", {"name": "'changed'"}, predicate="id BETWEEN 300 AND 310")
    kept |= {n: {**row, "name": "changed"} for n, row in kept.items() if 300 <= n <= 310}
    states.append(dict(kept))
    source = table(range(1700, 1900))
    with lake.begin() as tx:
        merge = tx.merge("t", source, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    kept |= {row["id"]: row for row in source.to_pylist()}
    states.append(dict(kept))

    place = Place(lake.table("t").location)
    for version, state in enumerate(states):
        expected = arrow_rows(pa.Table.from_pylist([*state.values()], schema=first.schema))
        for name, reader in READERS.items():
            assert reader().rows(place, version) == expected, (version, name)
        assert DeltaSpark(spark).rows(place, version) == expected, version
