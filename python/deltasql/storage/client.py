"""Clients of object stores: one per bucket and options, shared by all tables in it."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any

from deltasql import telemetry
from deltasql.exceptions import TxnLogConfigError
from deltasql.storage.driver import driver, generation
from deltasql.storage.faults import summary
from deltasql.storage.options import retry_options, split_options

if TYPE_CHECKING:
    from deltasql.config import StorageSettings
    from deltasql.storage.location import Location

_log = logging.getLogger(__name__)
_guard = threading.Lock()
_clients: dict[object, Client] = {}


class Client:
    """A connection to one bucket, made anew in a forked child."""

    def __init__(self, root: str, options: dict[str, str], settings: StorageSettings) -> None:
        self.root = root
        self.retries = settings.retries
        self._config, self._connection = split_options(options, settings)
        self._retry = retry_options(options, settings)
        self._guard = threading.Lock()
        self._made: tuple[int, Any] | None = None
        self._dead: list[Any] = []

    def __repr__(self) -> str:
        return f"Client({self.root!r})"

    @property
    def store(self) -> Any:
        """The driver's handle of the bucket, usable in this process."""
        made = self._made
        if made is not None and made[0] == generation():
            return made[1]
        with self._guard:
            made = self._made
            if made is not None and made[0] == generation():
                return made[1]
            if made is not None:
                self._dead.append(made[1])  # freeing it would wait for threads that are gone
            self._made = (generation(), self._make())
            return self._made[1]

    def reset_lock(self) -> None:
        """Forget that another thread was in here when this process was forked."""
        self._guard = threading.Lock()

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
            pass  # known, and not enough by itself
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
            ) from None  # the driver's own text may quote a secret


def client_for(place: Location, settings: StorageSettings) -> Client:
    """Return the client of a location's bucket, the same one for the same options."""
    options = settings.plain_options(place.text)
    key = (place.root, settings.timeout_s, settings.retries, frozenset(options.items()))
    found = _clients.get(key)
    if found is None:
        with _guard:
            found = _clients.setdefault(key, Client(place.root, options, settings))
    return found


def _after_fork() -> None:
    global _guard
    _guard = threading.Lock()
    for client in _clients.values():
        client.reset_lock()


os.register_at_fork(after_in_child=_after_fork)
