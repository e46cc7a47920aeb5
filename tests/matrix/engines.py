"""Cells for deltalake, Python, DuckDB, PySpark and libraries that read Delta tables.

Each cell has an environment in `build/matrix/`, with the wheel of deltasql and without the
repository's own code. Packages that a cell does not name have the versions of requirements.lock.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

from tests.matrix.behaviours import OK
from tests.matrix.cell import ROOT, Cell, Skipped, downloaded_jar, run_behaviours

UV = shutil.which("uv") or str(ROOT / ".venv" / "uv" / "bin" / "uv")
# Every release of the supported minor releases. 1.7 is not on the index.
DELTALAKE = (
    *("1.3.0", "1.3.1", "1.3.2", "1.3.3", "1.4.0", "1.4.1", "1.4.2", "1.5.0", "1.5.1"),
    *("1.6.0", "1.6.1", "1.6.2", "1.6.3", "1.6.6"),
)
DELTALAKE_REFUSED = ("0.25.5", "1.2.1")
PYTHON = ("3.11", "3.12", "3.13", "3.14")
PYTHON_REFUSED = "3.10"
# Python releases that Maven Central has, for machines on which they are not installed.
CPYTHON = {"3.14": "3.14.3-1.5.13"}
# For each library, the oldest release that works with a supported deltalake and the newest one on
# the package index, with the other packages that they need.
LIBRARIES: dict[tuple[str, str], tuple[str, ...]] = {
    ("polars", "1.31.0"): (),
    ("polars", "2.1.0"): (),
    # deltalake accepts the release of DataFusion that it was built with.
    ("DataFusion", "53.0.0"): ("deltalake==1.5.1",),
    ("DataFusion", "54.0.0"): ("deltalake==1.6.2",),
    ("DataFusion", "55.0.0"): (),
    ("daft", "0.7.10"): ("pyarrow<26", "fsspec<2026.3"),
    ("daft", "0.7.26"): ("pyarrow<26",),
    ("dask", "2025.1.0"): ("dask-deltatable==0.4.0",),
    ("dask", "2026.8.0"): ("dask-deltatable==0.4.0",),
    ("ibis", "10.1.0"): (
        *("polars<2", "duckdb==1.4.0"),
        *("duckdb-extensions==1.4.0", "duckdb-extension-delta==1.4.0"),
    ),
    ("ibis", "12.0.0"): ("polars", "duckdb-extensions", "duckdb-extension-delta"),
}
# DuckDB's delta extension of the same release; there is none for the newest release yet.
DUCKDB = {"1.4.0": "1.4.0", "1.5.5": "1.5.5", "1.5.6": None}
REFUSED = "refused by name"
READS = "reads the mirror"
PYSPARK_CHECKS = "checks of supported releases"
SOURCE = ROOT / "python"
_PACKAGES = {"DataFusion": "datafusion", "ibis": "ibis-framework[duckdb]"}


def cells() -> list[Cell]:
    """Return one cell for each release of each component."""
    # A late import: another module of the tests, which not every environment can import.
    from tests.spark import releases as pyspark

    return [
        *(Cell("deltalake", release, partial(_deltalake, release)) for release in DELTALAKE),
        *(
            Cell("deltalake", f"{release}, not supported", partial(_old_deltalake, release))
            for release in DELTALAKE_REFUSED
        ),
        *(Cell("Python", release, partial(_python, release)) for release in PYTHON),
        Cell("Python", f"{PYTHON_REFUSED}, not supported", _old_python),
        *(Cell("PySpark", release, partial(_pyspark, release)) for release in pyspark.RELEASES),
        *(Cell("DuckDB as engine", each, partial(_duckdb, each)) for each in DUCKDB),
        *(Cell(name, release, partial(_library, name, release)) for name, release in LIBRARIES),
    ]


def _deltalake(release: str, folder: Path) -> dict[str, str]:
    """Run the behaviours and compare every method of a table with deltalake's own table."""
    python = environment("deltalake", release, "[duckdb]", f"deltalake=={release}")
    return _behaviours(python, folder) | _checks(python, folder, "on_deltalake")


