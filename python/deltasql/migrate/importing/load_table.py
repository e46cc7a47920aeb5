"""Load a table from a log in batches; it stays hidden until all of it is loaded.

An interrupted run leaves a hidden table, which the next run continues.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import (
    LogParseError,
    RefusedFileError,
    StoreBusyError,
    StoreUnavailableError,
    TxnLogStoreError,
    VersionTakenError,
)
from deltasql.mirror.log.listing import read_json
from deltasql.mirror.log.read import read_commits
from deltasql.mirror.publish.targets import ACTIVE, DELTA, OWN
from deltasql.model.clock import now_ms
from deltasql.model.counts import many
from deltasql.storage.location import is_same_location, location_key
from deltasql.store import audit, load
from deltasql.store.dialect import Fault
from deltasql.store.locations import drop_table
from deltasql.store.records import TableRow, live_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from deltasql.migrate.importing.load_log import BeforeCommit, LogLoader, ParsedCommit
    from deltasql.migrate.importing.log_source import LogSource
    from deltasql.mirror.log.listing import LogListing
    from deltasql.mirror.log.read import LogCommit, StateStream
    from deltasql.model.actions import Metadata
    from deltasql.model.progress import Meter
    from deltasql.storage import Storage
    from deltasql.store.dialect import Session
    from deltasql.store.store import Store

# The limits of one SQL transaction.
BATCH_COMMITS = 1000
BATCH_ACTIONS = 50_000
_DISCARD_STATEMENTS = (
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
    "discard_reserved_numbers",
    "discard_table",
)


@dataclass(slots=True)
class LoadCounts:
    """Counts of what a run has loaded or read so far."""

    version: int = -1
    commits: int = 0
    files: int = 0
    log_bytes: int = 0
    unknown: Counter[str] = field(default_factory=Counter)

    def add(self, commit: ParsedCommit) -> None:
        """Count a commit."""
        self.version = commit.version
        self.commits += 1
        self.files += commit.actions.num_adds + len(commit.adds or ())
        self.log_bytes += commit.file.size
        self.unknown.update(kind for action in commit.actions.unknown for kind in action)

    def report(self, meter: Meter, phase: str, total_commits: int) -> None:
        """Report the counts as the progress of a phase."""
        meter.report(
            phase,
            "commits",
            self.commits,
            total_commits,
            files=self.files,
            size_bytes=self.log_bytes,
        )

    def notes(self) -> list[str]:
        """Return a note about actions that are not stored; empty without such actions."""
        if not self.unknown:
            return []
        kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(self.unknown.items()))
        return [f"actions of unknown kinds were not imported: {kinds}"]


def begin_loading(
    store: Store,
    storage: Storage,
    metadata: Metadata,
    name: str,
    published_version: int,
    *,
    token: str = "true",
) -> TableRow:
    """Create the row of a hidden table, and record up to which version its log is published.

    `token` is the claim of the run that loads the table.
    """
    taken = store.query("table_by_uuid", table_uuid=metadata.id)
    row: dict[str, Any] = {
        # If the table is a copy, its log has the id of the original. Give the copy a new id.
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
            f"another process is loading the table at {storage.location}",
            help="Wait until it ends, then try again.",
        ) from error
    return TableRow(found[0], **row, dropped_at_ms=dropped_at_ms, properties=properties)


def load_state(
    loader: LogLoader,
    storage: Storage,
    listing: LogListing,
    state: StateStream,
    loaded: LoadCounts,
    on_batch: Callable[[], None],
) -> None:
    """Start a table with the state at a version as its first commit."""

    def count(files: int) -> None:
        loaded.files += files
        on_batch()

    first = state.version
    wanted = [each for each in (first, first + 1) if each in listing.commits]
    commits = {each: next(read_commits(storage, listing, each, each)) for each in wanted}
    at_ms = _time_of(loader, listing, first, commits)
    loader.start(state, commits.get(first), at_ms, on_files=count)
    _check_checksum(loader, storage, listing, first)
    loaded.version, loaded.commits = first, loaded.commits + 1


def _check_checksum(loader: LogLoader, storage: Storage, listing: LogListing, version: int) -> None:
    """Raise if a state that was read from a checkpoint contradicts the checksum of its version.

    The commits before the checkpoint are gone, so nothing else can show that it is wrong.
    """
    file, checkpoint = listing.checksums.get(version), listing.checkpoint_for(version)
    if file is None or checkpoint is None:
        return
    try:
        body = read_json(file.name, storage.read(file.name), needs="numFiles")
    except (FileNotFoundError, LogParseError):
        return
    files, size = loader.totals(version)
    expected = body["numFiles"], body.get("tableSizeBytes", size)
    if (files, size) != expected:
        name = checkpoint.files[0].name
        raise LogParseError(
            f"{name} contradicts the checksum of version {version}: it has {many(files, 'file')} "
            f"of {many(size, 'byte')} instead of {many(expected[0], 'file')} of "
            f"{many(expected[1], 'byte')}",
            path=name,
            help="Another program wrote a wrong checkpoint or checksum. Restore the older commits "
            "from a copy, or delete the wrong file.",
        )


def load_commits(
    loader: LogLoader,
    log: LogSource,
    first: int,
    last: int,
    loaded: LoadCounts,
    *,
    batch_actions: int | None = None,
    on_batch: Callable[[], None],
    before_commit: BeforeCommit | None = None,
) -> None:
    """Append the commits first..last of a log, with one SQL transaction for each batch."""
    batches = _batches(log.commits(first, last), batch_actions or BATCH_ACTIONS)
    for batch in loader.append_all(batches, before_commit=before_commit):
        for commit in batch:
            loaded.add(commit)
        on_batch()


def finish_loading(
    store: Store,
    table: TableRow,
    namespace: str,
    name: str,
    *,
    version: int | None = None,
    replaces: TableRow | None = None,
    properties: Mapping[str, str] | None = None,
) -> TableRow:
    """Make a loaded table visible under its name, and drop the table that it replaces.

    Raises an error and changes nothing if the table is no longer hidden, or is not at `version`.
    """
    kept = dict(properties or {})
    ids = [each.table_id for each in (table, replaces) if each is not None]
    with store.change(ids, is_bulk=True) as (session, heads):
        head = heads.get(table.table_id)
        is_other = version is not None and (head is None or head.version != version)
        if is_other or not load.is_loading(session, table.table_id):
            raise _taken_over(table)
        if replaces is not None:
            drop_table(session, replaces.table_id)
            if is_same_location(replaces.location, table.location):
                # The unpublished versions of the old table must not be written into the log of the
                # new one.
                old_head = heads[replaces.table_id]
                set_published_version(session, replaces.table_id, old_head.version)
        changed = session.execute(
            "finish_loading",
            table_id=table.table_id,
            namespace=namespace,
            name=name,
            live_name=live_name(namespace, name),
            properties=json.dumps(kept),
        )
        if not changed:
            raise _taken_over(table)
        session.execute("take_location", table_id=table.table_id)
        audit.record(session, table.table_id, version=version)
    if replaces is not None:
        store.forget_table(replaces)
    return replace(table, namespace=namespace, name=name, dropped_at_ms=None, properties=kept)


def set_published_version(session: Session, table_id: int, version: int) -> None:
    """Record that the table's log has all versions up to this one."""
    session.execute("set_published_version", table_id=table_id, target=OWN, version=version)


def claim_loading(store: Store, table: TableRow, token: str) -> None:
    """Claim the hidden table of another run; that run then fails at its next write."""
    with store.change() as (session, _):
        if not load.claim(session, table.table_id, token):
            raise _taken_over(table)


def can_resume(error: Exception) -> bool:
    """Return whether a failed load can be continued later, as after a lost connection.

    Any other error is caused by the log and would occur again, so the hidden table is deleted.
    """
    if isinstance(error, FileNotFoundError | RefusedFileError):
        return False
    return isinstance(error, StoreUnavailableError | StoreBusyError | VersionTakenError | OSError)


def discard(store: Store, table: TableRow, token: str) -> None:
    """Delete a hidden table, unless another run has claimed it."""
    with store.change([table.table_id], is_bulk=True) as (session, _):
        if not load.is_claimed(session, table.table_id, token):
            raise _taken_over(table)
        for each in _DISCARD_STATEMENTS:
            session.execute(each, table_id=table.table_id)


def _taken_over(table: TableRow) -> VersionTakenError:
    return VersionTakenError(
        f"another process took over loading the table at {table.location}",
        table=table.full_name,
        help="Wait until it ends, then try again.",
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
        # In a copied table, the modification times of files are later than the commits.
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
