"""Adopt or reject foreign commits: commits that other writers put into a published log.

If the version of a foreign commit is after the latest version in the database, adopting imports the
commit with its own version, and its file stays. If the database has a commit with the same version,
adopting commits the foreign changes again as a new version, if the conflict rules allow it. Then
the commits of the database replace the foreign ones in the log.

Files of the log are moved to `_aside`, never deleted. Both operations can be repeated after a
crash.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from deltasql.commit.conflict import check_conflicts, load_winners
from deltasql.commit.staged import ReadSet, Staged
from deltasql.exceptions import (
    CommitConflictError,
    LogParseError,
    MirrorDivergedError,
    TxnLogMirrorError,
    TxnLogTableNotFoundError,
)
from deltasql.migrate.authority.validate_foreign import ForeignValidator, cannot_adopt
from deltasql.migrate.importing.load_log import LogLoader
from deltasql.mirror.log.backup import LogBackup
from deltasql.mirror.log.encode import commit_file, files_named
from deltasql.mirror.log.listing import LOG_FOLDER, find_log, sort_files
from deltasql.mirror.log.read import read_commits
from deltasql.mirror.log.same_commit import commit_id, has_same_content
from deltasql.mirror.publish import status
from deltasql.mirror.publish.targets import OWN, named, targets_of
from deltasql.model.actions import CommitInfo
from deltasql.model.counts import many
from deltasql.model.properties import TableProperties
from deltasql.model.report import Report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.commit.committer import Committer
    from deltasql.mirror.log.listing import LogListing
    from deltasql.mirror.log.read import LogCommit
    from deltasql.storage import Storage
    from deltasql.store.records import Head, TableRow
    from deltasql.store.store import Store


@dataclass(frozen=True, slots=True)
class ForeignReport(Report):
    """The adopted versions, each with its version in the database, and the rejected versions."""

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"aside": "backups"}

    table: str
    location: str
    adopted: dict[int, int] = field(default_factory=dict)
    rejected: list[int] = field(default_factory=list)
    backups: list[str] = field(default_factory=list)
    released: bool = False
    dry_run: bool = False

    def summary(self) -> str:
        """Return the report as text."""
        lines = [
            f"  version {version} of the log is version {now} in the database"
            for version, now in self.adopted.items()
        ]
        done = "would be" if self.dry_run else "was"
        lines += [f"  version {version} of the log {done} rejected" for version in self.rejected]
        lines += [f"  moved out of the log: {name}" for name in self.backups]
        if self.released:
            lines.append("  publishing has resumed")
        count = len(self.adopted) + len(self.rejected)
        return "\n".join([f"{self.table}: {many(count, 'foreign commit')}", *lines])


def adopt(store: Store, committer: Committer, table: TableRow, storage: Storage) -> ForeignReport:
    """Commit the foreign commits of a table's log to the database.

    All foreign commits are checked before the first is committed, so usually an error means that
    nothing has changed. There is one exception: foreign commits that get new versions are committed
    one by one. If another process commits to the table at the same time, a foreign commit can
    conflict with that commit. The foreign commits before it stay committed, and the next call
    continues after them.
    """
    adopted: dict[int, int] = {}
    backups: list[str] = []
    head = _head(store, table)
    listing = find_log(storage)
    first = None if listing is None else first_foreign(store, table, storage, listing)
    if listing is not None and first is not None:
        last = first
        while last + 1 in listing.commits:
            last += 1
        foreign = list(read_commits(storage, listing, first, last))
        _flush(storage, foreign)
        if first > head.version:
            adopted = _import(store, table, head, foreign)
        else:
            adopted = _commit_after_head(store, committer, table, head, foreign)
            backups = _move_to_backup(storage, listing, first)
    return ForeignReport(
        table.full_name,
        storage.location,
        adopted=adopted,
        backups=backups,
        released=_resume_publishing(store, table, storage),
    )


def reject(
    store: Store,
    table: TableRow,
    storage: Storage,
    *,
    last: int | None = None,
    dry_run: bool = False,
) -> ForeignReport:
    """Move the foreign commits out of a table's log, so that its own commits can be published.

    With `last`, nothing is done if the log has a later version. Foreign commits that an interrupted
    `adopt` has already committed again are reported as adopted, because they stay in the table.
    """
    report = ForeignReport(table.full_name, storage.location, dry_run=dry_run)
    listing, backups = find_log(storage), list[str]()
    if listing is not None and last is not None and listing.last_version > last:
        return report
    first = None if listing is None else first_foreign(store, table, storage, listing)
    if listing is not None and first is not None:
        versions = [version for version in listing.commits if version >= first]
        files = {version: storage.read(commit_file(version)) for version in versions}
        adopted = _adopted(store, table, files)
        rejected = [version for version in versions if version not in adopted]
        report = replace(report, adopted=adopted, rejected=rejected)
        if not dry_run:
            backups = _move_to_backup(storage, listing, first)
    if dry_run:
        return report
    return replace(report, backups=backups, released=_resume_publishing(store, table, storage))


def foreign_version(store: Store, table: TableRow, storage: Storage) -> int | None:
    """Return the first foreign version; None if there is none. Lists only the end of the log."""
    listing = _list_end(storage, _published(store, table))
    return first_foreign(store, table, storage, listing)


def check_no_foreign_commits(store: Store, table: TableRow, storage: Storage) -> None:
    """Raise if the log may have commits whose data files are not in the database."""
    published = _published(store, table)
    listing = _list_end(storage, published)
    first = first_foreign(store, table, storage, listing)
    if first is not None:
        raise MirrorDivergedError(
            f"version {first} of the log at {storage.location} is a foreign commit: it may use "
            f"files of {table.full_name} that are not in the database",
            table=table.full_name,
            version=first,
            location=storage.location,
            help="Import the table again, or use `deltasql mirror adopt` or `reject` first.",
        )
    if published >= 0 and not listing.commits and not listing.checkpoints:
        raise TxnLogMirrorError(
            f"the log of {table.full_name} at {storage.location} lacks version {published}: "
            "the log may refer to files that are not in the database",
            table=table.full_name,
            location=storage.location,
            help="Check the access to the log, or write it again with `deltasql mirror repair`.",
        )


def first_foreign(
    store: Store, table: TableRow, storage: Storage, listing: LogListing
) -> int | None:
    """Return the first unpublished version whose log file is not the database's commit.

    Return None if there is no such version.
    """
    head, version = _head(store, table), _published(store, table) + 1
    while version <= head.version and _is_sql_commit(store, table, storage, version):
        version += 1
    return version if version in listing.commits else None


def _import(
    store: Store, table: TableRow, head: Head, foreign: Sequence[LogCommit]
) -> dict[int, int]:
    """Append foreign commits to the database with their own versions; their files stay."""
    validator = ForeignValidator(store, table, head)
    for commit in foreign:
        validator.validate(commit)
    LogLoader(store, table).append(foreign)
    return {commit.version: commit.version for commit in foreign}


def _flush(storage: Storage, foreign: Sequence[LogCommit]) -> None:
    for commit in foreign:
        flush_data_files(storage, commit.data)
        storage.flush([commit_file(commit.version)])


def flush_data_files(storage: Storage, data: bytes) -> None:
    """Flush the data files of another writer's commit to disk; the writer may have omitted this."""
    paths = [each.path for each in files_named(data)]
    relative = [path for path in paths if not path.startswith("/") and "://" not in path]
    storage.flush(map(storage.data_name, relative))


