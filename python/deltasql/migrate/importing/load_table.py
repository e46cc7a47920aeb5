"""A table that comes from a log: loaded out of sight, batch by batch, seen when all is there.

A run that was cut short leaves a table that nobody sees; the next one goes on with it.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltasql.exceptions import (
    RefusedFileError,
    StoreBusyError,
    StoreUnavailableError,
    TxnLogStoreError,
    VersionTakenError,
)
from deltasql.migrate.importing.load_log import has_commit
from deltasql.migrate.importing.log_source import LocalLog
from deltasql.mirror.log.encode import commit_bytes
from deltasql.mirror.log.read import read_commits
from deltasql.mirror.log.same_content import same_content
from deltasql.mirror.publish.targets import ACTIVE, DELTA, OWN
from deltasql.model.clock import now_ms
from deltasql.storage.location import is_same_location, location_key
from deltasql.store import load
from deltasql.store.append import live_name
from deltasql.store.dialect import Fault
from deltasql.store.locations import drop_table
from deltasql.store.records import TableRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from deltasql.migrate.importing.load_log import LogLoader, ParsedCommit
    from deltasql.migrate.importing.log_source import LogSource
    from deltasql.mirror.log.listing import LogListing
    from deltasql.mirror.log.read import LogCommit, LogState, StateStream
    from deltasql.model.actions import Metadata
    from deltasql.storage import Storage
    from deltasql.store.dialect import Session
    from deltasql.store.store import Store

# One SQL transaction takes so many commits, or so many actions.
BATCH_COMMITS = 1000
BATCH_ACTIONS = 50_000
_EVERYTHING_OF = (
    "discard_files",
    "discard_file_stats",
    "discard_remove_files",
    "discard_cdc_files",
    "discard_partitions",
    "discard_skipping_columns",
    "discard_metadata",
    "discard_protocols",
    "discard_txns",
    "discard_domains",
    "discard_versions",
    "discard_head",
    "discard_mirror_status",
    "discard_mirror_targets",
    "discard_location",
    "discard_table",
)


@dataclass(slots=True)
class Loaded:
    """What a run has put into SQL so far."""

    version: int = -1
    commits: int = 0
    files: int = 0
    log_bytes: int = 0
    unknown: Counter[str] = field(default_factory=Counter)

    def take(self, commit: ParsedCommit) -> None:
        """Count a commit."""
        self.version = commit.version
        self.commits += 1
        self.files += commit.actions.num_adds + len(commit.adds or ())
        self.log_bytes += commit.file.size
        self.unknown.update(kind for action in commit.actions.unknown for kind in action)

    def notes(self) -> list[str]:
        """Say what SQL has no place for."""
        if not self.unknown:
            return []
        kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(self.unknown.items()))
        return [f"actions of kinds that SQL does not hold were left out: {kinds}"]


def begin_loading(
    store: Store,
    storage: Storage,
    metadata: Metadata,
    name: str,
    published_version: int,
    *,
    token: str = "true",
) -> TableRow:
    """Make the row of a table that nobody sees yet, and say how far it is published.

    The token is that of the run which loads it.
    """
    taken = store.query("table_by_uuid", table_uuid=metadata.id)
    row: dict[str, Any] = {
        # A copy of a table has the same id in its log.
        "table_uuid": str(uuid.uuid4()) if taken else metadata.id,
        "namespace": "default",
        "name": name,
        "location": storage.location,
        "created_at_ms": metadata.created_time or now_ms(),
    }
    dropped_at_ms = now_ms()
    properties = {TableRow.LOADING: token}
    try:
        with store.change() as (session, _):
            (found,) = session.query(
                "begin_loading",
                **row,
                dropped_at_ms=dropped_at_ms,
                properties=json.dumps(properties),
            )
            session.insert("insert_location", [(found[0], location_key(storage.location), None)])
            target = (found[0], OWN, DELTA, None, now_ms(), published_version, 0, ACTIVE)
            session.insert("insert_mirror_target", [(*target, 0, 0, None, None, 0)])
    except TxnLogStoreError as error:
        cause = error.__cause__
        if cause is None or store.classify(cause) is not Fault.DUPLICATE:
            raise
        raise VersionTakenError(
            f"the table at {storage.location} is being loaded by somebody else",
            help="Wait until that is done, then repeat it.",
        ) from error
    return TableRow(found[0], **row, dropped_at_ms=dropped_at_ms, properties=properties)


def load_state(
    loader: LogLoader,
    storage: Storage,
    listing: LogListing,
    state: LogState | StateStream,
    loaded: Loaded,
    tell: Callable[[], None],
) -> None:
    """Begin a table with all that holds at a version as its first commit."""

    def count(files: int) -> None:
        loaded.files += files
        tell()

    first = state.version
    wanted = [each for each in (first, first + 1) if each in listing.commits]
    commits = {each: next(read_commits(storage, listing, each, each)) for each in wanted}
    at_ms = _time_of(loader, listing, first, commits)
    loader.start(state, commits.get(first), at_ms, on_files=count)
    loaded.version, loaded.commits = first, loaded.commits + 1


def pieces(files: pa.Table | Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Return files as pieces, which they may be or not."""
    return iter([files]) if isinstance(files, pa.Table) else files


