"""The private parts of deltalake that deltasql uses; no other module uses its private names.

deltalake may change these parts in any release. They differ between the supported releases, and
this module hides the differences. It checks itself when it is imported: `MISSING` has the names
that the installed release does not have. With a newer release than the supported ones, tables can
be read and written. `register()`, `QueryBuilder`, and methods of a table that deltalake changed
raise UnsupportedReleaseError before anything is written. An older release is rejected at import.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

import deltalake

from deltasql.exceptions.releases import SUPPORTED, check_release, supported_releases
from deltasql.exceptions.store import UnsupportedReleaseError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deltalake.table import TableAlterer as TableAlterer

RELEASE = tuple(map(int, re.findall(r"\d+", deltalake.__version__)[:3]))
if SUPPORTED["deltalake"][0] > RELEASE:
    check_release("deltalake", deltalake.__version__)


def _found(module: str, name: str, default: Any = None) -> Any:
    """Return an object of deltalake, or the default if the installed release does not have it."""
    try:
        return getattr(import_module(module), name, default)
    except ImportError:
        return default


RemoveAction: Any = _found("deltalake.transaction", "RemoveAction", ())
"""The class of an action that removes a file; before deltalake 1.6.6 an empty tuple of classes."""

if not TYPE_CHECKING:
    TableAlterer = _found("deltalake.table", "TableAlterer", object)

COUNTS_ROWS = RELEASE >= (1, 5, 1)
"""Whether `count(*)` in DataFusion is correct for partitioned tables."""

# Rust functions that deltalake's Python functions look up in these modules at every call.
CREATE = ("deltalake.table", "_create_deltalake")
CREATE_WITH_ACTIONS = ("deltalake.transaction", "_create_table_with_add_actions")
CONVERT = ("deltalake.writer.convert_to", "_convert_to_deltalake")
WRITE = ("deltalake.writer.writer", "write_deltalake_rust")
_CLASSES = (("deltalake._internal", "RawDeltaTable"), ("deltalake._internal", "PyQueryBuilder"))
# Parameters that have another name in `RawTable`, or had one in an earlier release.
_RENAMED = {
    "add_actions": "actions",
    "field_name": "column",
    "partition_filters": "file_pruning_predicate",
    "partitions_filters": "file_pruning_predicate",
}


def _missing() -> tuple[str, ...]:
    names = (CREATE, CREATE_WITH_ACTIONS, CONVERT, WRITE, *_CLASSES)
    found = [f"{module}.{name}" for module, name in names if _found(module, name) is None]
    # The attributes by which deltalake's methods find the raw table and its options.
    methods = (getattr(each, "__code__", None) for each in vars(deltalake.DeltaTable).values())
    used = {name for each in methods if each is not None for name in each.co_names}
    found += [f"DeltaTable.{name}" for name in ("_table", "_storage_options") if name not in used]
    return tuple(found)


MISSING = _missing()


def require(purpose: str) -> None:
    """Raise UnsupportedReleaseError unless the installed deltalake is a supported release."""
    check_release("deltalake", deltalake.__version__, purpose)
    if MISSING:
        raise _unsupported(purpose, f"it has no {', '.join(MISSING)}")


# Tables


def raw_table(table: object) -> Any:
    """Return the object that the methods of a DeltaTable call."""
    return getattr(table, "_table", None)


def set_raw_table(
    table: deltalake.DeltaTable, raw: object, storage_options: dict[str, str] | None
) -> None:
    """Make the methods of a DeltaTable call another object."""
    missing = [name for name in MISSING if name.startswith("DeltaTable.")]
    if missing:
        raise _unsupported("DeltaTable", f"it has no {', '.join(missing)}")
    attributes: dict[str, Any] = {"_table": raw, "_storage_options": storage_options}
    vars(table).update(attributes)


def storage_options(table: deltalake.DeltaTable) -> dict[str, str] | None:
    """Return the storage options of a DeltaTable."""
    found: dict[str, str] | None = table._storage_options
    return found


def reject_changed_methods(handle: type[Any]) -> None:
    """With a newer deltalake, make methods that it calls differently raise UnsupportedReleaseError.

    In a supported release nothing changes; the tests compare the methods of each release.
    """
    try:
        check_release("deltalake", deltalake.__version__)
    except UnsupportedReleaseError:
        for name, reason in changed_methods(handle).items():
            setattr(handle, name, _rejected(f"DeltaTable.{name}", reason))


def changed_methods(handle: type[Any]) -> dict[str, str]:
    """Return the methods of deltalake's raw table that a class lacks or defines differently."""
    stock = _found(*_CLASSES[0])
    found = {}
    for name in (name for name in dir(stock) if not name.startswith("_")):
        theirs, ours = getattr(stock, name), getattr(handle, name, None)
        if ours is None:
            found[name] = f"{name}() is new"
        elif callable(theirs) != callable(ours):
            found[name] = f"{name} changed"
        elif callable(theirs):
            known = {*_parameters(ours), "self"}
            new = [each for each in _parameters(theirs) if not {each, _RENAMED.get(each)} & known]
            if new:
                found[name] = f"{name}() has new parameters: {', '.join(new)}"
    return found


