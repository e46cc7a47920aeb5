"""Files that are revised hold what they would hold if all rows were written again."""

from __future__ import annotations

import json
import math
import os
import tempfile
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltasql.engine import revisable
from deltasql.engine.base import DROPPED, FILE, ROW
from deltasql.engine.parquet import write_batches
from deltasql.engine.revise import revise_files
from deltasql.engine.splice import Footer, Splicer
from deltasql.exceptions import TxnLogEngineError
from tests.engine.support import listed, parquet, plan_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.engine.base import WritePlan
    from deltasql.model.actions import AddFile

INNER = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.field("element", pa.string())))])
COLUMNS: dict[str, tuple[pa.DataType, Any]] = {
    "id": (pa.int64(), st.integers(0, 9)),
    "small": (pa.int16(), st.integers(-5, 5)),
    "x": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "name": (pa.string(), st.text(max_size=40)),
    "raw": (pa.binary(), st.binary(max_size=4)),
    "price": (pa.decimal128(12, 2), st.decimals(-999, 999, places=2)),
    "day": (pa.date32(), st.dates(date(1900, 1, 1), date(2100, 1, 1))),
    "at": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "plain": (pa.timestamp("us"), st.datetimes()),
    "flag": (pa.bool_(), st.booleans()),
}
X_WITHOUT_NULLS = pa.field("x", pa.float64(), nullable=False)
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
LINE = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()})


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revisable, "_LEAST_BYTES", 0)


def written(plan: WritePlan, rows: pa.Table, group: int) -> AddFile:
    """Write one file with row groups of a size."""
    (found,) = write_batches(
        pa.RecordBatchReader.from_batches(rows.schema, _cut(rows, group)), plan
    )
    return found


def _cut(rows: pa.Table, size: int) -> Iterator[pa.RecordBatch]:
    yield from rows.combine_chunks().to_batches(size)


def revised(
    plan: WritePlan, adds: list[AddFile], changes: pa.Table, places: list[int] | None = None
) -> list[list[AddFile] | None]:
    numbers = list(range(len(adds))) if places is None else places
    return revise_files(listed(plan, adds), numbers, changes.to_reader(3), plan)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), rows=st.lists(LINE, min_size=1, max_size=12), group=st.integers(1, 5))
def test_revised_file_is_the_one_that_would_be_written(
    data: st.DataObject, rows: list[dict[str, Any]], group: int
) -> None:
    places = data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1))
    dropped = data.draw(st.sets(st.sampled_from(sorted(places))))
    names = data.draw(st.lists(st.sampled_from(SCHEMA.names), unique=True))
    new = {place: data.draw(LINE) for place in sorted(places)}
    changes = pa.table(
        {
            FILE: pa.array([0] * len(new), pa.int64()),
            ROW: pa.array(list(new), pa.int64()),
            DROPPED: pa.array([place in dropped for place in new], pa.bool_()),
            **{n: pa.array([each[n] for each in new.values()], COLUMNS[n][0]) for n in names},
        }
    )
    wanted = [
        {**row, **({name: new[place][name] for name in names} if place in new else {})}
        for place, row in enumerate(rows)
        if place not in dropped
    ]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("deltasql.engine.parquet_options._ROW_GROUP", group)
        part = data.draw(st.sampled_from([1, 100, 1 << 20]))  # columns by one, by two, at once
        patch.setattr("deltasql.engine.revise._PART_BYTES", part)
        patch.setattr("deltasql.engine.revise._PIECE_BYTES", part * data.draw(st.integers(1, 3)))
        plan = plan_for(folder, SCHEMA)
        before = written(plan, pa.Table.from_pylist(rows, SCHEMA), group)
        (found,) = revised(plan, [before], changes)
        assert found is not None
        if not wanted:
            assert found == []
            return
        assert parquet(plan, found[0]).read().to_pylist() == wanted
        again = written(plan, pa.Table.from_pylist(wanted, SCHEMA), group)
        assert json.loads(found[0].stats or "") == json.loads(again.stats or "")
        assert found[0].size == (Path(folder) / found[0].path).stat().st_size


def rows_of(count: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "name": [f"n{number % 7}" for number in range(count)],
            "x": [float(number) for number in range(count)],
        }
    )


def drop(file: int, *rows: int) -> pa.Table:
    return pa.table(
        {
            FILE: pa.array([file] * len(rows), pa.int64()),
            ROW: pa.array(rows, pa.int64()),
            DROPPED: [True] * len(rows),
        }
    )


