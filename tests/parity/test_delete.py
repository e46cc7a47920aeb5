"""`delete`: which rows and files are deleted, and the reported metrics."""

from __future__ import annotations

import math
from datetime import date

import pyarrow as pa
import pytest
from deltalake import CommitProperties, PostCommitHookProperties
from deltalake.exceptions import DeltaError

from tests.parity.lakes import Lake, column, counts, numbers, sample


def metrics(added: int, removed: int, deleted: int, copied: int) -> dict[str, int]:
    return {
        "num_added_files": added,
        "num_removed_files": removed,
        "num_deleted_rows": deleted,
        "num_copied_rows": copied,
    }


def test_delete_removes_matching_rows(lake: Lake) -> None:
    table = lake.make("t", sample())
    result = table.delete("id = 1")
    assert counts(result) == metrics(1, 1, 1, 2)
    assert {"execution_time_ms", "scan_time_ms", "rewrite_time_ms"} <= result.keys()
    assert (table.version(), column(table, "id")) == (1, [2, 3])


def test_delete_without_predicate_removes_all_rows(lake: Lake) -> None:
    table = lake.make("t", sample())
    assert counts(table.delete()) == metrics(0, 1, 3, 0)
    assert (table.version(), table.count(), table.file_uris()) == (1, 0, [])
    assert table.schema() == lake.DeltaTable(lake.uri("t"), version=0).schema()


def test_delete_rewrites_only_files_with_matching_rows(lake: Lake) -> None:
    table = lake.make("t", numbers(0, 10))
    for start in (10, 20):
        lake.write_deltalake(table, numbers(start, start + 10), mode="append")
    before = set(table.file_uris())
    assert counts(table.delete("id = 12")) == metrics(1, 1, 1, 9)
    assert len(before & set(table.file_uris())) == 2
    assert counts(table.delete("id between 0 and 9")) == metrics(0, 1, 10, 0)
    assert column(table, "id") == [10, 11, *range(13, 30)]


def test_delete_without_matches_makes_no_commit(lake: Lake) -> None:
    table = lake.make("t", sample())
    assert counts(table.delete("id = 99")) == metrics(0, 0, 0, 0)
    assert table.version() == 0
    table.delete()
    assert counts(table.delete()) == metrics(0, 0, 0, 0)
    assert table.version() == 1


def test_delete_of_a_whole_partition_rewrites_no_file(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    kept = table.file_uris(file_pruning_predicate="p = 'a'")
    assert counts(table.delete("p = 'b'")) == metrics(0, 1, 1, 0)
    assert table.file_uris() == kept
    assert table.partitions() == [{"p": "a"}]


def test_predicate_can_use_partition_and_data_columns(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    assert counts(table.delete("p = 'a' and id > 1")) == metrics(1, 1, 1, 1)
    assert column(table, "id") == [1, 2]


def test_null_condition_matches_no_row(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.delete("v > 2")
    assert column(table, "id") == [1, 2]
    table.delete("not (v > 2)")
    assert column(table, "id") == [2]
    table.delete("v is null")
    assert table.count() == 0


@pytest.mark.parametrize(
    ("predicate", "left"),
    [
        ("id in (1, 3)", [2]),
        ("id not in (1, 3)", [1, 3]),
        ("p like 'a%'", [2]),
        ("p = 'a' or id = 2", []),
        ("id >= 2 and id <= 3", [1]),
        ("v is not null", [2]),
        ("id % 2 = 1", [2]),
        ("coalesce(v, 0.0) < 1", [1, 3]),
        ("upper(p) = 'A'", [2]),
        ("case when id = 1 then true else false end", [2, 3]),
        ("cast(id as string) = '2'", [1, 3]),
        ('"id" = 1', [2, 3]),
        ("id <> 1", [1]),
        ("id != 1", [1]),
        ("true", []),
    ],
)
def test_delete_accepts_sql_predicates(lake: Lake, predicate: str, left: list[int]) -> None:
    table = lake.make("t", sample())
    table.delete(predicate)
    assert column(table, "id") == left


def test_dates_and_timestamps_compare_with_strings(lake: Lake) -> None:
    timestamps = pa.array([0, 86_400_000_000 * 365], pa.timestamp("us", "UTC"))
    data = pa.table({"id": [1, 2], "d": [date(2020, 1, 1), date(2021, 1, 1)], "ts": timestamps})
    table = lake.make("t", data)
    table.delete("ts > '1970-06-01T00:00:00Z'")
    assert column(table, "id") == [1]
    table.delete("d = '2020-01-01'")
    assert column(table, "id") == []


def test_predicate_can_use_a_struct_field(lake: Lake) -> None:
    table = lake.make("t", pa.table({"id": [1, 2], "s": [{"a": 1}, {"a": 2}]}))
    table.delete("s['a'] = 2")
    assert column(table, "id") == [1]


def test_invalid_predicates_are_rejected(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(DeltaError, match="zz"):
        table.delete("zz = 1")
    with pytest.raises(DeltaError):
        table.delete("id = ")
    assert table.version() == 0


def test_history_records_the_delete(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.delete("id = 1", commit_properties=CommitProperties(custom_metadata={"who": "me"}))
    commit = table.history(1)[0]
    assert commit["operation"] == "DELETE"
    assert commit["operationParameters"] == {"predicate": "id = 1"}
    assert commit["readVersion"] == 0
    assert commit["who"] == "me"
    assert counts(commit["operationMetrics"]) == metrics(1, 1, 1, 2)


def test_positional_commit_arguments_warn(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.warns(DeprecationWarning, match="positionally to delete"):
        table.delete(
            "id = 1",
            None,
            PostCommitHookProperties(create_checkpoint=False),
            CommitProperties(custom_metadata={"who": "me"}),
        )
    assert table.history(1)[0]["who"] == "me"
    with pytest.raises(TypeError, match="at most 2 positional commit argument"):
        table.delete("id = 1", None, None, None, None)


def test_older_version_still_has_deleted_rows(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.delete("id = 1")
    table.load_as_version(0)
    assert column(table, "id") == [1, 2, 3]


@pytest.mark.parametrize("predicate", ["null", "false"])
def test_predicate_that_is_never_true_deletes_nothing(lake: Lake, predicate: str) -> None:
    table = lake.make("t", sample(), partition_by="p")
    assert counts(table.delete(predicate)) == metrics(0, 0, 0, 0)
    assert table.version() == 0


def test_nan_partition_is_greater_than_every_number(lake: Lake) -> None:
    data = pa.table({"id": [1, 2, 3, 4], "f": [math.nan, math.inf, 1.0, None]})
    table = lake.make("t", data, partition_by="f")
    assert counts(table.delete("f > 1")) == metrics(0, 2, 2, 0)
    assert column(table, "id") == [3, 4]
