"""`write_deltalake`: the four modes, replaceWhere and commit info."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from tests.parity.lakes import Lake, column, counts, numbers, rows, sample


def test_first_write_creates_the_table(lake: Lake) -> None:
    assert lake.write_deltalake(lake.uri("t"), sample()) is None
    table = lake.DeltaTable(lake.uri("t"))
    assert table.version() == 0
    assert rows(table) == sample().to_pylist()
    (commit,) = table.history()
    assert commit["operation"] == "WRITE"
    assert commit["operationParameters"]["mode"] == "ErrorIfExists"


def test_error_mode_rejects_an_existing_table(lake: Lake) -> None:
    lake.make("t", sample())
    with pytest.raises(DeltaError, match=r"A table already exists at: file:///.*/t/"):
        lake.write_deltalake(lake.uri("t"), sample())
    with pytest.raises(DeltaError, match=r"A table already exists at: file:///.*/t/"):
        lake.write_deltalake(lake.uri("t"), sample(), mode="error")
    assert lake.DeltaTable(lake.uri("t")).version() == 0


def test_ignore_mode_keeps_an_existing_table(lake: Lake) -> None:
    lake.write_deltalake(lake.uri("t"), sample(), mode="ignore")
    assert lake.write_deltalake(lake.uri("t"), numbers(0, 9), mode="ignore") is None
    table = lake.DeltaTable(lake.uri("t"))
    assert (table.version(), table.count()) == (0, 3)


def test_append_and_overwrite_create_a_missing_table(lake: Lake) -> None:
    assert lake.make("a", sample(), mode="append").version() == 0
    assert lake.make("b", sample(), mode="overwrite").version() == 0


def test_unknown_mode_is_rejected(lake: Lake) -> None:
    with pytest.raises(Exception, match=r"mode.*bogus"):
        lake.write_deltalake(lake.uri("t"), sample(), mode="bogus")


def test_append_adds_rows_and_a_version(lake: Lake) -> None:
    table = lake.make("t", numbers(0, 3))
    for start in (3, 6):
        lake.write_deltalake(table, numbers(start, start + 3), mode="append")
    assert table.version() == 2
    assert column(table, "id") == list(range(9))
    assert len(table.file_uris()) == 3
    latest = table.history(1)[0]
    assert latest["operationParameters"]["mode"] == "Append"
    assert latest["operationMetrics"]["num_added_rows"] == 3
    assert latest["operationMetrics"]["num_added_files"] == 1
    assert latest["operationMetrics"]["num_removed_files"] == 0


def test_overwrite_replaces_all_rows(lake: Lake) -> None:
    table = lake.make("t", numbers(0, 3))
    lake.write_deltalake(table, numbers(3, 6), mode="append")
    lake.write_deltalake(table, numbers(9, 10), mode="overwrite")
    assert table.version() == 2
    assert column(table, "id") == [9]
    assert len(table.file_uris()) == 1
    metrics = table.history(1)[0]["operationMetrics"]
    assert (metrics["num_added_files"], metrics["num_removed_files"]) == (1, 2)
    table.load_as_version(1)
    assert column(table, "id") == list(range(6))


def test_replace_where_replaces_only_matching_rows(lake: Lake) -> None:
    table = lake.make("t", sample())
    lake.write_deltalake(
        table, sample(id=[2, 2, 2], p=["z"] * 3), mode="overwrite", predicate="id = 2"
    )
    assert [(row["id"], row["p"]) for row in rows(table, "id", "p")] == [
        (1, "a"),
        (2, "z"),
        (2, "z"),
        (2, "z"),
        (3, "a"),
    ]
    parameters = table.history(1)[0]["operationParameters"]
    assert (parameters["mode"], parameters["predicate"]) == ("Overwrite", "id = 2")


def test_replace_where_on_a_partition_keeps_the_other_files(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    before = set(table.file_uris(file_pruning_predicate="p = 'b'"))
    data = sample(id=[8, 9, 9], p=["a"] * 3)
    lake.write_deltalake(table, data, mode="overwrite", predicate="p = 'a'")
    assert column(table, "id") == [2, 8, 9, 9]
    assert before <= set(table.file_uris())
    assert len(table.file_uris()) == 2


def test_replace_where_rejects_rows_that_do_not_match(lake: Lake) -> None:
    table = lake.make("t", sample())
    with pytest.raises(DeltaError, match="Invalid data found: 1 rows failed validation check"):
        lake.write_deltalake(table, sample(id=[1, 1, 4]), mode="overwrite", predicate="id = 1")
    assert lake.DeltaTable(lake.uri("t")).version() == 0


def test_replace_where_without_rows_deletes(lake: Lake) -> None:
    table = lake.make("t", sample())
    lake.write_deltalake(table, sample().slice(0, 0), mode="overwrite", predicate="id < 3")
    assert column(table, "id") == [3]


def test_replace_where_matches_null(lake: Lake) -> None:
    table = lake.make("t", sample())
    data = sample(v=pa.nulls(3, pa.float64()))
    lake.write_deltalake(table, data, mode="overwrite", predicate="v is null")
    assert [(row["id"], row["v"]) for row in rows(table, "id", "v")] == [
        (1, 1.5),
        (1, None),
        (2, None),
        (3, 2.5),
        (3, None),
    ]


def test_empty_write_creates_an_empty_table(lake: Lake) -> None:
    table = lake.make("t", sample().slice(0, 0))
    assert (table.version(), table.count(), table.file_uris()) == (0, 0, [])
    assert table.to_pyarrow_table().schema == sample().schema
    lake.write_deltalake(table, sample().slice(0, 0), mode="append")
    assert (table.version(), table.file_uris()) == (1, [])


def test_overwrite_without_rows_empties_the_table(lake: Lake) -> None:
    table = lake.make("t", sample())
    lake.write_deltalake(table, sample().slice(0, 0), mode="overwrite")
    assert (table.version(), table.count()) == (1, 0)
    assert rows(table) == []


def test_configuration_applies_only_to_new_tables(lake: Lake) -> None:
    table = lake.make("t", sample(), configuration={"delta.checkpointInterval": "5"})
    assert table.metadata().configuration == {"delta.checkpointInterval": "5"}
    lake.write_deltalake(
        table, sample(), mode="append", configuration={"delta.checkpointInterval": "7"}
    )
    assert table.metadata().configuration == {"delta.checkpointInterval": "5"}


def test_unknown_configuration_is_rejected(lake: Lake) -> None:
    with pytest.raises(DeltaError, match="Error parsing property 'foo':'1'"):
        lake.write_deltalake(lake.uri("t"), sample(), configuration={"foo": "1"})
    assert not lake.DeltaTable.is_deltatable(lake.uri("t"))


def test_append_only_table_accepts_only_appends(lake: Lake) -> None:
    table = lake.make("t", sample(), configuration={"delta.appendOnly": "true"})
    lake.write_deltalake(table, sample(), mode="append")
    with pytest.raises(DeltaError, match="append-only"):
        lake.write_deltalake(table, sample(), mode="overwrite")
    with pytest.raises(DeltaError, match="append-only"):
        table.delete("id = 1")
    assert lake.DeltaTable(lake.uri("t")).count() == 6


def test_target_file_size_splits_a_write(lake: Lake) -> None:
    ids = list(range(200_000))
    data = pa.table({"id": ids, "x": [each * 2654435761 % (2**61 - 1) for each in ids]})
    table = lake.make("t", data, target_file_size=400_000)
    assert len(table.file_uris()) > 2
    assert table.count() == 200_000
    one = lake.make("one", data)
    assert len(one.file_uris()) == 1


def test_metrics_of_a_write_are_in_the_history(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    metrics = table.history()[0]["operationMetrics"]
    assert counts(metrics) == {
        "num_added_files": 2,
        "num_removed_files": 0,
        "num_partitions": 0,
        "num_added_rows": 3,
        "num_retries": 0,
    }
    assert metrics["execution_time_ms"] >= 0
