"""tests/selection.py deselects marked tests, and its table shows what ran."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INI = "[pytest]\nmarkers =\n every_database\n one_database\n everything\n"
HEAD = """
import pytest
on_databases = pytest.mark.parametrize("backend", ["sqlite", "postgres", "duckdb"])
"""
PLAIN = f"""{HEAD}
@on_databases
def test_plain(backend): pass

@pytest.mark.every_database
@on_databases
def test_wide(backend): pass

@pytest.mark.one_database
@on_databases
def test_narrow(backend): pass

@pytest.mark.everything("takes long")
def test_long(): pass

@pytest.mark.parametrize("reader", ["duckdb"])
def test_reader(reader): pass

@pytest.mark.skip(reason="no such disk")
def test_skipped(): pass
"""


def run(folder: Path, *arguments: str, **environment: str) -> str:
    """Run pytest in a folder and return its output."""
    (folder / "pytest.ini").write_text(INI)
    known = {**os.environ, "PYTHONPATH": f"{ROOT}", "DELTASQL_EVERYTHING": "", **environment}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.selection", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=known, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def row(printed: str, name: str) -> list[str]:
    """Return the counts of a row of the table, without the last column, which has seconds."""
    found = re.search(rf"^{name}\s+(\S.*)$", printed, re.MULTILINE)
    assert found, printed
    *counts, seconds = found.group(1).split()
    assert int(seconds) < 60
    return counts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for package in ("api", "store"):
        place = tmp_path / "tests" / package
        place.mkdir(parents=True)
        (place / f"test_{package}.py").write_text(PLAIN)
    return tmp_path


def test_table_counts_selected_and_deselected_cases(folder: Path) -> None:
    printed = run(folder, "-n", "2")
    # sqlite, postgres, duckdb, stock, other, all
    assert row(printed, "tests/api") == ["3", "1", "1", "-", "1", "6"]
    assert row(printed, "tests/store") == ["3", "2", "2", "-", "1", "8"]
    assert "Left out: 8 cases" in printed
    assert re.search(r"^ +3  on postgres: ", printed, re.M), printed
    assert re.search(r"^ +2  takes long$", printed, re.M), printed
    assert re.search(r"^ +2  skipped: .*no such disk$", printed, re.M), printed


def test_everything_runs_all_cases(folder: Path) -> None:
    printed = run(folder, DELTASQL_EVERYTHING="1")
    assert row(printed, "all") == ["6", "6", "6", "-", "4", "22"]
    assert "Left out: nothing." in printed
    output = run(folder, "tests/api/test_api.py::test_plain[duckdb]")
    assert row(output, "all") == ["-", "-", "1", "-", "-", "1"]


def test_rest_runs_the_cases_that_are_left_out(folder: Path) -> None:
    printed = run(folder, DELTASQL_EVERYTHING="rest")
    assert row(printed, "all") == ["-", "3", "3", "-", "2", "8"]


def test_database_of_a_parameter_with_several_values_is_found(tmp_path: Path) -> None:
    source = """
import pytest
@pytest.mark.parametrize("lake", [("sqlite", 1), ("postgres", 1), ("duckdb", 1)])
def test_lake(lake): pass
"""
    (tmp_path / "test_lakes.py").write_text(source)
    assert row(run(tmp_path), "all") == ["1", "-", "-", "-", "-", "1"]


def test_mark_without_a_reason_and_test_without_a_case_are_rejected(tmp_path: Path) -> None:
    source = tmp_path / "test_marks.py"
    source.write_text("import pytest\n@pytest.mark.everything\ndef test_long(): pass\n")
    assert "`everything` needs a reason" in run(tmp_path)
    source.write_text(
        "import pytest\n@pytest.mark.parametrize('backend', ['postgres'])\n"
        "def test_alone(backend): pass\n"
    )
    assert "test_alone would run on no database" in run(tmp_path)
