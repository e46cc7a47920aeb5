"""ADD FEATURE: what readers and writers of the table must know from now on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogError
from deltasql.exceptions.prefixes import TABLE_ERROR
from deltasql.model.protocol import FEATURES, check_writable, raised_protocol, with_features
from deltasql.operations.commit_info import set_commit_info

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.model.actions import Protocol
    from deltasql.operations.target import TableStage

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
"""deltalake's TableFeatures to the names of Delta's protocol."""


def add_feature(
    target: TableStage, features: Sequence[str], *, allow_protocol_versions_increase: bool = False
) -> None:
    """Add table features by their names in Delta's protocol."""
    if not features:
        raise TxnLogError(
            "No features provided", prefix=TABLE_ERROR, help="Name at least one table feature."
        )
    current = target.protocol
    if not allow_protocol_versions_increase:
        refuse_higher_versions(current, features)
    protocol = with_features(current, features)
    check_writable(protocol, target.schema, target.configuration)
    if protocol != current:
        target.staged.protocol = protocol
    target.follows()
    set_commit_info(
        target, "ADD FEATURE", {"name": json.dumps(list(features), separators=(",", ":"))}
    )


def raise_versions(target: TableStage, versions: Mapping[str, str]) -> None:
    """Raise the versions of the protocol, which are named as the properties that ask for them."""
    protocol = raised_protocol(target.protocol, versions)
    if protocol != target.protocol:
        target.staged.protocol = protocol
        new = json.dumps(protocol.body(), separators=(",", ":"))
        set_commit_info(target, "UPGRADE PROTOCOL", {"newProtocol": new})
    target.follows()


def refuse_higher_versions(current: Protocol, features: Sequence[str]) -> None:
    """Raise an error when features need the lists of a higher protocol."""
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
