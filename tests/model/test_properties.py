"""Table properties: names, values and defaults."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from deltasql.exceptions import TxnLogConfigError
from deltasql.model.properties import (
    KNOWN,
    TableProperties,
    check_properties,
    parse_interval,
    stored_properties,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 7 days", timedelta(days=7)),
        ("INTERVAL 1 week", timedelta(weeks=1)),
        ("30 days", timedelta(days=30)),
        ("interval 1 day 2 hours 3 minutes", timedelta(days=1, hours=2, minutes=3)),
        ("interval 0 seconds", timedelta(0)),
        ("interval 5 milliseconds", timedelta(milliseconds=5)),
    ],
)
def test_delta_intervals_are_parsed(text: str, expected: timedelta) -> None:
    assert parse_interval(text) == expected


@pytest.mark.parametrize(
    "text", ["", "interval", "7", "interval -1 days", "interval 1 month", "1 fortnight", "days 7"]
)
def test_invalid_interval_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="interval 7 days"):
        parse_interval(text)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta.appendOnly", "yes"),
        ("delta.checkpointInterval", "0"),
        ("delta.checkpointInterval", "ten"),
        ("delta.dataSkippingNumIndexedCols", "-2"),
        ("delta.logRetentionDuration", "forever"),
        ("delta.logRetentionDuration", "interval 999999999999999 days"),
        ("delta.isolationLevel", "ReadCommitted"),
        ("delta.columnMapping.mode", "uuid"),
        ("delta.parquet.compression.codec", "rar"),
        ("delta.parquet.format.version", "3.0.0"),
        ("delta.targetFileSize", "big"),
        ("delta.feature.deletionVectors", "on"),
        ("delta.appendOnly", True),
    ],
)
def test_invalid_property_error_names_the_key_and_allowed_values(key: str, value: Any) -> None:
    with pytest.raises(TxnLogConfigError) as raised:
        check_properties({key: value})
    assert raised.value.key == key
    assert raised.value.allowed
    assert "Help:" in str(raised.value)


def test_unknown_delta_property_error_suggests_the_nearest_name() -> None:
    with pytest.raises(TxnLogConfigError, match=r"Did you mean 'delta\.checkpointInterval'"):
        check_properties({"delta.checkpointIntervall": "5"})
    with pytest.raises(TxnLogConfigError, match=r"Did you mean 'delta\.appendOnly'"):
        check_properties({"delta.appendonly": "true"})
    with pytest.raises(TxnLogConfigError, match="Did you mean 'deletionVectors'"):
        check_properties({"delta.feature.deletionVector": "supported"})


def test_user_properties_constraints_and_features_are_accepted() -> None:
    check_properties(
        {
            "owner": "ann",
            "myapp.delta.x": "1",
            "delta.constraints.positive": "id > 0",
            "delta.feature.deletionVectors": "supported",
            "delta.isolationLevel": "writeserializable",
            "delta.targetFileSize": "128mb",
        }
    )


def test_typed_properties_have_the_defaults_of_delta() -> None:
    default = TableProperties({})
    assert default.checkpoint_interval == 10
    assert default.log_retention == timedelta(days=30)
    assert default.deleted_file_retention == timedelta(days=7)
    assert default.isolation_level is None
    assert default.append_only is False
    assert default.num_indexed_cols == 32
    assert default.stats_as_json is True
    assert default.compression_codec is None
    chosen = TableProperties(
        {
            "delta.appendOnly": "TRUE",
            "delta.isolationLevel": "writeSerializable",
            "delta.checkpointInterval": "3",
            "delta.deletedFileRetentionDuration": "interval 1 hour",
            "delta.constraints.a": "x > 0",
        }
    )
    assert chosen.append_only is True
    assert chosen.isolation_level == "WriteSerializable"
    assert chosen.checkpoint_interval == 3
    assert chosen.deleted_file_retention == timedelta(hours=1)
    assert chosen.constraints == {"a": "x > 0"}


def test_invalid_stored_property_is_reported_when_read() -> None:
    with pytest.raises(TxnLogConfigError, match=r"delta\.checkpointInterval"):
        _ = TableProperties({"delta.checkpointInterval": "often"}).checkpoint_interval


def test_feature_properties_are_not_stored() -> None:
    given = {"delta.minReaderVersion": "1", "delta.feature.v2Checkpoint": "supported", "a": "b"}
    assert stored_properties(given) == {"delta.minReaderVersion": "1", "a": "b"}
    assert stored_properties(dict.fromkeys(KNOWN, "x")).keys() == KNOWN.keys()
