"""Errors for a missing or damaged data file, which name the file and say what to do."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from deltasql.exceptions import MissingDataFilesError, TxnLogEngineError, TxnLogError

if TYPE_CHECKING:
    from collections.abc import Iterator

DAMAGED_HELP = (
    "Restore the file from a copy, or restore the table to a version before it; "
    "deltasql verify --data finds all damaged files."
)
MISSING_HELP = (
    "Restore it from a copy, or read a newer version: VACUUM deletes files that only versions "
    "older than its retention need. To remove a lost file from its table, call "
    "DeltaTable.repair()."
)


@contextmanager
def convert_read_errors(path: str, location: str) -> Iterator[None]:
    """Convert errors that Arrow and the operating system raise about a file to our own."""
    import pyarrow as pa

    try:
        yield
    except TxnLogError:
        raise
    except FileNotFoundError as error:
        raise missing_file(path, location) from error
    except (pa.ArrowException, OSError) as error:
        raise damaged_file(path, error) from error


def missing_file(path: str, location: str | None, what: str = "data file") -> MissingDataFilesError:
    """Return the error for a missing file that a table refers to."""
    owner = "" if location is None else f" of the table at {location}"
    return MissingDataFilesError(
        f"the {what} {path}{owner} is missing",
        location=location,
        count=1,
        files=(path,),
        help=MISSING_HELP,
    )


def damaged_file(path: str, error: Exception | str, engine: str | None = None) -> TxnLogEngineError:
    """Return the error for a file that is not valid Parquet."""
    return TxnLogEngineError(
        f"the data file {path} cannot be read: {error}", engine=engine, help=DAMAGED_HELP
    )
