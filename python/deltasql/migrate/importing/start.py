"""Find the versions to import from a log: the first that can be loaded, and the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltasql.exceptions import LogParseError, VersionGapError, VersionNotFoundError
from deltasql.migrate.importing.load_log import check_metadata
from deltasql.mirror.log.last_checkpoint import read_last_checkpoint
from deltasql.mirror.log.read import read_commits
from deltasql.model.protocol import check_readable

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql.migrate.importing.log_source import LogSource
    from deltasql.mirror.log.listing import LogListing
    from deltasql.mirror.log.read import StateStream
    from deltasql.model.actions import Metadata
    from deltasql.storage import Storage

_Damage = LogParseError | FileNotFoundError


@dataclass(frozen=True, slots=True)
class Start:
    """The first version to import.

    `state` is the state of the table at that version; None if the version is the first commit of
    the log. `note` explains in the report why older versions are not imported.
    """

    version: int
    metadata: Metadata
    state: StateStream | None = None
    note: str | None = None


def last_version(listing: LogListing, wanted: int | None) -> int:
    """Return the last version to import: the requested one, or the latest of the log."""
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


class StartFinder:
    """Finds the first version that can be loaded without damaged checkpoints."""

    def __init__(
        self,
        storage: Storage,
        listing: LogListing,
        *,
        since: int | None,
        last: int,
        log: Callable[[LogListing], LogSource],
        skip_gaps: bool = False,
    ) -> None:
        self._storage, self._since, self._last, self._log = storage, since, last, log
        self._skip_gaps = skip_gaps
        self._damage: _Damage | None = None
        self.listing = listing
        self.warnings = _check_hint(storage, listing)

    def find(self) -> Start:
        """Return the first version to import, as far as it is known without reading the log."""
        while True:
            version = self._first()
            reason = None
            if version == 0 and 0 in self.listing.commits:
                metadata = _first_metadata(self._storage, self.listing)
                if metadata.schema_string:
                    return Start(0, metadata)
                version = self._first_with_schema()
                reason = "earlier versions have no schema"
            try:
                state = self._log(self.listing).state(version)
            except (LogParseError, FileNotFoundError) as error:
                if not self.skip_checkpoint(error):
                    raise
                continue
            check_readable(state.protocol)
            check_metadata(state.metadata, f"version {version}")
            reason = reason or _start_reason(self.listing, version, self._since)
            return Start(version, state.metadata, state, f"begins at version {version}: {reason}")

    def skip_checkpoint(self, error: Exception) -> bool:
        """Ignore the checkpoint that caused an error; return False if no checkpoint caused it."""
        if not isinstance(error, LogParseError | FileNotFoundError):
            return False
        checkpoint = self.listing.checkpoint_for(self._first())
        if checkpoint is None or not _is_about(error, checkpoint.files[0].name):
            return False
        self._damage = self._damage or error
        self.warnings.append(f"checkpoint {checkpoint.version} cannot be used: {_reason(error)}")
        self.listing = self.listing.without(checkpoint)
        return True

    def _first_with_schema(self) -> int:
        """Return the first version with a schema; some tables are created without a schema."""
        for commit in read_commits(self._storage, self.listing, 0, self._last):
            if commit.actions.metadata is not None and commit.actions.metadata.schema_string:
                return commit.version
        raise LogParseError(
            f"the log at {self.listing.location} has no schema up to version {self._last}",
            path=self.listing.commits[0].name,
            help="Delta Live Tables write the schema with the first rows. Import the table after "
            "rows were written.",
        )

    def _first(self) -> int:
        listing, since = self.listing, self._since
        first = listing.first_version
        # If no version can be loaded without the damaged checkpoint, raise the checkpoint's error.
        if self._damage is not None and first > 0 and listing.checkpoint_for(first) is None:
            raise self._damage
        version = first if since is None else max(first, since)
        if version > self._last:
            raise VersionGapError(
                f"the log at {listing.location} cannot be read before version {version}",
                location=listing.location,
                help=f"Import up to version {version} or a later version.",
            )
        if not self._skip_gaps and (since is None or since < first):
            _check_no_gap(listing, first)
        return version


def _check_no_gap(listing: LogListing, first: int) -> None:
    """Raise if the log has commits before a gap, because the import would leave them out."""
    oldest = min(listing.commits, default=first)
    gaps = listing.gaps(oldest, first)
    # If there is no checkpoint at `first`, reading the log raises the error.
    if gaps and any(each.version == first for each in listing.checkpoints):
        low, high = gaps[0][0], gaps[-1][1]
        lost = f"version {low} is" if low == high else f"commits from {low} to {high} are"
        raise VersionGapError(
            f"the log at {listing.location} has a gap: {lost} missing",
            location=listing.location,
            first_missing=low,
            last_missing=high,
            help="Restore the files from a copy, or start after the gap with "
            f"since={first} (--since {first}).",
        )


def _start_reason(listing: LogListing, version: int, since: int | None) -> str:
    if version == since:
        return "as requested"
    if 0 in listing.commits:
        return "earlier commits are missing, so the ones before them cannot be used"
    return "older commits were cleaned up"


def _first_metadata(storage: Storage, listing: LogListing) -> Metadata:
    (commit,) = read_commits(storage, listing, 0, 0)
    metadata, protocol = commit.actions.metadata, commit.actions.protocol
    if metadata is None or protocol is None:
        kind = "metaData" if metadata is None else "protocol"
        name = commit.file.name
        raise LogParseError(
            f"{name} is the first commit of a table and has no {kind} action", path=name
        )
    check_readable(protocol)
    return metadata


def _check_hint(storage: Storage, listing: LogListing) -> list[str]:
    """Return warnings about `_last_checkpoint`, which readers use but an import does not need."""
    try:
        hint = read_last_checkpoint(storage)
    except LogParseError as error:
        return [f"{error.message}; the checkpoints were found by listing"]
    versions = {each.version for each in listing.checkpoints}
    if hint is not None and hint["version"] not in versions:
        return [f"_last_checkpoint names version {hint['version']}, which has no checkpoint"]
    return []


def _is_about(error: _Damage, name: str) -> bool:
    """Return whether an error is about a checkpoint or one of its sidecars."""
    path = error.path if isinstance(error, LogParseError) else str(error.filename or error)
    return path is not None and (name in path or path.endswith(".parquet"))


def _reason(error: _Damage) -> str:
    return error.message if isinstance(error, LogParseError) else f"{error.filename} is missing"
