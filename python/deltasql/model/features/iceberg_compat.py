"""icebergCompatV1 to icebergCompatV3: tables whose data files an Iceberg table can refer to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from deltasql.exceptions import UnsupportedFeatureError
from deltasql.model.features.row_tracking import ENABLED as ROW_TRACKING
from deltasql.model.features.row_tracking import is_enabled
from deltasql.model.schema.column_mapping import lacks_nested_ids
from deltasql.model.schema.schema import (
    CURRENT_DEFAULT,
    ArrayType,
    MapType,
    StructType,
    column_mapping_mode,
    decimal_type,
    nested_types,
    type_name,
)
from deltasql.model.schema.widening import TYPE_CHANGES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

MATERIALIZED = "materializePartitionColumns"
_PROPERTIES = {
    "icebergCompatV1": "delta.enableIcebergCompatV1",
    "icebergCompatV2": "delta.enableIcebergCompatV2",
    "icebergCompatV3": "delta.enableIcebergCompatV3",
}
_NOT_IN_ICEBERG = ("void", "timestamp_nanos", "timestamp_nanos_ntz")
_LITERAL = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?[a-z]{0,2}|true|false"
    r"|x?'([^'\\]|''|\\.)*'"
    r'|"([^"\\]|\\.)*"',
    re.IGNORECASE,
)
"""A literal of Spark's SQL. As in delta-spark, NULL and literals with a type are excluded."""
_NUMBERS = ("byte", "short", "integer", "long")


def enabled_compat(configuration: Mapping[str, str]) -> list[str]:
    """Return the features of Iceberg compatibility that the properties of a table enable.

    >>> enabled_compat({"delta.enableIcebergCompatV2": "true"})
    ['icebergCompatV2']
    """
    return [
        name
        for name, key in _PROPERTIES.items()
        if configuration.get(key, "").strip().lower() == "true"
    ]


def materializes_partitions(configuration: Mapping[str, str], features: Collection[str]) -> bool:
    """Return whether data files must also contain the partition columns, as the last columns."""
    return MATERIALIZED in features or bool(enabled_compat(configuration))


def check_iceberg_compat(
    schema: StructType, configuration: Mapping[str, str], features: Collection[str]
) -> None:
    """Raise if a table with Iceberg compatibility would not be valid."""
    enabled = enabled_compat(configuration)
    if not enabled:
        return
    for problem, advice in _problems(schema, configuration, features, enabled):
        raise UnsupportedFeatureError(
            f"a table with {' and '.join(enabled)} {problem}", features=tuple(enabled), help=advice
        )


def _problems(
    schema: StructType,
    configuration: Mapping[str, str],
    features: Collection[str],
    enabled: list[str],
) -> Iterator[tuple[str, str]]:
    drop = f"Or set {_PROPERTIES[enabled[0]]} to false."
    is_v1, is_v3 = "icebergCompatV1" in enabled, "icebergCompatV3" in enabled
    if len(enabled) > 1:
        yield "would have two of them", "Enable one of them."
    if column_mapping_mode(configuration) is None:
        yield "needs column mapping", f"Set delta.columnMapping.mode to 'name'. {drop}"
    if is_v3 and not is_enabled(configuration):
        yield "needs row tracking", f"Set {ROW_TRACKING} to true. {drop}"
    if "deletionVectors" in features and not is_v3:
        yield (
            "cannot have deletion vectors",
            f"Drop the feature with ALTER TABLE … DROP FEATURE deletionVectors. {drop}",
        )
    if not is_v1 and lacks_nested_ids(schema):
        yield "needs ids for the elements of arrays and maps", drop
    for kind in nested_types(schema):
        is_collection = isinstance(kind, ArrayType | MapType)
        is_variant = kind == "variant"
        if kind in _NOT_IN_ICEBERG or (is_collection and is_v1) or (is_variant and not is_v3):
            yield (
                f"cannot have columns of type {type_name(kind)}",
                f"Leave out the column, or write the table with delta-spark. {drop}",
            )
        if isinstance(kind, StructType):
            for member in kind.fields:
                for each in member.metadata.get(TYPE_CHANGES, ()):
                    if not _iceberg_has(each["fromType"], each["toType"]):
                        change = f"{each['fromType']} to {each['toType']}"
                        yield f"cannot change a column from {change}", drop
                default = str(member.metadata.get(CURRENT_DEFAULT, "0"))
                if is_v3 and not _LITERAL.fullmatch(default.strip()):
                    yield (
                        f"cannot have a default that is not a literal: {default}",
                        f"Write a number, a string, true or false. {drop}",
                    )


def _iceberg_has(before: str, after: str) -> bool:
    """Return whether Iceberg can change a column from one type to the other."""
    old, new = decimal_type(before), decimal_type(after)
    if old and new:
        return old[1] == new[1]
    return (before, after) == ("float", "double") or (before in _NUMBERS and after in _NUMBERS)
