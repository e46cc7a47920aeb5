"""`history`, commit info and application transactions."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from deltalake import CommitProperties, Transaction

from tests.parity.lakes import Lake, sample


@pytest.mark.two_databases
def test_history_lists_commits_newest_first(lake: Lake) -> None:
    start = datetime.now(UTC).timestamp() * 1000 - 1
    table = lake.make("t", sample())
    lake.write_deltalake(table, sample(), mode="append")
    table.delete("id = 1")
    history = table.history()
    assert [each["version"] for each in history] == [2, 1, 0]
    assert [each["operation"] for each in history] == ["DELETE", "WRITE", "WRITE"]
    times = [each["timestamp"] for each in history]
    assert times == sorted(times, reverse=True)
    assert start <= times[-1] <= datetime.now(UTC).timestamp() * 1000 + 1
    assert {"operationParameters", "operationMetrics", "engineInfo"} <= set(history[0])


def test_history_limit_returns_the_latest_commits(lake: Lake) -> None:
    table = lake.make("t", sample())
    for _ in range(3):
        lake.write_deltalake(table, sample(), mode="append")
    assert [each["version"] for each in table.history(limit=2)] == [3, 2]
    assert [each["version"] for each in table.history(1)] == [3]
    assert table.history(0) == []
    assert len(table.history(99)) == 4


def test_operation_parameters_are_strings(lake: Lake) -> None:
    table = lake.make("t", sample(), partition_by=["p"])
    parameters = table.history()[0]["operationParameters"]
    assert parameters == {"mode": "ErrorIfExists", "partitionBy": '["p"]'}


@pytest.mark.two_databases
def test_custom_metadata_is_in_the_history(lake: Lake) -> None:
    given = {"job": "nightly", "run": 7, "deep": {"a": [1, None]}}
    table = lake.make("t", sample(), commit_properties=CommitProperties(custom_metadata=given))
    commit = table.history()[0]
    assert {key: commit[key] for key in given} == given


def test_custom_metadata_is_in_the_log(lake: Lake) -> None:
    properties = CommitProperties(custom_metadata={"job": "nightly"})
    table = lake.make("t", sample(), commit_properties=properties)
    text = (lake.folder(table) / "_delta_log" / f"{0:020}.json").read_text()
    first = json.loads(text.splitlines()[0])
    assert first["commitInfo"]["job"] == "nightly"
    assert first["commitInfo"]["operation"] == "WRITE"


@pytest.mark.two_databases
def test_every_application_has_a_transaction_version_of_its_own(lake: Lake) -> None:
    first = CommitProperties(app_transactions=[Transaction("app", 3, 17)])
    table = lake.make("t", sample(), commit_properties=first)
    assert table.transaction_version("app") == 3
    assert table.transaction_version("other") is None
    both = CommitProperties(app_transactions=[Transaction("app", 4), Transaction("other", 1)])
    lake.write_deltalake(table, sample(), mode="append", commit_properties=both)
    assert table.transaction_version("app") == 4
    assert table.transaction_version("other") == 1
    assert lake.DeltaTable(lake.uri("t"), version=0).transaction_version("app") == 3


def test_transaction_version_is_that_of_the_last_commit_even_if_lower(lake: Lake) -> None:
    table = lake.make("t", sample())
    for version in (5, 2):
        properties = CommitProperties(app_transactions=[Transaction("app", version)])
        lake.write_deltalake(table, sample(), mode="append", commit_properties=properties)
    assert table.transaction_version("app") == 2


def test_delete_and_update_record_application_transactions(lake: Lake) -> None:
    table = lake.make("t", sample())
    properties = CommitProperties(app_transactions=[Transaction("app", 1)])
    table.delete("id = 1", commit_properties=properties)
    assert table.transaction_version("app") == 1
    later = CommitProperties(app_transactions=[Transaction("app", 2)])
    table.update({"v": "0"}, commit_properties=later)
    assert table.transaction_version("app") == 2


def test_application_transaction_has_id_version_and_time() -> None:
    transaction = Transaction("app", 1, 2)
    assert (transaction.app_id, transaction.version, transaction.last_updated) == ("app", 1, 2)


def test_new_handle_can_repeat_an_application_transaction(lake: Lake) -> None:
    properties = CommitProperties(app_transactions=[Transaction("app", 1)])
    lake.make("t", sample(), commit_properties=properties)
    table = lake.append("t", sample(), commit_properties=properties)
    assert (table.version(), table.count()) == (1, 6)


def test_reserved_custom_metadata_keys_are_rejected(lake: Lake) -> None:
    for key in ("operation", "timestamp", "engineInfo"):
        properties = CommitProperties(custom_metadata={key: "mine"})
        with pytest.raises(ValueError, match=f"custom_metadata key '{key}' is generated"):
            lake.write_deltalake(lake.uri("t"), sample(), commit_properties=properties)
    for key in ("operationParameters", "readVersion", "isolationLevel", "isBlindAppend"):
        properties = CommitProperties(custom_metadata={key: "mine"})
        with pytest.raises(ValueError, match=rf"custom_metadata\['{key}'\] must be"):
            lake.write_deltalake(lake.uri("t"), sample(), commit_properties=properties)
    assert not lake.DeltaTable.is_deltatable(lake.uri("t"))


def test_history_names_each_operation(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.update({"v": "0"})
    table.merge(sample(), "s.id = t.id", "s", "t").when_matched_delete().execute()
    table.restore(0)
    assert [each["operation"] for each in table.history()] == [
        "RESTORE",
        "MERGE",
        "UPDATE",
        "WRITE",
    ]