def _python(release: str, folder: Path) -> dict[str, str]:
    """Run the behaviours with a release of Python; the wheel is the same for all of them."""
    interpreter = _interpreter(release)
    python = environment("python", release, "[duckdb,cli]", interpreter=interpreter)
    return _behaviours(python, folder) | _checks(python, folder, "on_deltalake")


def _old_deltalake(release: str, folder: Path) -> dict[str, str]:
    """Check that an old deltalake, which pip would not install, is rejected before any write."""
    python = environment("deltalake", release, "")
    _install(python, "--no-deps", f"deltalake=={release}")
    return _checks(python, folder, "refused_deltalake")


def _old_python(folder: Path) -> dict[str, str]:
    """Check that the installer and a copy of the source reject an old Python by name."""
    interpreter = _interpreter(PYTHON_REFUSED)
    installed = _run(UV, "venv", "--quiet", "--python", interpreter, folder / "env")
    if installed.returncode:
        return {REFUSED: installed.stderr}
    python = folder / "env" / "bin" / "python"
    installed = _run(UV, "pip", "install", "--python", python, "--no-deps", wheel())
    copied = _run(python, "-c", f"import sys; sys.path.insert(0, {str(SOURCE)!r}); import deltasql")
    named = "Python 3.10 is not supported: deltasql supports 3.11 or newer"
    for done, expected in ((installed, ">=3.11"), (copied, named)):
        if done.returncode == 0 or expected not in done.stderr:
            return {REFUSED: f"not refused: {done.stderr}"}
    return {REFUSED: OK}


def _pyspark(release: str, folder: Path) -> dict[str, str]:
    """Run the behaviours on Spark, and the checks of `tests.spark.releases`.

    That module has an environment for each release, and lists its checks on another page.
    """
    from tests.spark import releases as pyspark

    python = pyspark.python_of(release)
    location = str(folder / "lake")
    uri = f"deltasql://sqlite/{folder}/catalog.db"
    behaviours = run_behaviours(python, uri, location, {}, folder, spark={})
    found = pyspark.results_of(release)
    wrong = pyspark.failures(found)
    if not wrong:
        pyspark.write_results({release: found})
    return behaviours | (wrong or {PYSPARK_CHECKS: OK})


def _duckdb(release: str, folder: Path) -> dict[str, str]:
    """Run the behaviours and the engine; read the mirror with DuckDB's delta extension."""
    extension = DUCKDB[release]
    packages = [f"duckdb=={release}"]
    if extension is not None:
        packages += [f"duckdb-extensions=={extension}", f"duckdb-extension-delta=={extension}"]
    python = environment("duckdb", release, "[duckdb]", *packages)
    chosen = ("engine",) if extension is None else ("engine", "duckdb")
    behaviours = _behaviours(python, folder)
    checks = _checks(python, folder, "on_library", *chosen)
    if "duckdb" in checks:
        checks[READS] = checks.pop("duckdb")
    return behaviours | checks


def _library(name: str, release: str, folder: Path) -> dict[str, str]:
    """Commit tables, and read the rows of the mirror with a library."""
    package = _PACKAGES.get(name, name)
    needed = (f"{package}=={release}", *LIBRARIES[name, release])
    python = environment(name, release, "[duckdb]", *needed)
    behaviours = _behaviours(python, folder)
    found = _checks(python, folder, "on_library", name.lower())
    return behaviours | {READS: found.get(name.lower(), str(found))}


def _behaviours(python: Path, folder: Path) -> dict[str, str]:
    return run_behaviours(
        python,
        f"deltasql://sqlite/{folder}/catalog.db",
        str(folder / "lake"),
        {},
        folder,
        environment={"PYTHONPATH": str(ROOT)},
    )


