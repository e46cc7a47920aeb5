"""`update` with SQL expressions and with Python values."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from deltalake import CommitProperties, PostCommitHookProperties
from deltalake.exceptions import DeltaError

from tests.parity.lakes import Lake, column, counts, numbers, rows, sample


def metrics(added: int, removed: int, updated: int, copied: int) -> dict[str, int]:
    return {
        "num_added_files": added,
        "num_removed_files": removed,
        "num_updated_rows": updated,
        "num_copied_rows": copied,
    }


def test_update_expressions_can_use_other_columns(lake: Lake) -> None:
    table = lake.make("t", sample())
    result = table.update({"v": "id * 2", "p": "p || '!'"}, predicate="id >= 2")
    assert counts(result) == metrics(1, 1, 2, 1)
    assert {"execution_time_ms", "scan_time_ms"} <= result.keys()
    assert rows(table) == [
        {"id": 1, "p": "a", "v": 1.5},
        {"id": 2, "p": "b!", "v": 4.0},
        {"id": 3, "p": "a!", "v": 6.0},
    ]


def test_update_accepts_python_values(lake: Lake) -> None:
    data = pa.table(
        {
            "id": [1, 2],
            "f": [0.5, 0.5],
            "b": [True, True],
            "s": ["x", "x"],
            "l": [[1], [1]],
            "ts": pa.array([0, 0], pa.timestamp("us", "UTC")),
        }
    )
    table = lake.make("t", data)
    timestamp = datetime(2030, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    values = {"f": 2.25, "b": False, "s": "it is", "l": [7, 8], "ts": timestamp}
    table.update(new_values=values, predicate="id = 2")
    assert rows(table)[1] == {"id": 2, **values}
    assert rows(table)[0] == data.to_pylist()[0]


def test_update_without_predicate_changes_all_rows(lake: Lake) -> None:
    table = lake.make("t", numbers(0, 5))
    lake.write_deltalake(table, numbers(5, 10), mode="append")
    result = counts(table.update({"v": "v + 1"}))
    assert (result["num_updated_rows"], result["num_removed_files"]) == (10, 2)
    assert column(table, "v") == [each * 10 + 1 for each in range(10)]


def test_update_expressions_use_old_values(lake: Lake) -> None:
    table = lake.make("t", pa.table({"a": [1], "b": [2]}))
    table.update({"a": "b", "b": "a"})
    assert rows(table) == [{"a": 2, "b": 1}]


def test_update_without_matches_makes_no_commit(lake: Lake) -> None:
    table = lake.make("t", sample())
    assert counts(table.update({"v": "1"}, predicate="id = 99")) == metrics(0, 0, 0, 0)
    assert table.version() == 0


def test_update_rewrites_only_files_with_matching_rows(lake: Lake) -> None:
    table = lake.make("t", numbers(0, 10))
    for start in (10, 20):
        lake.write_deltalake(table, numbers(start, start + 10), mode="append")
    before = set(table.file_uris())
    assert counts(table.update({"v": "0"}, predicate="id = 15")) == metrics(1, 1, 1, 9)
    assert len(before & set(table.file_uris())) == 2


def test_update_can_move_a_row_to_another_partition(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    table.update({"p": "'c'"}, predicate="id = 1")
    assert sorted(each["p"] for each in table.partitions()) == ["a", "b", "c"]
    assert rows(table)[0] == {"id": 1, "p": "c", "v": 1.5}


def test_update_can_set_and_match_null(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.update({"v": "null"}, predicate="id = 1")
    assert column(table, "v") == [2.5, None, None]
    table.update({"v": "0.0"}, predicate="v is null")
    assert column(table, "v") == [0.0, 0.0, 2.5]


def test_updates_and_new_values_are_exclusive(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(ValueError, match="Either updates or new_values"):
        table.update()
    with pytest.raises(ValueError, match="pick one"):
        table.update({"v": "1"}, new_values={"v": 1})
    with pytest.raises(TypeError, match="Invalid datatype provided in new_values"):
        table.update(new_values={"v": object()})


def test_value_of_the_wrong_type_is_rejected_unless_allowed(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(DeltaError, match=r"(?i)cast|convert"):
        table.update({"id": "'abc'"})
    assert lake.DeltaTable(lake.uri("t")).version() == 0
    table.update({"id": "'7'"}, predicate="id = 1")
    assert column(table, "id") == [2, 3, 7]
    table.update({"v": "'abc'"}, error_on_type_mismatch=False)
    assert column(table, "v") == [None, None, None]


def test_update_accepts_sql_expressions(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.update({"v": "case when id > 1 then 1.0 else coalesce(v, 9.0) end"})
    assert [row["v"] for row in rows(table)] == [1.5, 1.0, 1.0]
    table.update({"p": "concat(upper(p), cast(id as string))"})
    assert [row["p"] for row in rows(table)] == ["A1", "B2", "A3"]


def test_update_sets_structs_and_dates(lake: Lake) -> None:
    data = pa.table({"id": [1, 2], "s": [{"a": 1}, {"a": 2}], "d": [date(2020, 1, 1)] * 2})
    table = lake.make("t", data)
    table.update({"s": "named_struct('a', 5)", "d": "'2022-02-02'"}, predicate="s['a'] = 1")
    assert rows(table) == [
        {"id": 1, "s": {"a": 5}, "d": date(2022, 2, 2)},
        {"id": 2, "s": {"a": 2}, "d": date(2020, 1, 1)},
    ]


def test_history_records_the_update(lake: Lake) -> None:
    table = lake.make("t", sample())
    properties = CommitProperties(custom_metadata={"who": "me"})
    table.update({"v": "0"}, predicate="id = 1", commit_properties=properties)
    commit = table.history(1)[0]
    assert commit["operation"] == "UPDATE"
    assert commit["operationParameters"] == {"predicate": "id = 1"}
    assert (commit["readVersion"], commit["who"]) == (0, "me")
    assert counts(commit["operationMetrics"]) == metrics(1, 1, 1, 2)


def test_positional_commit_arguments_warn(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.warns(DeprecationWarning, match="positionally to update"):
        table.update(
            {"v": "0"},
            None,
            None,
            None,
            True,
            PostCommitHookProperties(create_checkpoint=False),
            CommitProperties(custom_metadata={"who": "me"}),
        )
    assert table.history(1)[0]["who"] == "me"


def test_older_version_still_has_the_old_values(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.update({"v": "0"})
    assert rows(lake.DeltaTable(lake.uri("t"), version=0)) == sample().to_pylist()


def test_timestamps_are_cast_to_iso_strings(lake: Lake) -> None:
    timestamp = datetime(2024, 3, 5, 1, 2, 3, 4)
    data = pa.table(
        {
            "s": [""],
            "wall": pa.array([timestamp], pa.timestamp("us")),
            "at": pa.array([timestamp], pa.timestamp("us", "UTC")),
            "day": [timestamp.date()],
        }
    )
    table = lake.make("t", data)
    for expression, text in {
        "date_trunc('month', wall)::varchar": "2024-03-01T00:00:00",
        "date_trunc('day', at)::varchar": "2024-03-05T00:00:00Z",
        "date_trunc('month', day)::varchar": "2024-03-01T00:00:00",
        "cast(date_trunc('second', wall) as string)": "2024-03-05T01:02:03",
        "wall::varchar": "2024-03-05T01:02:03.000004",
        "concat(date_trunc('month', wall), '')": "2024-03-01T00:00:00",
    }.items():
        table.update({"s": expression})
        assert column(table, "s") == [text], expression


def test_update_of_a_missing_column_is_ignored(lake: Lake) -> None:
    table = lake.make("t", sample())
    before = rows(table)
    metrics = table.update({"zz": "1"}, predicate="id = 1")
    assert (metrics["num_updated_rows"], rows(table)) == (1, before)
    table.update({"zz": "1", "v": "9.0"}, predicate="id = 1")
    assert [row["v"] for row in rows(table) if row["id"] == 1] == [9.0]
    with pytest.raises(DeltaError, match="No field named nope"):
        table.update({"zz": "nope + 1"})
    merged = {"source_alias": "s", "target_alias": "t"}
    source = pa.table({"id": [1, 9], "v": [7.0, 7.0]})
    table.merge(source, "t.id = s.id", **merged).when_matched_update(
        {"zz": "s.v", "v": "s.v"}
    ).when_not_matched_insert({"id": "s.id", "zz": "s.v"}).execute()
    assert [row["v"] for row in rows(table) if row["id"] in (1, 9)] == [7.0, None]
