"""Put one commit file into a log: never over what is there, whoever wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.exceptions import LogParseError, MirrorDivergedError
from deltasql.mirror.content import same_content
from deltasql.mirror.log_files import commit_file
from deltasql.phases import reached

if TYPE_CHECKING:
    from deltasql.mirror.log_files import CommitFile
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow


def put_commit(storage: Storage, table: TableRow, file: CommitFile) -> bool:
    """Put one commit file; False when it is there with these bytes, an error with other ones."""
    name = commit_file(file.version)
    reached("publishing")
    is_new = storage.put_if_absent(name, file.data)
    found = file.data if is_new else storage.read(name)
    if found != file.data and _is_torn(found, file.data):
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


def _is_torn(found: bytes, whole: bytes) -> bool:
    return whole.startswith(found) or not found.strip(b"\0")


def _says_the_same(ours: bytes, theirs: bytes) -> bool:
    """Whether it is a commit that was adopted or imported, in its writer's spelling."""
    try:
        return same_content(ours, theirs)
    except LogParseError:
        return False
