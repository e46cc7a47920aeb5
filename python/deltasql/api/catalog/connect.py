"""Open catalogs and find tables by URI; calls that pass only a URI share open catalogs."""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from deltasql.api.catalog.base import absolute
from deltasql.api.catalog.catalog import Catalog
from deltasql.config import Config, fingerprint
from deltasql.exceptions import SchemaVersionError, TableExistsError, TxnLogUriError
from deltasql.storage.platform import register_at_fork
from deltasql.store.migrations import latest_version
from deltasql.store.statements import migration_files
from deltasql.uri import DeltaSqlUri, is_database_file, is_deltasql_uri, parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.store.records import TableRow

    TableUri = str | os.PathLike[str] | DeltaSqlUri

_shared: dict[str, Catalog] = {}
_guard = threading.Lock()
_latest: tuple[object, Config] | None = None
_identities: dict[int, tuple[Config, str]] = {}
_IDENTITIES = 64


def connect(
    uri: str | DeltaSqlUri,
    config: Config | None = None,
    *,
    create: bool = False,
    **settings: Any,
) -> Catalog:
    """Open a catalog by URI or by its name in the configuration; close it, or use `with`.

    Other keyword arguments are settings: `connect(uri, mirror={"mode": "off"})`. If the catalog
    does not exist, the first call that writes creates it, with the database file and the folders
    above it; calls that only read raise CatalogNotFoundError. `create=True` creates it at once.

    >>> import tempfile, deltasql, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> with deltasql.connect(f"deltasql://sqlite/{folder.name}/catalog.db") as catalog:
    ...     made = catalog.create_table("orders", pa.schema([("id", pa.int64())]))
    ...     print([table.name for table in catalog.tables()])
    ['orders']
    """
    chosen = _config(config, settings)
    catalog = Catalog(_resolve(uri, chosen), chosen)
    if create:
        try:
            catalog.store.create()
        except BaseException:
            catalog.close()
            raise
    return catalog


def open_existing(uri: str | DeltaSqlUri, config: Config | None = None, **settings: Any) -> Catalog:
    """Open an existing catalog without applying migrations."""
    chosen = _config(config, settings)
    place = _resolve(uri, chosen)
    if place.is_memory:  # a catalog in memory never exists before it is opened
        return Catalog(place, chosen)
    catalog = Catalog(place, chosen, migrate=False)
    try:
        found = catalog.store.schema_version()
        if found is None:
            raise catalog.store.not_found()
        if found != latest_version():
            raise SchemaVersionError(
                f"the catalog at {place} has schema version {found}, "
                f"this release needs {latest_version()}",
                found=found,
                supported=latest_version(),
                help="Run `deltasql migrate` to apply the missing migrations.",
            )
    except BaseException:
        catalog.close()
        raise
    return catalog


@contextmanager
def open_to_load(
    place: DeltaSqlUri, config: Config | None, settings: dict[str, Any], *, dry_run: bool
) -> Iterator[Catalog]:
    """Open a catalog for an import; if it does not exist, a dry run uses a temporary catalog."""
    if dry_run and is_new(place, config, **settings):
        import tempfile  # lazy import: start-up time

        with tempfile.TemporaryDirectory(prefix="deltasql-") as folder:
            temporary = DeltaSqlUri.for_file(f"{folder}/meta.db")
            with connect(temporary, config, create=True, **settings) as catalog:
                yield catalog
        return
    with connect(place, config, **settings) as catalog:
        yield catalog


def resolved(uri: str | DeltaSqlUri, config: Config | None = None, **settings: Any) -> DeltaSqlUri:
    """Return the URI that `connect` would open; a name is looked up in the configuration."""
    return _resolve(uri, _config(config, settings))


def is_new(uri: DeltaSqlUri, config: Config | None = None, **settings: Any) -> bool:
    """Return whether a database has no catalog yet; does not create one."""
    with Catalog(uri, _config(config, settings), migrate=False) as catalog:
        return not catalog.store.exists()


