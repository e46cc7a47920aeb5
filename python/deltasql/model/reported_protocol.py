"""What deltalake's calls tell of a table: without the in-commit timestamps that the log has.

The published log needs them, and its protocol says so. Whoever reads and writes through the
catalog never meets them, and code written for deltalake compares versions and properties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.model.properties import NAME_IN_CATALOG
from deltasql.model.protocol import (
    FEATURES,
    asked_versions,
    lowest_protocol,
    reader_features,
    required_features,
    writer_features,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deltasql.model.actions import Protocol
    from deltasql.model.schema.schema import StructType

_FEATURE = "inCommitTimestamp"
_PROPERTY = "delta.enableInCommitTimestamps"
# deltalake lists them when version 7 is asked for.
_IN_EVERY_LIST = frozenset({"appendOnly", "invariants"})


def reported_protocol(
    stored: Protocol,
    schema: StructType,
    configuration: Mapping[str, str],
    *,
    has_named_features: Callable[[], bool],
) -> Protocol:
    """Return the protocol that the table would have without in-commit timestamps.

    Features that versions below 7 imply are told by such a version again, unless somebody added
    one by its name: `has_named_features` is asked when a feature is there that nothing uses.

    >>> from deltasql.model.actions import Protocol
    >>> from deltasql.model.schema.schema import StructType
    >>> stored = Protocol(1, 7, None, ("changeDataFeed", "inCommitTimestamp"))
    >>> reported_protocol(stored, StructType(), {}, has_named_features=lambda: False)
    Protocol(min_reader_version=1, min_writer_version=4, reader_features=None, \
writer_features=None, extra={})
    """
    present = writer_features(stored) | reader_features(stored)
    if _FEATURE not in present:
        return stored
    left = present - {_FEATURE}
    if left - FEATURES.keys():
        return stored
    asked_reader, asked_writer = asked_versions(configuration)
    if asked_writer == 7:
        left |= _IN_EVERY_LIST
    wants_lists = stored.min_reader_version >= 3 and not reader_features(stored)
    if not wants_lists and all(FEATURES[name].is_legacy for name in left):
        unused = left - required_features(schema, configuration)
        wants_lists = bool(unused) and has_named_features()
    reader, writer = (stored.min_reader_version, 7) if wants_lists else (1, 2)
    return lowest_protocol(
        left, reader_version=max(reader, asked_reader), writer_version=max(writer, asked_writer)
    )


def reported_properties(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return a user's properties: not the name in the catalog, nor in-commit timestamps.

    The latter are told where they are off.

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
