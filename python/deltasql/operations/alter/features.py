"""ALTER TABLE ADD FEATURE and DROP FEATURE: change the table features and protocol versions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogError, UnsupportedFeatureError
from deltasql.exceptions.prefixes import TABLE_ERROR
from deltasql.model.actions import DomainMetadata
from deltasql.model.protocol import (
    BY_PROPERTY,
    CHECKPOINT_PROTECTION,
    FEATURES,
    FENCE,
    PROTECTED_BEFORE,
    check_writable,
    not_null_features,
    raised_protocol,
    reader_features,
    required_features,
    with_features,
    without_feature,
    writer_features,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.model.actions import Protocol
    from deltasql.operations.table_stage import TableStage

FEATURE_NAMES = {
    "AppendOnly": "appendOnly",
    "ChangeDataFeed": "changeDataFeed",
    "CheckConstraints": "checkConstraints",
    "ColumnMapping": "columnMapping",
    "DeletionVectors": "deletionVectors",
    "DomainMetadata": "domainMetadata",
    "GeneratedColumns": "generatedColumns",
    "IcebergCompatV1": "icebergCompatV1",
    "IdentityColumns": "identityColumns",
    "Invariants": "invariants",
    "RowTracking": "rowTracking",
    "TimestampNanos": "timestampNanos",
    "TimestampWithoutTimezone": "timestampNtz",
    "V2Checkpoint": "v2Checkpoint",
    "VariantType": "variantType",
    "VariantTypePreview": "variantType-preview",
}
"""Maps the names of deltalake's TableFeatures to the names in Delta's protocol."""


def add_feature(
    stage: TableStage, features: Sequence[str], *, allow_protocol_versions_increase: bool = False
) -> None:
    """Add table features by their names in Delta's protocol."""
    if not features:
        raise TxnLogError(
            "No features provided", prefix=TABLE_ERROR, help="Name at least one table feature."
        )
    current = stage.protocol
    if not allow_protocol_versions_increase:
        reject_higher_versions(current, features)
    protocol = with_features(current, features)
    check_writable(protocol)
    if protocol != current:
        stage.staged.protocol = protocol
    stage.record_read_version()
    stage.set_commit_info(
        "ADD FEATURE", {"name": json.dumps(list(features), separators=(",", ":"))}
    )


def drop_feature(stage: TableStage, name: str, *, truncate_history: bool = False) -> None:
    """Remove a feature that the table does not use any more; properties that enable it are removed.

    Older versions still use the feature. If readers must support it, the published log up to this
    commit is kept for readers of these versions. A checkpoint is written after the commit, so that
    readers of newer versions do not read the older part of the log.
    """
    protocol = stage.protocol
    for_readers = name in reader_features(protocol)
    if name not in FEATURES:
        raise _cannot_drop(
            stage,
            name,
            "it is not a known table feature",
            f"Known features are {', '.join(sorted(FEATURES))}.",
        )
    if name not in writer_features(protocol) | reader_features(protocol):
        raise _cannot_drop(
            stage, name, "the table's protocol does not have it", "detail() lists the features."
        )
    if truncate_history:
        raise _cannot_drop(
            stage,
            name,
            "the history cannot be truncated",
            "Leave out TRUNCATE HISTORY: the feature is dropped at once, and the history is kept.",
        )
    if name in _PERMANENT:
        raise _cannot_drop(stage, name, *_PERMANENT[name])
    properties = _without_properties_of(name, stage.configuration)
    after = without_feature(protocol, name)  # raises if another feature needs it
    _check_unused(stage, name, properties)
    if for_readers and after.min_writer_version >= 7:
        assert stage.snapshot is not None
        after = with_features(after, [CHECKPOINT_PROTECTION])
        stage.staged.must_be_next = True
        properties[PROTECTED_BEFORE] = str(stage.snapshot.version + 1)
    removed = (each for each in _DOMAINS.get(name, ()) if each in stage.domains())
    stage.staged.domains[:] = [
        *(each for each in stage.staged.domains if each.domain not in _DOMAINS.get(name, ())),
        *(DomainMetadata(each, "", removed=True) for each in removed),
    ]
    # Read the whole table: a concurrent commit may use the feature, so it must be a conflict.
    stage.read(whole_table=True)
    if properties != stage.configuration:
        stage.change_metadata(replace(stage.metadata, configuration=properties))
    stage.staged.protocol = after
    stage.set_commit_info("DROP FEATURE", {"featureName": name, "truncateHistory": "false"})