def set_x(values: dict[tuple[int, int], float]) -> pa.Table:
    return pa.table(
        {
            FILE: pa.array([file for file, _ in values], pa.int64()),
            ROW: pa.array([row for _, row in values], pa.int64()),
            "x": pa.array(list(values.values()), pa.float64()),
        }
    )


@pytest.fixture
def groups_of_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltasql.engine.parquet_options._ROW_GROUP", 10)


def chunks(plan: WritePlan, add: AddFile) -> list[list[bytes]]:
    """Return the encoded bytes of every column, by row group."""
    source = pa.OSFile(str(Path(plan.location) / add.path))
    whole = source.read()
    return [
        [whole[chunk.start : chunk.start + chunk.length] for chunk in group.chunks]
        for group in Footer(source).groups
    ]


@pytest.mark.usefixtures("groups_of_ten")
def test_untouched_row_groups_and_columns_are_copied_byte_by_byte(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, rows_of(1).schema)
    before = written(plan, rows_of(30), 10)
    (dropped,) = revised(plan, [before], drop(0, 12, 13))
    assert dropped is not None
    old, new = chunks(plan, before), chunks(plan, dropped[0])
    assert [one == other for one, other in zip(old, new, strict=True)] == [True, False, True]
    (changed,) = revised(plan, [before], set_x({(0, 25): 0.5}))
    assert changed is not None
    new = chunks(plan, changed[0])
    assert new[:2] == old[:2]
    assert new[2][:2] == old[2][:2]
    assert new[2][2] != old[2][2]


@pytest.mark.usefixtures("groups_of_ten")
def test_row_group_without_rows_left_is_gone(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, rows_of(1).schema)
    before = written(plan, rows_of(30), 10)
    (found,) = revised(plan, [before], drop(0, *range(10, 20)))
    assert found is not None
    assert parquet(plan, found[0]).metadata.num_row_groups == 2


def test_changes_find_their_files_and_others_are_passed_by(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, rows_of(1).schema)
    adds = [written(plan, rows_of(5), 5) for _ in range(3)]
    changes = pa.concat_tables([drop(2, 0), drop(3, 0, 1), drop(5, 4), drop(7, 1), drop(9, 3)])
    found = revised(plan, adds, changes, [2, 5, 9])
    ids = [parquet(plan, each[0]).read()["id"].to_pylist() for each in found if each]
    assert ids == [[1, 2, 3, 4], [0, 1, 2, 3], [0, 1, 2, 4]]


def test_words_that_no_row_has_any_more_are_gone_and_new_ones_are_added(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, rows_of(1).schema)
    before = written(plan, rows_of(70), 70)
    changes = pa.table(
        {
            FILE: pa.array([0] * 12, pa.int64()),
            ROW: pa.array([*range(0, 70, 7), 68, 69], pa.int64()),
            DROPPED: [True] * 10 + [False] * 2,
            "name": pa.array([None] * 10 + ["zz", None], pa.string()),
        }
    )
    (found,) = revised(plan, [before], changes)
    assert found is not None
    file = pq.ParquetFile(tmp_path / found[0].path, read_dictionary=["name"])
    names = file.read()["name"].combine_chunks()
    assert sorted(names.dictionary.to_pylist()) == ["n1", "n2", "n3", "n4", "n5", "n6", "zz"]
    assert names.to_pylist()[-2:] == ["zz", None]
    told = file.metadata.row_group(0).column(1).statistics
    assert (told.min, told.max, told.null_count) == ("n1", "zz", 1)
    stats = json.loads(found[0].stats or "")
    assert (stats["minValues"]["name"], stats["maxValues"]["name"]) == ("n1", "zz")
    assert stats["nullCount"]["name"] == 1


def test_text_that_is_only_partly_words_is_revised(tmp_path: Path) -> None:
    rows = rows_of(60).set_column(1, "name", pa.array([f"{n % 50:040d}" for n in range(60)]))
    plan = plan_for(tmp_path, rows.schema)
    add = written(plan, rows, 60)
    # The dictionary is full after a few words: the rest is there as it is.
    pq.write_table(rows, tmp_path / add.path, dictionary_pagesize_limit=100, write_batch_size=5)
    add = replace(add, size=(tmp_path / add.path).stat().st_size)
    (found,) = revised(plan, [add], drop(0, 3))
    assert found is not None
    wanted = [name for n, name in enumerate(rows["name"].to_pylist()) if n != 3]
    assert parquet(plan, found[0]).read()["name"].to_pylist() == wanted


