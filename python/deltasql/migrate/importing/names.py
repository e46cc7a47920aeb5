"""Choose the name of a table that is loaded from a log; raise if the name is in use.

An import uses the name in its options, or else the name in the log or of the folder. A rebuild
restores the name that the table had in the lost catalog.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from deltasql.exceptions import TableExistsError, TxnLogUriError, VersionTakenError
from deltasql.mirror.publish import status
from deltasql.mirror.publish.targets import targets_of
from deltasql.model.counts import many
from deltasql.model.properties import NAME_IN_CATALOG
from deltasql.snapshot.snapshot import HISTORY_PAGE
from deltasql.storage.location import is_same_location, location_key
from deltasql.store.records import load
from deltasql.uri import DEFAULT_NAMESPACE, join_table_name, split_table_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.migrate.importing.run import ImportRun
    from deltasql.model.actions import Metadata
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store


def name_in_log(metadata: Metadata | None, location: str) -> str:
    """Return the name in the metadata, or else the name of the table's folder."""
    name = None if metadata is None else metadata.name
    return name or unquote(location.rstrip("/").rpartition("/")[2]) or "table"


def valid_name(namespace: str, name: str) -> str:
    """Return the name, with `_` in place of every character that is not allowed in table names.

    >>> valid_name("default", "sales"), valid_name("default", "a/b c")
    ('sales', 'a_b c')
    """
    try:
        if split_table_name(join_table_name(namespace, name)) == (namespace, name):
            return name
    except TxnLogUriError:
        pass
    return re.sub(r"[^\w -]", "_", name)[:255] or "table"


# Names of imported tables


def name_for(run: ImportRun, metadata: Metadata, replaces: TableRow | None) -> tuple[str, str]:
    """Return the namespace and the name for a new table."""
    options = run.options
    if replaces is not None:
        return replaces.namespace, replaces.name
    namespace = options.namespace or options.default_namespace
    if options.name is not None:
        return namespace, options.name
    return namespace, valid_name(namespace, name_in_log(metadata, run.storage.location))


def table_to_replace(run: ImportRun, namespace: str, name: str) -> TableRow | None:
    """Return the table that has the name of a new table; raise if it must not be replaced."""
    found = run.store.find_table(namespace, name, fresh=True)
    if found is not None and is_same_location(found.location, run.storage.location):
        # No table had this location when the import began, so another process has imported it
        # since.
        raise VersionTakenError(table=join_table_name(namespace, name))
    if found is None:
        return None
    full_name, root = join_table_name(namespace, name), run.options.root
    if root is not None and _is_below(found.location, root):
        raise TableExistsError(
            f"table {full_name} already exists, with its files at {found.location}",
            table=full_name,
            help=f"Both tables are below {root}. Import one of them alone, under another name.",
        )
    if not run.options.force:
        raise name_taken(full_name, found.location)
    return found


def name_taken(name: str, location: str | None = None) -> TableExistsError:
    """Return the error for a name that another table has."""
    where = f", with its files at {location}" if location else ""
    return TableExistsError(
        f"table {name} already exists{where}",
        table=name,
        help="Choose another name, or drop that table from the catalog with force=True (--force); "
        "its files stay.",
    )


def check_same_name(run: ImportRun, live: TableRow) -> None:
    """Raise if the table at this location is in the catalog under another name."""
    options = run.options
    wanted = (options.namespace or live.namespace, options.name or live.name)
    if wanted == (live.namespace, live.name):
        return
    known = join_table_name(live.namespace, live.name)
    raise TableExistsError(
        f"the table at {run.storage.location} is already in the catalog as {known}",
        table=known,
        help="Omit the name to update the table from its log, or rename it in the catalog.",
    )


def check_all_published(run: ImportRun, known: Sequence[TableRow]) -> None:
    """Raise if a dropped table still has versions to publish to the log.

    The publisher would write these versions into the log after the import.
    """
    for each in (table for table in known if not table.is_loading):
        own = next((t for t in targets_of(run.store, each) if t.is_own), None)
        if own is None or not own.pending:
            continue
        if not run.options.force:
            raise TableExistsError(
                f"the log at {run.storage.location} lacks {many(own.pending, 'version')} of the "
                f"dropped table {each.full_name}",
                table=each.full_name,
                help="Restore it with undrop and publish it, then import. Or discard these "
                "versions with force=True (--force).",
            )
        if not run.options.dry_run:
            status.mark_published(run.store, each, own.head_version)


def _is_below(location: str, root: str) -> bool:
    """Return whether a location is the folder `root` or is below it.

    >>> _is_below("file:///data/a", "/data/"), _is_below("/data2/a", "/data")
    (True, False)
    """
    return location_key(location).startswith(location_key(root))


# Names of rebuilt tables


def restored_name(store: Store, table: TableRow, folder: str) -> tuple[str, str]:
    """Return the namespace and the name that a loaded table had in the lost catalog.

    `folder` is the folder of the table, relative to its root. A transaction over several tables
    writes their names into the log. If the log has no such transaction, the name is taken from the
    metadata, and the namespace from the parent folder: by default, tables are created at
    `namespace/name`.
    """
    return _name_in_history(store, table) or name_from_layout(
        _metadata(store, table), table.location, folder
    )


def name_from_layout(metadata: Metadata, location: str, folder: str) -> tuple[str, str]:
    """Return namespace and name according to the metadata and the folder of a table."""
    parts = folder.split("/") if folder else []
    last = parts[-1] if parts else name_in_log(None, location)
    # Release 0.1.0 wrote the name in the catalog as the name in the metadata.
    name = metadata.configuration.get(NAME_IN_CATALOG) or metadata.name or last
    # If a dropped table had the same name before, the folder of the new table is `name-2`.
    is_default_location = re.fullmatch(rf"{re.escape(name)}(-\d+)?", last) is not None
    namespace = parts[0] if len(parts) == 2 and is_default_location else DEFAULT_NAMESPACE
    return _if_valid(namespace, name) or (DEFAULT_NAMESPACE, re.sub(r"[^\w-]", "_", name)[:255])


def _name_in_history(store: Store, table: TableRow) -> tuple[str, str] | None:
    """Return the name in the latest transaction over several tables; None if there is none."""
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
                    return _if_valid(namespace, name)
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


def _if_valid(namespace: str, name: str) -> tuple[str, str] | None:
    try:
        return split_table_name(join_table_name(namespace, name))
    except TxnLogUriError:
        return None
