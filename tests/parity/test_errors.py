"""Error types and messages that user code distinguishes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Field, Transaction
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    SchemaMismatchError,
    TableNotFoundError,
)

from tests.parity.lakes import Lake, sample


class Case(NamedTuple):
    """An operation on a table `t` with the sample, and the expected error."""

    situation: str
    act: Callable[[Lake, Any], Any]
    error: type[Exception]
    message: str


def _append_only(lake: Lake, table: Any) -> None:
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    table.delete("id = 1")


def _violate(lake: Lake, table: Any) -> None:
    table.alter.add_constraint({"c": "id > 0"})
    lake.write_deltalake(table, sample(id=[-1, 1, 2]), mode="append")


def _delete_delete(lake: Lake, table: Any) -> None:
    lake.DeltaTable(lake.uri("t")).delete("id = 1")
    table.delete("id = 2")


def _overwrite_overwrite(lake: Lake, table: Any) -> None:
    lake.write_deltalake(lake.uri("t"), sample(), mode="overwrite")
    lake.write_deltalake(table, sample(), mode="overwrite")


def _metadata(lake: Lake, table: Any) -> None:
    lake.DeltaTable(lake.uri("t")).alter.set_table_name("other")
    lake.write_deltalake(table, sample(), mode="append")


def _transaction(lake: Lake, table: Any) -> None:
    properties = CommitProperties(app_transactions=[Transaction("app", 1)])
    lake.write_deltalake(lake.uri("t"), sample(), mode="append", commit_properties=properties)
    lake.write_deltalake(table, sample(), mode="append", commit_properties=properties)


def _no_retries(lake: Lake, table: Any) -> None:
    lake.write_deltalake(lake.uri("t"), sample(), mode="append")
    never = CommitProperties(max_commit_retries=0)
    lake.write_deltalake(table, sample(), mode="append", commit_properties=never)


CASES = [
    Case("open nothing", lambda k, t: k.DeltaTable(k.nowhere("u")), TableNotFoundError, ""),
    Case(
        "open an unknown scheme",
        lambda k, t: k.DeltaTable("qqq://x/y"),
        TableNotFoundError,
        "Unknown scheme: qqq",
    ),
    Case(
        "open a version too high",
        lambda k, t: k.DeltaTable(k.uri("t"), version=99),
        DeltaError,
        "99",
    ),
    Case(
        "open a negative version",
        lambda k, t: k.DeltaTable(k.uri("t"), version=-1),
        OverflowError,
        "negative",
    ),
    Case("load a version too high", lambda k, t: t.load_as_version(99), DeltaError, "99"),
    Case("restore a version too high", lambda k, t: t.restore(99), DeltaError, "99"),
    Case(
        "load a text that is no time",
        lambda k, t: t.load_as_version("x"),
        ValueError,
        "Failed to parse datetime string",
    ),
    Case(
        "load a version of no type", lambda k, t: t.load_as_version([]), TypeError, "only int, str"
    ),
    Case(
        "write where a table is",
        lambda k, t: k.write_deltalake(k.uri("t"), sample()),
        DeltaError,
        "A table already exists at: ",
    ),
    Case(
        "create where a table is",
        lambda k, t: k.DeltaTable.create(k.uri("t"), sample().schema),
        DeltaError,
        "A Delta Lake table already exists at that location",
    ),
    Case(
        "create by append",
        lambda k, t: k.DeltaTable.create(k.uri("t"), sample().schema, mode="append"),
        DeltaError,
        "SaveMode `append` is not allowed for create operation",
    ),
    Case(
        "an unknown property",
        lambda k, t: k.write_deltalake(k.uri("u"), sample(), configuration={"foo": "1"}),
        DeltaError,
        "Error parsing property 'foo':'1'",
    ),
    Case(
        "too few columns",
        lambda k, t: k.write_deltalake(t, pa.table({"id": [1]}), mode="append"),
        SchemaMismatchError,
        "Cannot cast schema, number of fields does not match: 1 vs 3",
    ),
    Case(
        "a value that cannot be cast",
        lambda k, t: k.write_deltalake(t, sample(id=["q", "q", "q"]), mode="append"),
        Exception,
        "Cast error",
    ),
    Case(
        "another partitioning",
        lambda k, t: k.write_deltalake(t, sample(), mode="append", partition_by=["p"]),
        DeltaError,
        "Specified table partitioning does not match table partitioning",
    ),
    Case(
        "a constraint", _violate, DeltaError, "Invalid data found: 1 rows failed validation check"
    ),
    Case(
        "rows outside of replaceWhere",
        lambda k, t: k.write_deltalake(t, sample(), mode="overwrite", predicate="id = 1"),
        DeltaError,
        "Invalid data found: 2 rows failed validation check",
    ),
    Case(
        "another type for a column",
        lambda k, t: t.alter.add_columns(Field("id", "string")),
        SchemaMismatchError,
        "Cannot merge types long and string",
    ),
    Case(
        "a constraint that is not there",
        lambda k, t: t.alter.drop_constraint("zz"),
        DeltaError,
        "Constraint with name 'zz' does not exist",
    ),
    Case(
        "vacuum below the retention",
        lambda k, t: t.vacuum(1),
        DeltaError,
        "Invalid retention period, minimum retention for vacuum is configured to be greater "
        "than 168 hours, got 1 hours",
    ),
    Case("vacuum of the future", lambda k, t: t.vacuum(-1), ValueError, "should be positive"),
    Case("delete of appended", _append_only, CommitFailedError, "append-only"),
    Case(
        "delete against delete",
        _delete_delete,
        CommitFailedError,
        "Failed to commit transaction: Commit failed: a concurrent transaction",
    ),
    Case(
        "overwrite against overwrite",
        _overwrite_overwrite,
        CommitFailedError,
        "a concurrent transaction deleted data this operation read",
    ),
    Case(
        "append against metadata",
        _metadata,
        CommitFailedError,
        "Metadata changed since last commit",
    ),
    Case(
        "one application transaction twice",
        _transaction,
        CommitFailedError,
        "Concurrent transaction failed",
    ),
    Case("no retries", _no_retries, CommitFailedError, "Failed to commit transaction: 0"),
    Case(
        "no address", lambda k, t: k.write_deltalake(5, sample()), ValueError, "table_or_uri must"
    ),
    Case("no updates", lambda k, t: t.update(), ValueError, "Either updates or new_values"),
    Case(
        "merge of ambiguous rows",
        lambda k, t: (
            t.merge(sample(id=[1, 1, 2]), "s.id = t.id", "s", "t")
            .when_matched_update_all()
            .execute()
        ),
        DeltaError,
        "multiple source rows",
    ),
    Case("a column that is not there", lambda k, t: t.delete("zz = 1"), DeltaError, "zz"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.situation)
def test_operation_raises_the_error_of_deltalake(lake: Lake, case: Case) -> None:
    table = lake.make("t", sample())
    with pytest.raises(case.error) as caught:
        case.act(lake, table)
    assert case.message in str(caught.value)


def test_calls_that_deltalake_accepts_do_not_raise(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.load_as_version("2001-01-01T00:00:00Z")
    assert table.version() == 0
    table.load_as_version("2201-01-01T00:00:00Z")
    assert table.version() == 0
    assert lake.DeltaTable.is_deltatable("qqq://x/y") is False
    assert lake.write_deltalake(lake.uri("t"), 5, mode="ignore") is None


def test_errors_are_subclasses_of_delta_error(lake: Lake) -> None:
    for error in (CommitFailedError, SchemaMismatchError, TableNotFoundError):
        assert issubclass(error, DeltaError)
    with pytest.raises(DeltaError) as caught:
        lake.DeltaTable(lake.nowhere("u"))
    assert isinstance(caught.value, TableNotFoundError)
