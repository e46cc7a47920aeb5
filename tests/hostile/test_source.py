"""The source contains no calls that execute data as code, and no predictable temporary files."""

from __future__ import annotations

import ast
from pathlib import Path

import deltasql
from tests.each import check_each

SOURCE = Path(deltasql.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
FORBIDDEN = {
    "eval",
    "exec",
    "compile",
    "pickle.load",
    "pickle.loads",
    "marshal.loads",
    "shelve.open",
    "os.system",
    "os.popen",
    "yaml.load",
    "yaml.unsafe_load",
    "tempfile.mktemp",
    "subprocess.getoutput",
}
# This data is an exception that a Spark worker sent to the driver of the same job.
ALLOWED = {("migrate/importing/log_source.py", "pickle.loads")}


def called(node: ast.Call) -> str:
    return ast.unparse(node.func)


def test_source_never_executes_data_as_code() -> None:
    check_each(FILES, check_source)


def check_source(path: Path) -> None:
    name = str(path.relative_to(SOURCE))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            word = called(node)
            assert word not in FORBIDDEN or (name, word) in ALLOWED, f"{name}:{node.lineno} {word}"
            shells = [each for each in node.keywords if each.arg == "shell"]
            assert not shells, f"{name}:{node.lineno} runs a shell"
            for argument in node.args:
                fixed = isinstance(argument, ast.Constant) and str(argument.value)
                assert not (fixed and fixed.startswith("/tmp")), f"{name}:{node.lineno} {fixed}"
