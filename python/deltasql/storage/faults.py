"""Convert errors of the driver to errors of deltasql, without secrets."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogError, TxnLogStorageError, redact
from deltasql.storage.driver import driver

if TYPE_CHECKING:
    from collections.abc import Iterator

_HELP = {
    "PermissionDeniedError": "The credentials in storage.options (or in the variables of the "
    "cloud) do not allow this; check the rights on the bucket.",
    "UnauthenticatedError": "Check the credentials in storage.options or in the variables of the "
    "cloud, such as AWS_ACCESS_KEY_ID.",
    "NotImplementedError": "The store must support conditional writes: leave "
    "conditional_put out of storage.options, or set it to etag.",
    "NotFoundError": "Create the bucket, or correct the location.",
}


@contextmanager
def storage_errors(location: str, operation: str, name: str) -> Iterator[None]:
    """Raise FileNotFoundError for a missing file, TxnLogStorageError for any other error."""
    errors = driver().exceptions
    try:
        yield
    except TxnLogError:
        raise
    except (FileNotFoundError, errors.NotFoundError) as error:
        if operation in ("put", "put_if_absent", "writer", "list"):
            raise _fault(location, operation, name, errors.NotFoundError(str(error))) from None
        raise missing(location, name) from None
    except (errors.BaseError, OSError, ValueError, NotImplementedError) as error:
        # The driver's message may contain a signed URL: use a cause without it.
        raise _fault(location, operation, name, error) from type(error)(summary(error))


def missing(location: str, name: str) -> FileNotFoundError:
    """Return the error for a missing file."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{location}/{name}")


def summary(error: BaseException) -> str:
    """Return the message of a driver's error, without debug details and secrets."""
    text = str(error).partition("\n\nDebug source:")[0]
    return redact(" ".join(text.split()))[:500]


def _fault(location: str, operation: str, name: str, error: Exception) -> TxnLogStorageError:
    return TxnLogStorageError(
        f"{operation} of {name!r} at {location} failed: {summary(error)}",
        location=location,
        name=name,
        operation=operation,
        help=_HELP.get(type(error).__name__, ""),
    )
