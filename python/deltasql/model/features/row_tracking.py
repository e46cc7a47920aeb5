"""Row tracking: every row keeps an id, and the version of the commit that last changed it.

A file has the id of its first row (`baseRowId`) and the version that added it; the other rows of
the file follow by their position. A file whose rows come from other files stores the ids and the
versions in two materialized columns, which are not in the table's schema. Null there means that the
row is new.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from deltasql.exceptions import InvalidActionError
from deltasql.model.actions import DomainMetadata
from deltasql.model.json_text import read_stats
from deltasql.model.schema.column_mapping import COLUMN_ID
from deltasql.model.schema.schema import StructField

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from deltasql.model.actions import AddFile

FEATURE = "rowTracking"
ENABLED = "delta.enableRowTracking"
SUSPENDED = "delta.rowTrackingSuspended"
DOMAIN = "delta.rowTracking"
ROW_ID, ROW_COMMIT_VERSION = "_row_id", "_row_commit_version"
"""The names of the columns with which a table is read."""
COLUMN_NAMES = {
    "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-",
}
"""The properties with the names of the materialized columns, and how new names start."""
_ROW_ID_FIELD, _VERSION_FIELD = 2147483540, 2147483539
"""The field ids that Iceberg reserves for these columns; icebergCompatV3 needs them."""
_CHANGES = "deltasql.changesWithRow"


def is_enabled(configuration: Mapping[str, str]) -> bool:
    """Return whether rows keep their ids when they are written to other files."""
    return configuration.get(ENABLED, "").strip().lower() == "true"


def assigns_ids(configuration: Mapping[str, str], features: Collection[str]) -> bool:
    """Return whether commits give their files row ids.

    They do so in any table that has the feature, unless a property suspends row tracking.
    """
    return FEATURE in features and configuration.get(SUSPENDED, "").strip().lower() != "true"


def with_column_names(configuration: Mapping[str, str]) -> dict[str, str]:
    """Add the names of the materialized columns to the properties of a table that needs them."""
    found = dict(configuration)
    if is_enabled(configuration):
        for key, start in COLUMN_NAMES.items():
            found.setdefault(key, f"{start}{uuid.uuid4()}")
    return found


def materialized_columns(configuration: Mapping[str, str]) -> tuple[StructField, ...]:
    """Return the columns of files for ids and for versions; none if row tracking is not enabled.

    >>> materialized_columns({ENABLED: "false"})
    ()
    """
    if not is_enabled(configuration) or any(key not in configuration for key in COLUMN_NAMES):
        return ()
    row_id, version = (configuration[key] for key in COLUMN_NAMES)
    return (
        StructField(row_id, "long", metadata={COLUMN_ID: _ROW_ID_FIELD}),
        StructField(version, "long", metadata={COLUMN_ID: _VERSION_FIELD, _CHANGES: True}),
    )


def changes_with_row(column: StructField) -> bool:
    """Return whether a column has the version of a row's last change.

    Where an operation changes a row, it must write null there: the commit then sets the version.
    """
    return _CHANGES in column.metadata


def with_row_ids(
    adds: Iterable[AddFile], domain: DomainMetadata | None, version: int
) -> tuple[list[AddFile], DomainMetadata | None]:
    """Assign row ids and commit versions to the files of a commit that do not have them yet.

    `domain` contains the highest row id of the table. The second result is the domain with the new
    highest id, or None if no id was assigned.
    """
    before = -1 if domain is None else int(json.loads(domain.configuration)["rowIdHighWaterMark"])
    highest, found = before, []
    for add in adds:
        count = read_stats(add.stats).get("numRecords")
        if not isinstance(count, int):
            raise InvalidActionError(
                f"the file {add.path!r} has no number of records in its statistics, but row "
                "tracking needs this number",
                help="Add numRecords to the statistics of the file.",
            )
        base = add.base_row_id
        if base is None:
            base = highest + 1
        highest = max(highest, base + count - 1)
        known = add.default_row_commit_version
        added = version if known is None else known
        found.append(replace(add, base_row_id=base, default_row_commit_version=added))
    if highest == before:
        return found, None
    mark = json.dumps({"rowIdHighWaterMark": highest}, separators=(",", ":"))
    return found, DomainMetadata(DOMAIN, mark)