def _commit_after_head(
    store: Store,
    committer: Committer,
    table: TableRow,
    head: Head,
    foreign: Sequence[LogCommit],
) -> dict[int, int]:
    """Commit foreign commits again as new versions, because their versions are in use."""
    before = foreign[0].version - 1
    with store.session() as session:
        winners = load_winners(session, table, before, head)
    # A run that crashed may have committed some of the foreign commits already. These do not
    # conflict with the others.
    adopted = _adopted(store, table, {commit.version: commit.data for commit in foreign})
    ids = {commit.version: commit_id(table, commit.version, commit.data) for commit in foreign}
    others = [each for each in winners if each.row.txn_id not in ids.values()]
    metadata = store.metadata(table.table_id, head.metadata_version)
    level = committer.isolation_level(TableProperties(metadata.configuration))
    for commit in foreign:
        staged = _staged(table, commit, before)
        try:
            check_conflicts(staged, others, staged.isolation(level))
        except CommitConflictError as error:
            raise replace(error, help=cannot_adopt(table, commit)) from error
    rest = [commit for commit in foreign if commit.version not in adopted]
    validator = ForeignValidator(store, table, head)
    for commit in rest:
        validator.validate(commit, keeps_version=False)
    # The conflict rules were checked up to this version. The committer checks the versions after
    # it.
    checked = head.version
    for commit in rest:
        (ratified,) = committer.commit([_staged(table, commit, checked)], ids[commit.version])
        adopted[commit.version] = checked = ratified.version
    return adopted


