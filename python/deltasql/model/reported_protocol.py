"""The protocol and properties that deltalake's API reports: without in-commit timestamps.

The published log has in-commit timestamps, so its protocol lists the feature; the protocol of a
fenced table also lists the feature of the fence. Users of the catalog do not need to know this, and
code that was written for deltalake may compare protocol versions and properties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.model.properties import NAME_IN_CATALOG
from deltasql.model.protocol import (
    FEATURES,
    FENCE,
    lowest_protocol,
    reader_features,
    requested_versions,
    required_features,
    writer_features,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deltasql.model.actions import Protocol
    from deltasql.model.schema.schema import StructType

_HIDDEN = frozenset({"inCommitTimestamp", FENCE})
_PROPERTY = "delta.enableInCommitTimestamps"
# deltalake adds these features to the list if writer version 7 is requested.
_IN_EVERY_LIST = frozenset({"appendOnly", "invariants"})


def reported_protocol(
    stored: Protocol,
    schema: StructType,
    configuration: Mapping[str, str],
    *,
    has_named_features: Callable[[], bool],
) -> Protocol:
    """Return the protocol that the table would have without in-commit timestamps and fence.

    If a writer version below 7 implies all other features, that version is reported, unless a
    feature was added by name. `has_named_features` returns whether a feature was added by name. The
    function is called only if the protocol has a feature that the table does not use.

    >>> from deltasql.model.actions import Protocol
    >>> from deltasql.model.schema.schema import StructType
    >>> stored = Protocol(1, 7, None, ("changeDataFeed", "inCommitTimestamp"))
    >>> reported_protocol(stored, StructType(), {}, has_named_features=lambda: False)
    Protocol(min_reader_version=1, min_writer_version=4, reader_features=None, \
writer_features=None, extra={})
    """
    present = writer_features(stored) | reader_features(stored)
    if not present & _HIDDEN:
        return stored
    left = present - _HIDDEN
    if left - FEATURES.keys():
        return stored
    requested_reader, requested_writer = requested_versions(configuration)
    if requested_writer == 7:
        left |= _IN_EVERY_LIST
    wants_lists = stored.min_reader_version >= 3 and not reader_features(stored)
    if not wants_lists and all(FEATURES[name].is_legacy for name in left):
        unused = left - required_features(schema, configuration)
        wants_lists = bool(unused) and has_named_features()
    reader, writer = (stored.min_reader_version, 7) if wants_lists else (1, 2)
    return lowest_protocol(
        left,
        reader_version=max(reader, requested_reader),
        writer_version=max(writer, requested_writer),
    )


def reported_properties(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the properties without the name in the catalog and without in-commit timestamps.

    If in-commit timestamps are disabled, their properties are included.

    >>> reported_properties({"delta.enableInCommitTimestamps": "true", "delta.appendOnly": "true"})
    {'delta.appendOnly': 'true'}
    """
    hides_timestamps = configuration.get(_PROPERTY) == "true"
    return {
        key: value
        for key, value in configuration.items()
        if key != NAME_IN_CATALOG
        and not (hides_timestamps and "incommittimestamp" in key.casefold())
    }
