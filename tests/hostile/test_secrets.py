"""A password goes in at every door; it comes out of none."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import traceback
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pytest

import deltasql
from deltasql.config import Config
from deltasql.console.server import serving
from deltasql.uri import parse_uri

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri

SECRET = "s3cr3t-Zx9-Hunter2"
URI = f"deltasql://postgres/ann:{SECRET}@127.0.0.1:1/db/sales?connect_timeout=2"
OPTIONS = {
    "aws_secret_access_key": SECRET,
    "aws_access_key_id": "AKIA" + "Q" * 16,
    "aws_session_token": SECRET,
    "azure_storage_sas_key": SECRET,
    "endpoint_url": "http://127.0.0.1:1",
    "allow_http": "true",
    "aws_region": "us-east-1",
    "max_retries": "0",
}

COMMANDS: list[list[str]] = [
    ["--uri", URI, "tables"],
    ["--uri", URI, "describe", "sales"],
    ["--uri", URI, "doctor"],
    ["--uri", URI, "query", f"SELECT '{SECRET}' password="],
    ["--uri", URI + "&sslmode=nonsense", "tables"],
    ["--uri", URI.replace("@", "/@"), "tables"],
    ["--uri", URI.replace("postgres/", "postgers/"), "tables"],
    ["--uri", f"deltasql://postgres/db/t?password={SECRET}", "tables"],
    ["--catalog", "lake", "tables"],
    ["--debug", "--uri", URI, "tables"],
    ["config"],
    ["import", f"s3://lake/t?sig={SECRET}", "t"],
]


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose variables and files hold the secret."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DELTASQL_URI", URI)
    monkeypatch.setenv("PGPASSWORD", SECRET)
    for name, value in OPTIONS.items():
        monkeypatch.setenv(f"DELTASQL_STORAGE__OPTIONS__{name.upper()}", value)
    monkeypatch.setenv("DELTASQL_CATALOGS__LAKE", URI)
    return tmp_path


def test_commands_that_fail_tell_no_secret(door: Path) -> None:
    """One process runs them all, with every line of the log."""
    code = f"""
import logging, sys
logging.basicConfig(level=1, stream=sys.stderr)
from click.testing import CliRunner
from deltasql.cli.main import main
for words in {COMMANDS!r}:
    result = CliRunner().invoke(main, words)
    print(words[-1][:9], result.exit_code, result.output)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:].replace(SECRET, "(the secret)")
    assert ran.stdout.count("\n") > len(COMMANDS)
    assert SECRET not in ran.stdout + ran.stderr
    assert "AKIA" not in ran.stdout + ran.stderr


def attempts(uri: str) -> list[Any]:
    config = Config(storage={"options": OPTIONS})
    return [
        lambda: parse_uri(uri + "&nosuch=1"),
        lambda: deltasql.connect(uri),
        lambda: deltasql.DeltaTable(uri),
        lambda: deltasql.write_deltalake(uri, {"id": [1]}),
        lambda: deltasql.connect(uri, storage={"optoins": OPTIONS}),
        lambda: Config(storage={"options": OPTIONS, "password": SECRET}),
        lambda: deltasql.import_table("s3://lake/t", uri, storage={"options": OPTIONS}),
        lambda: repr(config) + str(config.describe()) + repr(parse_uri(uri)),
    ]


@pytest.mark.parametrize("number", range(len(attempts(URI))))
def test_errors_and_their_causes_tell_no_secret(
    caplog: pytest.LogCaptureFixture, number: int
) -> None:
    caplog.set_level(logging.DEBUG)
    try:
        shown = str(attempts(URI)[number]())
    except Exception as error:
        own = repr(error) + str(error) + repr(error.args)
        shown = own + "".join(traceback.format_exception_only(error))
    assert SECRET not in shown
    assert "AKIA" not in shown
    assert SECRET not in caplog.text


def test_pages_tell_no_secret(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
    place = {"data_root": str(tmp_path / "lake")}
    with deltasql.connect(sqlite_uri, storage={"options": OPTIONS}, table=place) as catalog:
        with catalog.begin() as tx:
            tx.write("t", pa.table({"id": [1]}))
        catalog.mirror.add_target("t", "backup", "s3://lake/backup")
        told = []
        with (
            serving(catalog) as served,
            httpx.Client(base_url=served.address, timeout=60) as client,
        ):
            for path in ("/", "/health", "/tables/t", "/tables/t/history", "/mirror", "/metrics"):
                told.append(client.get(path).text)
            told.append(client.get("/mirror/t", params={"target": "backup"}).text)
    assert SECRET not in "".join(told)
    assert "AKIA" not in "".join(told)
