"""The files in examples/deploy are valid, and the commands in them start, answer and stop."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.matrix.cell import Skipped
from tests.matrix.servers import go_program
from tests.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPLOY = ROOT / "examples" / "deploy"
INSTALLED = "/opt/deltasql/bin/deltasql"  # in the units
COMMAND = Path(sys.executable).with_name("deltasql")
COMPOSE = "2.16.2"  # the release of the parser that docker compose uses
LONG = ("mirror", "ui")  # commands that run until they are stopped


def unit(name: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(DEPLOY / name)
    return found


def unit_command(name: str) -> list[str]:
    program, *arguments = shlex.split(unit(f"deltasql-{name}.service")["Service"]["ExecStart"])
    assert program == INSTALLED
    return arguments


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return dict(found["services"])


def on_free_ports(arguments: list[str]) -> list[str]:
    """Replace the ports of a command, so that two tests can run it at the same time."""
    return [re.sub(r"^\d{4}$", "0", each) for each in arguments]


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a service whose catalog is in SQLite."""
    own = services()["mirror"]["environment"]
    assert own.keys() == {"DELTASQL_URI", "DELTASQL_TABLE__DATA_ROOT", "PGPASSWORD"}
    return {
        **os.environ,
        "DELTASQL_URI": f"deltasql://sqlite/{folder}/meta.db",
        "DELTASQL_TABLE__DATA_ROOT": str(folder / "lake"),
        "DELTASQL_UI_TOKEN": "secret",
    }


def run(arguments: list[str], folder: Path) -> str:
    done = subprocess.run(
        [str(COMMAND), *arguments],
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def running(arguments: list[str], folder: Path) -> Iterator[str]:
    """Run a command until the block ends; yield the line that says that it has started."""
    process = subprocess.Popen(
        [str(COMMAND), *on_free_ports(arguments)],
        env=environment(folder),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        lines = iter(process.stderr.readline, "")
        yield next((line for line in lines if "stop with SIGTERM" in line), "")
    finally:
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=120)[1]
    assert (process.returncode, "stopped" in rest) == (0, True), rest


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for path in DEPLOY.glob("deltasql-*"):
        text = path.read_text("utf-8").replace(INSTALLED, str(COMMAND))
        (tmp_path / path.name).write_text(text, "utf-8")
    command = ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(command) == 3 + 4


def test_units_read_the_variables_of_the_environment_file() -> None:
    lines = (DEPLOY / "deltasql.env").read_text("utf-8").splitlines()
    names = {line.partition("=")[0] for line in lines if not line.startswith("#")}
    assert names == {"DELTASQL_URI", "PGPASSWORD", "DELTASQL_UI_TOKEN"}
    for name in ("mirror", "ui", "doctor"):
        place = unit(f"deltasql-{name}.service")["Service"]["EnvironmentFile"]
        assert place == "/etc/deltasql/deltasql.env"


def test_compose_file_refers_only_to_its_own_services_and_volumes() -> None:
    whole = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    assert whole["services"].keys() == {"database", "init", "mirror", "ui"}
    for service in whole["services"].values():
        for mounted in service["volumes"]:
            assert mounted.partition(":")[0] in whole["volumes"]
        for needed, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in whole["services"][needed]
        if "build" in service:
            context = (DEPLOY / service["build"]["context"]).resolve()
            assert context == ROOT.resolve()
            assert (context / service["build"]["dockerfile"]).is_file()


@pytest.mark.everything("compiles the parser of Compose")
def test_parser_of_compose_accepts_the_file() -> None:
    try:
        parser = go_program("github.com/compose-spec/compose-go/v2/cmd", COMPOSE)
    except Skipped as skipped:
        pytest.skip(str(skipped))
    # Without interpolation, because the passwords are not in the environment of the tests.
    command = [parser, "-no-interpolation", DEPLOY / "compose.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.everything("starts every service of the examples")
def test_commands_of_the_units_and_of_compose_run(tmp_path: Path) -> None:
    compose = services()
    assert compose["init"]["command"] == ["init"]
    run(compose["init"]["command"], tmp_path)
    assert run(unit_command("doctor"), tmp_path) == "[]\n"
    kind, program, *health = compose["mirror"]["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "deltasql")
    run(health, tmp_path)
    for name in LONG:
        for arguments in (unit_command(name), compose[name]["command"]):
            with running(arguments, tmp_path) as started:
                assert started, arguments
                if name == "ui":
                    check_health(compose["ui"]["healthcheck"]["test"], started)


def check_health(test: list[str], started: str) -> None:
    """Run the health check of the console against the port that it listens on."""
    found = re.search(r"http://[\d.]+:(\d+)", started)
    assert found is not None
    kind, program, option, code = test
    assert (kind, program, option) == ("CMD", "python", "-c")
    assert ":8420/" in code
    subprocess.run([sys.executable, option, code.replace(":8420/", f":{found[1]}/")], check=True)
