"""Statistics of other writers: as columns of a checkpoint, or wrong for booleans."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.migrate.handwritten import PROTOCOL, VECTORS, HandwrittenTable, column, metadata, struct
from tests.mirror.support import forget_commits_below, open_mirrored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.one_database
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def lake(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(sqlite_uri, tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def made(tmp_path: Path) -> HandwrittenTable:
    return HandwrittenTable(tmp_path / "t")


def ids(catalog: Catalog, condition: str = "true") -> list[int]:
    found = catalog.query(f"SELECT id FROM t WHERE {condition} ORDER BY id").read_all()
    return [row["id"] for row in found.to_pylist()]


def verify_and_cut_over(catalog: Catalog) -> None:
    """Verify a table and cut it over."""
    (report,) = catalog.mirror.verify("t", versions="all")
    assert report.ok, report.summary()
    catalog.cutover("t")


# Checkpoints


def with_parsed_stats(path: Path, form: str) -> None:
    """Rewrite the statistics of a checkpoint as columns, in one of several forms."""
    table = pq.read_table(path)
    adds = table["add"].combine_chunks()
    texts = adds.field("stats").to_pylist()
    parsed = pa.array([None if text is None else json.loads(text) for text in texts])
    if form == "null":
        parsed = pa.nulls(len(texts), parsed.type)
    elif form == "null type":
        parsed = pa.nulls(len(texts), pa.int32())
    keeps_text = form in ("null", "null type")
    names = [field.name for field in adds.type if field.name != "stats" or form != "column gone"]
    parts = [adds.field(name) for name in names]
    if not keeps_text and "stats" in names:
        parts[names.index("stats")] = pa.nulls(len(texts), pa.string())
    changed = pa.StructArray.from_arrays(
        [*parts, parsed], [*names, "stats_parsed"], mask=pc.is_null(adds)
    )
    pq.write_table(table.set_column(table.schema.get_field_index("add"), "add", changed), path)


@pytest.mark.parametrize("form", ["column gone", "column empty", "null", "null type"])
@pytest.mark.parametrize("commits_are_there", [True, False])
def test_statistics_can_be_columns_of_a_checkpoint(
    lake: Catalog, made: HandwrittenTable, form: str, commits_are_there: bool
) -> None:
    stats = [
        {
            "numRecords": 3,
            "minValues": {"id": low, "f": 0.1},
            "maxValues": {"id": low + 2, "f": 0.3},
            "nullCount": {"id": 0, "f": 0},
        }
        for low in (1, 11)
    ]
    made.commit(PROTOCOL, metadata(column("id"), column("f", "float")))
    made.commit(made.add("a.parquet", ROWS, stats=json.dumps(stats[0])))
    later = pa.table({"id": pa.array([11, 12, 13], pa.int64())})
    made.commit(made.add("b.parquet", later, stats=json.dumps(stats[1]), stats_parsed=None))
    deltalake.DeltaTable(made.path).create_checkpoint()
    with_parsed_stats(made.log / f"{2:020d}.checkpoint.parquet", form)
    made.commit({"commitInfo": {"timestamp": 1}})
    if not commits_are_there:
        forget_commits_below(made.folder, 3)
    lake.import_table(made.path, name="t")
    assert ids(lake) == [1, 2, 3, 11, 12, 13]
    assert lake.table("t").scan("id > 10").paths() == ["b.parquet"]
    verify_and_cut_over(lake)


def test_table_verifies_if_the_log_has_statistics_only_as_columns(
    lake: Catalog, made: HandwrittenTable
) -> None:
    """SQL has them from the commits; after the log cleanup only the columns are left."""
    stats = {"numRecords": 3, "minValues": {"id": 1}, "maxValues": {"id": 3}}
    made.commit(PROTOCOL, metadata(column("id")))
    made.commit(made.add("a.parquet", ROWS, stats=json.dumps(stats)))
    lake.import_table(made.path, name="t")
    deltalake.DeltaTable(made.path).create_checkpoint()
    with_parsed_stats(made.log / f"{1:020d}.checkpoint.parquet", "column gone")
    forget_commits_below(made.folder, 1)
    verify_and_cut_over(lake)


INLINE = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"


@pytest.mark.parametrize("text", [INLINE, INLINE + "00000"])
@pytest.mark.parametrize("size", [40, 44, 60])
def test_inline_deletion_vectors_are_read_as_by_deltalake(
    lake: Catalog, made: HandwrittenTable, text: str, size: int
) -> None:
    """The text decides: other readers also accept a wrong size or additional text."""
    rows = pa.table({"id": pa.array(range(40), pa.int64())})
    body: dict[str, Any] = {"storageType": "i", "pathOrInlineDv": text}
    vector = {**body, "sizeInBytes": size, "cardinality": 6}
    on = {"delta.enableDeletionVectors": "true"}
    made.commit(
        VECTORS,
        metadata(column("id"), configuration=on),
        made.add("a.parquet", rows, deletionVector=vector, stats='{"numRecords":40}'),
    )
    deltalake.DeltaTable(made.path).create_checkpoint()
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(made.path))
    seen = query.execute("SELECT id FROM t ORDER BY id").read_all()
    lake.import_table(made.path, name="t")
    assert ids(lake) == pa.table(seen)["id"].to_pylist()
    verify_and_cut_over(lake)


# Booleans


def test_wrong_bounds_of_booleans_skip_no_rows(lake: Catalog, made: HandwrittenTable) -> None:
    flags = struct(column("b", "boolean"))
    rows = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "flag": [True, False],
            "s": [{"b": False}, {"b": True}],
        }
    )
    nulls = pa.table({"id": pa.array([3], pa.int64()), "flag": pa.nulls(1, pa.bool_())})

    def stats(bound: bool, null_count: int, count: int) -> str:
        bounds = {"flag": bound, "s": {"b": bound}}
        counts = {"flag": null_count, "s": {"b": null_count}}
        return json.dumps(
            {"numRecords": count, "minValues": bounds, "maxValues": bounds, "nullCount": counts}
        )

    made.commit(
        PROTOCOL,
        metadata(column("id"), column("flag", "boolean"), column("s", flags)),
        made.add("true.parquet", rows, stats=stats(True, 0, 2)),
        made.add("false.parquet", rows, stats=stats(False, 0, 2)),
        made.add("null.parquet", nulls, stats=stats(True, 1, 1)),
    )
    lake.import_table(made.path, name="t")
    for condition, wanted in {
        "flag": [1, 1],
        "NOT flag": [2, 2],
        "flag = false": [2, 2],
        "flag IN (true)": [1, 1],
        "flag > false": [1, 1],
        "s.b": [2, 2],
        "flag IS NULL": [3],
    }.items():
        assert ids(lake, condition) == wanted, condition
        # null counts are correct
        assert ("null.parquet" in lake.table("t").scan(condition).paths()) == (wanted == [3])
    with lake.begin() as tx:
        tx.delete("t", "flag")
    assert ids(lake) == [2, 2, 3]
