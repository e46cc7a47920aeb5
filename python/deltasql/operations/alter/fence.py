"""Fence a table: its protocol gets a writer feature that no other engine supports.

Other engines must then refuse to commit to the table's path. Readers ignore writer features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.model.protocol import FENCE, with_features, without_feature, writer_features

if TYPE_CHECKING:
    from deltasql.model.actions import Protocol
    from deltasql.operations.table_stage import TableStage


def is_fenced(protocol: Protocol) -> bool:
    """Return whether a protocol has the fence."""
    return FENCE in writer_features(protocol)


def fence(stage: TableStage) -> bool:
    """Stage the fence; return False if the table is fenced already."""
    return _change(stage, with_features(stage.protocol, [FENCE]), "FENCE")


def unfence(stage: TableStage) -> bool:
    """Stage the removal of the fence; return False if the table is not fenced."""
    return _change(stage, unfenced(stage.protocol), "UNFENCE")


def unfenced(protocol: Protocol) -> Protocol:
    """Return a protocol without the fence.

    >>> from deltasql.model.actions import Protocol
    >>> unfenced(Protocol(1, 7, None, ("appendOnly", "deltasqlAuthority", "invariants")))
    Protocol(min_reader_version=1, min_writer_version=2, reader_features=None, \
writer_features=None, extra={})
    """
    return without_feature(protocol, FENCE) if is_fenced(protocol) else protocol


def fenced_like(protocol: Protocol, current: Protocol) -> Protocol:
    """Return a protocol that is fenced if `current` is, and not fenced otherwise."""
    return with_features(protocol, [FENCE]) if is_fenced(current) else unfenced(protocol)


def _change(stage: TableStage, protocol: Protocol, operation: str) -> bool:
    if is_fenced(protocol) == is_fenced(stage.protocol):
        return False
    stage.staged.protocol = protocol
    stage.record_read_version()
    stage.set_commit_info(operation, {"feature": FENCE})
    return True