def test_numbers_that_came_with_a_dictionary_are_revised(tmp_path: Path) -> None:
    rows = rows_of(6)
    plan = plan_for(tmp_path, rows.schema)
    add = written(plan, rows, 6)
    coded = rows.set_column(0, "id", rows["id"].dictionary_encode())  # as of a category of pandas
    pq.write_table(coded, tmp_path / add.path)
    add = replace(add, size=(tmp_path / add.path).stat().st_size)
    (found,) = revised(plan, [add], drop(0, 0, 5))
    assert found is not None
    read = parquet(plan, found[0]).read()
    assert read["id"].to_pylist() == [1, 2, 3, 4]
    stats = json.loads(found[0].stats or "")
    assert (stats["minValues"]["id"], stats["maxValues"]["id"]) == (1, 4)


def test_column_that_gets_nan_loses_its_upper_bound(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, rows_of(1).schema)
    before = written(plan, rows_of(5), 5)
    (found,) = revised(plan, [before], set_x({(0, 2): math.nan}))
    assert found is not None
    assert "x" not in json.loads(found[0].stats or "")["maxValues"]
    again = revised(plan, found, drop(0, 0))[0]
    assert again is not None
    assert "x" not in json.loads(again[0].stats or "")["maxValues"]


@pytest.mark.parametrize(
    "stats",
    [
        None,
        "{}",
        '{"numRecords": 5}',
        '{"numRecords": 5, "maxValues": {"x": "NaN"}, "nullCount": {"x": 0}}',
        '{"numRecords": 5, "maxValues": {"x": NaN}, "nullCount": {"x": 0}}',
    ],
)
def test_nan_that_the_log_does_not_rule_out_leaves_no_upper_bound(
    tmp_path: Path, stats: str | None
) -> None:
    plan = plan_for(tmp_path, rows_of(1).schema)
    rows = rows_of(5).set_column(2, "x", pa.array([1.0, math.nan, 3.0, 4.0, 5.0]))
    before = replace(written(plan, rows, 5), stats=stats)
    (found,) = revised(plan, [before], drop(0, 0))
    assert found is not None
    new = json.loads(found[0].stats or "")
    assert "x" not in new["maxValues"]
    assert new["maxValues"]["id"] == 4


def test_column_that_a_file_has_without_nulls_is_not_given_one(tmp_path: Path) -> None:
    rows = rows_of(5)
    plan = plan_for(tmp_path, rows.schema)
    add = written(plan, rows, 5)
    strict = pa.schema([rows.schema.field(0), rows.schema.field(1), X_WITHOUT_NULLS])
    pq.write_table(rows.cast(strict), tmp_path / add.path)
    add = replace(add, size=(tmp_path / add.path).stat().st_size)
    nothing = set_x({(0, 2): 1.0}).set_column(2, "x", pa.array([None], pa.float64()))
    assert revised(plan, [add], nothing) == [None]
    assert revised(plan, [add], drop(0, 1))[0] is not None