def load_commits(
    loader: LogLoader,
    storage: Storage,
    listing: LogListing,
    first: int,
    last: int,
    loaded: Loaded,
    *,
    batch_actions: int | None = None,
    tell: Callable[[], None],
    also: Callable[[Session, int], object] | None = None,
    log: LogSource | None = None,
) -> None:
    """Append the commits first..last, one SQL transaction for each batch.

    `also` is called in each of them with the last version of its batch. `log` reads the log where
    this process does not do it itself.
    """
    limit = batch_actions or BATCH_ACTIONS
    commits = (log or LocalLog(storage, listing)).commits(first, last)
    for batch in loader.append_all(_batches(commits, limit), also=also):
        for commit in batch:
            loaded.take(commit)
        tell()


def follows(store: Store, table: TableRow, storage: Storage, listing: LogListing) -> bool:
    """Tell whether the version that SQL ends with is the same commit in the log."""
    head = store.head(table.table_id)
    if head is None or head.version not in listing.commits:
        return True
    return is_same(store, table, storage, listing, head.version)


def is_same(
    store: Store, table: TableRow, storage: Storage, listing: LogListing, version: int
) -> bool:
    """Tell whether a version is the same commit in SQL and in the log."""
    data = storage.read(listing.commits[version].name)
    low = store.query("version_bounds", table_id=table.table_id)[0][0]
    if version == low and version > 0:
        # It sums up those before it; what it still has of its own commit is the transaction.
        return has_commit(store, table, version, data)
    with store.session() as session:
        return same_content(commit_bytes(session, table.table_id, version), data)


def finish_loading(
    store: Store,
    table: TableRow,
    namespace: str,
    name: str,
    *,
    version: int | None = None,
    instead_of: TableRow | None = None,
    properties: Mapping[str, str] | None = None,
) -> TableRow:
    """Let everybody see a table that is loaded; what has its name is dropped if that is wanted.

    Unless it is out of sight still, and at the version where it is given, nothing is changed.
    """
    kept = dict(properties or {})
    ids = [each.table_id for each in (table, instead_of) if each is not None]
    with store.change(ids, is_bulk=True) as (session, heads):
        head = heads.get(table.table_id)
        is_other = version is not None and (head is None or head.version != version)
        if is_other or not load.is_loading(session, table.table_id):
            raise _gone(table)
        if instead_of is not None:
            drop_table(session, instead_of.table_id)
            if is_same_location(instead_of.location, table.location):
                # What it did not publish must not get in the way of the log it gives way to.
                key: dict[str, Any] = {"table_id": instead_of.table_id, "target": OWN}
                known = heads[instead_of.table_id].version
                session.execute("set_published_version", **key, version=known)
        changed = session.execute(
            "finish_loading",
            table_id=table.table_id,
            namespace=namespace,
            name=name,
            live_name=live_name(namespace, name),
            properties=json.dumps(kept),
        )
        if not changed:
            raise _gone(table)
        session.execute("take_location", table_id=table.table_id)
    if instead_of is not None:
        store.forget_table(instead_of)
    return replace(table, namespace=namespace, name=name, dropped_at_ms=None, properties=kept)


def take_over(store: Store, table: TableRow, token: str) -> None:
    """Go on with a table that another run began: that one, if it still runs, will notice."""
    with store.change() as (session, _):
        if not load.claim(session, table.table_id, token):
            raise _gone(table)


def can_resume(error: Exception) -> bool:
    """Tell whether a load that failed may go on later: a database or a store was out of reach.

    Anything else is wrong with the log, and will be wrong tomorrow: nothing of it is kept.
    """
    if isinstance(error, FileNotFoundError | RefusedFileError):
        return False
    return isinstance(error, StoreUnavailableError | StoreBusyError | VersionTakenError | OSError)


def discard(store: Store, table: TableRow, token: str) -> None:
    """Delete everything of a table that nobody ever saw, and that is still the run's own."""
    with store.change([table.table_id], is_bulk=True) as (session, _):
        if not load.is_claimed(session, table.table_id, token):
            raise _gone(table)
        for each in _EVERYTHING_OF:
            session.execute(each, table_id=table.table_id)


def _gone(table: TableRow) -> VersionTakenError:
    return VersionTakenError(
        f"another run took over the table at {table.location} while it was loaded",
        table=table.full_name,
        help="Wait for it to end, then repeat this one.",
    )


def _time_of(
    loader: LogLoader, listing: LogListing, first: int, commits: Mapping[int, LogCommit]
) -> int:
    if first in commits:
        return commits[first].file.modified_ms
    checkpoint = listing.checkpoint_for(first)
    assert checkpoint is not None
    at_ms = checkpoint.files[0].modified_ms
    if first + 1 in commits:
        # A copy of the lake has younger files than commits.
        at_ms = min(at_ms, loader.time_of(commits[first + 1]) - 1)
    return at_ms


def _batches(commits: Iterator[ParsedCommit], limit: int) -> Iterator[list[ParsedCommit]]:
    batch: list[ParsedCommit] = []
    actions = 0
    for commit in commits:
        batch.append(commit)
        actions += len(commit.actions) + len(commit.adds or ())
        if len(batch) >= BATCH_COMMITS or actions >= limit:
            yield batch
            batch, actions = [], 0
    if batch:
        yield batch