_PERMANENT = {
    "catalogManaged": ("deltasql never enables it", "Drop it with the engine that enabled it."),
    "checkpointProtection": (
        "the history before a dropped feature is still in the log",
        "Keep it: it concerns only writers that clean up the log.",
    ),
    FENCE: ("it is the fence of the table", "Remove the fence: deltasql table unfence."),
}
"""Features that cannot be dropped: the reason, and what to do."""
_PREVIEW = "-preview"
_DOMAINS = {"clustering": ("delta.clustering",), "rowTracking": ("delta.rowTracking",)}
"""The metadata domains that belong to a feature."""
_UNTIL_UNUSED = {
    "checkConstraints": "Drop the constraints first.",
    "clustering": "First run ALTER TABLE … CLUSTER BY NONE.",
    "columnMapping": "Copy the rows into a new table: CREATE TABLE … AS SELECT.",
    "deletionVectors": "First run REORG TABLE … APPLY (PURGE), or optimize the table.",
    "invariants": "First run ALTER COLUMN … DROP NOT NULL.",
    "typeWidening": "Files may have the old types. Copy the rows into a new table: "
    "CREATE TABLE … AS SELECT.",
}


def _without_properties_of(name: str, configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the properties, except the properties that enable or configure a feature."""
    prefixes = _CONFIGURED_BY.get(name, ())
    return {
        key: value
        for key, value in configuration.items()
        if BY_PROPERTY.get(key) != name and not (prefixes and key.startswith(prefixes))
    }


_CONFIGURED_BY = {
    "inCommitTimestamp": ("delta.inCommitTimestampEnablement",),
    "rowTracking": ("delta.rowTracking.",),
    "v2Checkpoint": ("delta.checkpointPolicy",),
}


def _check_unused(stage: TableStage, name: str, properties: Mapping[str, str]) -> None:
    """Raise if the table still uses a feature."""
    schema = stage.schema
    required = required_features(schema, properties) | not_null_features(schema)
    # A table may have a preview of a feature instead of the feature itself.
    released = name.removesuffix(_PREVIEW)
    has_other = released != name and released in writer_features(stage.protocol)
    used = name in required or (released in required and not has_other)
    if name == "deletionVectors":
        used = any(stage.files()["deletion_vector"].to_pylist())
    elif name == "clustering":
        used = bool(stage.clustered_by())
    elif name == "domainMetadata":
        used = bool(stage.domains())
    if used:
        advice = _UNTIL_UNUSED.get(name, "First change the columns that need it.")
        raise _cannot_drop(stage, name, "the table uses it", advice)


def _cannot_drop(
    stage: TableStage, name: str, problem: str, advice: str
) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"the table feature {name} cannot be dropped: {problem}",
        table=stage.name,
        features=(name,),
        help=advice,
    )


def raise_versions(stage: TableStage, versions: Mapping[str, str]) -> None:
    """Raise the protocol versions; keys are delta.minReaderVersion and delta.minWriterVersion."""
    protocol = raised_protocol(stage.protocol, versions)
    if protocol != stage.protocol:
        stage.staged.protocol = protocol
        new = json.dumps(protocol.body(), separators=(",", ":"))
        stage.set_commit_info("UPGRADE PROTOCOL", {"newProtocol": new})
    stage.record_read_version()


def reject_higher_versions(current: Protocol, features: Sequence[str]) -> None:
    """Raise an error if the features need a higher protocol version."""
    for_readers = any(FEATURES[name].readers for name in features if name in FEATURES)
    if for_readers and (current.min_reader_version < 3 or current.min_writer_version < 7):
        raise _too_low("reader and writer feature", "reader is not v3, and writer not v7")
    if current.min_writer_version < 7:
        raise _too_low("writer feature", "min_writer is not v7")


def _too_low(kind: str, reason: str) -> TxnLogError:
    return TxnLogError(
        f"Table feature enables {kind}, but {reason}. Set allow_protocol_versions_increase or "
        f"increase {'versions' if 'reader' in kind else 'version'} explicitly through "
        "set_tbl_properties",
        prefix=TABLE_ERROR,
        help="The properties are delta.minReaderVersion and delta.minWriterVersion.",
    )