def _adopted(store: Store, table: TableRow, files: Mapping[int, bytes]) -> dict[int, int]:
    """Return the new versions of the foreign commits that were committed again already."""
    adopted = dict[int, int]()
    for version, data in files.items():
        done = store.query("group_members", txn_id=commit_id(table, version, data))
        if done:
            adopted[version] = done[0][2]
    return adopted


def _staged(table: TableRow, commit: LogCommit, read_version: int) -> Staged:
    actions = commit.actions
    info = actions.commit_info or CommitInfo()
    staged = Staged(table, read_version=read_version, info=info)
    staged.extend(each for each in actions.actions() if not isinstance(each, CommitInfo))
    staged.reads = ReadSet(whole_table=not _is_blind(staged, info))
    return staged


def _is_blind(staged: Staged, info: CommitInfo) -> bool:
    """Return whether a commit is a blind append: it adds files and read nothing."""
    if staged.removes or staged.metadata or staged.protocol:
        return False
    if info.is_blind_append is not None:
        return info.is_blind_append
    mode = (info.operation_parameters or {}).get("mode")
    return info.operation == "WRITE" and mode == "Append"


def _move_to_backup(storage: Storage, listing: LogListing, first: int) -> list[str]:
    """Move the listed files of the log from version `first` on to the folder `_aside`.

    Returns the new names of the files.
    """
    backup = LogBackup(storage)
    backup.move_versions(listing, first)
    return backup.names


def _resume_publishing(store: Store, table: TableRow, storage: Storage) -> bool:
    """Record the published version of the log; return whether it was quarantined until now."""
    head, version = _head(store, table), _published(store, table)
    while version < head.version and _is_sql_commit(store, table, storage, version + 1):
        version += 1
    own = named(targets_of(store, table), OWN)
    was_quarantined = own.is_quarantined
    if version > own.published_version:
        status.mark_published(store, table, version)
    if was_quarantined:
        status.release(store, table)
    return was_quarantined


def _is_sql_commit(store: Store, table: TableRow, storage: Storage, version: int) -> bool:
    """Return whether the log's commit file of a version has the same content as the database."""
    try:
        return has_same_content(store, table, version, storage.read(commit_file(version)))
    except (FileNotFoundError, LogParseError):
        return False


def _list_end(storage: Storage, version: int) -> LogListing:
    """List the files of a log from a version on."""
    after = commit_file(version - 1) if version > 0 else None
    return sort_files(storage.location, storage.list(LOG_FOLDER, start_after=after))


def _published(store: Store, table: TableRow) -> int:
    return named(targets_of(store, table), OWN).published_version


def _head(store: Store, table: TableRow) -> Head:
    head = store.head(table.table_id)
    if head is None:
        raise TxnLogTableNotFoundError(
            f"table {table.full_name} no longer exists", table=table.full_name
        )
    return head
