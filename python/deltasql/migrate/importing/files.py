"""Data files that a log names and that are not there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltasql.engine.files.addresses import is_absolute
from deltasql.exceptions import MissingDataFilesError
from deltasql.model.deletion_vector import vector_file
from deltasql.operations.verify.file_presence import FileSizes
from deltasql.store.records import load_dv

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from deltasql.config import StorageSettings
    from deltasql.migrate.importing.run import ImportRun
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

# So many files are asked for one by one; more are looked up in a listing of the folder.
_ASKED_EACH = 1000
_PAGE = 50_000
_KEPT = 100


@dataclass(slots=True)
class MissingFiles:
    """How many files are missing, and the first of them by name."""

    count: int = 0
    files: list[str] = field(default_factory=list)


def check_files(run: ImportRun, pages: Iterable[pa.Table], total: int) -> None:
    """Refuse a table whose data is not there, unless that is wanted."""
    run.tell("checking files")
    location = run.storage.location
    missing = find_missing(run.storage, pages, total, run.settings)
    if not missing.count:
        return
    if not run.options.force and not run.options.dry_run:
        raise MissingDataFilesError(
            f"{missing.count} data files of the table at {location} are missing",
            location=location,
            count=missing.count,
            files=tuple(missing.files),
        )
    run.report.accepts_missing = run.options.force
    run.report.missing, run.report.missing_files = missing.count, missing.files
    run.report.warnings.append(f"{missing.count} data files are missing")


def live_pages(store: Store, table: TableRow) -> Iterator[pa.Table]:
    """Yield the live files of a table, a page at a time."""
    after = -1
    while True:
        page = store.arrow("live_files_after", table_id=table.table_id, after=after, limit=_PAGE)
        if page.num_rows:
            yield page
            after = page["file_id"][-1].as_py()
        if page.num_rows < _PAGE:
            return


def find_missing(
    storage: Storage, pages: Iterable[pa.Table], total: int, settings: StorageSettings
) -> MissingFiles:
    """Find the data files that are gone, or whose deletion vector is."""
    # Only hashes are kept: the names of a million files are many megabytes.
    known = {hash(each.name) for each in storage.list()} if total > _ASKED_EACH else None
    outside, missing = FileSizes(storage.location, settings), MissingFiles()
    for page in pages:
        gone = []
        asked = page
        if known is not None:
            seen = _seen(storage, page, known)
            gone = page.filter([each is False for each in seen])["path"].to_pylist()
            asked = page.filter([each is None for each in seen])
        if asked.num_rows:
            gone += outside.missing(asked)
        missing.count += len(gone)
        missing.files += gone[: max(0, _KEPT - len(missing.files))]
    return missing


def _seen(storage: Storage, page: pa.Table, known: set[int]) -> list[bool | None]:
    """Tell which files are listed, with their deletion vectors; None: told by an address."""
    pairs = zip(page["path"].to_pylist(), page["deletion_vector"].to_pylist(), strict=True)
    found: list[bool | None] = []
    for path, vector in pairs:
        names = [path, *([each] if (each := _vector_path(vector)) else [])]
        if any(is_absolute(name) for name in names):
            found.append(None)
        else:
            found.append(all(hash(storage.data_name(name)) in known for name in names))
    return found


def _vector_path(text: str | None) -> str | None:
    vector = load_dv(text) if text else None
    return None if vector is None else vector_file(vector)
