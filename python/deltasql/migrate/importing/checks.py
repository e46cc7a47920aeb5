"""What is looked at before a log is taken over: where it begins, and whether it is SQL's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltasql.exceptions import (
    LogParseError,
    MirrorDivergedError,
    VersionGapError,
    VersionNotFoundError,
    VersionTakenError,
)
from deltasql.migrate.authority.foreign_commits import first_foreign
from deltasql.migrate.importing.load_log import check_metadata
from deltasql.migrate.importing.load_table import is_same
from deltasql.mirror.log.last_checkpoint import read_last_checkpoint
from deltasql.mirror.log.listing import list_log
from deltasql.mirror.log.read import read_commits
from deltasql.mirror.publish.targets import OWN, named, targets_of
from deltasql.model.protocol import check_readable

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.migrate.importing.log_source import LogSource
    from deltasql.mirror.log.listing import LogListing
    from deltasql.mirror.log.read import LogState, StateStream
    from deltasql.model.actions import Metadata
    from deltasql.storage import Storage
    from deltasql.store.records import Head, TableRow
    from deltasql.store.store import Store


Damage = LogParseError | FileNotFoundError


@dataclass(frozen=True, slots=True)
class Start:
    """Where the log of a new table begins.

    `state` is all that holds at that version, where it is not the first of the log.
    """

    version: int
    metadata: Metadata
    state: LogState | StateStream | None = None
    note: str | None = None


def last_version(listing: LogListing, wanted: int | None) -> int:
    """Return the version up to which a log is taken over: the one that is wanted, or its last."""
    latest = listing.last_version
    if wanted is None or wanted == latest:
        return latest
    if not 0 <= wanted < latest:
        raise VersionNotFoundError(
            f"the log at {listing.location} has no version {wanted}",
            version=wanted,
            latest=latest,
        )
    return wanted


def empty_commits(listing: LogListing, first: int | None, last: int) -> list[str]:
    """Tell of commit files without a byte in them: lawful, and mostly a writer's that died."""
    found = [
        v for v, file in listing.commits.items() if not file.size and (first or 0) <= v <= last
    ]
    return [
        f"version {version} is an empty file: its writer may have died while it wrote it"
        for version in sorted(found)
    ]


class Beginning:
    """Finds the first version that can be loaded; checkpoints that are damaged are passed over."""

    def __init__(
        self,
        storage: Storage,
        listing: LogListing,
        *,
        since: int | None,
        last: int,
        log: Callable[[LogListing], LogSource],
        over_gaps: bool = False,
    ) -> None:
        self._storage, self._since, self._last, self._log = storage, since, last, log
        self._over_gaps = over_gaps
        self._damage: Damage | None = None
        self.listing = listing
        self.warnings = _check_hint(storage, listing)

    def find(self) -> Start:
        """Return where the log begins, as far as can be told without reading all of it."""
        while True:
            version = self._first()
            why = None
            if version == 0 and 0 in self.listing.commits:
                metadata = _first_metadata(self._storage, self.listing)
                if metadata.schema_string:
                    return Start(0, metadata)
                version = self._first_with_schema()
                why = "before it the table has no schema"
            try:
                state = self._log(self.listing).state(version)
            except (LogParseError, FileNotFoundError) as error:
                if not self.passes_over(error):
                    raise
                continue
            check_readable(state.protocol)
            check_metadata(state.metadata, f"version {version}")
            why = why or _why(self.listing, version, self._since)
            return Start(version, state.metadata, state, f"begins at version {version}: {why}")

    def _first_with_schema(self) -> int:
        """Return the first version with a schema, of a table that began without one."""
        for commit in read_commits(self._storage, self.listing, 0, self._last):
            if commit.actions.metadata is not None and commit.actions.metadata.schema_string:
                return commit.version
        raise LogParseError(
            f"the log at {self.listing.location} has no schema up to version {self._last}",
            path=self.listing.commits[0].name,
            help="Delta Live Tables write the schema with the first rows: import the table then.",
        )

    def passes_over(self, error: Exception) -> bool:
        """Do without the checkpoint that an error is about; False when it is about none."""
        if not isinstance(error, LogParseError | FileNotFoundError):
            return False
        checkpoint = self.listing.checkpoint_for(self._first())
        if checkpoint is None or not _is_of(error, checkpoint.files[0].name):
            return False
        self._damage = self._damage or error
        self.warnings.append(f"checkpoint {checkpoint.version} cannot be used: {_reason(error)}")
        self.listing = self.listing.without(checkpoint)
        return True

    def _first(self) -> int:
        listing, since = self.listing, self._since
        first = listing.first_version
        # What cannot be reached without the damaged checkpoint is its fault.
        if self._damage is not None and first > 0 and listing.checkpoint_for(first) is None:
            raise self._damage
        version = first if since is None else max(first, since)
        if version > self._last:
            raise VersionGapError(
                f"the log at {listing.location} cannot be read before version {version}",
                location=listing.location,
                help=f"Ask for version {version} or a later one.",
            )
        if not self._over_gaps and (since is None or since < first):
            _refuse_gap(listing, first)
        return version


