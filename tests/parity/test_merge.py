"""`merge`: clauses, their order, and metrics."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, PostCommitHookProperties
from deltalake.exceptions import DeltaError
from deltalake.table import TableMerger

from tests.parity.lakes import Lake, column, counts, numbers, rows, sample

METRICS = (
    "num_source_rows",
    "num_target_rows_inserted",
    "num_target_rows_updated",
    "num_target_rows_deleted",
    "num_target_rows_copied",
    "num_output_rows",
    "num_target_files_scanned",
    "num_target_files_skipped_during_scan",
    "num_target_files_added",
    "num_target_files_removed",
)


def source(**changes: Any) -> pa.Table:
    """Return rows 2 to 4 with other values; row 4 is not in the sample."""
    return sample(**{"id": [2, 3, 4], "p": ["x", "y", "z"], "v": [20.0, 30.0, 40.0], **changes})


def merge(table: Any, data: Any, predicate: str = "s.id = t.id", **options: Any) -> TableMerger:
    return table.merge(data, predicate, source_alias="s", target_alias="t", **options)  # type: ignore[no-any-return]


def values(table: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows(table)]


def test_upsert_updates_and_inserts(lake: Lake) -> None:
    table = lake.make("t", sample())
    builder = merge(table, source()).when_matched_update_all().when_not_matched_insert_all()
    assert isinstance(builder, TableMerger)
    result = builder.execute()
    assert values(table) == [(1, "a", 1.5), (2, "x", 20.0), (3, "y", 30.0), (4, "z", 40.0)]
    assert table.version() == 1
    assert counts(result) == dict(zip(METRICS, (3, 1, 2, 0, 1, 4, 1, 0, 1, 1), strict=True))
    assert {"execution_time_ms", "scan_time_ms", "rewrite_time_ms"} <= result.keys()


def test_insert_only_merge_rewrites_no_file(lake: Lake) -> None:
    table = lake.make("t", sample())
    before = table.file_uris()
    result = merge(table, source()).when_not_matched_insert_all().execute()
    assert counts(result) == dict(zip(METRICS, (3, 1, 0, 0, 0, 1, 1, 0, 1, 0), strict=True))
    assert values(table) == [(1, "a", 1.5), (2, "b", None), (3, "a", 2.5), (4, "z", 40.0)]
    assert set(before) < set(table.file_uris())


def test_all_clause_kinds_work_in_one_merge(lake: Lake) -> None:
    table = lake.make("t", sample())
    result = (
        merge(table, source())
        .when_matched_delete("s.v > 25")
        .when_matched_update({"v": "s.v + t.id"})
        .when_not_matched_insert({"id": "s.id"})
        .when_not_matched_by_source_update({"p": "'gone'"}, "t.id = 1")
        .execute()
    )
    assert values(table) == [(1, "gone", 1.5), (2, "b", 22.0), (4, None, None)]
    assert counts(result) == dict(zip(METRICS, (3, 1, 2, 1, 0, 3, 1, 0, 1, 1), strict=True))


def test_first_matching_clause_applies(lake: Lake) -> None:
    table = lake.make("t", numbers(0, 4))
    (
        merge(table, numbers(0, 6))
        .when_matched_update({"v": "-1"}, predicate="t.id < 1")
        .when_matched_update({"v": "-2"}, predicate="t.id < 2")
        .when_matched_delete(predicate="t.id < 3")
        .when_matched_update({"v": "-3"})
        .when_not_matched_insert({"id": "s.id", "v": "-4"}, predicate="s.id = 4")
        .when_not_matched_insert_all()
        .execute()
    )
    assert values(table) == [(0, -1), (1, -2), (3, -3), (4, -4), (5, 50)]


def test_rows_without_a_matching_clause_stay(lake: Lake) -> None:
    table = lake.make("t", sample())
    merge(table, source()).when_matched_update_all("s.v > 25").execute()
    assert values(table) == [(1, "a", 1.5), (2, "b", None), (3, "y", 30.0)]
    result = merge(table, source()).when_matched_update_all("s.v > 1000").execute()
    assert result["num_target_rows_updated"] == 0
    assert values(table) == [(1, "a", 1.5), (2, "b", None), (3, "y", 30.0)]


def test_clause_with_a_null_condition_does_not_apply(lake: Lake) -> None:
    table = lake.make("t", sample())
    merge(table, source()).when_matched_update_all("s.v > t.v").execute()
    assert values(table) == [(1, "a", 1.5), (2, "b", None), (3, "y", 30.0)]


def test_not_matched_by_source_updates_and_deletes(lake: Lake) -> None:
    table = lake.make("t", numbers(0, 5))
    result = (
        merge(table, numbers(3, 4))
        .when_not_matched_by_source_update({"v": "-1"}, predicate="t.id < 2")
        .when_not_matched_by_source_delete()
        .execute()
    )
    assert values(table) == [(0, -1), (1, -1), (3, 30)]
    assert (result["num_target_rows_updated"], result["num_target_rows_deleted"]) == (2, 2)


def test_merge_without_clauses_makes_no_commit(lake: Lake) -> None:
    table = lake.make("t", sample())
    result = merge(table, source()).execute()
    assert result["num_output_rows"] == 0
    assert table.version() == 0


def test_merge_without_changes_makes_no_commit(lake: Lake) -> None:
    table = lake.make("t", sample())
    empty = source().slice(0, 0)
    merge(table, empty).when_matched_update_all().when_not_matched_insert_all().execute()
    assert table.version() == 0


def test_except_cols_excludes_columns(lake: Lake) -> None:
    table = lake.make("t", sample())
    (
        merge(table, source())
        .when_matched_update_all(except_cols=["p"])
        .when_not_matched_insert_all(except_cols=["v"])
        .when_not_matched_by_source_delete()
        .execute()
    )
    assert values(table) == [(2, "b", 20.0), (3, "a", 30.0), (4, "z", None)]


def test_two_source_rows_that_update_one_target_row_are_rejected(lake: Lake) -> None:
    table = lake.make("t", sample())
    twice = pa.table({"id": [2, 2], "p": ["x", "y"], "v": [1.0, 2.0]})
    with pytest.raises(DeltaError, match="multiple source rows"):
        merge(table, twice).when_matched_update_all().execute()
    assert values(lake.DeltaTable(lake.uri("t"))) == [(1, "a", 1.5), (2, "b", None), (3, "a", 2.5)]


def test_two_source_rows_are_allowed_if_one_applies(lake: Lake) -> None:
    table = lake.make("t", sample())
    twice = pa.table({"id": [2, 2], "p": ["x", "y"], "v": [1.0, 2.0]})
    merge(table, twice).when_matched_update_all("s.v = 1.0").execute()
    assert values(table) == [(1, "a", 1.5), (2, "x", 1.0), (3, "a", 2.5)]


def test_row_can_be_deleted_by_two_source_rows(lake: Lake) -> None:
    table = lake.make("t", sample())
    twice = pa.table({"id": [2, 2], "p": ["x", "y"], "v": [1.0, 2.0]})
    result = merge(table, twice).when_matched_delete().execute()
    assert column(table, "id") == [1, 3]
    assert result["num_target_rows_deleted"] == 1


def test_inserted_rows_can_repeat_a_key(lake: Lake) -> None:
    table = lake.make("t", sample())
    twice = pa.table({"id": [7, 7], "p": ["x", "y"], "v": [1.0, 2.0]})
    merge(table, twice).when_matched_update_all().when_not_matched_insert_all().execute()
    assert column(table, "id") == [1, 2, 3, 7, 7]


def test_null_keys_never_match(lake: Lake) -> None:
    data = pa.table({"id": pa.array([None, 2], pa.int64()), "p": ["n", "m"], "v": [0.0, 0.0]})
    table = lake.make("t", sample())
    merge(table, data).when_matched_update_all().when_not_matched_insert_all().execute()
    assert column(table, "id") == [1, 2, 3, None]
    merge(table, data).when_not_matched_insert_all().execute()
    assert column(table, "id") == [1, 2, 3, None, None]


def test_is_not_distinct_from_matches_null_keys(lake: Lake) -> None:
    data = pa.table({"id": pa.array([None, 2], pa.int64()), "p": ["n", "m"], "v": [0.0, 0.0]})
    table = lake.make("t", data)
    merge(table, data, "s.id is not distinct from t.id").when_matched_delete().execute()
    assert table.count() == 0


def test_merge_rewrites_only_files_with_matching_rows(lake: Lake) -> None:
    table = lake.make("t", numbers(0, 10))
    for start in (10, 20):
        lake.write_deltalake(table, numbers(start, start + 10), mode="append")
    before = set(table.file_uris())
    data = pa.table({"id": [15], "v": [-1]})
    result = merge(table, data).when_matched_update_all().execute()
    assert result["num_target_files_removed"] == 1
    assert result["num_target_rows_updated"] == 1
    assert len(before & set(table.file_uris())) == 2


def test_partition_predicate_skips_files(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    result = (
        merge(table, source(), "s.id = t.id and t.p = 'a'")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    assert sorted(values(table), key=str) == [
        (1, "a", 1.5),
        (2, "b", None),
        (2, "x", 20.0),
        (3, "y", 30.0),
        (4, "z", 40.0),
    ]
    assert result["num_target_files_scanned"] == 1
    assert result["num_target_files_skipped_during_scan"] == 1
    assert result["num_target_files_removed"] == 1


def test_upsert_matches_by_key_and_partition(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    data = sample(id=[1, 2, 9], p=["a", "b", "c"], v=[10.0, 20.0, 90.0])
    (
        merge(table, data, "s.id = t.id and s.p = t.p")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    assert values(table) == [(1, "a", 10.0), (2, "b", 20.0), (3, "a", 2.5), (9, "c", 90.0)]
    assert sorted(each["p"] for each in table.partitions()) == ["a", "b", "c"]


def test_history_records_the_merge(lake: Lake) -> None:
    table = lake.make("t", sample())
    properties = CommitProperties(custom_metadata={"who": "me"})
    builder = merge(table, source(), commit_properties=properties)
    result = builder.when_matched_delete("s.v > 25").when_not_matched_insert_all().execute()
    commit = table.history(1)[0]
    assert (commit["operation"], commit["readVersion"], commit["who"]) == ("MERGE", 0, "me")
    parameters = commit["operationParameters"]
    assert json.loads(parameters["matchedPredicates"]) == [
        {"actionType": "delete", "predicate": "s.v > 25"}
    ]
    assert json.loads(parameters["notMatchedPredicates"]) == [{"actionType": "insert"}]
    assert json.loads(parameters["notMatchedBySourcePredicates"]) == []
    assert "mergePredicate" in parameters
    assert counts(commit["operationMetrics"]) == counts(result)


def test_positional_commit_arguments_warn(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.warns(DeprecationWarning, match="positionally to merge"):
        builder = table.merge(
            source(),
            "s.id = t.id",
            "s",
            "t",
            False,
            True,
            None,
            True,
            None,
            None,
            PostCommitHookProperties(create_checkpoint=False),
            CommitProperties(custom_metadata={"who": "me"}),
        )
    builder.when_matched_delete().execute()
    assert table.history(1)[0]["who"] == "me"
