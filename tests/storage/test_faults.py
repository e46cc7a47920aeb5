"""Failures of an object store are retried, then raised as typed errors without secrets."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import traceback
from typing import TYPE_CHECKING

import pytest

from deltasql.config import StorageSettings
from deltasql.exceptions import MissingDriverError, TxnLogConfigError, TxnLogStorageError
from deltasql.storage import Storage, open_storage
from tests.s3 import options_for
from tests.storage.flaky import Fault, FlakyServer

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = options_for("")["AWS_SECRET_ACCESS_KEY"]


@pytest.fixture
def flaky(s3_server: str) -> Iterator[FlakyServer]:
    """A proxy that forwards requests to the S3 server and injects faults."""
    with FlakyServer(s3_server) as server:
        yield server


def through(flaky: FlakyServer, location: str, **settings: float) -> Storage:
    given = {"timeout_s": 30, "retries": 3, **settings}
    return open_storage(location, StorageSettings(options=options_for(flaky.address), **given))


def full_text(error: BaseException) -> str:
    """Return all text that a log or a console could show of an error."""
    return "".join(traceback.format_exception(error)) + repr(error)


def test_put_with_a_lost_response_finds_its_own_file(flaky: FlakyServer, s3_location: str) -> None:
    storage = through(flaky, s3_location)
    flaky.faults = [("PUT", "lose the response")]
    assert storage.put_if_absent("_delta_log/0.json", b"mine") is False
    assert storage.read("_delta_log/0.json") == b"mine"


def test_put_without_response_and_effect_is_retried(flaky: FlakyServer, s3_location: str) -> None:
    storage = through(flaky, s3_location, timeout_s=5)
    flaky.faults = [("PUT", "be silent")]
    assert storage.put_if_absent("_delta_log/0.json", b"mine") is True
    assert storage.read("_delta_log/0.json") == b"mine"


def test_put_is_retried_after_a_409_conflict(flaky: FlakyServer, s3_location: str) -> None:
    storage = through(flaky, s3_location)
    flaky.faults = [("PUT", "conflict")]
    assert storage.put_if_absent("_delta_log/0.json", b"mine") is True
    assert storage.put_if_absent("_delta_log/0.json", b"other") is False


def test_failed_requests_are_retried(flaky: FlakyServer, s3_location: str) -> None:
    storage = through(flaky, s3_location)
    flaky.faults = [("PUT", "fail"), ("PUT", "fail"), ("PUT", "fail")]
    assert storage.put_if_absent("a", b"1") is True
    flaky.faults = [("GET", "fail"), ("GET", "lose the response"), ("GET", "fail")]
    assert storage.read("a") == b"1"
    flaky.faults = [("GET", "fail")]
    assert [file.name for file in storage.list()] == ["a"]
    flaky.faults = [("PUT", "lose the response"), ("PUT", "fail")]
    storage.put("b", b"2")
    flaky.faults = [("HEAD", "fail"), ("GET", "fail")]
    with storage.open_input("b") as file:
        assert file.read() == b"2"
    assert flaky.faults == []


def test_streamed_file_survives_failed_parts(flaky: FlakyServer, s3_location: str) -> None:
    storage = through(flaky, s3_location)
    flaky.faults = [
        ("POST", "fail"),
        ("PUT", "fail"),
        ("PUT", "lose the response"),
        ("PUT", "fail"),
    ]
    with storage.writer("big") as sink:
        for _ in range(20):
            sink.write(b"x" * 1_000_000)
    assert storage.read("big") == b"x" * 20_000_000
    assert flaky.faults == []


def test_failed_stream_raises_its_cause_even_if_the_abort_fails(
    flaky: FlakyServer, s3_location: str
) -> None:
    storage = through(flaky, s3_location, retries=0)
    with pytest.raises(KeyError, match="the engine"), storage.writer("big") as sink:
        sink.write(b"x" * 20_000_000)
        flaky.faults = [("DELETE", "fail")]
        raise KeyError("the engine gave up")
    flaky.faults = [("PUT", "fail")]
    with pytest.raises(TxnLogStorageError, match="503"), storage.writer("big") as sink:
        sink.write(b"x")
    assert not storage.exists("big")


def test_persistent_failure_is_raised_after_the_retries(
    flaky: FlakyServer, s3_location: str
) -> None:
    storage = through(flaky, s3_location, retries=1)
    flaky.faults = [("GET", "fail")] * 10
    with pytest.raises(TxnLogStorageError, match="503") as caught:
        storage.read("_delta_log/0.json")
    assert len([each for each in flaky.requests if each.startswith("GET")]) == 2
    error = caught.value
    assert (error.location, error.name, error.operation) == (
        s3_location,
        "_delta_log/0.json",
        "read",
    )
    assert isinstance(error, OSError)
    assert error.__cause__ is not None
    assert SECRET not in full_text(error)


def test_unresponsive_store_fails_after_the_timeout(flaky: FlakyServer, s3_location: str) -> None:
    storage = through(flaky, s3_location, timeout_s=0.3, retries=1)
    flaky.faults = [("GET", "be silent")] * 10
    begin = time.monotonic()
    with pytest.raises(TxnLogStorageError):
        storage.read("x")
    assert time.monotonic() - begin < 30


def test_unreachable_store_error_contains_no_secrets(s3_location: str) -> None:
    settings = StorageSettings(options=options_for("http://127.0.0.1:9"), timeout_s=1, retries=0)
    storage = open_storage(s3_location, settings)
    for ask in (
        lambda: storage.put_if_absent("a", b""),
        lambda: storage.put("a", b""),
        lambda: storage.read("a"),
        lambda: storage.exists("a"),
        lambda: storage.open_input("a"),
        lambda: list(storage.list()),
        lambda: storage.delete("a"),
        lambda: storage.delete_many(["a"]),
        lambda: storage.rename("a", "b"),
    ):
        with pytest.raises(TxnLogStorageError, match="Help: Check") as caught:
            ask()
        assert s3_location in str(caught.value)
        assert SECRET not in full_text(caught.value)
    with pytest.raises(TxnLogStorageError), storage.writer("a") as sink:
        sink.write(b"x")
    assert SECRET not in f"{storage!r} {vars(storage)} {settings!r}"


def test_missing_bucket_is_not_reported_as_a_missing_file(s3_settings: StorageSettings) -> None:
    storage = open_storage("s3://no-such-bucket/x", s3_settings)
    with pytest.raises(TxnLogStorageError, match="Create the bucket"):
        storage.put_if_absent("a", b"")
    with pytest.raises(TxnLogStorageError, match="NoSuchBucket"):
        list(storage.list())


@pytest.mark.parametrize(
    ("location", "options"),
    [
        ("s3://lake/t", {"aws_metadata_endpoint": "http://127.0.0.1:9"}),
        (
            "az://lake/t",
            {
                "azure_storage_account_name": "lake",
                "azure_msi_endpoint": "http://127.0.0.1:9/metadata/identity/oauth2/token",
            },
        ),
        ("gs://lake/t", {}),
    ],
)
def test_missing_credentials_are_reported_in_one_sentence(
    location: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (each for each in os.environ if each.startswith(("AWS_", "AZURE_", "GOOGLE_"))):
        monkeypatch.delenv(name)
    for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP"):
        monkeypatch.setenv(name, "127.0.0.1:9")
    settings = StorageSettings(options=options, timeout_s=0.5, retries=0)
    storage = open_storage(location, settings)
    for call in (lambda: storage.read("x"), lambda: storage.put_if_absent("x", b"")):
        with pytest.raises(TxnLogStorageError, match="no credentials were found") as caught:
            call()
        assert "127.0.0.1" not in caught.value.message
        assert "deltasql docs object-stores" in caught.value.help


@pytest.mark.parametrize("fault", ["expired on S3", "expired on Azure", "expired on Google"])
def test_expired_credentials_are_named_and_not_retried(
    flaky: FlakyServer, s3_location: str, fault: Fault
) -> None:
    storage = through(flaky, s3_location)
    flaky.faults_by_request = dict.fromkeys(range(100), fault)

    def stream() -> None:
        with storage.writer("a") as sink:
            sink.write(b"x")

    for number, call in enumerate([lambda: storage.read("a"), lambda: [*storage.list()], stream]):
        with pytest.raises(TxnLogStorageError) as caught:
            call()
        assert "have expired" in caught.value.help
        assert SECRET not in full_text(caught.value)
        assert len(flaky.requests) == number + 1
    flaky.faults_by_request = {}
    assert storage.put_if_absent("a", b"")


def test_store_without_conditional_puts_is_rejected(
    s3_location: str, s3_options: dict[str, str]
) -> None:
    options = {**s3_options, "AWS_CONDITIONAL_PUT": "disabled"}
    storage = open_storage(s3_location, StorageSettings(options=options))
    with pytest.raises(TxnLogStorageError, match="conditional writes"):
        storage.put_if_absent("a", b"")
    assert not storage.exists("a")


@pytest.mark.parametrize(
    "wrong",
    [
        {"AWS_SECRET_ACCESS_KEY": None},
        {"aws_skip_signature": "hunter2 perhaps"},
        {"max_retries": "hunter2 times"},
        {"retry_timeout": "hunter2 seconds"},
    ],
    ids=lambda wrong: str(next(iter(wrong))),
)
def test_invalid_storage_options_are_reported_by_key(
    s3_location: str, s3_options: dict[str, str], wrong: dict[str, str | None]
) -> None:
    options = {name: value for name, value in {**s3_options, **wrong}.items() if value is not None}
    with pytest.raises(TxnLogConfigError, match="Help: ") as caught:
        open_storage(s3_location, StorageSettings(options=options)).read("a")
    assert caught.value.key == "storage.options"
    assert SECRET not in full_text(caught.value)


def test_missing_s3_driver_error_names_the_install_command() -> None:
    code = (
        "import sys; sys.modules['obstore'] = None\n"
        "from deltasql.storage import open_storage\n"
        "from deltasql.exceptions import MissingDriverError\n"
        "print(open_storage('/tmp').exists('nothing'))\n"
        "try: open_storage('s3://bucket/x').read('a')\n"
        "except MissingDriverError as error: print(error.help)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["False", MissingDriverError(extra="s3").help]