def _checks(python: Path, folder: Path, module: str, *chosen: str) -> dict[str, str]:
    """Run a module of checks in an environment; return its results."""
    place = folder / module
    place.mkdir()
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "RUST_LOG": "off"}
    with (folder / "log.txt").open("a", encoding="utf-8") as log:
        done = subprocess.run(
            [str(python), "-m", f"tests.matrix.{module}", str(place), *chosen],
            cwd=ROOT,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            timeout=1_800,
            check=False,
        )
    lines = done.stdout.strip().splitlines()
    if not lines:
        return {module: f"ended with code {done.returncode}"}
    found: dict[str, str] = json.loads(lines[-1])
    return found


def environment(
    component: str,
    release: str,
    extras: str,
    *packages: str,
    interpreter: str = sys.executable,
) -> Path:
    """Return the Python of an environment with the wheel and with these packages."""
    folder = ROOT / "build" / "matrix" / f"env-{component}-{release}"
    python = folder / "bin" / "python"
    named = {re.split(r"[\[=<]", each)[0] for each in packages if "=" in each or "<" in each}
    pins = [pin for pin in _lock() if pin.partition("==")[0] not in named]
    folder.mkdir(parents=True, exist_ok=True)
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(pins), "utf-8")
    _run(UV, "venv", "--quiet", "--allow-existing", "--python", interpreter, folder)
    own = f"deltasql{extras} @ {wheel().as_uri()}"
    again = ("--reinstall-package", "deltasql")
    _install(python, "--constraints", constraints, *again, own, *packages)
    return python


def _install(python: Path, *packages: object) -> None:
    done = _run(UV, "pip", "install", "--quiet", "--python", python, *packages)
    if done.returncode:
        raise RuntimeError(f"cannot install {packages[-1]}: {done.stderr.strip()}")


def _run(*command: object) -> subprocess.CompletedProcess[str]:
    arguments = [str(each) for each in command]
    return subprocess.run(arguments, capture_output=True, text=True, check=False)


@cache
def wheel() -> Path:
    """Build the wheel of this tree."""
    out = ROOT / "build" / "matrix" / "wheel"
    shutil.rmtree(out, ignore_errors=True)
    maturin = Path(sys.executable).with_name("maturin")
    subprocess.run(
        [str(maturin), "build", "--release", "--out", str(out)],
        cwd=ROOT,
        check=True,
        stdout=sys.stderr,
    )
    (found,) = out.glob("*.whl")
    return found


@cache
def _lock() -> list[str]:
    """Return the lines of the lock file without their hashes; some have a condition on Python."""
    text = (ROOT / "requirements.lock").read_text("utf-8")
    return re.findall(r"^([\w.-]+==[^\\\n]+?) *\\?$", text, flags=re.MULTILINE)


def _interpreter(release: str) -> str:
    """Return a Python of a release that is on this machine, or that Maven Central has."""
    name = f"python{release}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found: Sequence[str | Path | None] = (
        sys.executable,
        shutil.which(name),
        *sorted(pyenv.glob(f"{release}.*/bin/{name}"), reverse=True),
    )
    for each in filter(None, found):
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        if _run(each, "-c", code).stdout.strip() == release:
            return str(each)
    if release in CPYTHON:
        return str(_downloaded(release))
    raise Skipped(f"Python {release} is not on this machine")


def _downloaded(release: str) -> Path:
    """Return a Python that Maven downloads on the first call."""
    folder = ROOT / "build" / "matrix" / f"cpython-{release}"
    program = folder / "org" / "bytedeco" / "cpython" / "linux-x86_64" / "bin" / f"python{release}"
    if not program.exists():
        jar = downloaded_jar(f"org.bytedeco:cpython:{CPYTHON[release]}:jar:linux-x86_64", folder)
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(folder)
        jar.unlink()
        program.chmod(0o755)
    return program
