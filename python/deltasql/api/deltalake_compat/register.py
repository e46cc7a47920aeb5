"""`register()`: make deltalake's own classes and functions accept `deltasql://` URIs.

Classes are patched in place, and functions in the modules that call them, because other libraries
hold references to them. Calls with other URIs are passed to the original code.
"""

from __future__ import annotations

import sys
import threading
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from deltasql import deltalake_internals
from deltasql.api.catalog.connect import is_deltasql

if TYPE_CHECKING:
    from deltasql.api.deltalake_compat.handle.raw_table import RawTable

_guard = threading.Lock()
_MISSING = object()
_SCHEME = "deltasql"
_replaced: list[tuple[Any, str, object]] = []


def register() -> None:
    """Make `deltalake.DeltaTable`, `write_deltalake` and others accept `deltasql://` URIs.

    This also affects references that were imported before, and libraries that use deltalake:
    polars, daft, pandas and dask. A second call does nothing. `unregister` undoes it.

    Raises: UnsupportedReleaseError: `register` does not support this release of deltalake.

    >>> import deltalake, tempfile, pyarrow as pa
    >>> register()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     uri = f"deltasql://sqlite/{folder}/meta.db?table=sales"
    ...     deltalake.write_deltalake(uri, pa.table({"id": [1, 2]}))
    ...     deltalake.DeltaTable(uri).to_pyarrow_table().num_rows
    2
    >>> unregister()
    """
    with _guard:
        if not _replaced:
            deltalake_internals.require("register()")
            _patch_all()
            _register_scheme()


def unregister() -> None:
    """Restore every attribute of deltalake that `register` replaced."""
    with _guard:
        while _replaced:
            owner, name, before = _replaced.pop()
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        _unregister_scheme()


def _patch_all() -> None:
    import deltalake.fs

    here = "deltasql.api.deltalake_compat"
    _divert(deltalake_internals.CREATE, f"{here}.create", "create_deltalake")
    _divert(
        deltalake_internals.CREATE_WITH_ACTIONS, f"{here}.create", "create_table_with_add_actions"
    )
    _divert(deltalake_internals.CONVERT, f"{here}.convert_to_deltalake", "convert_by_uri")
    _divert(deltalake_internals.WRITE, __name__, "write_new_table")
    _patch_table(deltalake.DeltaTable)
    _patch_queries(deltalake.QueryBuilder)
    _patch_files(deltalake.fs.DeltaStorageHandler.__mro__[1])


def _divert(stock: tuple[str, str], ours_in: str, ours: str) -> None:
    """Make a module call our function for `deltasql://` URIs, instead of deltalake's in Rust."""
    module, name = import_module(stock[0]), stock[1]
    before = getattr(module, name)

    @wraps(before)
    def diverted(*args: Any, **kwargs: Any) -> Any:
        address = args[0] if args else kwargs.get("table_uri", kwargs.get("uri"))
        if not is_deltasql(address):
            return before(*args, **kwargs)
        return getattr(import_module(ours_in), ours)(*args, **kwargs)

    _replace(module, name, diverted)


def write_new_table(table_uri: str, data: object, batch_schema: object, **options: Any) -> None:
    """Create a table with its first rows; the signature is that of deltalake's Rust function."""
    from deltasql.api.deltalake_compat.write_deltalake import write_deltalake

    write_deltalake(table_uri, cast("Any", data), **options)


def _patch_table(stock: type[Any]) -> None:
    from deltasql.api.deltalake_compat.delta_table import DeltaTable

    init, is_deltatable = stock.__init__, stock.is_deltatable

    @wraps(init)
    def opened(self: Any, table_uri: Any, *args: Any, **kwargs: Any) -> None:
        if not is_deltasql(table_uri):
            init(self, table_uri, *args, **kwargs)
            return
        if type(self) is stock:
            self.__class__ = DeltaTable
        DeltaTable.__init__(self, table_uri, *args, **kwargs)

    @wraps(is_deltatable)
    def exists(table_uri: Any, storage_options: dict[str, str] | None = None) -> bool:
        check = DeltaTable.is_deltatable if is_deltasql(table_uri) else is_deltatable
        return bool(check(table_uri, storage_options))

    _replace(stock, "__init__", opened)
    _replace(stock, "is_deltatable", staticmethod(exists))


def _patch_queries(stock: type[Any]) -> None:
    from deltasql.api.deltalake_compat.handle.raw_table import RawTable
    from deltasql.api.deltalake_compat.query_builder import QueryBuilder

    register_before = stock.register

    @wraps(register_before)
    def register_table(self: Any, table_name: str, delta_table: Any) -> Any:
        raw = deltalake_internals.raw_table(delta_table)
        if not isinstance(raw, RawTable):
            self.__dict__.setdefault("_plain_tables", {})[table_name] = raw
            return register_before(self, table_name, delta_table)
        QueryBuilder.take_over(self, self.__dict__.get("_plain_tables", {}))
        return QueryBuilder.register(self, table_name, delta_table)

    _replace(stock, "register", register_table)


def _patch_files(stock: type[Any]) -> None:
    from deltasql.api.deltalake_compat.handle.raw_table import RawTable

    init, from_table = stock.__init__, stock.__dict__["from_table"].__func__

    @wraps(init)
    def opened(self: Any, table_uri: Any, options: Any = None, known_sizes: Any = None) -> None:
        if is_deltasql(table_uri):
            raw = RawTable.open(table_uri, None, options)
            init(self, raw.table_uri(), _file_options(raw, options), known_sizes)
        else:
            init(self, table_uri, options, known_sizes)

    @wraps(from_table)
    def of_table(cls: Any, table: Any, options: Any = None, known_sizes: Any = None) -> Any:
        if isinstance(table, RawTable):
            return cls(table.table_uri(), _file_options(table, options), known_sizes)
        return from_table(cls, table, options, known_sizes)

    _replace(stock, "__init__", opened)
    _replace(stock, "from_table", classmethod(of_table))


def _file_options(raw: RawTable, options: dict[str, str] | None) -> dict[str, str] | None:
    return {**raw.storage_options(), **(options or {})} or None


def _register_scheme() -> None:
    """Register the scheme with fsspec, if it is installed, because dask opens files with fsspec."""
    if find_spec("fsspec") is not None:
        fsspec = import_module("fsspec")
        name = "deltasql.api.deltalake_compat.fsspec_files.DeltaSqlFileSystem"
        fsspec.register_implementation(_SCHEME, name, clobber=True)


def _unregister_scheme() -> None:
    registry = sys.modules.get("fsspec.registry")
    if registry is not None:
        registry.known_implementations.pop(_SCHEME, None)
        registry._registry.pop(_SCHEME, None)


def _replace(owner: Any, name: str, value: object) -> None:
    # Use __dict__, because getattr would unwrap a staticmethod and return inherited attributes.
    _replaced.append((owner, name, owner.__dict__.get(name, _MISSING)))
    setattr(owner, name, value)
