"""A cell of the matrix: one release of one component, and how to run the behaviours with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.matrix.behaviours import BEHAVIOURS

ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 7_200
CODE = "exit code"
"""The name of the result of a process that printed none."""


class Skipped(Exception):
    """A cell that cannot run here; the message is the reason."""


@dataclass(frozen=True)
class Cell:
    """One cell; `run` gets an empty folder and returns the result of each behaviour.

    A cell may run fewer behaviours than the suite has, or checks of its own with other names.
    """

    component: str
    release: str
    run: Callable[[Path], dict[str, str]]

    @property
    def name(self) -> str:
        """Return the name for `--only` and for the file of the result."""
        return f"{self.component} {self.release}"


def run_behaviours(
    python: Path | str,
    catalog: str,
    location: str,
    storage_options: Mapping[str, str],
    folder: Path,
    *,
    spark: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Run the behaviours with a Python that has the packages of the cell.

    With settings of a Spark session, even empty ones, Spark writes and reads all rows.

    The output of the process is kept in `log.txt` of the folder.
    """
    arguments = [
        *("--catalog", catalog, "--location", location),
        *("--storage-options", json.dumps(dict(storage_options))),
        *([] if spark is None else ["--spark", json.dumps(dict(spark))]),
    ]
    found = run_module(
        "tests.matrix.behaviours", arguments, folder, python=python, **(environment or {})
    )
    return dict.fromkeys(BEHAVIOURS, found[CODE]) if CODE in found else found


def run_module(
    module: str,
    arguments: Sequence[str],
    folder: Path,
    *,
    python: Path | str = sys.executable,
    **environment: str,
) -> dict[str, str]:
    """Run a module that prints its results as a line of JSON; keep its errors in `log.txt`."""
    path = os.pathsep.join([str(ROOT / "python"), str(ROOT)])
    known = {**os.environ, "PYTHONPATH": path, "RUST_LOG": "off", **environment}
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        done = subprocess.run(
            [str(python), "-m", module, *arguments],
            cwd=ROOT,
            env=known,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    lines = done.stdout.strip().splitlines()
    if not lines:
        return {CODE: f"ended with code {done.returncode}"}
    found: dict[str, str] = json.loads(lines[-1])
    return found


def downloaded_jar(artifact: str, folder: Path) -> Path:
    """Download a jar from Maven Central into an empty folder, and return it."""
    if shutil.which("mvn") is None:
        raise Skipped(f"Maven is missing, which downloads {artifact}")
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mvn", "--quiet", "--batch-mode", "dependency:copy", f"-Dartifact={artifact}"]
    copied = subprocess.run([*command, f"-DoutputDirectory={folder}"], check=False)
    if copied.returncode != 0:
        raise Skipped(f"Maven cannot download {artifact}")
    (jar,) = folder.glob("*.jar")
    return jar