def _parameters(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except ValueError:  # the binary does not say which parameters it has
        return []


def history_result(version: int, commits: list[str]) -> Any:
    """Return the history of a raw table as the installed deltalake expects it."""
    return (version, commits) if RELEASE >= (1, 6, 1) else commits


def add_actions_result(found: Any) -> Any:
    """Return the files of a raw table as the installed deltalake does: before 1.5, one batch."""
    if RELEASE >= (1, 5):
        return found
    import pyarrow as pa  # lazy import: the import takes 0.1 s
    from arro3.core import RecordBatch

    table = pa.table(found).combine_chunks()
    empty = pa.RecordBatch.from_pylist([], schema=table.schema)
    return RecordBatch.from_arrow((table.to_batches() or [empty])[0])


def config_result(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return those options of a raw table that the installed deltalake has."""
    known = _found("deltalake.table", "DeltaTableConfig")
    return values if known is None else values[: len(known._fields)]


def encoded_filters(table: deltalake.DeltaTable, filters: Any) -> Any:
    """Return filters with their values as strings, as in partition values."""
    for name in ("_encode_file_pruning_predicate", "_stringify_partition_values"):
        encode: Any = getattr(table, name, None)
        if encode is not None:
            return encode(filters)
    return filters


class StockTable(deltalake.DeltaTable):
    """deltalake's DeltaTable, with methods of newer releases that deltasql relies on."""

    if RELEASE < (1, 6, 6):

        def scan(self, columns: list[str] | None = None, predicate: str | None = None) -> Any:
            """Stream the rows that match a predicate, or all rows."""
            if not hasattr(self._table, "scan"):
                raise _unsupported("scan() of a path", "it needs deltalake 1.6.6")
            return self._table.scan(columns, predicate)

        def to_pyarrow_dataset(self, *arguments: Any, **options: Any) -> Any:
            """Return the table as a pyarrow dataset."""
            *others, pruning = arguments if len(arguments) == 6 else (*arguments, None)
            if pruning is not None:
                others[0] = pruning
            return super().to_pyarrow_dataset(*others, **options)

        def _stringify_partition_values(self, partition_filters: Any) -> Any:
            if isinstance(partition_filters, str):
                return partition_filters
            return super()._stringify_partition_values(partition_filters)


def all_rows(raw: Any) -> Any:
    """Stream all rows of a raw table that deltalake opened."""
    if hasattr(raw, "scan"):
        return raw.scan()
    session = query_session(None)
    session.register(table_name="scanned", delta_table=raw)
    return session.execute("SELECT * FROM scanned")


# Queries, files and types


def open_raw_table(
    location: str, version: int | None, storage_options: Mapping[str, str] | None, *, purpose: str
) -> Any:
    """Open a table as deltalake's `RawDeltaTable`, for `QueryBuilder` and DataFusion."""
    require(purpose)
    return _found(*_CLASSES[0])(location, version=version, storage_options=storage_options)


def table_provider(raw: Any, session: Any | None) -> Any:
    """Return DataFusion's table provider of a raw table."""
    if not COUNTS_ROWS:
        raise _unsupported("the table provider for DataFusion", "it needs deltalake 1.5.1")
    return raw.__datafusion_table_provider__(session)


def query_session(session_config: dict[str, str] | None) -> Any:
    """Return a DataFusion session of deltalake."""
    require("QueryBuilder")
    return _found(*_CLASSES[1])(*session_arguments(session_config))


def session_of(builder: deltalake.QueryBuilder) -> Any:
    """Return the DataFusion session of a QueryBuilder."""
    return builder._query_builder


def session_arguments(session_config: dict[str, str] | None) -> tuple[dict[str, str], ...]:
    """Return the arguments of a session; before 1.6.6 it had no configuration."""
    if session_config is None:
        return ()
    if RELEASE < (1, 6, 6):
        raise _unsupported("session_config", "it needs deltalake 1.6.6")
    return (session_config,)


def reader_features() -> set[str]:
    """Return the reader features for which deltalake returns pyarrow datasets."""
    return set(_found("deltalake.table", "SUPPORTED_READER_FEATURES", ()))


def nanoseconds_enabled() -> bool:
    """Return whether this process called deltalake's `enable_nanosecond_timestamps()`."""
    enabled = _found("deltalake", "_nanosecond_timestamps_enabled")
    return enabled is not None and bool(enabled())


def _rejected(name: str, reason: str) -> Callable[..., Any]:
    def rejected(*arguments: object, **options: object) -> None:
        raise _unsupported(name, reason)

    return rejected


def _unsupported(purpose: str, reason: str) -> UnsupportedReleaseError:
    supported, remedy = supported_releases("deltalake")
    return UnsupportedReleaseError(
        f"{purpose} does not support deltalake {deltalake.__version__}: {reason}",
        component="deltalake",
        found=deltalake.__version__,
        supported=supported,
        help=remedy,
    )
