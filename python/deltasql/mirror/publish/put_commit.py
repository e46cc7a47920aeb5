"""Put one commit file into a log: never over what is there, whoever wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.exceptions import LogParseError, MirrorDivergedError
from deltasql.mirror.log.encode import commit_file
from deltasql.mirror.log.same_content import same_content
from deltasql.phases import reached

if TYPE_CHECKING:
    from deltasql.mirror.log.encode import CommitFile
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow


def put_commit(storage: Storage, table: TableRow, file: CommitFile) -> bool:
    """Put one commit file; False when it is there with these bytes, an error with other ones.

    The caller flushes the folder of the log before it records that the version is published.
    """
    name = commit_file(file.version)
    reached("publishing")
    is_new = storage.put_if_absent(name, file.data, flush_folder=False)
    found = file.data if is_new else storage.read(name)
    if not is_new:
        storage.flush([name])  # whoever wrote it need not have waited for the disk
    if is_torn(found, file.data):
        # A power loss left the name without all of its content: nobody else's commit is lost.
        storage.put(name, file.data)
    elif found != file.data and not _says_the_same(file.data, found):
        raise MirrorDivergedError(
            f"version {file.version} of {table.full_name} is another commit in {name} than in SQL",
            table=table.full_name,
            version=file.version,
            location=storage.location,
        )
    reached("published")
    return is_new


def is_torn(found: bytes, whole: bytes) -> bool:
    r"""Tell whether a file holds only the beginning of its content: nothing, less, or zeros.

    >>> [is_torn(found, b"{}") for found in (b"", b"{", b"{\0", b"\0\0", b"{}", b"[]")]
    [True, True, True, True, False, False]
    """
    return found != whole and whole.startswith(found.rstrip(b"\0"))


def _says_the_same(ours: bytes, theirs: bytes) -> bool:
    """Whether it is a commit that was adopted or imported, in its writer's spelling."""
    try:
        return same_content(ours, theirs)
    except LogParseError:
        return False
