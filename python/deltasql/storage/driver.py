"""Load obstore, the driver for object stores, and prevent its use after a fork.

Its threads start with the first request. They do not exist in a forked child, where a request would
wait forever. Importing obstore and creating clients starts no threads, so a child is rejected only
if its parent made a request before the fork.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import Any

from deltasql.exceptions import MissingDriverError, TxnLogStorageError

_was_used = False
_was_used_before_fork = False


@cache
def driver() -> Any:
    """Return the module obstore; it is imported by the first call."""
    try:
        return import_module("obstore")
    except ImportError as error:
        raise MissingDriverError(
            "locations in an object store need obstore, which is not installed",
            driver="obstore",
            extra="s3",
        ) from error


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


os.register_at_fork(after_in_child=_after_fork)