def check_same(
    store: Store,
    table: TableRow,
    storage: Storage,
    listing: LogListing,
    head: Head,
    since: int | None,
) -> None:
    """Refuse a log that is not the one SQL has, or that went on while SQL did."""
    own = named(targets_of(store, table), OWN)
    last = listing.last_version
    foreign = first_foreign(store, table, storage, listing)
    if foreign is not None and foreign <= head.version:
        raise _diverged(table, listing, foreign, head.version)
    if last < own.published_version:
        if list_log(storage).last_version >= own.published_version:
            raise VersionTakenError(table=table.full_name)  # SQL published it after the listing
        raise MirrorDivergedError(
            f"the log at {listing.location} ends at version {last}; {table.full_name} knows it "
            f"up to version {own.published_version}",
            table=table.full_name,
            version=last,
            location=listing.location,
            help="Publish what is missing again with mirror repair, or import with force=True "
            "(--force) what the log has now.",
        )
    common = min(last, head.version)
    low = store.query("version_bounds", table_id=table.table_id)[0][0]
    begin = common if since is None else max(since, low)
    for version in range(begin, common + 1):
        if version in listing.commits and not is_same(store, table, storage, listing, version):
            raise _diverged(table, listing, version, head.version)


def _refuse_gap(listing: LogListing, first: int) -> None:
    """Refuse to leave out commits that are there, before others that are lost."""
    oldest = min(listing.commits, default=first)
    gaps = listing.gaps(oldest, first)
    # Where no checkpoint stands in either, to read it says so.
    if gaps and any(each.version == first for each in listing.checkpoints):
        low, high = gaps[0][0], gaps[-1][1]
        lost = f"version {low} is" if low == high else f"commits from {low} to {high} are"
        raise VersionGapError(
            f"the log at {listing.location} has a gap: {lost} missing",
            location=listing.location,
            first_missing=low,
            last_missing=high,
            help="Restore the files from a copy; or begin after the gap with "
            f"since={first} (--since {first}).",
        )


def _diverged(table: TableRow, listing: LogListing, version: int, head: int) -> MirrorDivergedError:
    return MirrorDivergedError(
        f"{table.full_name} and its log parted before version {version}: SQL is at version "
        f"{head}, the log at version {listing.last_version}",
        table=table.full_name,
        version=version,
        location=listing.location,
        help="Nothing was imported. `deltasql mirror adopt` takes the log's commits in after "
        "those of SQL, `deltasql mirror reject` keeps them aside; force=True (--force) drops the "
        "table of SQL and imports the log anew.",
    )


def _why(listing: LogListing, version: int, since: int | None) -> str:
    if version == since:
        return "as asked for"
    if 0 in listing.commits:
        return "before it commits are missing, and those before them cannot be reached"
    return "older commits were cleaned up"


def _first_metadata(storage: Storage, listing: LogListing) -> Metadata:
    (commit,) = read_commits(storage, listing, 0, 0)
    metadata, protocol = commit.actions.metadata, commit.actions.protocol
    if metadata is None or protocol is None:
        kind = "metaData" if metadata is None else "protocol"
        name = commit.file.name
        raise LogParseError(f"{name} begins a table and has no {kind} action", path=name)
    check_readable(protocol)
    return metadata


def _check_hint(storage: Storage, listing: LogListing) -> list[str]:
    """Look at `_last_checkpoint`: the listing does without it, other readers may not."""
    try:
        hint = read_last_checkpoint(storage)
    except LogParseError as error:
        return [f"{error.message}; the checkpoints were found by listing"]
    versions = {each.version for each in listing.checkpoints}
    if hint is not None and hint["version"] not in versions:
        return [f"_last_checkpoint names version {hint['version']}, which has no checkpoint"]
    return []


def _is_of(error: Damage, name: str) -> bool:
    """Whether an error is about a checkpoint, or a sidecar of one."""
    told = error.path if isinstance(error, LogParseError) else str(error.filename or error)
    return told is not None and (name in told or told.endswith(".parquet"))


def _reason(error: Damage) -> str:
    return error.message if isinstance(error, LogParseError) else f"{error.filename} is missing"
