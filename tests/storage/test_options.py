"""Options of object stores: in deltalake's spelling, per location, or from the environment."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

import deltasql
from deltasql.config import Config, StorageSettings
from deltasql.storage import open_storage
from tests.s3 import new_bucket
from tests.storage.flaky import FlakyServer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("spell", [str.lower, str.upper, lambda name: name.removeprefix("AWS_")])
def test_option_names_accept_the_spellings_of_deltalake(
    s3_location: str, s3_options: dict[str, str], spell: object
) -> None:
    options = {spell(name): value for name, value in s3_options.items()}  # type: ignore[operator]
    storage = open_storage(s3_location, StorageSettings(options=options))
    assert storage.put_if_absent("a", b"1")


def _ours(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the log records of deltasql, without those of other libraries."""
    return [record for record in caplog.records if record.name.startswith("deltasql")]


def test_unused_options_are_ignored_or_logged(
    s3_location: str, s3_options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    options = {
        **s3_options,
        "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
        "AWS_S3_LOCKING_PROVIDER": "dynamodb",
        "DELTA_DYNAMO_TABLE_NAME": "locks",
        "conditional_put": "etag",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
        "max_retries": "3",
        "backoff_config.init_backoff": "50ms",
        "timeout": "7s",
        "bucket": "another",
    }
    with caplog.at_level(logging.WARNING):
        assert open_storage(s3_location, StorageSettings(options=options)).put_if_absent("a", b"1")
        assert _ours(caplog) == []
        more = {**options, "azure_storage_account_name": "x", "aws_acess_key": "hunter2"}
        assert open_storage(s3_location, StorageSettings(options=more)).exists("a")
    [record] = _ours(caplog)
    assert "azure_storage_account_name" in caplog.text
    assert "aws_acess_key" in caplog.text
    assert "hunter2" not in f"{caplog.text} {vars(record)}"


def test_missing_options_come_from_the_environment(
    s3_location: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_options.items():
        monkeypatch.setenv(name, value)
    # A different timeout, so that no client from before the variables were set is reused.
    assert open_storage(s3_location, StorageSettings(timeout_s=7.25)).put_if_absent("a", b"1")


def test_locations_in_a_bucket_share_a_client(s3_location: str, s3_options: dict[str, str]) -> None:
    one = open_storage(f"{s3_location}/a", StorageSettings(options=s3_options))
    two = open_storage(f"{s3_location}/b", StorageSettings(options=dict(s3_options)))
    other = open_storage(f"{s3_location}/b", StorageSettings(options=s3_options, retries=1))
    assert vars(one)["_client"] is vars(two)["_client"]
    assert vars(one)["_client"] is not vars(other)["_client"]


def test_location_has_its_own_options(s3_server: str, s3_options: dict[str, str]) -> None:
    lake, archive = new_bucket(s3_server), new_bucket(s3_server)
    with FlakyServer(s3_server) as second:
        other = {
            **s3_options,
            "AWS_ENDPOINT_URL": second.address,
            "AWS_ACCESS_KEY_ID": "archivist",
        }
        settings = StorageSettings(options=s3_options, locations={archive: other})
        open_storage(f"{lake}/t", settings).put("a", b"1")
        assert second.requests == []
        open_storage(f"{archive.replace('s3:', 's3a:')}/t", settings).put("a", b"2")
        assert len(second.requests) == 1
        assert "archivist" in second.users[0]


def test_options_of_the_longest_matching_folder_apply() -> None:
    settings = StorageSettings(
        options={"region": "general"},
        locations={
            "s3://lake": {"region": "lake"},
            "s3://lake/a/b/": {"region": "b"},
            "s3://lake/a": {"region": "a"},
        },
    )
    expected = {
        "s3://lake": "lake",
        "s3a://lake/a": "a",
        "s3://lake/a/b/c": "b",
        "s3://lake/a/bc": "a",
        "s3://lakes/a": "general",
        "/data": "general",
    }
    for location, region in expected.items():
        assert settings.plain_options(location) == {"region": region}
    # The options of a location replace the general ones: credentials are never mixed.
    alone = StorageSettings(options={"aws_session_token": "x"}, locations={"s3://b": {}})
    assert alone.plain_options("s3://b/t") == {}


def test_location_options_are_read_from_files_and_variables_and_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deltasql.toml").write_text(
        "[storage.locations.'s3://archive.eu/x']\naws_secret_access_key = 'hunter2'\n"
        "allow_http = true\n"
    )
    config = Config.load()
    assert config.storage.plain_options("s3://archive.eu/x/t")["allow_http"] == "true"
    rows = {row.key: row for row in config.describe()}
    row = rows["storage.locations.s3://archive.eu/x.aws_secret_access_key"]
    assert (row.value, row.source) == ("***", "deltasql.toml")
    assert "hunter2" not in f"{config!r} {config.describe()}"
    monkeypatch.setenv("DELTASQL_STORAGE__LOCATIONS", '{"s3://z": {"region": "eu"}}')
    assert Config.load().storage.plain_options("s3://z/t") == {"region": "eu"}


def test_catalogs_with_different_options_are_not_shared(tmp_path: Path) -> None:
    uri = f"deltasql://sqlite/{tmp_path}/meta.db"
    first = deltasql.begin(uri, storage={"locations": {"s3://a": {"k": "hunter2"}}})
    second = deltasql.begin(uri, storage={"locations": {"s3://a": {"k": "hunter3"}}})
    again = deltasql.begin(uri, storage={"locations": {"s3://a": {"k": "hunter2"}}})
    assert first.catalog is again.catalog
    assert first.catalog is not second.catalog
