"""The package that speaks to object stores, in a copy that works in this process.

Its threads are started at the first request and do not survive a fork: in a forked child every
request would wait forever. A child of a process that used it therefore loads a copy of its own.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import threading
from importlib import import_module
from typing import Any

from deltasql.exceptions import MissingDriverError, TxnLogStorageError

_PACKAGE = "obstore"
_EXTENSION = "obstore._obstore"

_guard = threading.Lock()
_loaded: Any = None
_is_stale = False
_generation = 0


def driver() -> Any:
    """Return the driver's package, imported at the first call."""
    global _loaded, _is_stale
    if _loaded is not None and not _is_stale:
        return _loaded
    with _guard:
        if _loaded is None:
            _loaded = _import()
        elif _is_stale:
            _loaded, _is_stale = _import_copy(), False
        return _loaded


def generation() -> int:
    """Return a number that is another one in a forked child: clients of the parent are dead."""
    return _generation


def _import() -> Any:
    try:
        return import_module(_PACKAGE)
    except ImportError as error:
        raise MissingDriverError(
            "locations in an object store need obstore, which is not installed",
            driver=_PACKAGE,
            extra="s3",
        ) from error


def _import_copy() -> Any:
    """Import the package once more, with the threads and state of a library just loaded."""
    modules = {name: each for name, each in sys.modules.items() if _is_part(name)}
    if not hasattr(os, "memfd_create"):
        raise TxnLogStorageError(
            "object stores cannot be used in a forked process on this system",
            operation="fork",
            help="Start processes with multiprocessing's spawn or forkserver.",
        )
    for name in modules:
        del sys.modules[name]
    try:
        _load_extension(modules[_EXTENSION].__file__ or "")
        return import_module(_PACKAGE)
    finally:
        # Others in this process keep the modules they know.
        for name in [name for name in sys.modules if _is_part(name)]:
            del sys.modules[name]
        sys.modules.update(modules)


def _load_extension(path: str) -> None:
    # The loader knows a library by its inode: only other bytes make it another library.
    copy = os.memfd_create(_PACKAGE)
    with open(path, "rb") as library:
        left = os.fstat(library.fileno()).st_size
        while left:
            left -= os.sendfile(copy, library.fileno(), None, left)
    loader = importlib.machinery.ExtensionFileLoader(_EXTENSION, f"/proc/self/fd/{copy}")
    spec = importlib.util.spec_from_loader(_EXTENSION, loader)
    if spec is None:
        raise ImportError(f"{path} cannot be loaded again", name=_EXTENSION)
    module = importlib.util.module_from_spec(spec)
    sys.modules[_EXTENSION] = module
    loader.exec_module(module)
    os.close(copy)


def _is_part(name: str) -> bool:
    return name == _PACKAGE or name.startswith(f"{_PACKAGE}.")


def _after_fork() -> None:
    global _guard, _is_stale, _generation
    _guard = threading.Lock()
    _is_stale = _loaded is not None
    _generation += 1


os.register_at_fork(after_in_child=_after_fork)
