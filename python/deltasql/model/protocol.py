"""Table features: which features a table needs, and which features deltasql supports.

A legacy feature is implied by a protocol version. Every other feature must be in `writerFeatures`
(writer version 7). If readers must support the feature, too, it must also be in `readerFeatures`
(reader version 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogConfigError, TxnLogProtocolError, UnsupportedFeatureError
from deltasql.exceptions.prefixes import PROPERTY_ERROR
from deltasql.model.actions import Protocol
from deltasql.model.schema.schema import (
    CURRENT_DEFAULT,
    DataType,
    StructField,
    StructType,
    column_mapping_mode,
    nested_types,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

FEATURE_PREFIX = "delta.feature."
CONSTRAINT_PREFIX = "delta.constraints."
FENCE = "deltasqlAuthority"
"""No other engine supports this feature, so writers that use the path refuse to commit."""
CHECKPOINT_PROTECTION = "checkpointProtection"
PROTECTED_BEFORE = "delta.requireCheckpointProtectionBeforeVersion"
"""The property with a version; the log before it is cleaned up as a whole or not at all."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A table feature, the protocol versions that imply it, and the features that it requires.

    `readers` says whether readers must support the feature, too.
    """

    name: str
    readers: bool = False
    reader_version: int = 3
    writer_version: int = 7
    requires: tuple[str, ...] = ()

    @property
    def is_legacy(self) -> bool:
        """Whether a writer version below 7 implies the feature."""
        return self.writer_version < 7


FEATURES: Mapping[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature("appendOnly", writer_version=2),
        Feature("invariants", writer_version=2),
        Feature("checkConstraints", writer_version=3),
        Feature("changeDataFeed", writer_version=4),
        Feature("generatedColumns", writer_version=4),
        Feature("columnMapping", readers=True, reader_version=2, writer_version=5),
        Feature("identityColumns", writer_version=6),
        Feature("allowColumnDefaults"),
        Feature("catalogManaged", readers=True, requires=("inCommitTimestamp",)),
        Feature(CHECKPOINT_PROTECTION),
        Feature("clustering", requires=("domainMetadata",)),
        Feature("deletionVectors", readers=True),
        Feature(FENCE),
        Feature("domainMetadata"),
        Feature("icebergCompatV1", requires=("columnMapping",)),
        Feature("icebergCompatV2", requires=("columnMapping",)),
        Feature("icebergCompatV3", requires=("columnMapping", "rowTracking")),
        Feature("inCommitTimestamp"),
        Feature("materializePartitionColumns"),
        Feature("rowTracking", requires=("domainMetadata",)),
        Feature("timestampNanos", readers=True, requires=("timestampNtz",)),
        Feature("timestampNtz", readers=True),
        Feature("typeWidening", readers=True),
        Feature("typeWidening-preview", readers=True),
        Feature("v2Checkpoint", readers=True),
        Feature("vacuumProtocolCheck", readers=True),
        Feature("variantShredding", readers=True, requires=("variantType",)),
        Feature("variantShredding-preview", readers=True),
        Feature("variantType", readers=True),
        Feature("variantType-preview", readers=True),
    )
}

READABLE = frozenset(
    {
        *("columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"),
        *("typeWidening", "typeWidening-preview", "vacuumProtocolCheck"),
        *("variantType", "variantType-preview", "variantShredding", "variantShredding-preview"),
        "timestampNanos",
    }
)
# All known features except those that deltasql does not implement for writing.
WRITABLE = frozenset(
    {
        *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"),
        *("columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "domainMetadata"),
        *("inCommitTimestamp", "typeWidening", "typeWidening-preview", "vacuumProtocolCheck"),
        *("variantType", "variantType-preview", "variantShredding", "variantShredding-preview"),
        *("clustering", "timestampNanos"),
        *("allowColumnDefaults", "identityColumns"),
        *(CHECKPOINT_PROTECTION, "rowTracking", "materializePartitionColumns"),
        *("icebergCompatV1", "icebergCompatV2", "icebergCompatV3"),
        FENCE,
    }
)

BY_PROPERTY = {
    "delta.appendOnly": "appendOnly",
    "delta.enableChangeDataFeed": "changeDataFeed",
    "delta.enableDeletionVectors": "deletionVectors",
    "delta.enableIcebergCompatV1": "icebergCompatV1",
    "delta.enableIcebergCompatV2": "icebergCompatV2",
    "delta.enableIcebergCompatV3": "icebergCompatV3",
    "delta.enableInCommitTimestamps": "inCommitTimestamp",
    "delta.enableMaterializePartitionColumnsFeature": "materializePartitionColumns",
    "delta.enableRowTracking": "rowTracking",
    "delta.enableTypeWidening": "typeWidening",
    "delta.enableVariantShredding": "variantShredding",
}
_BY_FIELD_METADATA = {
    "delta.generationExpression": "generatedColumns",
    "delta.invariants": "invariants",
    "delta.identity.start": "identityColumns",
    "delta.typeChanges": "typeWidening",
    CURRENT_DEFAULT: "allowColumnDefaults",
}
_BY_TYPE = {
    "timestamp_nanos": "timestampNanos",
    "timestamp_nanos_ntz": "timestampNanos",
    "timestamp_ntz": "timestampNtz",
    "variant": "variantType",
}


def protocol_for(
    schema: StructType, configuration: Mapping[str, str], *, in_commit_timestamps: bool
) -> Protocol:
    """Return the lowest protocol for a new table with this schema and these properties.

    >>> from deltasql.model.schema.schema import StructField
    >>> protocol_for(StructType((StructField("id", "long"),)), {}, in_commit_timestamps=False)
    Protocol(min_reader_version=1, min_writer_version=2, reader_features=None, \
writer_features=None, extra={})
    """
    wanted = required_features(schema, configuration) | not_null_features(schema)
    if in_commit_timestamps:
        wanted |= {"inCommitTimestamp"}
    return lowest_protocol(wanted, reader_version=1, writer_version=2)


def upgraded_protocol(
    current: Protocol, schema: StructType, configuration: Mapping[str, str]
) -> Protocol:
    """Return the protocol that is needed after a change of metadata.

    Features are only added; if no feature is missing, the protocol is unchanged. If a protocol
    without feature lists gets feature lists, they include all features that the protocol version
    implied, because an older version of the table may have used them.
    """
    needed = required_features(schema, configuration) | not_null_features(schema)
    present = writer_features(current) | reader_features(current)
    if needed <= present:
        return current
    return lowest_protocol(
        needed | present,
        reader_version=current.min_reader_version,
        writer_version=current.min_writer_version,
    )


def with_features(current: Protocol, names: Iterable[str]) -> Protocol:
    """Return the protocol with additional features, in the feature lists of writer version 7.

    >>> with_features(Protocol(1, 2), ["changeDataFeed"]).writer_features
    ('appendOnly', 'changeDataFeed', 'invariants')
    """
    present = writer_features(current) | reader_features(current)
    return lowest_protocol(
        _with_requirements(set(names)) | present,
        reader_version=current.min_reader_version,
        writer_version=7,
    )


def without_feature(current: Protocol, name: str) -> Protocol:
    """Return the protocol without a feature.

    The result has no feature lists if protocol versions imply the same features.

    >>> without_feature(with_features(Protocol(1, 2), ["inCommitTimestamp"]), "inCommitTimestamp")
    Protocol(min_reader_version=1, min_writer_version=2, reader_features=None, \
writer_features=None, extra={})
    """
    readers, writers = reader_features(current) - {name}, writer_features(current) - {name}
    known = [FEATURES[each] for each in writers if each in FEATURES]
    dependants = sorted(each.name for each in known if name in each.requires)
    if dependants:
        raise UnsupportedFeatureError(
            f"the table feature {name} cannot be dropped: {' and '.join(dependants)} "
            f"{'needs' if len(dependants) == 1 else 'need'} it",
            features=tuple(dependants),
            help="First drop the features that need it.",
        )
    for reader_version, writer_version in ((1, 1), *((1, n) for n in range(2, 5)), (2, 5), (2, 6)):
        numbered = Protocol(reader_version, writer_version)
        if (reader_features(numbered), writer_features(numbered)) == (readers, writers):
            return numbered
    for_readers = tuple(sorted(readers)) if current.min_reader_version >= 3 else None
    return Protocol(
        current.min_reader_version if for_readers or current.min_reader_version < 3 else 1,
        7,
        for_readers or None,
        tuple(sorted(writers)),
    )


def raised_protocol(current: Protocol, properties: Mapping[str, str]) -> Protocol:
    """Raise the protocol to the versions that properties request. Versions are never lowered.

    >>> raised_protocol(Protocol(1, 2), {"delta.minWriterVersion": "4"})
    Protocol(min_reader_version=1, min_writer_version=4, reader_features=None, \
writer_features=None, extra={})
    """
    requested_reader, requested_writer = requested_versions(properties)
    reader = max(current.min_reader_version, requested_reader)
    writer = max(current.min_writer_version, requested_writer, 7 if reader >= 3 else 1)
    present = writer_features(current) | reader_features(current)
    # A requested version below 7 implies features. If the protocol has feature lists, these
    # features are added to the lists.
    listed = requested_writer < 7 <= writer
    implied = writer_features(Protocol(min(requested_reader, 2), requested_writer if listed else 1))
    is_enough = (reader, writer) == (current.min_reader_version, current.min_writer_version)
    if is_enough and implied <= present:
        return current
    if writer < 7:
        return Protocol(reader, writer)
    return lowest_protocol(present | implied, reader_version=reader, writer_version=writer)


def requested_versions(properties: Mapping[str, str]) -> tuple[int, int]:
    """Return the reader and writer versions that properties request; 1 if none is requested."""
    return (
        _requested_version(properties, "delta.minReaderVersion", range(1, 4)),
        _requested_version(properties, "delta.minWriterVersion", range(1, 8)),
    )


def _requested_version(properties: Mapping[str, str], key: str, valid: range) -> int:
    requested = properties.get(key)
    if requested is None:
        return 1
    if requested not in map(str, valid):
        shown = ",".join(f"'{version}'" for version in valid)
        raise TxnLogConfigError(
            f"{key} = '{requested}' is invalid, valid values are [{shown}]",
            key=key,
            prefix=PROPERTY_ERROR,
            help="Leave it out: the table gets the version that its features need.",
        )
    return int(requested)


def required_features(schema: StructType, configuration: Mapping[str, str]) -> frozenset[str]:
    """Return the features that the schema and the properties require.

    >>> sorted(required_features(StructType(), {"delta.enableRowTracking": "true"}))
    ['domainMetadata', 'rowTracking']
    """
    wanted = {name for key, name in BY_PROPERTY.items() if _is_true(configuration.get(key))}
    if column_mapping_mode(configuration):
        wanted.add("columnMapping")
    if configuration.get("delta.checkpointPolicy", "classic").lower() == "v2":
        wanted.add("v2Checkpoint")
    for key in configuration:
        if key.startswith(CONSTRAINT_PREFIX):
            wanted.add("checkConstraints")
        elif key.startswith(FEATURE_PREFIX):
            wanted.add(key.removeprefix(FEATURE_PREFIX))
    for data_type in nested_types(schema):
        if isinstance(data_type, StructType):
            keys = {key for member in data_type.fields for key in member.metadata}
            wanted.update(name for key, name in _BY_FIELD_METADATA.items() if key in keys)
        elif isinstance(data_type, str) and data_type in _BY_TYPE:
            wanted.add(_BY_TYPE[data_type])
    return _with_requirements(wanted)


def reader_features(protocol: Protocol) -> frozenset[str]:
    """Return the features that a reader must support, also those that the version implies.

    >>> sorted(reader_features(Protocol(2, 5)))
    ['columnMapping']
    """
    if protocol.min_reader_version >= 3:
        return frozenset(protocol.reader_features or ())
    return frozenset({"columnMapping"} if protocol.min_reader_version == 2 else ())


def writer_features(protocol: Protocol) -> frozenset[str]:
    """Return the features that a writer must support, also those that the version implies.

    >>> sorted(writer_features(Protocol(1, 3)))
    ['appendOnly', 'checkConstraints', 'invariants']
    """
    if protocol.min_writer_version >= 7:
        return frozenset(protocol.writer_features or ())
    # A feature that readers must support is implied only if both versions are high enough.
    return frozenset(
        f.name
        for f in FEATURES.values()
        if f.writer_version <= protocol.min_writer_version
        and (not f.readers or f.reader_version <= protocol.min_reader_version)
    )


def check_readable(protocol: Protocol) -> None:
    """Raise UnsupportedFeatureError if deltasql cannot read tables with this protocol."""
    unknown = sorted(reader_features(protocol) - READABLE)
    if protocol.min_reader_version > 3 or unknown:
        raise UnsupportedFeatureError(
            f"cannot read this table: it needs reader version {protocol.min_reader_version}"
            + (f" with {', '.join(unknown)}" if unknown else ""),
            features=tuple(unknown),
            help="Drop the feature with the engine that enabled it. deltasql reads versions 1 to 3 "
            f"with: {', '.join(sorted(READABLE))}.",
        )


def check_writable(protocol: Protocol) -> None:
    """Raise UnsupportedFeatureError if deltasql cannot write tables with this protocol."""
    check_readable(protocol)
    unknown = sorted(writer_features(protocol) - WRITABLE)
    if protocol.min_writer_version > 7 or unknown:
        raise UnsupportedFeatureError(
            f"cannot write this table: it needs writer version {protocol.min_writer_version}"
            + (f" with {', '.join(unknown)}" if unknown else ""),
            features=tuple(unknown),
            help="Drop the feature with the engine that enabled it. deltasql writes versions 1 to "
            f"7 with: {', '.join(sorted(WRITABLE))}.",
        )


def check_valid(protocol: Protocol) -> None:
    """Raise TxnLogProtocolError if the versions and feature lists contradict each other."""
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    listed, written = protocol.reader_features, protocol.writer_features
    only_read = sorted(set(listed or ()) - set(written or ()))
    problem = None
    if reader < 1 or writer < 1:
        problem = f"versions start at 1, got {reader} and {writer}"
    elif reader >= 3 and writer < 7:
        problem = f"reader version {reader} needs writer version 7, got {writer}"
    elif (listed is not None) != (reader >= 3):
        problem = f"readerFeatures belong to reader version 3, got version {reader}"
    elif (written is not None) != (writer >= 7):
        problem = f"writerFeatures belong to writer version 7, got version {writer}"
    elif only_read:
        problem = f"{', '.join(only_read)} must be in writerFeatures too"
    if problem is not None:
        raise TxnLogProtocolError(
            f"invalid protocol action: {problem}",
            help="Leave the protocol action out: deltasql chooses the versions and features.",
        )


def lowest_protocol(
    wanted: frozenset[str], *, reader_version: int, writer_version: int
) -> Protocol:
    """Return the lowest protocol with these features and at least these versions."""
    features = [FEATURES[name] for name in wanted if name in FEATURES]
    unknown = sorted(wanted - FEATURES.keys())
    if unknown:
        raise UnsupportedFeatureError(
            f"unknown table feature: {', '.join(unknown)}",
            features=tuple(unknown),
            help=f"Known features: {', '.join(sorted(FEATURES))}.",
        )
    if writer_version < 7 and all(f.is_legacy for f in features):
        return Protocol(
            max([reader_version, *(f.reader_version for f in features if f.readers)]),
            max([writer_version, *(f.writer_version for f in features)]),
        )
    for_readers = tuple(sorted(f.name for f in features if f.readers))
    return Protocol(
        3 if for_readers or reader_version >= 3 else 1,
        7,
        for_readers if for_readers or reader_version >= 3 else None,
        tuple(sorted(wanted)),
    )


def not_null_features(schema: StructType) -> frozenset[str]:
    """Return the feature `invariants` if a column is NOT NULL.

    For such a table, delta-spark rejects feature lists without `invariants`. The feature is not in
    `required_features`, because other writers omit it.
    """
    not_null = any(not member.nullable for member in _members(schema))
    return frozenset({"invariants"} if not_null else ())


def _with_requirements(names: set[str]) -> frozenset[str]:
    found = set(names)
    for name in names:
        if name in FEATURES:
            found |= _with_requirements(set(FEATURES[name].requires))
    return frozenset(found)


def _members(data_type: DataType) -> Iterator[StructField]:
    if isinstance(data_type, StructType):
        for member in data_type.fields:
            yield member
            yield from _members(member.type)


def _is_true(value: str | None) -> bool:
    return value is not None and value.strip().lower() == "true"
