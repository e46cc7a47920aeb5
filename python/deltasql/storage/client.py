"""Clients of object stores. All tables with the same bucket and options share one client.

The options have the same names as deltalake's `storage_options`.
"""

from __future__ import annotations

import logging
import os
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from deltasql import telemetry
from deltasql.exceptions import TxnLogConfigError
from deltasql.storage.driver import check_fork, driver, summary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.config import StorageSettings
    from deltasql.storage.location import Location

_log = logging.getLogger(__name__)
# Options for deltalake's locks, which are not needed because the database takes their place.
_NOT_OURS = re.compile(
    r"(aws_)?(s3_)?(locking_provider|allow_unsafe_rename)|mount_allow_unsafe_rename"
    r"|(delta_)?dynamo(db)?_.*|aws_endpoint_url_dynamodb"
)
# Options for the bucket are ignored, because the location contains the bucket.
_BUCKET = re.compile(r"(aws_|google_)?bucket(_name)?|(azure_)?container(_name)?")
_RETRY = re.compile(r"max_retries|retry_timeout|backoff_config\..*")
_CONNECTION = re.compile(
    r"(aws_|azure_|google_)?(allow_http|allow_invalid_certificates|connect_timeout|http1_only"
    r"|http2_keep_alive_interval|http2_keep_alive_timeout|http2_keep_alive_while_idle|http2_only"
    r"|pool_idle_timeout|pool_max_idle_per_host|proxy_ca_certificate|proxy_excludes|proxy_url"
    r"|randomize_addresses|read_timeout|root_certificate|timeout|user_agent)"
)
_DURATION = re.compile(r"([0-9.]+) ?(ms|s|m|h|)")
_SECONDS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
# A request is signed only once, so retries must end before its signature expires.
_LONGEST_RETRY_S = 240.0
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
        """The driver's object for the bucket. Get it again for each request."""
        check_fork()
        # There is no lock, because a fork could leave it locked. Creating a second object does no
        # harm.
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
            pass  # the option is valid, but other options are missing
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
                f"the storage options for {self.root} cannot be used: {summary(error)}",
                key="storage.options",
                help="Give the options that deltalake accepts in storage_options, or set the "
                "cloud's environment variables; `deltasql docs object-stores` has examples.",
            ) from None  # the driver's message may contain a secret


def client_for(place: Location, settings: StorageSettings) -> Client:
    """Return the client for a location's bucket; equal options share one client."""
    options = settings.plain_options(place.text)
    key = (place.root, settings.timeout_s, settings.retries, frozenset(options.items()))
    found = _clients.get(key)
    return found or _clients.setdefault(key, Client(place.root, options, settings))


def split_options(
    options: Mapping[str, str], settings: StorageSettings
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options of the store and those of its connections, with lower-case names.

    >>> from deltasql.config import StorageSettings
    >>> given = {"AWS_REGION": "eu", "AWS_ALLOW_HTTP": "true", "AWS_S3_ALLOW_UNSAFE_RENAME": "true"}
    >>> split_options(given, StorageSettings(timeout_s=2))
    ({'aws_region': 'eu'}, {'timeout': '2000ms', 'connect_timeout': '2000ms', 'allow_http': 'true'})
    """
    milliseconds = round(settings.timeout_s * 1000)
    store: dict[str, str] = {}
    connection = {
        "timeout": f"{milliseconds}ms",
        "connect_timeout": f"{min(milliseconds, 5000)}ms",
    }
    # Read the environment variables here: if the driver gets any connection option, it ignores the
    # variables for the others.
    for name, value in [*os.environ.items(), *options.items()]:
        lower = name.lower()
        found = _CONNECTION.fullmatch(lower)
        if found and (found.group(1) or name in options):
            connection[found.group(2)] = value
        elif name in options and not any(e.fullmatch(lower) for e in (_NOT_OURS, _BUCKET, _RETRY)):
            store[lower] = value
    return store, connection


def retry_options(options: Mapping[str, str], settings: StorageSettings) -> dict[str, Any]:
    """Return the retry options of the driver, from deltalake's options or from the settings.

    >>> from deltasql.config import StorageSettings
    >>> retry_options({"max_retries": "2", "retry_timeout": "10s"}, StorageSettings())
    {'max_retries': 2, 'retry_timeout': datetime.timedelta(seconds=10), 'backoff': {}}
    """
    given = {name.lower(): value for name, value in options.items()}
    whole = min(settings.timeout_s * (settings.retries + 1), _LONGEST_RETRY_S)
    backoff: dict[str, Any] = {}
    for name in ("init_backoff", "max_backoff", "base"):
        value = given.get(f"backoff_config.{name}")
        if value is not None:
            backoff[name] = _number(name, value) if name == "base" else _duration(name, value)
    return {
        "max_retries": int(_number("max_retries", given.get("max_retries", settings.retries))),
        "retry_timeout": _duration("retry_timeout", given.get("retry_timeout", f"{whole}s")),
        "backoff": backoff,
    }


def _number(name: str, value: str | int) -> float:
    try:
        return float(value)
    except ValueError:
        raise _invalid_option(name, "a number") from None


def _duration(name: str, value: str) -> timedelta:
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise _invalid_option(name, "a duration such as 500ms, 10s or 2m")
    return timedelta(seconds=_number(name, found.group(1)) * _SECONDS[found.group(2)])


def _invalid_option(name: str, allowed: str) -> TxnLogConfigError:
    return TxnLogConfigError(
        f"the storage option {name} is not {allowed}", key="storage.options", allowed=allowed
    )
