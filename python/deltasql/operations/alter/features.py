"""ALTER TABLE ADD FEATURE: add table features and raise protocol versions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogError
from deltasql.exceptions.prefixes import TABLE_ERROR
from deltasql.model.protocol import FEATURES, check_writable, raised_protocol, with_features

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
    check_writable(protocol, stage.schema, stage.configuration)
    if protocol != current:
        stage.staged.protocol = protocol
    stage.record_read_version()
    stage.set_commit_info(
        "ADD FEATURE", {"name": json.dumps(list(features), separators=(",", ":"))}
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
