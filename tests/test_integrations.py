"""The examples for dbt, Dagster and notebooks run, each in an environment with its packages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.compat.environments import environment
from tests.pages import ROOT

EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "how-to" / "integrations.md"
EVERYTHING = pytest.mark.everything("installs the packages of an integration")
# The releases that the page names, besides what deltasql itself needs.
PACKAGES = {
    "dbt": ("dbt-core==1.11.16", "dbt-duckdb==1.11.1"),
    "dagster": ("dagster==1.13.28",),
    # Without ipywidgets: DuckDB behaves differently there.
    "notebook": ("nbclient==0.11.0", "nbformat==5.11.1", "ipykernel==7.4.0", "polars"),
}
OWN = ("arro3-core", "deltalake", "duckdb", "pyarrow", "pydantic", "sqlglot")
RUN_NOTEBOOK = """
import json
import sys

import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
NotebookClient(notebook, timeout=300).execute()
print(json.dumps([cell.get("outputs", []) for cell in notebook.cells]))
"""


def run(name: str, *arguments: str, folder: Path) -> str:
    """Run Python in the environment of an integration; return what it printed."""
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", lock, flags=re.MULTILINE))
    packages = [*PACKAGES[name], *(f"{each}=={pins[each]}" for each in OWN)]
    done = subprocess.run(
        [str(environment(Path("integrations") / name, packages)), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def shown(script: str) -> str:
    """Return the output of a script in examples/README.md."""
    page = (EXAMPLES / "README.md").read_text("utf-8")
    section = page.partition(f"\n## {script}\n")[2].partition("\n## ")[0]
    return section.partition("```text\n")[2].partition("```")[0]


@EVERYTHING
@pytest.mark.timeout(900)
@pytest.mark.parametrize("script", ["dbt/run.py", "dagster/definitions.py"])
def test_integration_prints_the_output_in_the_readme(script: str, tmp_path: Path) -> None:
    name = script.partition("/")[0]
    assert run(name, str(EXAMPLES / script), folder=tmp_path) == shown(script)


@EVERYTHING
@pytest.mark.timeout(900)
def test_notebook_has_the_outputs_of_its_cells(tmp_path: Path) -> None:
    path = EXAMPLES / "notebook" / "tour.ipynb"
    found = json.loads(run("notebook", "-c", RUN_NOTEBOOK, str(path), folder=tmp_path))
    stored = [cell.get("outputs", []) for cell in notebook()["cells"]]
    assert [texts(each) for each in found] == [texts(each) for each in stored]


def notebook() -> dict[str, Any]:
    text = (EXAMPLES / "notebook" / "tour.ipynb").read_text("utf-8")
    return dict(json.loads(text))


def texts(outputs: list[dict[str, Any]]) -> list[str]:
    """Return the plain text of the outputs of a cell; a file may store it line by line."""
    plain = (each.get("data", {}).get("text/plain", each.get("text", "")) for each in outputs)
    return ["".join(each) for each in plain]


def test_notebook_is_valid_and_every_cell_ran() -> None:
    found = notebook()
    assert (found["nbformat"], found["metadata"]["language_info"]["name"]) == (4, "python")
    code = [cell for cell in found["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    for number, cell in enumerate(code):
        compile("".join(cell["source"]), f"cell {number}", "exec")
        assert not [each for each in cell["outputs"] if each["output_type"] == "error"]


def test_page_names_the_tested_releases_and_quotes_the_examples() -> None:
    page = PAGE.read_text("utf-8")
    for package in (*PACKAGES["dbt"], *PACKAGES["dagster"], "ipykernel==7.4.0", "nbclient==0.11.0"):
        assert package.replace("==", " ") in page
    [asset] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    in_function = textwrap.indent(asset, "    ")
    assert in_function in (EXAMPLES / "dagster" / "definitions.py").read_text("utf-8")
    [model] = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert model in (EXAMPLES / "dbt" / "models" / "daily_revenue.sql").read_text("utf-8")
