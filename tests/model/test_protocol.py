"""The protocol that a table needs, and the tables that are rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltasql.exceptions import TxnLogProtocolError, UnsupportedFeatureError
from deltasql.model.actions import Protocol
from deltasql.model.protocol import (
    FEATURES,
    READABLE,
    WRITABLE,
    check_readable,
    check_valid,
    check_writable,
    protocol_for,
    reader_features,
    required_features,
    upgraded_protocol,
    writer_features,
)
from deltasql.model.schema.schema import ArrayType, StructField, StructType

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PLAIN = StructType((StructField("id", "long"),))
NTZ = StructType((StructField("at", ArrayType("timestamp_ntz")),))
GENERATED = StructType(
    (
        StructField("id", "long"),
        StructField("next", "long", metadata={"delta.generationExpression": "id + 1"}),
    )
)
IDENTITY = StructType((StructField("id", "long", metadata={"delta.identity.start": 1}),))


def test_not_null_columns_are_listed_among_the_features() -> None:
    inner = StructType((StructField("x", "long", nullable=False),))
    for schema in (
        StructType((StructField("id", "long", nullable=False),)),
        StructType((StructField("point", inner),)),
    ):
        listed = protocol_for(schema, {}, in_commit_timestamps=True)
        assert listed.writer_features == ("inCommitTimestamp", "invariants")
        assert protocol_for(schema, {}, in_commit_timestamps=False) == Protocol(1, 2)
        plain = protocol_for(PLAIN, {}, in_commit_timestamps=True)
        assert upgraded_protocol(plain, schema, {}) == listed


@pytest.mark.parametrize(
    ("schema", "configuration"),
    [
        (PLAIN, {}),
        (PLAIN, {"delta.appendOnly": "true"}),
        (PLAIN, {"delta.enableChangeDataFeed": "true"}),
        (PLAIN, {"delta.enableChangeDataFeed": "false"}),
        (PLAIN, {"delta.columnMapping.mode": "name"}),
        (GENERATED, {}),
        (NTZ, {}),
        (NTZ, {"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true"}),
    ],
)
def test_protocol_is_the_same_as_in_deltalake(
    tmp_path: Path, schema: StructType, configuration: Mapping[str, str]
) -> None:
    stock = deltalake.DeltaTable.create(
        str(tmp_path / "t"),
        schema=deltalake.Schema.from_json(schema.to_json()),
        configuration=dict(configuration) or None,
    ).protocol()
    ours = protocol_for(schema, configuration, in_commit_timestamps=False)
    assert ours.min_reader_version == stock.min_reader_version
    assert ours.min_writer_version == stock.min_writer_version
    assert sorted(ours.reader_features or ()) == sorted(stock.reader_features or ())
    assert sorted(ours.writer_features or ()) == sorted(stock.writer_features or ())


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ({"delta.constraints.positive": "id > 0"}, Protocol(1, 3)),
        (
            {"delta.enableDeletionVectors": "true"},
            Protocol(3, 7, ("deletionVectors",), ("deletionVectors",)),
        ),
        (
            {"delta.checkpointPolicy": "v2"},
            Protocol(3, 7, ("v2Checkpoint",), ("v2Checkpoint",)),
        ),
        (
            {"delta.enableRowTracking": "true"},
            Protocol(1, 7, None, ("domainMetadata", "rowTracking")),
        ),
        (
            {"delta.feature.vacuumProtocolCheck": "supported"},
            Protocol(3, 7, ("vacuumProtocolCheck",), ("vacuumProtocolCheck",)),
        ),
        ({"delta.enableInCommitTimestamps": "true"}, Protocol(1, 7, None, ("inCommitTimestamp",))),
    ],
)
def test_property_enables_its_table_feature(
    configuration: Mapping[str, str], expected: Protocol
) -> None:
    assert protocol_for(PLAIN, configuration, in_commit_timestamps=False) == expected


def test_in_commit_timestamps_are_a_writer_only_feature() -> None:
    assert protocol_for(PLAIN, {}, in_commit_timestamps=True) == Protocol(
        1, 7, None, ("inCommitTimestamp",)
    )
    with_mapping = protocol_for(
        PLAIN, {"delta.columnMapping.mode": "id"}, in_commit_timestamps=True
    )
    assert with_mapping == Protocol(
        3, 7, ("columnMapping",), ("columnMapping", "inCommitTimestamp")
    )


def test_unknown_feature_is_named_in_the_error() -> None:
    with pytest.raises(UnsupportedFeatureError) as raised:
        protocol_for(PLAIN, {"delta.feature.timeMachine": "supported"}, in_commit_timestamps=False)
    assert raised.value.features == ("timeMachine",)


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "delta.appendOnly": st.sampled_from(["true", "false"]),
        "delta.enableChangeDataFeed": st.sampled_from(["true", "false"]),
        "delta.enableDeletionVectors": st.sampled_from(["true", "false"]),
        "delta.columnMapping.mode": st.sampled_from(["none", "name", "id"]),
        "delta.constraints.c": st.just("id > 0"),
        "delta.checkpointPolicy": st.sampled_from(["classic", "v2"]),
        "delta.enableRowTracking": st.just("true"),
    },
)


@given(SETTINGS, SETTINGS, st.sampled_from([PLAIN, NTZ, GENERATED, IDENTITY]), st.booleans())
def test_any_protocol_upgrade_is_valid_and_keeps_all_features(
    before: Mapping[str, str],
    after: Mapping[str, str],
    schema: StructType,
    in_commit_timestamps: bool,
) -> None:
    old = protocol_for(PLAIN, before, in_commit_timestamps=in_commit_timestamps)
    new = upgraded_protocol(old, schema, after)
    check_valid(old)
    check_valid(new)
    assert writer_features(new) >= writer_features(old) | required_features(schema, after)
    assert reader_features(new) >= reader_features(old)
    assert {f for f in writer_features(new) if FEATURES[f].readers} == reader_features(new)
    assert upgraded_protocol(new, schema, after) is new


def test_upgrade_to_feature_lists_names_the_implied_features() -> None:
    upgraded = upgraded_protocol(Protocol(1, 4), NTZ, {})
    assert upgraded.writer_features == (
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "generatedColumns",
        "invariants",
        "timestampNtz",
    )
    assert upgraded.reader_features == ("timestampNtz",)


def test_column_mapping_raises_the_reader_version_of_a_table_with_identity_columns() -> None:
    assert upgraded_protocol(
        Protocol(1, 6), IDENTITY, {"delta.columnMapping.mode": "name"}
    ) == Protocol(2, 6)


def test_unsupported_reader_feature_prevents_reading() -> None:
    features = ("catalogManaged", "deletionVectors", "futureThing")
    protocol = Protocol(3, 7, features, features)
    with pytest.raises(UnsupportedFeatureError) as raised:
        check_readable(protocol)
    assert raised.value.features == ("catalogManaged", "futureThing")
    assert "reader version 3" in str(raised.value)
    with pytest.raises(UnsupportedFeatureError, match="cannot read"):
        check_writable(protocol)


def test_unsupported_writer_feature_prevents_only_writing() -> None:
    protocol = Protocol(1, 7, None, ("futureThing", "appendOnly"))
    check_readable(protocol)
    with pytest.raises(UnsupportedFeatureError) as raised:
        check_writable(protocol)
    assert raised.value.features == ("futureThing",)
    assert "writer version 7" in str(raised.value)


@pytest.mark.parametrize("protocol", [Protocol(4, 7, (), ()), Protocol(1, 8, None, ())])
def test_unknown_protocol_version_is_rejected(protocol: Protocol) -> None:
    with pytest.raises(UnsupportedFeatureError, match="version"):
        check_writable(protocol)


def test_identity_columns_and_defaults_are_writable() -> None:
    check_writable(Protocol(1, 6))
    check_writable(Protocol(1, 7, None, ("allowColumnDefaults", "identityColumns")))


@pytest.mark.parametrize("versions", [(1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (1, 6), (2, 6)])
def test_every_writer_version_below_seven_is_writable(versions: tuple[int, int]) -> None:
    check_writable(Protocol(*versions))


@pytest.mark.parametrize(
    "protocol",
    [
        Protocol(0, 2),
        Protocol(3, 6, ("columnMapping",)),
        Protocol(3, 7, None, ("columnMapping",)),
        Protocol(1, 7),
        Protocol(1, 2, None, ("appendOnly",)),
        Protocol(2, 7, ("columnMapping",), ("columnMapping",)),
        Protocol(3, 7, ("columnMapping",), ("appendOnly",)),
    ],
)
def test_contradictory_protocol_action_is_rejected(protocol: Protocol) -> None:
    with pytest.raises(TxnLogProtocolError, match="invalid protocol action"):
        check_valid(protocol)


def test_every_writable_feature_is_readable() -> None:
    assert FEATURES.keys() >= READABLE | WRITABLE
    assert {f for f in WRITABLE if FEATURES[f].readers} <= READABLE
