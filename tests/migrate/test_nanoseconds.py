"""Import, verification and cutover of deltalake's tables with nanosecond timestamps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltasql
from deltasql.exceptions import TxnLogError
from tests.migrate.authority_support import open_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

FIRST = 1_700_000_000_123_456_789
STRUCTS = {
    "delta.checkpoint.writeStatsAsStruct": "true",
    "delta.checkpoint.writeStatsAsJson": "false",
}


@pytest.fixture
def nanoseconds() -> Iterator[None]:
    deltalake.enable_nanosecond_timestamps()
    yield
    deltalake._disable_nanosecond_timestamps()


@pytest.fixture
def catalog(catalog_uri: DeltaSqlUri) -> Iterator[Catalog]:
    with open_catalog(catalog_uri) as opened:
        yield opened


def rows(*values: int, zone: str | None = "UTC", unit: str = "ns") -> pa.Table:
    return pa.table({"id": [*range(len(values))], "at": pa.array(values, pa.timestamp(unit, zone))})


def counted(table: object) -> list[int]:
    return sorted(pa.table(table)["at"].cast(pa.int64()).to_pylist())


def make(place: Path, zone: str | None, **options: object) -> None:
    """Write two commits with a checkpoint between them; the second file has microseconds."""
    deltalake.write_deltalake(place, rows(FIRST, FIRST + 1, zone=zone), **options)  # type: ignore[arg-type]
    deltalake.DeltaTable(place).create_checkpoint()
    coarse = rows(FIRST // 1000, zone=zone, unit="us")
    deltalake.write_deltalake(place, coarse, mode="append")


@pytest.mark.one_database
@pytest.mark.usefixtures("nanoseconds")
@pytest.mark.parametrize("zone", ["UTC", None])
@pytest.mark.parametrize("shape", ["plain", "partitioned", "struct statistics"])
def test_nanosecond_tables_are_imported_verified_and_cut_over(
    catalog: Catalog, tmp_path: Path, zone: str | None, shape: str
) -> None:
    place = tmp_path / "sales"
    by_shape: dict[str, dict[str, object]] = {
        "plain": {},
        "partitioned": {"partition_by": ["at"]},
        "struct statistics": {"configuration": STRUCTS},
    }
    make(place, zone, **by_shape[shape])
    before = counted(deltalake.DeltaTable(place)._table.scan())
    report = catalog.import_table(str(place))
    assert report.ok, report
    (verified,) = catalog.mirror.verify("sales", versions="all", data="rows")
    assert verified.ok, verified.summary()
    assert not verified.notes  # deltalake was compared, too
    assert catalog.cutover("sales").ok
    deltalake._disable_nanosecond_timestamps()  # other processes need not enable them
    table = deltasql.DeltaTable(catalog.uri.with_table("sales").to_string())
    assert counted(table._table.scan()) == before
    mark = "Z" if zone else ""
    table.delete(f"at = '2023-11-14T22:13:20.123456789{mark}'")
    left = [FIRST // 1000 * 1000, FIRST + 1]
    assert counted(table._table.scan()) == left
    assert counted(deltalake.DeltaTable(place)._table.scan()) == left
    (verified,) = catalog.mirror.verify("sales", data="rows")
    assert verified.ok, verified.summary()


@pytest.mark.one_database
@pytest.mark.usefixtures("nanoseconds")
def test_verification_finds_bounds_wrong_by_a_nanosecond(catalog: Catalog, tmp_path: Path) -> None:
    place = tmp_path / "sales"
    deltalake.write_deltalake(place, rows(FIRST))
    (log,) = (place / "_delta_log").glob("*.json")
    # A minimum one nanosecond above the row, and a maximum truncated to the millisecond before it.
    wrong = log.read_text().replace("20.123Z", "20.123456790Z", 1)
    log.write_text(wrong)
    catalog.import_table(str(place))
    (report,) = catalog.mirror.verify("sales", data="rows")
    (found,) = report.data
    assert [each.kind for each in found.differences] == ["min"]  # type: ignore[attr-defined]


@pytest.mark.one_database
@pytest.mark.usefixtures("nanoseconds")
def test_timestamp_out_of_nanosecond_range_is_an_error(catalog: Catalog, tmp_path: Path) -> None:
    place = tmp_path / "sales"
    deltalake.write_deltalake(place, rows(FIRST))
    (file,) = place.glob("*.parquet")
    pq.write_table(rows(253_370_764_800_000_000, unit="us"), file)
    catalog.import_table(str(place))
    table = deltasql.DeltaTable(catalog.uri.with_table("sales").to_string())
    with pytest.raises((TxnLogError, pa.ArrowInvalid)):
        counted(table._table.scan())
