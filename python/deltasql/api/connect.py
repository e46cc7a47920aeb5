"""Open catalogs by URI, and keep them open between calls that name only a URI."""

from __future__ import annotations

import atexit
import os
import threading
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from deltasql.api.catalog import Catalog, absolute
from deltasql.api.raw.arguments import check_options
from deltasql.config import Config, fingerprint
from deltasql.exceptions import SchemaVersionError, StoreUnavailableError
from deltasql.store.migrations import latest_version
from deltasql.store.statements import migration_files
from deltasql.uri import DeltaSqlUri, is_database_file, parse_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deltasql.api.transaction import MultiTableTransaction

_shared: dict[str, tuple[Catalog, object]] = {}
_guard = threading.Lock()
_latest: tuple[object, Config] | None = None
_identities: dict[int, tuple[Config, str]] = {}
_IDENTITIES = 64


def connect(uri: str | DeltaSqlUri, config: Config | None = None, **settings: Any) -> Catalog:
    """Open a catalog by URI or by its name in the configuration; close it, or use `with`.

    Keyword arguments are settings: `connect(uri, mirror={"mode": "off"})`. The database and its
    tables come into being at the first use.

    >>> import tempfile, deltasql, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> with deltasql.connect(f"deltasql://sqlite/{folder.name}/catalog.db") as catalog:
    ...     made = catalog.create_table("orders", pa.schema([("id", pa.int64())]))
    ...     print([table.name for table in catalog.tables()])
    ['orders']
    """
    chosen = _config(config, settings)
    return Catalog(_resolve(uri, chosen), chosen)


def open_existing(uri: str | DeltaSqlUri, config: Config | None = None, **settings: Any) -> Catalog:
    """Open a catalog as it is: none is made, and no migration is applied."""
    chosen = _config(config, settings)
    place = _resolve(uri, chosen)
    if place.is_memory:  # it is gone when it is closed
        return Catalog(place, chosen)
    if _file_of(place) == "gone":
        raise _no_catalog(place)
    catalog = Catalog(place, chosen, migrate=False)
    try:
        found = catalog.store.schema_version()
    except BaseException:
        catalog.close()
        raise
    if found == latest_version():
        return catalog
    catalog.close()
    if found is None:
        raise _no_catalog(place)
    raise SchemaVersionError(
        f"the catalog at {place} has schema version {found}, this release needs {latest_version()}",
        found=found,
        supported=latest_version(),
        help="`deltasql migrate` applies what is missing.",
    )


def _no_catalog(uri: DeltaSqlUri) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"there is no catalog yet at {uri.catalog()}: `deltasql init` makes one",
        backend=uri.backend,
        help=_relative_help(uri) or "check the address, or create the catalog first.",
    )


def _relative_help(uri: DeltaSqlUri) -> str:
    """Tell what a path with one slash means: often an absolute one was meant."""
    if uri.backend == "postgres" or uri.is_memory or os.path.isabs(uri.database):
        return ""
    meant = replace(uri.catalog(), database=f"/{uri.database}")
    return (
        f"the path is below {os.getcwd()}: one that begins at the root has two slashes, "
        f"{meant}; or create the catalog first."
    )


def resolved(uri: str | DeltaSqlUri, config: Config | None = None, **settings: Any) -> DeltaSqlUri:
    """Return what `connect` would open: a URI as it is, a name as the configuration has it."""
    return _resolve(uri, _config(config, settings))


def is_new(uri: DeltaSqlUri, config: Config | None = None, **settings: Any) -> bool:
    """Tell whether a database holds no catalog yet, without making one."""
    if uri.is_memory or _file_of(uri) == "gone":
        return True
    with Catalog(uri, _config(config, settings), migrate=False) as catalog:
        store = catalog.store
        with store.session() as session:
            return store.dialect.ledger(session) is None


def pending_migrations(
    uri: DeltaSqlUri, config: Config | None = None, **settings: Any
) -> list[tuple[int, str]]:
    """List number and name of the migrations that a catalog lacks, without applying them."""
    known = [(number, name) for number, name, _ in migration_files()]
    if uri.is_memory or _file_of(uri) == "gone":
        return known
    with Catalog(uri, _config(config, settings), migrate=False) as catalog:
        store = catalog.store
        with store.session() as session:
            applied = {row[0] for row in store.dialect.ledger(session) or ()}
    return [each for each in known if each[0] not in applied]


def begin(
    catalog: str | DeltaSqlUri | Catalog, config: Config | None = None, **settings: Any
) -> MultiTableTransaction:
    """Start a transaction over the tables of a catalog: a URI, a name, or one that is open.

    >>> import tempfile, deltasql, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> with deltasql.begin(f"deltasql://sqlite/{folder.name}/catalog.db") as tx:
    ...     metrics = tx.write("orders", pa.table({"id": [1, 2]}))  # both tables, or neither
    ...     metrics = tx.write("stock", pa.table({"left": [99]}))
    >>> tx.versions
    {'orders': 0, 'stock': 0}

    An error inside of the block takes everything back. Keyword arguments are settings, as those of
    `connect`. With a URI the catalog stays open for the next call, so that a loop of transactions
    does not connect each time; they are closed when the process ends, or by `close_all`.
    """
    if isinstance(catalog, Catalog):
        return catalog.begin()
    return shared(catalog, _config(config, settings)).begin()


