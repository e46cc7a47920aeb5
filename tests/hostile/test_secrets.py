"""Secrets from every input never appear in output, errors, logs or pages."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import traceback
from typing import TYPE_CHECKING, Any

import click
import httpx
import pyarrow as pa
import pytest

import deltasql
from deltasql.config import Config
from deltasql.console.server import serving
from deltasql.uri import parse_uri
from tests.cli.test_help import EVERY, found
from tests.hostile.test_arguments import ENDLESS

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
def home_with_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder whose variables and files contain the secret."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DELTASQL_URI", URI)
    monkeypatch.setenv("PGPASSWORD", SECRET)
    for name, value in OPTIONS.items():
        monkeypatch.setenv(f"DELTASQL_STORAGE__OPTIONS__{name.upper()}", value)
    monkeypatch.setenv("DELTASQL_CATALOGS__LAKE", URI)
    return tmp_path


def test_failed_commands_show_no_secrets(home_with_secrets: Path) -> None:
    ran = run_all(COMMANDS)
    assert ran.count("exit code") == len(COMMANDS)
    assert SECRET not in ran
    assert "AKIA" not in ran


def run_all(commands: list[list[str]]) -> str:
    """Run commands in one process with full logging; return all output."""
    code = """
import json, logging, sys
logging.basicConfig(level=1, stream=sys.stderr)
from click.testing import CliRunner
from deltasql.cli.main import main
for arguments in json.load(sys.stdin):
    result = CliRunner().invoke(main, arguments)
    print(result.output, "exit code", result.exit_code)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
"""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        env=os.environ,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:].replace(SECRET, "(the secret)")
    return ran.stdout + ran.stderr


def required(command: click.Command) -> list[str]:
    """Return a value for each required parameter of a command."""
    chosen: list[str] = []
    for each in command.params:
        word = str(each.type.choices[0]) if isinstance(each.type, click.Choice) else "t"
        if each.name == "yes":
            chosen.append(each.opts[0])
        elif each.required:
            name = [] if isinstance(each, click.Argument) else [each.opts[0]]
            chosen += [*name, *[word] * max(1, each.nargs)]
    return chosen


def every_command(uri: str) -> list[list[str]]:
    return [
        ["--uri", uri, *path, *([ENDLESS[path]] if ENDLESS.get(path) else []), *required(command)]
        for path in EVERY
        if not isinstance(command := found(path), click.Group)
    ]


def test_commands_show_no_secrets_when_the_catalog_is_unreachable(
    home_with_secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTASQL_POOL__TIMEOUT_S", "0.05")
    commands = every_command(URI)
    assert len(commands) > 40
    ran = run_all(commands)
    assert ran.count("exit code") == len(commands)
    assert ran.count("exit code 0") <= 5  # three do not use a catalog, two print their help
    assert SECRET not in ran
    assert "AKIA" not in ran


def test_commands_show_no_secrets_when_the_storage_is_unreachable(
    home_with_secrets: Path, sqlite_uri: DeltaSqlUri, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTASQL_STORAGE__RETRIES", "0")
    monkeypatch.setenv("DELTASQL_STORAGE__TIMEOUT_S", "1")
    with deltasql.connect(sqlite_uri, storage={"options": OPTIONS}) as catalog:
        catalog.create_table("t", pa.schema([("id", pa.int64())]), location="s3://lake/t")
        with catalog.begin() as tx:
            tx.stage_table("t", [deltasql.AddFile("a.parquet", {}, 1, 1, True)])
    ran = run_all(every_command(sqlite_uri.to_string()))
    assert "127.0.0.1" in ran or "s3://lake" in ran
    assert SECRET not in ran
    assert "AKIA" not in ran


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
def test_errors_and_logs_contain_no_secrets(caplog: pytest.LogCaptureFixture, number: int) -> None:
    caplog.set_level(logging.DEBUG)
    try:
        shown = str(attempts(URI)[number]())
    except Exception as error:
        own = repr(error) + str(error) + repr(error.args)
        shown = own + "".join(traceback.format_exception_only(error))
    assert SECRET not in shown
    assert "AKIA" not in shown
    assert SECRET not in caplog.text


def test_console_pages_contain_no_secrets(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> None:
    place = {"data_root": str(tmp_path / "lake")}
    with deltasql.connect(sqlite_uri, storage={"options": OPTIONS}, table=place) as catalog:
        with catalog.begin() as tx:
            tx.write("t", pa.table({"id": [1]}))
        catalog.mirror.add_target("t", "backup", "s3://lake/backup")
        output = []
        with (
            serving(catalog) as served,
            httpx.Client(base_url=served.address, timeout=60) as client,
        ):
            for path in ("/", "/health", "/tables/t", "/tables/t/history", "/mirror", "/metrics"):
                output.append(client.get(path).text)
            output.append(client.get("/mirror/t", params={"target": "backup"}).text)
    assert SECRET not in "".join(output)
    assert "AKIA" not in "".join(output)
