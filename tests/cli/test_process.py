"""`deltasql` as a process: start-up time, exit codes, stdout and stderr."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from benchmarks.scenarios.start_up import STARTS, cpu_ms

import deltasql
from deltasql.cli.completion import SHELLS
from tests.cli.terminal import on_one_terminal
from tests.selection import smoke

if TYPE_CHECKING:
    from deltasql.uri import DeltaSqlUri

DELTASQL = [sys.executable, "-m", "deltasql.cli.main"]


@pytest.fixture
def uri(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> str:
    """Return the URI of a catalog with the tables `sales` and `crm.sold`."""
    with deltasql.connect(sqlite_uri) as catalog:
        for name in ("sales", "crm.sold"):
            catalog.create_table(name, pa.schema([("id", pa.int64())]))
        for number in range(2):
            with catalog.begin() as transaction:
                transaction.write("sales", pa.table({"id": [number]}))
    return sqlite_uri.to_string()


@pytest.mark.parametrize(
    "name",
    smoke(
        [each.name for each in STARTS],
        [each.name for each in STARTS if each.name != "query"],
        "like the other commands; the benchmark has all of them",
    ),
)
def test_start_up_takes_little_more_than_importing_the_libraries(name: str, tmp_path: Path) -> None:
    (start,) = (each for each in STARTS if each.name == name)
    ours, imports = cpu_ms(start, tmp_path, repeats=2)
    ratio = min(ours) / min(imports)
    print(f"{name}: {ratio:.2f}, at most {start.limit}")
    assert ratio < 1.25 * start.limit  # the benchmark table has the limit itself


def test_history_has_relative_times_on_a_terminal(uri: str) -> None:
    shown = on_one_terminal(uri, "history", "sales")
    assert "ago" in shown or "just now" in shown
    assert "+00:00" not in shown


def test_long_table_is_shown_in_the_pager(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "sed s/^/paged:/")
    query = ("query", "SELECT range AS n FROM range(100)")
    assert "paged:" in on_one_terminal(uri, *query)
    assert "paged:" not in on_one_terminal(uri, *query, "--no-pager")
    assert "paged:" not in on_one_terminal(uri, *query, "--limit", "3")


@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["table", "--help"]], ids=" ".join
)
def test_help_and_version_import_no_heavy_module(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from deltasql.cli.main import main\n"
        f"main.main({arguments!r}, 'deltasql', standalone_mode=False)\n"
        "heavy = {'deltalake', 'pyarrow', 'pydantic', 'sqlglot', 'rich', 'duckdb', 'psycopg'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr.strip() == "[]"


def test_closed_pipe_ends_the_command_silently(uri: str) -> None:
    sql = "SELECT range AS n FROM range(1000000)"
    with subprocess.Popen(
        [*DELTASQL, "--uri", uri, "--format", "csv", "query", sql],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "n\n"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_ctrl_c_exits_with_130_without_a_traceback(uri: str) -> None:
    with subprocess.Popen(
        [*DELTASQL, "--uri", uri, "--format", "csv", "shell"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write("SELECT 1 AS n;\n")
        process.stdin.flush()
        assert process.stdout.readline() == "n\n"
        process.send_signal(signal.SIGINT)
        output = process.stderr.read()
    assert process.returncode == 130, output
    assert "Traceback" not in output


def test_declined_confirmation_exits_with_1(uri: str) -> None:
    run = subprocess.run(
        [*DELTASQL, "--uri", uri, "table", "drop", "sales"],
        input="n\n",
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert "Drop sales" in run.stderr


def test_logs_are_json_lines_on_stderr(uri: str) -> None:
    run = subprocess.run(
        [*DELTASQL, "--uri", uri, "-v", "--log-format", "json", "optimize", "sales"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [json.loads(line) for line in run.stderr.splitlines()]
    assert all({"time", "level", "logger"} <= {*line} for line in lines)
    (committed,) = [line for line in lines if line["event"] == "committed"]
    assert (committed["table"], committed["version"]) == ("sales", 3)
    assert "numFilesAdded" in run.stdout


def test_verbose_prints_the_statements_of_a_commit(uri: str) -> None:
    command = [*DELTASQL, "--uri", uri, "-v", "sql", "INSERT INTO sales VALUES (7)"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    committed = run.stderr.index("name=insert_version")
    assert run.stderr.index("name=BEGIN") < committed < run.stderr.rindex("name=COMMIT")


def test_unreachable_server_is_reported_once() -> None:
    run = subprocess.run(
        [*DELTASQL, "--uri", "deltasql://postgres/etl:hunter2@127.0.0.1:1/lake", "table", "list"],
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stdout) == (3, "")
    assert run.stderr.count("Connection refused") == 1
    assert "Help: " in run.stderr
    assert "hunter2" not in run.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_scripts_are_printed_for_every_shell(shell: str) -> None:
    run = subprocess.run(
        [*DELTASQL, "completion", shell], capture_output=True, text=True, check=True
    )
    assert "_DELTASQL_COMPLETE" in run.stdout


def completed(line: str, kind: str = "plain", **env: str) -> list[str]:
    """Return the completions of this kind that the bash script would get."""
    arguments = ["deltasql", *line.split(" ")]
    variables = {
        "_DELTASQL_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(arguments),
        "COMP_CWORD": str(len(arguments) - 1),
    }
    code = "import sys; sys.argv[0] = 'deltasql'; from deltasql.cli.main import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | variables | env,
        capture_output=True,
        text=True,
    )
    assert run.stderr == ""
    found = [each.partition(",") for each in run.stdout.splitlines() if each]
    assert {each[0] for each in found} <= {kind}
    return [each[2] for each in found]


def test_completion_offers_columns(uri: str) -> None:
    assert completed("head sales --columns ", DELTASQL_URI=uri) == ["id"]
    assert completed("optimize sales --z-order id,i", DELTASQL_URI=uri) == ["id,id"]
    assert completed("optimize sales --where i", DELTASQL_URI=uri) == ["id="]
    for command in ("sql", "query"):
        line = f"{command} FROM\\ crm.sold --columns "
        assert completed(line, DELTASQL_URI=uri) == ["id"]
    assert completed("sql --columns ", DELTASQL_URI=uri) == []  # there is no table yet


# The program of each shell prints the completions of the last word of {words}, one per line.
SCRIPTS = {
    "bash": """
        eval "$(deltasql completion bash)"
        COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _deltasql_completion deltasql
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """,
    "zsh": """
        autoload -U compinit && compinit -u -D
        eval "$(deltasql completion zsh)"
        compadd() {{ [[ $1 == -U ]] && print -l -- "${{(@P)argv[-1]}}" }}
        _describe() {{ print -l -- "${{(@P)argv[-1]}}" }}
        words=({words}) CURRENT=${{#words}}
        _deltasql_completion
    """,
    "fish": """
        deltasql completion fish | source
        complete -C "{words}"
    """,
}


@pytest.mark.parametrize("shell", SHELLS)
def test_real_shell_completes_tables_and_columns(shell: str, uri: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed: apt-get install {shell}")
    (tmp_path / "deltasql").write_text(
        f"#!{sys.executable}\nfrom deltasql.cli.main import main\nmain()\n"
    )
    (tmp_path / "deltasql").chmod(0o755)
    environment = os.environ | {
        "DELTASQL_URI": uri,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
    }
    for words, found in (("head sa", "sales"), ("optimize sales --z-order id,i", "id,id")):
        script = SCRIPTS[shell].format(words=f"deltasql {words}")
        run = subprocess.run(
            [program, *(["-f"] if shell == "zsh" else []), "-c", script],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert run.stdout.split() == [found], run.stderr


def test_completion_offers_commands_options_and_tables(uri: str, tmp_path: Path) -> None:
    assert completed("ta") == ["table"]
    assert completed("table re") == ["rename"]
    assert completed("vacuum --ret") == ["--retention-hours"]
    assert completed("table list --format y") == ["yaml"]
    assert completed("head ", DELTASQL_URI=uri) == ["crm.sold", "sales"]
    assert completed("table show sa", DELTASQL_URI=uri) == ["sales"]
    assert completed(f"--uri {uri} optimize cr") == ["crm.sold"]
    for command in ("import", "follow", "rebuild", "export sales", "mirror targets add sales copy"):
        assert completed(f"{command} /data/l", kind="dir") == ["/data/l"]
    assert completed("head ", DELTASQL_URI=f"deltasql://sqlite/{tmp_path}/none.db") == []
    assert not (tmp_path / "none.db").exists()
