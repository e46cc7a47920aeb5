"""MERGE: order of the clauses, files that are read and rewritten, schema evolution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError

from deltasql.exceptions import MergeAmbiguityError, TxnLogError, TxnLogSchemaError
from tests.operations.dml import changes, handle, make, paths, read, sorted_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.transaction.merger import Merger

FEED = {"delta.enableChangeDataFeed": "true"}
TARGET = pa.table({"id": [1, 2, 3, None], "s": ["a", "b", "c", "d"], "v": [1.0, 2.0, 3.0, 4.0]})
SOURCE = pa.table({"id": [2, 5, None], "s": ["B", "E", "N"], "v": [20.0, 50.0, 60.0]})


def merge(
    catalog: Catalog,
    clauses: Callable[[Merger], Merger],
    source: Any = SOURCE,
    on: str = "t.id = s.id",
    **options: Any,
) -> dict[str, int]:
    with catalog.begin() as tx:
        merger = tx.merge("t", source, on, source_alias="s", target_alias="t", **options)
        return clauses(merger).execute()


def upsert(merger: Merger) -> Merger:
    return merger.when_matched_update_all().when_not_matched_insert_all()


def shown(rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    return {tuple(row.values()) for row in rows}


def test_upsert_updates_matches_and_inserts_the_rest(catalog: Catalog) -> None:
    make(catalog, TARGET)
    metrics = merge(catalog, upsert)
    assert shown(sorted_rows(catalog)) == {
        (1, "a", 1.0),
        (2, "B", 20.0),
        (3, "c", 3.0),
        (None, "d", 4.0),
        (5, "E", 50.0),
        (None, "N", 60.0),
    }
    assert {key: value for key, value in metrics.items() if not key.endswith("_ms")} == {
        "num_source_rows": 3,
        "num_target_rows_inserted": 2,
        "num_target_rows_updated": 1,
        "num_target_rows_deleted": 0,
        "num_target_rows_copied": 3,
        "num_output_rows": 6,
        "num_target_files_scanned": 1,
        "num_target_files_skipped_during_scan": 0,
        "num_target_files_added": 1,
        "num_target_files_removed": 1,
    }


def test_first_clause_whose_condition_holds_applies(catalog: Catalog) -> None:
    make(catalog, TARGET)
    source = pa.table({"id": [1, 2, 3, 7, 8]})
    metrics = merge(
        catalog,
        lambda m: (
            m.when_matched_update({"v": "t.v * 10"}, "t.v < 2")
            .when_matched_delete("t.v < 3")
            .when_matched_update({"s": "'last'"})
            .when_not_matched_insert({"id": "s.id", "s": "'seven'"}, "s.id = 7")
            .when_not_matched_insert({"id": "s.id", "s": "'other'"})
            .when_not_matched_by_source_delete("t.v > 100")
            .when_not_matched_by_source_update({"s": "concat(t.s, '!')"})
        ),
        source,
    )
    assert shown(sorted_rows(catalog)) == {
        (1, "a", 10.0),
        (3, "last", 3.0),
        (None, "d!", 4.0),
        (7, "seven", None),
        (8, "other", None),
    }
    assert metrics["num_target_rows_updated"] == 3
    assert metrics["num_target_rows_deleted"] == 1
    assert metrics["num_target_rows_inserted"] == 2


def test_only_files_with_changed_rows_are_rewritten(catalog: Catalog) -> None:
    parts = [pa.table({"id": list(range(i, i + 10)), "v": [0] * 10}) for i in range(0, 40, 10)]
    make(catalog, *parts)
    before = paths(catalog)
    metrics = merge(catalog, upsert, pa.table({"id": [12, 35], "v": [1, 1]}))
    assert len(before & paths(catalog)) == 2
    assert metrics["num_target_files_removed"] == 2
    assert metrics["num_target_rows_copied"] == 18
    assert metrics["num_target_files_skipped_during_scan"] == 1  # the file 0..9 cannot match


def test_files_outside_the_key_range_of_the_source_are_not_opened(catalog: Catalog) -> None:
    table = make(catalog, pa.table({"id": [1, 2]}), pa.table({"id": [100, 200]}))
    lost = table.snapshot.scan("id < 50").paths()
    for path in lost:
        catalog_file = f"{table.row.location}/{path}"
        with open(catalog_file, "wb"):
            pass
    merge(catalog, lambda m: m.when_matched_delete(), pa.table({"id": [100]}))
    assert set(lost) < paths(catalog)


def test_partitions_without_source_rows_are_skipped(catalog: Catalog) -> None:
    rows = pa.table({"p": ["a", "b", "c", "d"], "id": [1, 2, 3, 4]})
    make(catalog, rows, partition_by=["p"])
    source = pa.table({"p": ["a", "d"], "id": [1, 9]})
    metrics = merge(catalog, upsert, source, "t.p = s.p AND t.id = s.id")
    assert metrics["num_target_files_scanned"] == 2
    assert shown(sorted_rows(catalog)) == {("a", 1), ("b", 2), ("c", 3), ("d", 4), ("d", 9)}


def test_insert_only_merge_rewrites_no_file(catalog: Catalog) -> None:
    make(catalog, TARGET)
    before = paths(catalog)
    metrics = merge(catalog, lambda m: m.when_not_matched_insert_all())
    assert before < paths(catalog)
    assert metrics["num_target_files_removed"] == metrics["num_target_rows_copied"] == 0
    assert metrics["num_output_rows"] == metrics["num_target_rows_inserted"] == 2


def test_merge_without_effect_commits_nothing(catalog: Catalog) -> None:
    table = make(catalog, TARGET)
    assert merge(catalog, lambda m: m)["num_source_rows"] == 3
    merge(catalog, lambda m: m.when_matched_delete(), pa.table({"id": [77]}))
    merge(catalog, upsert, SOURCE.slice(0, 0))
    assert handle(catalog).snapshot.version == table.snapshot.version


@pytest.mark.parametrize("condition", [None, "s.v > 0"])
def test_two_source_rows_that_change_one_row_are_an_error(
    catalog: Catalog, condition: str | None
) -> None:
    table = make(catalog, TARGET)
    twice = pa.table({"id": [2, 2], "v": [1.0, 2.0]})
    with pytest.raises(MergeAmbiguityError, match="multiple source rows") as caught:
        merge(catalog, lambda m: m.when_matched_update({"v": "s.v"}, condition), twice)
    assert isinstance(caught.value, CommitFailedError)
    assert "row ordinal in file: 1" in str(caught.value)
    with pytest.raises(MergeAmbiguityError):
        merge(catalog, lambda m: m.when_matched_delete("s.v > 0"), twice)
    assert handle(catalog).snapshot.version == table.snapshot.version


def test_second_source_row_that_changes_nothing_is_allowed(catalog: Catalog) -> None:
    make(catalog, TARGET)
    twice = pa.table({"id": [2, 2], "v": [1.0, 20.0]})
    merge(catalog, lambda m: m.when_matched_update({"v": "s.v"}, "s.v > 10"), twice)
    assert (2, "b", 20.0) in shown(sorted_rows(catalog))
    assert len(sorted_rows(catalog)) == 4


def test_unconditional_delete_allows_several_source_rows(catalog: Catalog) -> None:
    make(catalog, TARGET)
    twice = pa.table({"id": [2, 2, 9]})
    metrics = merge(catalog, lambda m: m.when_matched_delete(), twice)
    assert metrics["num_target_rows_deleted"] == 1
    assert len(sorted_rows(catalog)) == 3


def test_unmatched_duplicates_are_all_inserted(catalog: Catalog) -> None:
    make(catalog, TARGET)
    source = pa.table({"id": [8, 8], "s": ["x", "x"], "v": [1.0, 1.0]})
    assert merge(catalog, upsert, source)["num_target_rows_inserted"] == 2


def test_new_source_column_is_ignored_without_merge_schema(catalog: Catalog) -> None:
    make(catalog, TARGET)
    source = SOURCE.append_column("extra", pa.array([7, 8, 9]))
    merge(catalog, upsert, source)
    assert list(sorted_rows(catalog)[0]) == ["id", "s", "v"]
    merge(catalog, upsert, source.slice(0, 1), merge_schema=True)
    assert (2, "B", 20.0, 7) in shown(sorted_rows(catalog))
    assert (1, "a", 1.0, None) in shown(sorted_rows(catalog))


def test_merge_schema_adds_struct_fields(catalog: Catalog) -> None:
    make(catalog, pa.table({"id": [1, 2], "p": [{"x": 1}, {"x": 2}]}))
    source = pa.table({"id": [2, 3], "p": [{"y": "b", "x": 20}, {"y": "c", "x": 30}]})
    merge(catalog, upsert, source, merge_schema=True)
    assert sorted_rows(catalog) == [
        {"id": 1, "p": {"x": 1, "y": None}},
        {"id": 2, "p": {"x": 20, "y": "b"}},
        {"id": 3, "p": {"x": 30, "y": "c"}},
    ]


def test_except_cols_are_not_written(catalog: Catalog) -> None:
    make(catalog, TARGET)
    merge(
        catalog,
        lambda m: m.when_matched_update_all(except_cols=["s"]).when_not_matched_insert_all(
            predicate="s.id IS NOT NULL", except_cols=["v"]
        ),
    )
    assert {(2, "b", 20.0), (5, "E", None)} < shown(sorted_rows(catalog))
    assert len(sorted_rows(catalog)) == 5


def test_unqualified_name_resolves_when_only_one_side_has_it(catalog: Catalog) -> None:
    make(catalog, TARGET)
    with catalog.begin() as tx:
        merger = tx.merge("t", pa.table({"key": [2], "w": [9.0]}), "id = key")
        merger.when_matched_update({"v": "w + target.v"}).execute()
    assert (2, "b", 11.0) in shown(sorted_rows(catalog))


def test_unknown_names_are_rejected(catalog: Catalog) -> None:
    make(catalog, TARGET)
    with pytest.raises(TxnLogSchemaError, match=r"No field named s\.yy"):
        merge(catalog, lambda m: m.when_matched_update({"zz": "s.yy"}))
    with pytest.raises(TxnLogSchemaError, match="zz"):
        merge(catalog, lambda m: m.when_matched_update({"v": "s.zz"}))
    with pytest.raises(TxnLogSchemaError, match=r"No field named t\.v"):
        merge(catalog, lambda m: m.when_not_matched_insert({"v": "t.v"}))


def test_failed_cast_is_an_error_or_null(catalog: Catalog) -> None:
    make(catalog, TARGET)
    with pytest.raises(
        TxnLogSchemaError, match="Cast error: Cannot cast string 'B' to value of Float64"
    ):
        merge(catalog, lambda m: m.when_matched_update({"v": "s.s"}))
    merge(catalog, lambda m: m.when_matched_update({"v": "s.s"}), error_on_type_mismatch=False)
    assert (2, "b", None) in shown(sorted_rows(catalog))


def test_constraints_are_enforced_on_new_rows(catalog: Catalog) -> None:
    make(catalog, TARGET, properties={"delta.constraints.small": "v < 55"})
    with pytest.raises(TxnLogError, match="Invalid data found: 1 rows failed validation check"):
        merge(catalog, upsert)
    merge(catalog, upsert, SOURCE.slice(0, 2))
    assert (5, "E", 50.0) in shown(sorted_rows(catalog))


def test_merge_source_can_be_a_stream(catalog: Catalog) -> None:
    make(catalog, TARGET)
    reader = pa.RecordBatchReader.from_batches(SOURCE.schema, SOURCE.to_batches(max_chunksize=1))
    assert merge(catalog, upsert, reader)["num_source_rows"] == 3
    assert len(sorted_rows(catalog)) == 6


def test_merge_sees_earlier_merges_of_its_transaction(catalog: Catalog) -> None:
    make(catalog, TARGET)
    with catalog.begin() as tx:
        for value in (1.0, 2.0):
            source = pa.table({"id": [50], "s": ["n"], "v": [value]})
            upsert(tx.merge("t", source, "target.id = source.id")).execute()
        tx.update("t", {"s": "'changed'"}, predicate="id = 50")
        assert (50, "changed", 2.0) in shown(read(tx.target("t")))
    assert len(sorted_rows(catalog)) == 5


def test_change_data_has_rows_of_every_clause(catalog: Catalog) -> None:
    make(catalog, TARGET, properties=FEED)
    merge(
        catalog,
        lambda m: (
            m.when_matched_update_all()
            .when_not_matched_insert_all("s.id = 5")
            .when_not_matched_by_source_delete("t.id = 1")
        ),
    )
    assert {(row["id"], row["v"], row["_change_type"]) for row in changes(catalog)} == {
        (2, 2.0, "update_preimage"),
        (2, 20.0, "update_postimage"),
        (5, 50.0, "insert"),
        (1, 1.0, "delete"),
    }


def test_insert_only_merge_writes_no_change_data(catalog: Catalog) -> None:
    make(catalog, TARGET, properties=FEED)
    merge(catalog, lambda m: m.when_not_matched_insert_all())
    assert changes(catalog) == []


def test_merge_condition_can_be_any_expression(catalog: Catalog) -> None:
    make(catalog, pa.table({"at": [1, 5, 9], "w": ["", "", ""]}))
    spans = pa.table({"low": [0, 4], "high": [3, 6], "name": ["early", "mid"]})
    merge(
        catalog,
        lambda m: m.when_matched_update({"w": "s.name"}),
        spans,
        "t.at BETWEEN s.low AND s.high",
    )
    assert shown(sorted_rows(catalog)) == {(1, "early"), (5, "mid"), (9, "")}


def test_source_values_are_cast_to_table_types(catalog: Catalog) -> None:
    schema = pa.schema([("id", pa.int32()), ("at", pa.timestamp("us", "UTC")), ("s", pa.string())])
    make(catalog, pa.table({"id": [1], "at": [0], "s": ["a"]}, schema=schema))
    source = pa.table(
        {
            "id": pa.array([1, 2], pa.uint64()),
            "at": pa.array([10**9, 2 * 10**9], pa.timestamp("ns", "Europe/Paris")),
            "s": pa.array(["x", "y"]).dictionary_encode(),
        }
    )
    merge(catalog, upsert, source)
    assert [(row["id"], row["at"].timestamp(), row["s"]) for row in sorted_rows(catalog)] == [
        (1, 1.0, "x"),
        (2, 2.0, "y"),
    ]


def test_generated_columns_are_recomputed(catalog: Catalog) -> None:
    twice = pa.field("twice", pa.int64(), metadata={"delta.generationExpression": "n * 2"})
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), twice])
    catalog.create_table("t", schema)
    make(catalog, pa.table({"id": [1, 2], "n": [1, 2]}))
    merge(catalog, upsert, pa.table({"id": [2, 3], "n": [20, 30]}))
    assert shown(sorted_rows(catalog)) == {(1, 1, 2), (2, 20, 40), (3, 30, 60)}
    with catalog.begin() as tx:
        tx.update("t", {"n": "n + 1"}, predicate="id = 1")
    assert (1, 2, 4) in shown(sorted_rows(catalog))


def test_merge_works_with_column_mapping(catalog: Catalog) -> None:
    make(catalog, TARGET, properties={"delta.columnMapping.mode": "name"})
    merge(catalog, upsert, SOURCE.append_column("more", pa.array([1, 2, 3])), merge_schema=True)
    assert {(2, "B", 20.0, 1), (1, "a", 1.0, None)} < shown(sorted_rows(catalog))


def test_error_for_column_of_neither_side_lists_valid_fields(catalog: Catalog) -> None:
    make(catalog, TARGET)
    with pytest.raises(TxnLogSchemaError, match="neither side of the merge has") as caught:
        merge(catalog, upsert, on="t.id = s.ix")
    assert "Did you mean 's.id'?\nValid fields are" in str(caught.value)