def shared(uri: str | DeltaSqlUri, config: Config) -> Catalog:
    """Return the open catalog of a URI, opening it at the first call, and creating it if needed.

    For calls that write: those that read use `shared_existing` or `find_shared`.
    """
    found = _shared_catalog(uri, config, Catalog)
    assert found is not None
    return found


def shared_existing(uri: str | DeltaSqlUri, config: Config) -> Catalog:
    """Return the open catalog of a URI as `shared` does, but make none."""
    found = find_shared(uri, config)
    if found is None:
        raise _no_catalog(_resolve(uri, config))
    return found


def find_shared(uri: str | DeltaSqlUri, config: Config) -> Catalog | None:
    """Return the open catalog of a URI; None, and nothing is made, where there is no catalog."""
    return _shared_catalog(uri, config, _existing)


def _shared_catalog(
    uri: str | DeltaSqlUri,
    config: Config,
    open_catalog: Callable[[DeltaSqlUri, Config], Catalog | None],
) -> Catalog | None:
    resolved, text = _catalog_of(_resolve(uri, config), os.getcwd())
    key = f"{text} {_identity(config)}"
    with _guard:
        found = _shared.get(key)
    if found is not None:
        if found[1] == _file_of(resolved):
            return found[0]
        _forget(key, found)
    opened = open_catalog(resolved, config)  # outside of the lock: a database may answer slowly
    if opened is None:
        return None
    with _guard:
        kept = _shared.setdefault(key, (opened, _file_of(resolved)))[0]
    if kept is not opened:
        opened.close()
    return kept


def _existing(uri: DeltaSqlUri, config: Config) -> Catalog | None:
    """Open a catalog and bring its schema up to date; None, and nothing is made, without one."""
    if uri.is_memory:  # a new one at every opening
        return Catalog(uri, config)
    if _file_of(uri) == "gone":
        return None
    catalog = Catalog(uri, config, migrate=False)
    try:
        found = catalog.store.schema_version()
        if found is not None:
            if found != latest_version():
                catalog.migrate()
            return catalog
    except BaseException:
        catalog.close()
        raise
    catalog.close()
    return None


def _file_of(uri: DeltaSqlUri) -> object:
    """Tell the file of a database from another one that is put in its place."""
    if uri.backend == "postgres" or uri.is_memory:
        return None
    try:
        found = os.stat(uri.database)
    except OSError:
        return "gone"
    return found.st_dev, found.st_ino


def _forget(key: str, held: tuple[Catalog, object]) -> None:
    """Close a catalog whose file was deleted or replaced: what is written there is lost."""
    with _guard:
        is_held = _shared.get(key) is held
        if is_held:
            del _shared[key]
    if is_held:
        held[0].close()


def with_storage_options(storage_options: Mapping[str, str] | None) -> Config:
    """Return the configuration with a call's own options of the storage on top of it."""
    config = _configured()
    if storage_options is not None:
        check_options(storage_options)
    if not storage_options:
        return config
    options = dict(storage_options)
    places = dict.fromkeys(config.storage.locations, options)
    return Config.load(storage={"options": options, "locations": places})


def close_all() -> None:
    """Close every catalog that was opened by a URI alone."""
    with _guard:
        for catalog, _ in _shared.values():
            catalog.close()
        _shared.clear()


@lru_cache(maxsize=256)
def _catalog_of(uri: DeltaSqlUri, folder: str) -> tuple[DeltaSqlUri, str]:
    """Return the catalog of a URI as it is meant in a folder, and its text."""
    resolved = absolute(uri.catalog())
    return resolved, resolved.to_string()


def _configured() -> Config:
    """Return the configuration, read again only when one of its sources changed."""
    global _latest
    sources = fingerprint()
    if _latest is None or _latest[0] != sources:
        _latest = (sources, Config.load())
    return _latest[1]


def _identity(config: Config) -> str:
    """Tell configurations apart; the text of one costs more than a commit, so it is kept."""
    held = _identities.get(id(config))
    if held is None or held[0] is not config:
        if len(_identities) >= _IDENTITIES:
            _identities.clear()
        held = _identities[id(config)] = (config, f"{config!r} {config.storage.identity()}")
    return held[1]


def _config(config: Config | None, settings: dict[str, Any]) -> Config:
    if settings:
        return Config.load(**settings)
    return config if config is not None else _configured()


def _resolve(uri: str | DeltaSqlUri, config: Config) -> DeltaSqlUri:
    if isinstance(uri, DeltaSqlUri):
        return uri
    # A path or a slip in the scheme is no name: a URI's own error says how to write it.
    is_uri = uri not in config.catalogs and ("/" in uri or ":" in uri or is_database_file(uri))
    return parse_uri(uri) if is_uri else config.catalog(uri)


def _new_guard() -> None:
    global _guard
    _guard = threading.Lock()  # another thread may have held it when this process was forked


atexit.register(close_all)
os.register_at_fork(after_in_child=_new_guard)
