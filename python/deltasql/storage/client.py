"""Clients of object stores: one per bucket and options, shared by all its tables."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from deltasql import telemetry
from deltasql.exceptions import TxnLogConfigError
from deltasql.storage.driver import check_fork, driver
from deltasql.storage.faults import summary
from deltasql.storage.options import retry_options, split_options

if TYPE_CHECKING:
    from deltasql.config import StorageSettings
    from deltasql.storage.location import Location

_log = logging.getLogger(__name__)
_clients: dict[object, Client] = {}


class Client:
    """The client of one bucket; it is created on first use."""

    def __init__(self, root: str, options: dict[str, str], settings: StorageSettings) -> None:
        self.root = root
        self.retries = settings.retries
        self._config, self._connection = split_options(options, settings)
        self._retry = retry_options(options, settings)
        self._store: Any = None

    def __repr__(self) -> str:
        return f"Client({self.root!r})"

    @property
    def store(self) -> Any:
        """The driver's object for the bucket, to be used for one request."""
        check_fork()
        # No lock, because a fork could leave it locked; a second object does no harm.
        if self._store is None:
            self._store = self._make()
        return self._store

    def _make(self) -> Any:
        api = driver()
        try:
            return self._build(self._config)
        except api.exceptions.UnknownConfigurationKeyError:
            known = {name: value for name, value in self._config.items() if self._knows(name)}
        ignored = sorted(set(self._config) - set(known))
        telemetry.log(
            _log, logging.WARNING, "storage options ignored", location=self.root, names=ignored
        )
        return self._build(known)

    def _knows(self, name: str) -> bool:
        try:
            driver().store.from_url(self.root, config={name: self._config[name]})
        except driver().exceptions.UnknownConfigurationKeyError:
            return False
        except driver().exceptions.BaseError:
            pass  # the option is known, but not sufficient alone
        return True

    def _build(self, config: dict[str, str]) -> Any:
        api = driver()
        try:
            return api.store.from_url(
                self.root,
                config=config,
                client_options=self._connection,
                retry_config=self._retry,
            )
        except api.exceptions.UnknownConfigurationKeyError:
            raise
        except (api.exceptions.BaseError, ValueError) as error:
            raise TxnLogConfigError(
                f"the options for {self.root} are not usable: {summary(error)}",
                key="storage.options",
                help="Give the options that deltalake takes in storage_options, or the variables "
                "of the cloud; docs/guides/mirror.md has examples.",
            ) from None  # the driver's message may contain a secret


def client_for(place: Location, settings: StorageSettings) -> Client:
    """Return the client of a location's bucket; equal options share one client."""
    options = settings.plain_options(place.text)
    key = (place.root, settings.timeout_s, settings.retries, frozenset(options.items()))
    found = _clients.get(key)
    return found or _clients.setdefault(key, Client(place.root, options, settings))
