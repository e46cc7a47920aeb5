"""What a table of the lake was called in the catalog that is lost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from deltasql.exceptions import TxnLogUriError
from deltasql.model.properties import NAME_IN_CATALOG
from deltasql.snapshot.snapshot import HISTORY_PAGE
from deltasql.store.records import load
from deltasql.uri import DEFAULT_NAMESPACE, join_table_name, split_table_name

if TYPE_CHECKING:
    from deltasql.model.actions import Metadata
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store


def choose_name(store: Store, table: TableRow, folder: str) -> tuple[str, str]:
    """Return namespace and name of a loaded table, which lies in a folder of a root.

    A transaction over several tables wrote their names into the log; else the name is in the
    metadata and the namespace is the folder above, where tables are placed by default.
    """
    return _group_name(store, table) or layout_name(_metadata(store, table), table.location, folder)


def layout_name(metadata: Metadata, location: str, folder: str) -> tuple[str, str]:
    """Return namespace and name as the metadata and the place of a table tell them."""
    parts = folder.split("/") if folder else []
    last = parts[-1] if parts else told_name(None, location)
    # 0.1.0 wrote the name in the catalog into the name of the metadata.
    name = metadata.configuration.get(NAME_IN_CATALOG) or metadata.name or last
    # A table that follows a dropped one of its name lies in `name-2`.
    is_default_place = re.fullmatch(rf"{re.escape(name)}(-\d+)?", last) is not None
    namespace = parts[0] if len(parts) == 2 and is_default_place else DEFAULT_NAMESPACE
    return _lawful(namespace, name) or (DEFAULT_NAMESPACE, re.sub(r"[^\w-]", "_", name)[:255])


def told_name(metadata: Metadata | None, location: str) -> str:
    """Return the short name in the metadata, or that of the folder."""
    told = None if metadata is None else metadata.name
    return told or unquote(location.rstrip("/").rpartition("/")[2]) or "table"


def _group_name(store: Store, table: TableRow) -> tuple[str, str] | None:
    """Find the latest transaction over several tables, which names them all."""
    last = 2**62
    while True:
        rows = store.query(
            "history", table_id=table.table_id, first=0, last=last, limit=HISTORY_PAGE
        )
        for row in rows:
            extra = load(row[14]) if row[14] and '"participants"' in row[14] else None
            for each in _participants(extra):
                if each.get("id") == table.table_uuid:
                    namespace, _, name = str(each.get("table")).partition(".")
                    return _lawful(namespace, name)
        if len(rows) < HISTORY_PAGE:
            return None
        last = rows[-1][0] - 1


def _participants(extra: object) -> list[dict[str, object]]:
    group = extra.get("group") if isinstance(extra, dict) else None
    found = group.get("participants") if isinstance(group, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _metadata(store: Store, table: TableRow) -> Metadata:
    head = store.head(table.table_id)
    assert head is not None
    return store.metadata(table.table_id, head.metadata_version)


def _lawful(namespace: str, name: str) -> tuple[str, str] | None:
    try:
        return split_table_name(join_table_name(namespace, name))
    except TxnLogUriError:
        return None
