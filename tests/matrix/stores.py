"""Object stores: S3 from two servers, Azure and Google Cloud Storage, each a real process.

Besides the behaviours, each cell runs the guarantees of every storage (`guarantees`), and writes
tables while the store fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa

from deltasql.config import StorageSettings
from deltasql.exceptions import TxnLogStorageError
from deltasql.storage import Storage, open_storage
from tests.matrix import servers
from tests.matrix.behaviours import OK, Place, check
from tests.matrix.cell import ROOT, Cell, run_behaviours
from tests.storage.flaky import Fault, FlakyServer

if TYPE_CHECKING:
    from deltasql import Catalog

# More requests than a check makes.
_MANY = 100_000
_PIECE = bytes(range(256)) * 4096


@dataclass(frozen=True)
class Store:
    """A kind of store: how to run it, and the options with which to reach it."""

    run: Callable[[Path], AbstractContextManager[str]]
    """Runs the server during a block, and yields its address."""
    location: str
    options: Mapping[str, str]
    endpoint: str
    """The option for the address of the server."""
    expired: Fault
    multipart: str
    """A part of the URLs of requests that upload a large file in parts."""
    wrong: Mapping[str, str] = field(default_factory=dict)
    """Options with a wrong key; empty if the server checks none."""


S3_OPTIONS = {
    "AWS_ACCESS_KEY_ID": servers.S3_KEY[0],
    "AWS_SECRET_ACCESS_KEY": servers.S3_KEY[1],
    "AWS_REGION": servers.REGION,
    "AWS_ALLOW_HTTP": "true",
}
MOTO = Store(
    servers.moto,
    f"s3://{servers.BUCKET}",
    S3_OPTIONS,
    "AWS_ENDPOINT_URL",
    "expired on S3",
    "uploadId=",
)
VERSITYGW = replace(MOTO, run=servers.versitygw, wrong={"AWS_SECRET_ACCESS_KEY": "hunter3-hunter3"})
AZURITE = Store(
    servers.azurite,
    f"az://{servers.BUCKET}",
    {
        "AZURE_STORAGE_ACCOUNT_NAME": servers.AZURE_ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": servers.AZURE_KEY,
        "AZURE_ALLOW_HTTP": "true",
    },
    "AZURE_STORAGE_ENDPOINT",
    "expired on Azure",
    "comp=block",
    wrong={"AZURE_STORAGE_ACCOUNT_KEY": "aHVudGVyMy1odW50ZXIz"},
)
# An account without a key: the clients send no token, and fake-gcs-server checks none.
NO_ACCOUNT = {
    "private_key": "",
    "private_key_id": "",
    "client_email": "",
    "disable_oauth": True,
}
FAKE_GCS_SERVER = Store(
    servers.fake_gcs_server,
    f"gs://{servers.BUCKET}",
    {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(NO_ACCOUNT), "GOOGLE_ALLOW_HTTP": "true"},
    "GOOGLE_BASE_URL",
    "expired on Google",
    "uploadId=",
)


def cells() -> list[Cell]:
    """Return one cell for each server."""
    stores = {
        ("S3", f"moto {version('moto')}"): MOTO,
        ("S3", f"versitygw {servers.VERSITYGW}"): VERSITYGW,
        ("Azure Blob Storage", f"azurite {servers.AZURITE}"): AZURITE,
        ("Google Cloud Storage", f"fake-gcs-server {servers.FAKE_GCS_SERVER}"): FAKE_GCS_SERVER,
    }
    return [Cell(*name, partial(_run, store)) for name, store in stores.items()]


def _run(store: Store, folder: Path) -> dict[str, str]:
    """Run the behaviours and all checks of a store with one server."""
    with store.run(folder) as address:
        options = {**store.options, store.endpoint: address}
        place = Place(f"deltasql://sqlite/{folder}/catalog.db", store.location, options)
        found = run_behaviours(
            sys.executable, place.catalog, f"{place.location}/suite", options, folder
        )
        checks: dict[str, Callable[[Store, Place], None]] = {
            "guarantees": _guarantees,
            "multipart": _multipart,
            "throttling": partial(_commits_despite, faults=("fail",)),
            "errors": partial(_commits_despite, faults=("break", "lose the response", "fail")),
            "expired credentials": _expired,
        }
        if store.wrong:
            checks["wrong credentials"] = _wrong
        for name, run in checks.items():
            found[name] = _result(partial(run, store, place))
        return found


def _result(run: Callable[[], None]) -> str:
    try:
        run()
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return OK


def _guarantees(store: Store, place: Place) -> None:
    """Run the tests of the guarantees of every storage, conditional puts among them."""
    given = {
        "location": f"{place.location}/guarantees",
        "options": dict(place.storage_options),
    }
    known = {"TEST_DATABASE_URL": "postgresql://not-used", **os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/storage/test_guarantees.py"],
        cwd=ROOT,
        env={**known, "DELTASQL_TEST_STORE": json.dumps(given)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    check(done.returncode == 0, f"{len(failed)} tests failed: {' '.join(failed)[:500]}")


def _multipart(store: Store, place: Place) -> None:
    """Stream a large file while every fourth request fails; it appears complete or not at all."""
    with _proxied(store, place) as (proxied, proxy):
        storage = _storage(proxied, "multipart")
        _fail_every(proxy, 4, ("fail",))
        with storage.writer("large") as sink:
            for _ in range(40):
                sink.write(_PIECE)
            check(not storage.exists("large"), "the file is visible before it is complete")
        parts = [request for request in proxy.requests if store.multipart in request]
        check(len(parts) >= 5, f"{len(parts)} requests uploaded parts")
        try:
            with storage.writer("aborted") as sink:
                for _ in range(40):
                    sink.write(_PIECE)
                raise KeyError("the engine failed")
        except KeyError:
            pass
    storage = _storage(place, "multipart")
    check([file.name for file in storage.list()] == ["large"], "an aborted file is listed")
    with storage.open_input("large") as file:
        for _ in range(40):
            check(file.read(len(_PIECE)) == _PIECE, "the content changed")
        check(file.read(1) == b"", "the file is too long")


def _commits_despite(store: Store, place: Place, *, faults: tuple[Fault, ...]) -> None:
    """Commit, checkpoint and vacuum while every third request to the store fails."""
    name = f"despite_{faults[0]}"
    with _proxied(store, place) as (proxied, proxy), _connected(proxied) as catalog:
        _fail_every(proxy, 3, faults)
        for number in range(4):
            _append(catalog, name, number)
        with catalog.begin() as tx:
            tx.write(name, _numbers(4), mode="overwrite")
        _append(catalog, name, 5)
        catalog.mirror.publish()
        catalog.mirror.checkpoint(name)
        catalog.vacuum(name, retention_hours=0, enforce_retention_duration=False, dry_run=False)
        check(len(proxy.requests) > 10, f"the store received {len(proxy.requests)} requests")
    _check_rows(place, name, [4, 5])


def _expired(store: Store, place: Place) -> None:
    """Let credentials expire: writes fail and change nothing, commits are published later."""
    name = "expired"
    with _proxied(store, place) as (proxied, proxy), _connected(proxied) as catalog:
        _append(catalog, name, 1)
        tx = catalog.begin()
        tx.write(name, _numbers(2))
        proxy.faults_by_request = dict.fromkeys(range(_MANY), store.expired)
        tx.commit()  # the database decides, so the commit succeeds
        try:
            _append(catalog, name, 3)
        except TxnLogStorageError as error:
            _check_help(error, proxied)
        else:
            raise RuntimeError("a write succeeded with expired credentials")
        proxy.faults_by_request = {}
        _append(catalog, name, 4)
        catalog.mirror.publish()
    _check_rows(place, name, [1, 2, 4])


def _wrong(store: Store, place: Place) -> None:
    """Use a wrong key: the server itself rejects it, and the error says what to check."""
    given = replace(place, storage_options={**place.storage_options, **store.wrong})
    storage = _storage(given, "wrong")
    calls: list[Callable[[], object]] = [
        lambda: storage.put_if_absent("a", b""),
        lambda: storage.read("a"),
        lambda: list(storage.list()),
    ]
    for call in calls:
        try:
            call()
        except TxnLogStorageError as error:
            _check_help(error, given)
        else:
            raise RuntimeError("the server accepted a wrong key")
    check(not _storage(place, "wrong").exists("a"), "a file was written with a wrong key")


def _check_help(error: TxnLogStorageError, place: Place) -> None:
    check("credentials" in error.help, f"the help does not name the credentials: {error.help}")
    text = f"{error} {error!r} {error.__cause__!r}"
    secrets = [value for name, value in place.storage_options.items() if name.endswith("_KEY")]
    check(not any(secret in text for secret in secrets), "the error contains a secret")


@contextmanager
def _proxied(store: Store, place: Place) -> Iterator[tuple[Place, FlakyServer]]:
    """Yield the same place behind a proxy that injects faults."""
    address = place.storage_options[store.endpoint]
    with FlakyServer(address) as proxy:
        changed = f"{proxy.address}{urlsplit(address).path}"
        yield (
            replace(place, storage_options={**place.storage_options, store.endpoint: changed}),
            (proxy),
        )


def _fail_every(proxy: FlakyServer, interval: int, faults: tuple[Fault, ...]) -> None:
    numbers = range(len(proxy.requests) + 1, _MANY, interval)
    proxy.faults_by_request = {
        number: faults[turn % len(faults)] for turn, number in enumerate(numbers)
    }


def _connected(place: Place) -> Catalog:
    return place.connect(table={"data_root": f"{place.location}/checks"})


def _storage(place: Place, folder: str) -> Storage:
    settings = StorageSettings(options=dict(place.storage_options), timeout_s=60)
    return open_storage(f"{place.location}/{folder}", settings)


def _append(catalog: Catalog, name: str, number: int) -> None:
    with catalog.begin() as tx:
        tx.write(name, _numbers(number))


def _numbers(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64())})


def _check_rows(place: Place, name: str, expected: list[int]) -> None:
    """Check the rows that deltasql and stock deltalake read."""
    found = [row["id"] for row in place.rows(name)]
    check(found == expected, f"the rows are {found}, not {expected}")