def pending_migrations(
    uri: DeltaSqlUri, config: Config | None = None, **settings: Any
) -> list[tuple[int, str]]:
    """Return the number and name of each migration that is not applied to a catalog yet."""
    with Catalog(uri, _config(config, settings), migrate=False) as catalog:
        ledger = catalog.store.ledger()
        if ledger is None:
            raise catalog.store.not_found()
    applied = {row[0] for row in ledger}
    return [(number, name) for number, name, _ in migration_files() if number not in applied]


def begin(
    catalog: str | DeltaSqlUri | Catalog, config: Config | None = None, **settings: Any
) -> MultiTableTransaction:
    """Start a transaction over the tables of a catalog, given by URI, by name or as a Catalog.

    >>> import tempfile, deltasql, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> with deltasql.begin(f"deltasql://sqlite/{folder.name}/catalog.db") as tx:
    ...     metrics = tx.write("orders", pa.table({"id": [1, 2]}))  # both tables, or neither
    ...     metrics = tx.write("stock", pa.table({"left": [99]}))
    >>> tx.versions
    {'orders': 0, 'stock': 0}

    An error inside the block rolls everything back. Keyword arguments are settings, as in
    `connect`. A catalog given by URI stays open for the next call, so that a loop of transactions
    does not connect each time; it is closed when the process ends, or by `close_all`.
    """
    if isinstance(catalog, Catalog):
        return catalog.begin()
    return shared(catalog, _config(config, settings)).begin()


def shared(uri: str | DeltaSqlUri, config: Config) -> Catalog:
    """Return the shared catalog of a URI; the first call opens it, as `connect` does."""
    given = _resolve(uri, config)
    key = f"{_text_of(given, os.getcwd())} {_identity(config)}"
    with _guard:
        found = _shared.get(key)
    if found is not None:
        if not found.store.is_replaced():
            return found
        _forget(key, found)
    opened = Catalog(given, config)  # outside the lock: connecting may be slow
    with _guard:
        kept = _shared.setdefault(key, opened)
    if kept is not opened:
        opened.close()
    return kept


def _forget(key: str, catalog: Catalog) -> None:
    """Close a catalog whose database file was deleted or replaced: writes to it would be lost."""
    with _guard:
        is_shared = _shared.get(key) is catalog
        if is_shared:
            del _shared[key]
    if is_shared:
        catalog.close()


def with_storage_options(storage_options: Mapping[str, str] | None) -> Config:
    """Return the configuration, with the storage options of a call added to it."""
    config = _configured()
    if storage_options is not None:
        from deltasql.api.arguments import check_options  # lazy import: start-up time

        check_options(storage_options)
    if not storage_options:
        return config
    options = dict(storage_options)
    places = dict.fromkeys(config.storage.locations, options)
    return Config.load(storage={"options": options, "locations": places})


def is_deltasql(table_uri: object) -> bool:
    """Return whether a URI starts with `deltasql://`, even if it was converted to a path.

    >>> from pathlib import Path
    >>> is_deltasql("deltasql://sqlite/meta.db?table=t"), is_deltasql(Path("/lake/sales"))
    (True, False)
    """
    if isinstance(table_uri, os.PathLike):
        return str(os.fspath(table_uri)).startswith("deltasql:/")
    return is_deltasql_uri(table_uri)


def parse_table_uri(table_uri: TableUri) -> DeltaSqlUri:
    """Parse the URI of a table; raise TxnLogUriError if it contains no table name.

    >>> parse_table_uri("deltasql://sqlite//data/meta.db?table=sales").table
    'sales'
    """
    if isinstance(table_uri, os.PathLike):
        raise TxnLogUriError(
            f"{os.fspath(table_uri)} is a path object, which removes the double slashes of a URI",
            help="Pass the URI as a string.",
        )
    uri = table_uri if isinstance(table_uri, DeltaSqlUri) else parse_uri(table_uri)
    if uri.table_name is None:
        raise TxnLogUriError(f"{uri} names a catalog, not a table", help="Add ?table=name.")
    return uri


