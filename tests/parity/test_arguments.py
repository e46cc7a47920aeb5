"""Invalid arguments raise the right error type before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import (
    ColumnProperties,
    CommitProperties,
    TableFeatures,
    Transaction,
    WriterProperties,
)
from deltalake.exceptions import DeltaError

from tests.parity.lakes import Lake, sample

if TYPE_CHECKING:
    from collections.abc import Callable

NAN = float("nan")
INFINITY = float("inf")
_FLOATS = pa.table({"id": range(5), "f": [1.0, NAN, INFINITY, -INFINITY, None]})


@pytest.mark.parametrize(
    ("op", "value", "found"),
    [
        ("=", NAN, ["NaN"]),
        ("=", "nan", ["NaN"]),
        (">=", NAN, ["NaN"]),
        (">", NAN, []),
        ("<", NAN, ["-inf", "1", "inf"]),
        ("!=", NAN, ["-inf", "1", "inf"]),
        ("in", [NAN, 1.0], ["1", "NaN"]),
        ("not in", [NAN, 1.0], ["-inf", "inf"]),
        ("=", INFINITY, ["inf"]),
        (">", INFINITY, ["NaN"]),
        ("<=", -INFINITY, ["-inf"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_filters_find_nan_and_infinity_partitions(
    lake: Lake, kind: pa.DataType, op: str, value: Any, found: list[str]
) -> None:
    data = _FLOATS.set_column(1, "f", _FLOATS["f"].cast(kind))
    table = lake.make("t", data, partition_by="f")
    chosen = [("f", op, value)]
    listed = table.partitions(file_pruning_predicate=chosen)
    assert sorted(each["f"] for each in listed) == found
    assert len(table.file_uris(file_pruning_predicate=chosen)) == len(found)


_TYPED = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "p": ["a", "b", "a"],
        "d": pa.array([1, 18262, None], pa.date32()),
        "b": [True, False, None],
        "at": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
        "n": pa.array([1, 2, 3], pa.decimal128(10, 2)),
    }
)


@pytest.mark.parametrize(
    "predicate",
    [
        "id = 'abc'",
        "p = 'a' AND NOT (id IN ('x'))",
        "id BETWEEN 'a' AND 'b'",
        "d > '2020'",
        "b = 'perhaps'",
        "at > 'abc'",
        "n = 'x'",
    ],
)
def test_predicate_with_invalid_literal_raises_cast_error(lake: Lake, predicate: str) -> None:
    table = lake.make("t", _TYPED, partition_by="p")
    calls: list[Callable[[], object]] = [
        lambda: table.file_uris(file_pruning_predicate=predicate),
        lambda: table.partitions(file_pruning_predicate=predicate),
        lambda: table.to_pyarrow_dataset(file_pruning_predicate=predicate),
        lambda: table.delete(predicate),
    ]
    for call in calls:
        with pytest.raises(Exception, match=r"^(Cast|Parser) error: (Cannot cast|Error parsing)"):
            call()
    assert table.version() == 0


@pytest.mark.parametrize("predicate", ["b = 'yes'", "at > '1970-01-01'", "d = '1970-01-02'", "id"])
def test_predicate_with_valid_string_literal_is_cast(lake: Lake, predicate: str) -> None:
    table = lake.make("t", _TYPED)
    assert len(table.file_uris(file_pruning_predicate=predicate)) == 1


@pytest.mark.parametrize(
    "given", ["x", 5, [5], [None], [("x", 1)], {"a": 1}, Transaction("a", 1)], ids=str
)
def test_invalid_application_transactions_are_rejected(lake: Lake, given: Any) -> None:
    table = lake.make("t", sample())
    with pytest.raises(TypeError, match=r"not an instance of|Can't extract `str` to `Vec`"):
        lake.append("t", sample(), commit_properties=CommitProperties(app_transactions=given))
    assert lake.DeltaTable(lake.uri("t")).version() == table.version()


def _encoded(encoding: Any, column: str) -> WriterProperties:
    own = ColumnProperties(encoding=encoding, dictionary_enabled=False)
    return WriterProperties(column_properties={column: own})


@pytest.mark.parametrize(
    ("encoding", "column", "message"),
    [
        ("NONE_SUCH", "id", "unknown encoding: NONE_SUCH"),
        ("NONE_SUCH", "not_there", "unknown encoding: NONE_SUCH"),
        ("RLE", "id", "(?i)RLE"),
        ("DELTA_BINARY_PACKED", "p", "DELTA_BINARY_PACKED"),
        ("DELTA_BYTE_ARRAY", "id", "(?i)delta_?byte_?array"),
    ],
)
def test_encoding_unsupported_by_the_column_type_is_rejected(
    lake: Lake, encoding: str, column: str, message: str
) -> None:
    with pytest.raises(DeltaError, match=message):
        lake.make("t", sample(), writer_properties=_encoded(encoding, column))
    assert not lake.DeltaTable.is_deltatable(lake.uri("t"))


def test_encoding_names_are_case_insensitive(lake: Lake) -> None:
    table = lake.make("t", sample(), writer_properties=_encoded("delta_binary_packed", "id"))
    assert table.count() == 3
    with pytest.raises(TypeError, match="failed to extract field PyWriterProperties"):
        lake.append("t", sample(), writer_properties=_encoded(5, "id"))


@pytest.mark.parametrize("given", ["false", 1, None], ids=repr)
def test_boolean_options_accept_only_booleans(lake: Lake, given: Any) -> None:
    table = lake.make("t", sample(), configuration={"delta.enableChangeDataFeed": "true"})
    calls: list[Callable[[], object]] = [
        lambda: table.repair(dry_run=given),
        lambda: table.vacuum(dry_run=given),
        lambda: table.vacuum(0, enforce_retention_duration=given),
        lambda: table.vacuum(full=given),
        lambda: table.restore(0, ignore_missing_files=given),
        lambda: table.restore(0, protocol_downgrade_allowed=given),
        lambda: table.merge(sample(), "s.id = t.id", "s", "t", merge_schema=given),
        lambda: table.merge(sample(), "s.id = t.id", "s", "t", streamed_exec=given),
        lambda: table.get_add_actions(flatten=given),
        lambda: table.alter.add_feature(TableFeatures.AppendOnly, given),
        lambda: table.alter.drop_constraint("c", given),
        lambda: table.alter.set_table_properties({"delta.appendOnly": "true"}, given),
        lambda: table.load_cdf(0, allow_out_of_range=given),
        lambda: lake.DeltaTable.create(
            lake.uri("other"), sample().schema, raise_if_key_not_exists=given
        ),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="not an instance of 'bool'"):
            call()
    assert lake.DeltaTable(lake.uri("t")).version() == 0


@pytest.mark.parametrize(
    ("key", "value"), [("delta.minWriterVersion", "9"), ("delta.minReaderVersion", "4")]
)
def test_invalid_protocol_versions_are_rejected(lake: Lake, key: str, value: str) -> None:
    message = rf"Kernel: Generic delta kernel error: {key} = '{value}' is invalid, valid values are"
    table = lake.make("t", sample())
    with pytest.raises(DeltaError, match=message):
        table.alter.set_table_properties({key: value})
    with pytest.raises(DeltaError, match=message):
        lake.DeltaTable.create(lake.uri("other"), sample().schema, configuration={key: value})
    assert table.protocol() == (1, 2, None, None)
