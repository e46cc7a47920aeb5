"""Error messages start like those of deltalake, because tests of users match the messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import (
    ColumnProperties,
    CommitProperties,
    Field,
    PostCommitHookProperties,
    Schema,
    WriterProperties,
)
from deltalake.exceptions import DeltaError, SchemaMismatchError

from tests.each import check_each
from tests.parity.lakes import Lake, rows, sample

TABLE = "Generic DeltaTable error: "
KERNEL = "Kernel error: Generic delta kernel error: "
FIELD = (
    f"{TABLE}External error: {TABLE}Schema error: No field named zz.\nValid fields are id, p, v."
)
PARSER = f"{TABLE}External error: Generic error: sql parser error: Expected: an expression, found: "
BROKEN = f"{TABLE}External error: Invalid data found: "


class Case(NamedTuple):
    """An operation on a table `t` with the sample, partitioned by `p`, and the expected message."""

    situation: str
    act: Callable[[Lake, Any], Any]
    message: str
    error: type[BaseException] = DeltaError


def write(**options: Any) -> Callable[[Lake, Any], Any]:
    """Return an operation that appends the sample."""
    return lambda k, t: k.write_deltalake(t, sample(), **{"mode": "append", **options})


def new(**options: Any) -> Callable[[Lake, Any], Any]:
    """Return an operation that writes the sample to a new table."""
    return lambda k, t: k.write_deltalake(k.uri("n"), sample(), **options)


def merge(act: Callable[[Any], Any], on: str = "s.id = t.id", **options: Any) -> Any:
    """Return an operation that merges the sample."""
    return lambda k, t: act(t.merge(sample(), on, "s", "t", **options)).execute()


def retries(count: Any) -> dict[str, Any]:
    """Return the argument that sets the number of retries."""
    return {"commit_properties": CommitProperties(max_commit_retries=count)}


def sizes(**sizes: Any) -> dict[str, Any]:
    """Return the argument that sets these writer properties."""
    return {"writer_properties": WriterProperties(**sizes)}


def _not_null(k: Lake, t: Any) -> None:
    schema = Schema([Field("id", "long", nullable=False)])
    table = k.DeltaTable.create(k.uri("n"), schema)
    k.write_deltalake(table, pa.table({"id": pa.array([None], pa.int64())}), mode="append")


def _other_constraint(k: Lake, t: Any) -> None:
    t.alter.add_constraint({"a": "id > 0"})
    t.alter.add_constraint({"a": "id > -1"})


MESSAGES = [
    Case("schema overwrite in append", write(schema_mode="overwrite"), f"{TABLE}Schema overwrite"),
    Case("no schema mode", write(schema_mode="x"), f"{TABLE}Invalid schema write mode provided: x"),
    Case("no mode", write(mode="x"), f"{TABLE}Invalid save mode provided: x, only these are"),
    Case("a table is there", write(mode="error"), "Generic error: A table already exists at: file"),
    Case(
        "another partitioning",
        write(partition_by=["id"]),
        "Generic error: Specified table partitioning does not match table partitioning: "
        'expected: ["p"], got: ["id"]. To change partition columns, use full table overwrite with '
        "schema overwrite and no replaceWhere predicate.",
    ),
    Case(
        "no such partition column",
        new(partition_by=["zz"]),
        f"{KERNEL}Partition column 'zz' not found in schema",
    ),
    Case(
        "a partition column twice",
        new(partition_by=["p", "p"]),
        f"{KERNEL}Duplicate partition column: 'p'",
    ),
    Case(
        "no such property",
        new(configuration={"foo": "1"}),
        "Kernel: Generic delta kernel error: Error parsing property 'foo':'1'",
    ),
    Case(
        "no columns",
        lambda k, t: k.write_deltalake(k.uri("n"), pa.table({})),
        "Generic error: At least one column must be defined to create a table.",
    ),
    Case(
        "create where a table is",
        lambda k, t: k.DeltaTable.create(k.uri("t"), sample().schema),
        "Generic error: A Delta Lake table already exists at that location.",
    ),
    Case(
        "rows outside of the predicate",
        write(mode="overwrite", predicate="id = 1"),
        f"{BROKEN}2 rows failed validation check.",
    ),
    Case("nulls in NOT NULL", _not_null, f"{BROKEN}1 rows failed validation check."),
    Case(
        "a constraint that does not hold",
        lambda k, t: t.alter.add_constraint({"a": "id > 1"}),
        f"{BROKEN}1 rows failed validation check.",
    ),
    Case("delete: no SQL", lambda k, t: t.delete("id = = 1"), f"{PARSER}="),
    Case("delete: half a predicate", lambda k, t: t.delete("id ="), f"{PARSER}EOF"),
    Case("delete: no predicate", lambda k, t: t.delete(""), f"{PARSER}EOF"),
    Case("delete: no such column", lambda k, t: t.delete("zz = 1"), FIELD),
    Case("update: half a value", lambda k, t: t.update({"id": "1 +"}), f"{PARSER}EOF"),
    Case("update: no such column", lambda k, t: t.update({"id": "zz"}), FIELD),
    Case("merge: half a predicate", merge(lambda m: m, "s.id ="), f"{PARSER}EOF"),
    Case(
        "merge: no such column",
        merge(lambda m: m.when_matched_delete(), "s.zz = t.id"),
        f"{TABLE}External error: {TABLE}Schema error: No field named s.zz.",
    ),
    Case(
        "merge: whose column",
        merge(lambda m: m.when_matched_delete(), "id = id"),
        f"{TABLE}Schema error: Ambiguous reference to unqualified field id",
    ),
    Case(
        "merge: one name for both",
        lambda k, t: t.merge(sample(), "s.id = s.id", "s", "s").when_matched_delete().execute(),
        f"{TABLE}Schema error: Schema contains duplicate qualified field name",
    ),
    Case(
        "merge: ambiguous rows",
        lambda k, t: (
            t.merge(sample(id=[1, 1, 2]), "s.id = t.id", "s", "t")
            .when_matched_update_all()
            .execute()
        ),
        f"{TABLE}External error: {TABLE}MERGE matched a target row with multiple source rows",
    ),
    Case(
        "open a version too high",
        lambda k, t: k.DeltaTable(k.uri("t"), version=9),
        f"{KERNEL}LogSegment end version 0 not the same as the specified end version 9",
    ),
    Case(
        "load a version too high",
        lambda k, t: t.load_as_version(9),
        f"{KERNEL}Requested snapshot version 9 is not available",
    ),
    Case(
        "restore what is there",
        lambda k, t: t.restore(0),
        "Generic error: Version to restore 0 should be less then last available version 0.",
    ),
    Case("restore nothing", lambda k, t: t.restore(None), "Generic error: Either the version or"),
    Case("vacuum too early", lambda k, t: t.vacuum(1), "Generic error: Invalid retention period"),
    Case(
        "vacuum and keep what is not there",
        lambda k, t: t.vacuum(0, enforce_retention_duration=False, keep_versions=[9]),
        f"Generic error: {KERNEL}LogSegment end version 0 not the same as the specified end",
    ),
    Case("z-order by nothing", lambda k, t: t.optimize.z_order([]), f"{TABLE}Z-order requires at"),
    Case(
        "z-order by a partition",
        lambda k, t: t.optimize.z_order(["p"]),
        f'{TABLE}Z-order columns cannot be partition columns. Found: ["p"]',
    ),
    Case(
        "z-order by an unknown column",
        lambda k, t: t.optimize.z_order(["zz"]),
        f'{TABLE}Z-order column "zz": field "zz" not found in schema',
    ),
    Case(
        "compact an unknown partition",
        lambda k, t: t.optimize.compact(partition_filters=[("zz", "=", "1")]),
        "Data does not match the schema or partitions of the table: "
        "Field 'zz' is not a root table field.",
    ),
    Case(
        "add a column of another type",
        lambda k, t: t.alter.add_columns(Field("id", "string")),
        "Schema error: Cannot merge types long and string",
        SchemaMismatchError,
    ),
    Case("no constraint", lambda k, t: t.alter.add_constraint({}), f"{TABLE}No check constraint"),
    Case(
        "another constraint", _other_constraint, f"{TABLE}Cannot add constraint 'a': a constraint"
    ),
    Case(
        "a constraint that is a number",
        lambda k, t: t.alter.add_constraint({"a": "id + 1"}),
        f"{TABLE}Error during planning: Data validation expression must return boolean values, "
        "got Int64",
    ),
    Case(
        "drop no constraint",
        lambda k, t: t.alter.drop_constraint("a"),
        f"{TABLE}Constraint with name 'a' does not exist.",
    ),
    Case(
        "allow nulls in no column",
        lambda k, t: t.alter.drop_column_not_null("zz"),
        f"{TABLE}No column with the name 'zz' in the schema",
    ),
    Case(
        "allow nulls once more",
        lambda k, t: t.alter.drop_column_not_null("id"),
        f"{TABLE}Column 'id' is already nullable",
    ),
    Case(
        "describe no column",
        lambda k, t: t.alter.set_column_metadata("zz", {"a": "b"}),
        f"{TABLE}No field with the provided name in the schema",
    ),
    Case("no features", lambda k, t: t.alter.add_feature([]), f"{TABLE}No features provided"),
    Case(
        "compact versions backwards",
        lambda k, t: t.compact_logs(1, 0),
        f"{TABLE}Invalid version range: end_version 0 must be greater than start_version 1",
    ),
    Case(
        "a type that Delta has not",
        lambda k, t: k.write_deltalake(
            k.uri("n"), pa.table({"a": pa.array([1], pa.duration("us"))})
        ),
        "External error: Schema error: Invalid data type for Delta Lake: Duration(µs)",
        Exception,
    ),
    Case(
        "the first value that cannot be cast",
        lambda k, t: k.write_deltalake(t, sample(id=["1", "x", "y"]), mode="append"),
        f"{TABLE}Arrow error: Cast error: Cannot cast string 'x' to value of Int64 type",
        Exception,
    ),
    Case(
        "no level of statistics",
        write(
            writer_properties=WriterProperties(
                default_column_properties=ColumnProperties(statistics_enabled="x")  # type: ignore[arg-type]
            )
        ),
        f"{TABLE}Invalid statistics arg: x",
    ),
]
NEGATIVE = "can't convert negative int to unsigned"
ERRORS = [
    Case("delete: 5", lambda k, t: t.delete(5), "'int' object is not an instance of 'str'"),
    Case("update: 5", lambda k, t: t.update({"id": "1"}, predicate=5), "'int' object is not an"),
    Case("merge: 5", lambda k, t: t.merge(sample(), 5, "s", "t"), "'int' object is not an"),
    Case("clause: 5", merge(lambda m: m.when_matched_delete(5)), "'int' object is not an"),
    Case("clause: a list", merge(lambda m: m.when_matched_update(["id"])), "'list' object is not"),
    Case("scan: a text", lambda k, t: t.scan(columns="id"), "Can't extract `str` to `Vec`"),
    Case("features: a text", lambda k, t: t.alter.add_feature("x"), "Can't extract `str` to `Vec`"),
    Case("features: texts", lambda k, t: t.alter.add_feature(["x"]), "'str' object is not an inst"),
    Case(
        "a property: None",
        lambda k, t: t.alter.set_table_properties({"delta.appendOnly": None}),
        "'None' is not an instance of 'str'",
    ),
    Case("retries: a text", write(**retries("1")), "'str' object cannot be interpreted as an int"),
    Case("retries: -1", write(**retries(-1)), NEGATIVE, OverflowError),
    Case("retries: 2**70", write(**retries(2**70)), "int too big to convert", OverflowError),
    Case("delete retries: -1", lambda k, t: t.delete(**retries(-1)), NEGATIVE, OverflowError),
    Case(
        "optimize retries: -1",
        lambda k, t: t.optimize.compact(**retries(-1)),
        NEGATIVE,
        OverflowError,
    ),
    Case(
        "optimize interval: -1",
        lambda k, t: t.optimize.compact(min_commit_interval=-1),
        NEGATIVE,
        OverflowError,
    ),
    Case(
        "vacuum keeps: -1",
        lambda k, t: t.vacuum(keep_versions=[-1]),
        NEGATIVE,
        OverflowError,
    ),
    Case(
        "open: 2**70",
        lambda k, t: k.DeltaTable(k.uri("t"), version=2**70),
        "int too big to convert",
        OverflowError,
    ),
    Case("options: a number", new(storage_options={"a": 1}), "'int' object is not an instance of"),
    Case("options: None", new(storage_options={"a": None}), "'None' is not an instance of 'str'"),
    Case("options: a list", new(storage_options=[1]), "'list' object is not an instance of 'dict'"),
    Case(
        "options to open: a number",
        lambda k, t: k.DeltaTable(k.uri("t"), storage_options={"a": 1}),
        "'int' object is not an instance of 'str'",
    ),
    Case(
        "options to look: a number",
        lambda k, t: k.DeltaTable.is_deltatable(k.uri("t"), {"a": 1}),
        "'int' object is not an instance of 'str'",
    ),
    Case(
        "hooks: a text",
        write(post_commithook_properties=PostCommitHookProperties(create_checkpoint="x")),  # type: ignore[arg-type]
        "failed to extract field PyPostCommitHookProperties.create_checkpoint",
    ),
    *(
        Case(
            f"{name}: {value}", write(**sizes(**{name: value})), f"failed to extract field .*{name}"
        )
        for name in ("write_batch_size", "data_page_row_count_limit", "max_row_group_size")
        for value in (-1, 1.5)
    ),
    Case(
        "a schema of 5",
        lambda k, t: k.DeltaTable.create(k.uri("n"), 5),
        "Expected an object with dunder __arrow_c_schema__",
        ValueError,
    ),
]


def of_its_own(lake: Lake, number: int) -> Lake:
    """Return a lake whose table names are unique to one case."""
    return replace(lake, uri=lambda name: lake.uri(f"{name}{number}"))


@pytest.mark.everything("word-for-word messages")
def test_error_messages_start_like_those_of_deltalake(lake: Lake) -> None:
    def check(numbered: tuple[int, Case]) -> None:
        number, case = numbered
        own = of_its_own(lake, number)
        table = own.make("t", sample(), partition_by=["p"])
        with pytest.raises(case.error) as caught:
            case.act(own, table)
        assert str(caught.value).startswith(case.message)

    check_each(enumerate(MESSAGES), check, name=lambda numbered: numbered[1].situation)


def test_argument_errors_equal_those_of_deltalake(lake: Lake) -> None:
    def check(numbered: tuple[int, Case]) -> None:
        number, case = numbered
        own = of_its_own(lake, number)
        table = own.make("t", sample())
        error = TypeError if case.error is DeltaError else case.error
        message = case.message if ".*" in case.message else re.escape(case.message)
        with pytest.raises(error, match=message):
            case.act(own, table)
        assert own.DeltaTable(own.uri("t")).version() == 0

    check_each(enumerate(ERRORS), check, name=lambda numbered: numbered[1].situation)


@pytest.mark.parametrize(
    "predicate",
    ["id + 1", "id", "cast(id as int)", "coalesce(id, 1)", "case when id = 1 then 1 else 0 end"],
)
def test_non_boolean_predicate_is_rejected(lake: Lake, predicate: str) -> None:
    table = lake.make("t", sample())
    acts: list[Callable[[], Any]] = [
        lambda: table.delete(predicate),
        lambda: table.update({"v": "1"}, predicate=predicate),
        lambda: table.scan(predicate=predicate),
        lambda: lake.write_deltalake(table, sample(), mode="overwrite", predicate=predicate),
    ]
    for act in acts:
        with pytest.raises(DeltaError, match=r"non-boolean predicate '.*' returning Int"):
            act()
    with pytest.raises(DeltaError, match="Error during planning"):
        table.merge(sample(), "s.id + t.id", "s", "t").when_matched_delete().execute()
    assert len(rows(table)) == 3
    empty = lake.DeltaTable.create(lake.uri("e"), sample().schema)
    with pytest.raises(DeltaError, match="non-boolean predicate"):
        empty.delete(predicate)


@pytest.mark.parametrize("predicate", ["id = 'abc'", "id > '1.7'", "id in ('1', 'x')"])
def test_non_numeric_string_in_a_predicate_raises_cast_error(lake: Lake, predicate: str) -> None:
    table = lake.make("t", sample())
    for act in (table.delete, lambda text: table.update({"v": "1"}, predicate=text)):
        with pytest.raises(Exception, match=r"Cast error: Cannot cast string '.*' to value"):
            act(predicate)
    assert table.version() == 0


def test_numeric_strings_compare_with_numbers(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.delete("v > '1.7'")
    table.delete("id = '1'")
    assert [row["id"] for row in rows(table)] == [2]


@pytest.mark.parametrize("mode", ["APPEND", "Overwrite"])
def test_modes_are_case_insensitive(lake: Lake, mode: str) -> None:
    table = lake.make("t", sample())
    lake.write_deltalake(table, sample(), mode=mode)
    lake.write_deltalake(lake.uri("t"), sample(x=[1, 2, 3]), mode=mode, schema_mode="MERGE")
    assert lake.DeltaTable(lake.uri("t")).version() == 2
    made = lake.DeltaTable.create(lake.uri("n"), sample().schema, mode="IGNORE")
    assert made.version() == 0


def test_uuid_extension_type_is_stored_as_binary(lake: Lake) -> None:
    lake.write_deltalake(lake.uri("t"), pa.table({"u": pa.array([b"1" * 16], pa.uuid())}))
    found = lake.DeltaTable(lake.uri("t")).scan().read_all()
    assert found["u"].to_pylist() == [b"1" * 16]