def existing_catalog(uri: DeltaSqlUri, config: Config) -> Catalog:
    """Return the catalog of a URI; raises CatalogNotFoundError if the database has none."""
    catalog = shared(uri, config)
    catalog.store.check_exists()
    return catalog


def find_table(
    uri: DeltaSqlUri, storage_options: Mapping[str, str] | None = None
) -> tuple[Catalog, TableRow]:
    """Return the catalog and the row of a table; runs one SQL statement."""
    catalog = existing_catalog(uri, with_storage_options(storage_options))
    return catalog, catalog.resolve(str(uri.table_name), fresh=True)


def open_for_writing(
    table_uri: str | DeltaSqlUri, storage_options: Mapping[str, str] | None
) -> tuple[DeltaSqlUri, Catalog, str]:
    """Return the parsed URI, its catalog and the table's name; raise if the URI has a version."""
    uri = parse_table_uri(table_uri)
    if uri.version is not None or uri.timestamp is not None:
        raise TxnLogUriError(
            f"{uri} names an old version, which cannot be written to",
            help="Leave out ?version= and ?timestamp=.",
        )
    return uri, shared(uri, with_storage_options(storage_options)), str(uri.table_name)


@contextmanager
def leaves_existing(catalog: Catalog, table: str, *, mode: str) -> Iterator[None]:
    """With mode `ignore`, suppress the error if another writer created the table first."""
    try:
        yield
    except TableExistsError:
        if mode != "ignore" or not catalog.exists(table):
            raise


def close_all() -> None:
    """Close all shared catalogs: those that were opened by a URI alone."""
    with _guard:
        for catalog in _shared.values():
            catalog.close()
        _shared.clear()


@lru_cache(maxsize=256)
def _text_of(uri: DeltaSqlUri, folder: str) -> str:
    """Return the URI of a catalog as a string; a relative path is relative to `folder`."""
    return absolute(uri.catalog()).to_string()


def _configured() -> Config:
    """Return the configuration; it is read again only if one of its sources changed."""
    global _latest
    sources = fingerprint()
    if _latest is None or _latest[0] != sources:
        _latest = (sources, Config.load())
    return _latest[1]


def _identity(config: Config) -> str:
    """Return a string that identifies a configuration.

    The string is cached, because computing it takes longer than a commit.
    """
    known = _identities.get(id(config))
    if known is None or known[0] is not config:
        if len(_identities) >= _IDENTITIES:
            _identities.clear()
        known = _identities[id(config)] = (config, f"{config!r} {config.storage.identity()}")
    return known[1]


def _config(config: Config | None, settings: dict[str, Any]) -> Config:
    if settings:
        return Config.load(**settings)
    return config if config is not None else _configured()


def _resolve(uri: str | DeltaSqlUri, config: Config) -> DeltaSqlUri:
    if isinstance(uri, DeltaSqlUri):
        return uri
    if not isinstance(uri, str) or not uri:
        given = "an empty string" if uri == "" else f"an object of type {type(uri).__name__}"
        raise TxnLogUriError(
            f"the catalog must be a URI or a name, but the argument is {given}",
            help="Pass a string such as 'deltasql://sqlite/meta.db'.",
        )
    # A path or a misspelled scheme is parsed as a URI, whose error explains the syntax.
    is_uri = uri not in config.catalogs and ("/" in uri or ":" in uri or is_database_file(uri))
    return parse_uri(uri) if is_uri else config.catalog(uri)


def _new_guard() -> None:
    global _guard
    _guard = threading.Lock()  # another thread may have held the old lock at the fork


atexit.register(close_all)
register_at_fork(after_in_child=_new_guard)
