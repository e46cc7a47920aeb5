"""Write one commit to a published log, without overwriting a file of another writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.exceptions import LogParseError, MirrorDivergedError, TxnLogMirrorError
from deltasql.mirror.log.encode import commit_file, files_named
from deltasql.mirror.log.same_commit import same_content
from deltasql.phases import reached

if TYPE_CHECKING:
    from deltasql.mirror.log.encode import CommitFile
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store


def put_commit(storage: Storage, table: TableRow, file: CommitFile) -> bool:
    """Create a commit file; return False if it already exists with the same content.

    Raises MirrorDivergedError if the file exists with different content. The caller must flush the
    log folder before it records the version as published.
    """
    name = commit_file(file.version)
    reached("publishing")
    is_new = storage.put_if_absent(name, file.data, flush_folder=False)
    found = file.data if is_new else storage.read(name)
    if not is_new:
        storage.flush([name])  # the other writer may not have flushed it to disk
    if is_torn(found, file.data):
        # A power loss left a file with incomplete content. It is the beginning of this commit, so
        # no commit of another writer is overwritten.
        storage.put(name, file.data)
    elif found != file.data and not _has_same_content(file.data, found):
        raise MirrorDivergedError(
            f"version {file.version} of {table.full_name}: {name} differs from the commit in the "
            "database",
            table=table.full_name,
            version=file.version,
            location=storage.location,
        )
    reached("published")
    return is_new


def is_torn(found: bytes, whole: bytes) -> bool:
    r"""Return whether a file has only the beginning of its content, perhaps padded with zeros.

    >>> [is_torn(found, b"{}") for found in (b"", b"{", b"{\0", b"\0\0", b"{}", b"[]")]
    [True, True, True, True, False, False]
    """
    return found != whole and whole.startswith(found.rstrip(b"\0"))


def _has_same_content(ours: bytes, theirs: bytes) -> bool:
    """Return whether the file has our actions, as after an import or adoption of its commit."""
    try:
        return same_content(ours, theirs)
    except LogParseError:
        return False


def copy_data_files(
    store: Store, table: TableRow, source: Storage, replica: Storage, data: bytes
) -> None:
    """Copy the files that a commit adds to a replica, unless they are already there.

    Files with absolute paths are not copied, because the log of the replica refers to the same
    files. When this returns, the copies survive a power loss.
    """
    folders = set()
    for file in files_named(data):
        if file.path.startswith("/") or "://" in file.path:
            continue
        name = source.data_name(file.path)
        try:
            if not _is_complete(source, replica, name):
                replica.copy_from(source, name, flush_folder=False)
            folders.add(name.rpartition("/")[0])
        except FileNotFoundError as error:
            # A file that is not live any more may be missing, because a vacuum may have deleted it.
            if file.key is not None and _is_live(store, table, file.key):
                raise TxnLogMirrorError(
                    f"live data file {file.path} of {table.full_name} is missing",
                    table=table.full_name,
                    location=source.location,
                    help="Restore the file, or restore the table to a version without it.",
                ) from error
    for folder in sorted(folders):
        replica.flush_folder(folder)


def _is_complete(source: Storage, replica: Storage, name: str) -> bool:
    """Return whether the replica has the whole file: release 0.1.0 could leave a partial copy."""
    try:
        return replica.size(name) == source.size(name)
    except FileNotFoundError:
        return False


def _is_live(store: Store, table: TableRow, key: bytes) -> bool:
    return bool(store.query("live_by_key", table_id=table.table_id, keys=[key]))
