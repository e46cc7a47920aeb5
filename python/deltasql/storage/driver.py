"""obstore, the driver for object stores: load it, check its use after a fork, convert its errors.

The driver starts its threads with the first request. These threads do not exist in a forked child,
where a request would wait forever. Importing obstore and creating clients starts no threads. So
requests in a child fail only if its parent made a request before the fork.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import MissingDriverError, TxnLogError, TxnLogStorageError, redact
from deltasql.exceptions.releases import check_release
from deltasql.storage.platform import register_at_fork

if TYPE_CHECKING:
    from collections.abc import Iterator

_HELP = {
    "NotImplementedError": "The store must support conditional writes: leave "
    "conditional_put out of storage.options, or set it to etag.",
    "NotFoundError": "Create the bucket, or correct the location.",
}
# Many of the driver's calls report these with a general class. Only the help depends on the text.
_REJECTED = re.compile("ExpiredToken|status code: 40[13] ")
_REJECTED_HELP = (
    "The credentials in storage.options (or in the environment variables of the cloud) are wrong, "
    "have expired, or do not allow this; check the permissions on the bucket."
)
_METADATA_SERVICE = re.compile("/latest/api/token|/computeMetadata/|/metadata/identity/")
_was_used = False
_was_used_before_fork = False


@cache
def driver() -> Any:
    """Return the module obstore, which is imported and checked on first use."""
    try:
        module = import_module("obstore")
    except ImportError as error:
        raise MissingDriverError(
            "locations in an object store need obstore, which is not installed",
            driver="obstore",
            extra="s3",
        ) from error
    check_release("obstore", module.__version__)
    return module


def check_fork() -> None:
    """Raise TxnLogStorageError if a request would wait forever; call it before every request."""
    global _was_used
    if _was_used_before_fork:
        raise TxnLogStorageError(
            "object stores cannot be used in this process: it was forked from a process that had "
            "used one already",
            help="Start processes with multiprocessing's spawn or forkserver method, or use "
            "object stores in the child processes only.",
        )
    _was_used = True


def _after_fork() -> None:
    global _was_used_before_fork
    _was_used_before_fork = _was_used


register_at_fork(after_in_child=_after_fork)


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
        # The driver's message may contain a signed URL, so the cause gets a message without
        # secrets.
        raise _fault(location, operation, name, error) from type(error)(summary(error))


def missing(location: str, name: str) -> FileNotFoundError:
    """Return the error for a missing file."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{location}/{name}")


def summary(error: BaseException) -> str:
    """Return the message of a driver's error, without debug details and secrets."""
    text = str(error).partition("\n\nDebug source:")[0]
    return redact(" ".join(text.split()))[:500]


def _fault(location: str, operation: str, name: str, error: Exception) -> TxnLogStorageError:
    cause, help = summary(error), _HELP.get(type(error).__name__, "")
    if _METADATA_SERVICE.search(cause):
        cause = "no credentials were found in storage.options, in the environment variables of the "
        cause += "cloud, or in the metadata service of this machine"
        help = "Set the credentials of the store; `deltasql docs object-stores` has examples."
    elif _REJECTED.search(cause):
        help = _REJECTED_HELP
    return TxnLogStorageError(
        f"{operation} of {name!r} at {location} failed: {cause}",
        location=location,
        name=name,
        operation=operation,
        help=help,
    )
