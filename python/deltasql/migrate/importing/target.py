"""Which table of the catalog an import means: by the place of its log, else by its name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from deltasql.exceptions import TableExistsError, TxnLogUriError, VersionTakenError
from deltasql.migrate.importing.names import told_name
from deltasql.mirror.publish import status
from deltasql.mirror.publish.targets import targets_of
from deltasql.model.counts import many
from deltasql.storage.location import is_same_location, location_key
from deltasql.uri import join_table_name, split_table_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.migrate.importing.run import ImportRun
    from deltasql.model.actions import Metadata
    from deltasql.store.records import TableRow


def name_for(run: ImportRun, metadata: Metadata, instead_of: TableRow | None) -> tuple[str, str]:
    """Return namespace and name of a new table."""
    options = run.options
    if instead_of is not None:
        return instead_of.namespace, instead_of.name
    namespace = options.namespace or options.default_namespace
    if options.name is not None:
        return namespace, options.name
    told = told_name(metadata, run.storage.location)
    return namespace, lawful_name(namespace, told)


def lawful_name(namespace: str, told: str) -> str:
    """Return a name that a table may have: as it is told, or without what is not allowed.

    >>> lawful_name("default", "sales"), lawful_name("default", "a/b c")
    ('sales', 'a_b c')
    """
    try:
        if split_table_name(join_table_name(namespace, told)) == (namespace, told):
            return told
    except TxnLogUriError:
        pass
    return re.sub(r"[^\w -]", "_", told)[:255] or "table"


def holder_of(run: ImportRun, namespace: str, name: str) -> TableRow | None:
    """Return the table that has a name and gives way; an error unless that is wanted."""
    found = run.store.find_table(namespace, name, fresh=True)
    if found is not None and is_same_location(found.location, run.storage.location):
        # Nobody had this place a moment ago: another process was faster with the same table.
        raise VersionTakenError(table=join_table_name(namespace, name))
    if found is None:
        return None
    full_name, root = join_table_name(namespace, name), run.options.root
    if root is not None and _is_below(found.location, root):
        raise TableExistsError(
            f"table {full_name} already exists, with its files at {found.location}",
            table=full_name,
            help=f"Both lie below {root}: import one of them alone, under another name.",
        )
    if not run.options.force:
        raise name_taken(full_name, found.location)
    return found


def _is_below(location: str, root: str) -> bool:
    """Tell whether a place is in a folder, or is that folder.

    >>> _is_below("file:///data/a", "/data/"), _is_below("/data2/a", "/data")
    (True, False)
    """
    return location_key(location).startswith(location_key(root))


def name_taken(name: str, location: str | None = None) -> TableExistsError:
    """Return the error of a name that another table has."""
    place = f", with its files at {location}" if location else ""
    return TableExistsError(
        f"table {name} already exists{place}",
        table=name,
        help="Give another name, or force=True (--force) to drop that table from the catalog; "
        "its files stay.",
    )


def refuse_other_name(run: ImportRun, live: TableRow) -> None:
    """Refuse a second name for a place whose table is there under another one."""
    options = run.options
    wanted = (options.namespace or live.namespace, options.name or live.name)
    if wanted == (live.namespace, live.name):
        return
    known = join_table_name(live.namespace, live.name)
    raise TableExistsError(
        f"the table at {run.storage.location} is in the catalog already: it is {known}",
        table=known,
        help="Leave the name out to bring it up to its log, or rename it in the catalog.",
    )


def refuse_unpublished(run: ImportRun, known: Sequence[TableRow]) -> None:
    """Refuse a log that a dropped table still has versions for: they would get in the way."""
    for each in (table for table in known if not table.is_loading):
        own = next((t for t in targets_of(run.store, each) if t.is_own), None)
        if own is None or not own.pending:
            continue
        if not run.options.force:
            raise TableExistsError(
                f"the dropped table {each.full_name} has {many(own.pending, 'version')} not yet "
                f"in the log at {run.storage.location}",
                table=each.full_name,
                help="Bring it back with undrop and publish it, then import; force=True (--force) "
                "forgets them.",
            )
        if not run.options.dry_run:
            status.mark_published(run.store, each, own.head_version)