def test_nested_columns_under_mapped_names_are_revised(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("s", INNER)])
    mapping = {"delta.columnMapping.mode": "name", "delta.dataSkippingNumIndexedCols": "1"}
    plan = plan_for(tmp_path, schema, configuration=mapping)
    rows = [{"id": n, "s": {"a": n, "b": ["x"] * n} if n % 3 else None} for n in range(6)]
    before = written(plan, pa.Table.from_pylist(rows, schema), 6)
    changes = pa.table(
        {
            FILE: pa.array([0, 0], pa.int64()),
            ROW: pa.array([0, 4], pa.int64()),
            "s": pa.array([{"a": 7, "b": [None]}, None], INNER),
        }
    )
    (found,) = revised(plan, [before], changes)
    assert found is not None
    values = parquet(plan, found[0]).read()["s"].to_pylist()
    assert values == [{"a": 7, "b": [None]}, *(row["s"] for row in rows[1:4]), None, rows[5]["s"]]


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zstd"},
        {"use_deprecated_int96_timestamps": True},
        {"write_statistics": False},
        {"store_decimal_as_integer": True},
    ],
    ids=str,
)
def test_file_that_is_stored_otherwise_is_left_to_be_written_anew(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    rows = pa.table(
        {
            "at": pa.array([datetime(2024, 5, 1, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")),
            "price": pa.array([Decimal("1.50")] * 3, pa.decimal128(9, 2)),
        }
    )
    plan = plan_for(tmp_path, rows.schema)
    (add,) = write_batches(rows.to_reader(), plan)
    assert revised(plan, [add], drop(0, 1))[0] is not None
    pq.write_table(rows, tmp_path / add.path, **options)
    add = replace(add, size=(tmp_path / add.path).stat().st_size)
    assert revised(plan, [add], drop(0, 1)) == [None]


def test_file_that_tells_of_an_old_calendar_is_left_to_be_written_anew(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, rows_of(1).schema)
    add = written(plan, rows_of(5), 5)
    for key, is_revised in {"other": True, "org.apache.spark.legacyDateTime": False}.items():
        pq.write_table(rows_of(5).replace_schema_metadata({key: ""}), tmp_path / add.path)
        here = replace(add, size=(tmp_path / add.path).stat().st_size)
        assert (revised(plan, [here], drop(0, 1)) != [None]) == is_revised


def test_bytes_in_the_place_of_text_are_left_to_be_written_anew(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, rows_of(1).schema)
    add = written(plan, rows_of(5), 5)
    raw = rows_of(5).set_column(1, "name", rows_of(5)["name"].cast(pa.binary()))
    pq.write_table(raw, tmp_path / add.path)
    add = replace(add, size=(tmp_path / add.path).stat().st_size)
    assert revised(plan, [add], drop(0, 1)) == [None]


def test_file_that_is_not_the_one_in_the_log_is_left_alone(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, rows_of(1).schema)
    add = written(plan, rows_of(50), 50)
    assert add.size is not None
    assert revised(plan, [replace(add, size=add.size + 1)], drop(0, 1)) == [None]
    path = tmp_path / add.path
    whole = path.read_bytes()
    path.write_bytes(whole[:40] + whole[60:])  # a column would end in the footer
    assert revised(plan, [replace(add, size=add.size - 20)], drop(0, 1)) == [None]


def test_file_that_is_cut_while_it_is_copied_is_an_error(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, rows_of(1).schema)
    path = tmp_path / written(plan, rows_of(5), 5).path
    footer = Footer(pa.OSFile(str(path)))
    path.write_bytes(path.read_bytes()[:20])
    splicer = Splicer(pa.BufferOutputStream(), footer)
    with pytest.raises(TxnLogEngineError, match="not copied as it is"):
        splicer.add(5, footer.groups[0].chunks)


def test_change_of_a_row_that_a_file_does_not_have_is_an_error(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, rows_of(1).schema)
    adds = [written(plan, rows_of(5), 5) for _ in range(2)]
    here = set(tmp_path.iterdir())
    with pytest.raises(TxnLogEngineError, match="a file does not have"):
        revised(plan, adds, pa.concat_tables([drop(0, 1, 5), drop(1, 1)]))
    assert set(tmp_path.iterdir()) == here


def test_more_values_than_arrow_can_hold_are_left_to_be_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_for(tmp_path, rows_of(1).schema)
    adds = [written(plan, rows_of(5), 5) for _ in range(4)]
    here = set(tmp_path.iterdir())

    def too_much(*_: object, **__: object) -> None:
        raise pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes")

    with monkeypatch.context() as patch:
        patch.setattr("pyarrow.compute.replace_with_mask", too_much)
        changes = {(number, 1): 0.5 for number in range(4)}
        assert revised(plan, adds, set_x(changes)) == [None] * 4
    assert set(tmp_path.iterdir()) == here


def test_files_are_not_all_open_at_once(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    plan = plan_for(tmp_path, rows_of(1).schema)
    add = written(plan, rows_of(5), 5)
    count = 300
    everything = pa.concat_tables([drop(number, *range(5)) for number in range(count)])
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 150, before[1]))
    try:
        found = revised(plan, [add] * count, everything)
        some = revised(plan, [add] * count, pa.concat_tables([drop(n, 1) for n in range(count)]))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert found == [[]] * count
    assert all(some)


def test_failure_leaves_no_file(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, rows_of(1).schema)
    adds = [written(plan, rows_of(5), 5) for _ in range(2)]
    here = set(tmp_path.iterdir())

    def broken() -> Iterator[pa.RecordBatch]:
        yield from drop(0, 1).to_batches()
        raise RuntimeError("the source is gone")

    reader = pa.RecordBatchReader.from_batches(drop(0, 1).schema, broken())
    with pytest.raises(RuntimeError, match="the source is gone"):
        revise_files(listed(plan, adds), [0, 1], reader, plan)
    assert set(tmp_path.iterdir()) == here


def test_not_a_parquet_file_is_no_footer(tmp_path: Path) -> None:
    for name, content in {
        "short": b"PAR1",
        "other": b"x" * 40,
        "long": b"PAR1PAR1\xff\xff\x00\x00PAR1",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match="not a plain Parquet file"):
            Footer(pa.OSFile(str(tmp_path / name)))
