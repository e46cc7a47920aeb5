"""The wheel and the sdist work in environments that have nothing but what they declare."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltasql import __version__
from tests.pages import POSTGRES, ROOT
from tests.s3 import new_bucket

if TYPE_CHECKING:
    from deltasql import DeltaSqlUri

UV = shutil.which("uv") or str(ROOT / ".venv" / "uv" / "bin" / "uv")
MATURIN = Path(sys.executable).with_name("maturin")
# One process builds the wheel: two builds at once would write to the same folder.
pytestmark = pytest.mark.xdist_group("installed")
SLOW = pytest.mark.everything("installs an environment; `make test` installs the core alone")
# The settings of this process must not reach the environments, nor must its modules.
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("DELTASQL_", "AWS_", "PYTHON", "VIRTUAL_ENV"))
}


@dataclass(frozen=True, slots=True)
class Bare:
    """An environment with an installation of deltasql, and an empty folder to work in."""

    folder: Path
    work: Path

    def python(self, code: str, *arguments: object, **variables: str) -> str:
        """Run Python code; return its output."""
        command = [self.folder / "bin" / "python", "-c", textwrap.dedent(code), *arguments]
        return self._run(command, variables)

    def page(self, name: str, moved: dict[str, str] | None = None, **variables: str) -> None:
        """Run a page of the documentation from top to bottom; `moved` replaces its addresses."""
        code = """
            import json
            import sys
            from pathlib import Path
            from tests.pages import Console, without_varying_values
            text = Path(sys.argv[1]).read_text("utf-8")
            folder = Path.cwd() / "page"
            folder.mkdir()
            done = Console(folder, json.loads(sys.argv[2])).page(text)
            assert without_varying_values(done) == without_varying_values(text), done
        """
        place, given = ROOT / "docs" / name, json.dumps(moved or {})
        self.python(code, place, given, PYTHONPATH=str(ROOT), **variables)

    def command(self, *arguments: str, fails: bool = False, **variables: str) -> str:
        """Run `deltasql`; return its output."""
        return self._run([self.folder / "bin" / "deltasql", *arguments], variables, fails=fails)

    def _run(self, command: list[object], variables: dict[str, str], *, fails: bool = False) -> str:
        done = subprocess.run(
            [str(each) for each in command],
            cwd=self.work,
            env=CLEAN | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout


def installed(folder: Path, *packages: str) -> Bare:
    """Create an environment with these packages, in the versions of requirements.lock."""
    bare, work = folder / "bare", folder / "work"
    work.mkdir()
    python = bare / "bin" / "python"
    lock = ROOT / "requirements.lock"
    for command in (
        [UV, "venv", "--quiet", "--python", sys.executable, bare],
        [UV, "pip", "install", "--quiet", "--python", python, "--constraints", lock, *packages],
    ):
        run(*command)
    return Bare(bare, work)


def run(*command: object, cwd: Path = ROOT, **variables: str) -> None:
    """Run a command; show what it printed if it fails."""
    arguments = [str(each) for each in command]
    env = CLEAN | variables
    done = subprocess.run(arguments, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of this tree; its Rust code is compiled already."""
    out = tmp_path_factory.mktemp("wheel")
    run(MATURIN, "build", "--release", "--out", out)
    (found,) = out.glob("*.whl")
    return found


def quickstart() -> str:
    """Return the first code of the quickstart, for a catalog in the working folder."""
    text = (ROOT / "docs" / "quickstart.md").read_text("utf-8")
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return block[1].replace("//tmp/quickstart/", "/")


# Reads what the quickstart wrote, with deltasql and with deltalake.
READ = """
import deltalake
import deltasql
table = deltasql.DeltaTable("deltasql://sqlite/catalog.db?table=stock")
print(table.version(), table.to_pyarrow_table().num_rows, len(table.history()))
print(deltalake.DeltaTable("catalog_data/default/stock").version())
"""


def run_quickstart(bare: Bare) -> None:
    assert bare.python(quickstart()) == "{'orders': 0, 'stock': 0}\n"
    assert bare.python(READ) == "0 2 1\n0\n"


def test_core_runs_the_quickstart_without_any_extra(wheel: Path, tmp_path: Path) -> None:
    bare = installed(tmp_path, str(wheel))
    run_quickstart(bare)
    missing = bare.python("""
        import deltasql
        table = deltasql.DeltaTable("deltasql://sqlite/catalog.db?table=stock")
        try:
            table.update({"left": "0"})
        except deltasql.exceptions.MissingDriverError as error:
            print(error.help)
    """)
    assert missing == "Run: pip install 'deltasql[duckdb]'\n"
    # Every error names this command, so it needs no extra.
    assert "**Remedy**" in bare.command("docs", "TxnLogUriError")
    assert "pip install 'deltasql[cli]'" in bare.command("table", "list", fails=True)


def test_wheel_is_for_every_python_and_has_the_version_of_cargo(wheel: Path) -> None:
    name, version, python, abi, _ = wheel.stem.split("-")
    assert (name, version, python, abi) == ("deltasql", __version__, "cp311", "abi3")
    cargo = (ROOT / "Cargo.toml").read_text("utf-8")
    assert f'version = "{version}"\n' in cargo
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert not [each for each in names if not each.startswith(("deltasql/", "deltasql-"))]


@SLOW
def test_extra_cli_works_without_other_extras(wheel: Path, tmp_path: Path) -> None:
    bare = installed(tmp_path, f"{wheel}[cli]")
    run_quickstart(bare)
    uri = "deltasql://sqlite/catalog.db"
    assert "default/stock" in bare.command("table", "list", DELTASQL_URI=uri)
    assert "WRITE" in bare.command("history", "stock", DELTASQL_URI=uri)
    missing = bare.command("query", "SELECT 1", DELTASQL_URI=uri, fails=True)
    assert "pip install 'deltasql[duckdb]'" in missing


@SLOW
def test_extra_duckdb_works_without_other_extras(wheel: Path, tmp_path: Path) -> None:
    bare = installed(tmp_path, f"{wheel}[duckdb]")
    run_quickstart(bare)
    found = bare.python("""
        import deltasql
        import pyarrow as pa
        uri = "deltasql://duckdb/catalog.duckdb"
        with deltasql.begin(uri) as tx:
            tx.write("t", pa.table({"id": [1, 2]}))
        table = deltasql.DeltaTable(f"{uri}?table=t")
        table.update({"id": "id + 1"}, predicate="id = 2")
        table.merge(pa.table({"id": [1, 4]}), "t.id = s.id", source_alias="s", target_alias="t") \\
            .when_not_matched_insert_all().execute()
        with deltasql.connect(uri) as catalog:
            print(catalog.query("SELECT id FROM t ORDER BY id").read_all().to_pydict())
    """)
    assert found == "{'id': [1, 3, 4]}\n"
    bare.page("guides/transactions.md")


@SLOW
def test_extra_postgres_works_without_other_extras(
    wheel: Path, tmp_path: Path, postgres_uri: DeltaSqlUri
) -> None:
    bare = installed(tmp_path, f"{wheel}[postgres]")
    run_quickstart(bare)
    code = """
        import sys
        import deltasql
        import pyarrow as pa
        uri = sys.argv[1]
        table = {"data_root": "lake"}
        with deltasql.connect(uri, create=True, table=table) as catalog:
            for rows in (3, 20_000):
                catalog.create_table(f"t{rows}", pa.schema({"id": pa.int64()}))
                with catalog.begin() as tx:
                    tx.write(f"t{rows}", pa.table({"id": range(rows)}))
                print(catalog.table(f"t{rows}").describe()["num_records"])
    """
    assert bare.python(code, postgres_uri.to_string()) == "3\n20000\n"


@SLOW
def test_extra_s3_works_without_other_extras(
    wheel: Path, tmp_path: Path, s3_location: str, s3_options: dict[str, str]
) -> None:
    bare = installed(tmp_path, f"{wheel}[s3]")
    code = """
        import sys
        import deltasql
        import pyarrow as pa
        uri = "deltasql://sqlite/catalog.db"
        with deltasql.begin(uri) as tx:
            tx.write("t", pa.table({"id": [1, 2]}))
        print(deltasql.DeltaTable(f"{uri}?table=t").to_pyarrow_table().num_rows)
        with deltasql.connect(uri) as catalog:
            print(catalog.table("t").location.startswith("s3://"))
    """
    found = bare.python(code, DELTASQL_TABLE__DATA_ROOT=s3_location, **s3_options)
    assert found == "2\nTrue\n"


@SLOW
def test_extra_yaml_works_without_other_extras(wheel: Path, tmp_path: Path) -> None:
    bare = installed(tmp_path, f"{wheel}[yaml]")
    (bare.work / "deltasql.yaml").write_text("table:\n  data_root: elsewhere\n", "utf-8")
    assert bare.python(quickstart()) == "{'orders': 0, 'stock': 0}\n"
    assert (bare.work / "elsewhere" / "default" / "stock" / "_delta_log").is_dir()


@SLOW
def test_extra_console_works_without_other_extras(wheel: Path, tmp_path: Path) -> None:
    bare = installed(tmp_path, f"{wheel}[console]")
    run_quickstart(bare)
    code = """
        from urllib.request import urlopen
        import deltasql
        from deltasql.console.server import serving
        with (
            deltasql.connect("deltasql://sqlite/catalog.db") as catalog,
            serving(catalog, port=0) as served,
        ):
            print("stock" in urlopen(served.address).read().decode())
            print("# HELP" in urlopen(served.address + "/metrics").read().decode())
    """
    assert bare.python(code) == "True\nTrue\n"


@SLOW
def test_extra_spark_works_without_other_extras(wheel: Path, tmp_path: Path) -> None:
    bare = installed(tmp_path, f"{wheel}[spark]")
    run_quickstart(bare)
    code = """
        import deltasql.spark
        from pyspark.sql import SparkSession
        spark = SparkSession.builder.master("local[1]").getOrCreate()
        uri = "deltasql://sqlite/catalog.db"
        deltasql.spark.write(spark.range(3), f"{uri}?table=numbers")
        print(deltasql.spark.read(spark, f"{uri}?table=numbers").count())
        deltasql.spark.register(spark, uri)
        print(spark.read.format("deltasql").load("numbers").count())
    """
    assert bare.python(code, SPARK_LOCAL_IP="127.0.0.1") == "3\n3\n"
    bare.page("how-to/spark.md", SPARK_LOCAL_IP="127.0.0.1")


@SLOW
def test_quickstart_page_runs_with_the_packages_that_it_names(wheel: Path, tmp_path: Path) -> None:
    bare = installed(tmp_path, f"{wheel}[duckdb,cli]", "polars", "pandas")
    bare.page("quickstart.md")


@SLOW
def test_page_about_s3_runs_with_the_packages_that_it_needs(
    wheel: Path, tmp_path: Path, s3_server: str
) -> None:
    bare = installed(tmp_path, f"{wheel}[s3,duckdb,cli]")
    moved = {"http://127.0.0.1:9000": s3_server, "s3://lake": new_bucket(s3_server)}
    bare.page("guides/mirror.md", moved)


@SLOW
def test_page_about_postgres_runs_with_the_packages_that_it_names(
    wheel: Path, tmp_path: Path, postgres_uri: DeltaSqlUri
) -> None:
    bare = installed(tmp_path, f"{wheel}[postgres,duckdb,cli]", "polars")
    bare.page("quickstart-postgresql.md", {POSTGRES: postgres_uri.to_string()})


@SLOW
def test_all_extras_run_the_guide_of_the_command_line(wheel: Path, tmp_path: Path) -> None:
    bare = installed(tmp_path, f"{wheel}[all]")
    bare.page("guides/cli.md")


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist as `make wheel` does, from a copy of the files of this repository."""
    copy = tmp_path_factory.mktemp("sdist") / "copy"
    listed = subprocess.check_output(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True
    )
    for name in [*listed.splitlines(), "python/deltasql/spark/deltasql-spark.jar"]:
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    run(sys.executable, "-m", "docs.tools.pack", cwd=copy, PYTHONPATH=str(ROOT / "python"))
    run(MATURIN, "sdist", "--out", "dist", cwd=copy)
    (found,) = (copy / "dist").glob("*.tar.gz")
    return found


def test_sdist_contains_the_prebuilt_jar_and_pages(sdist: Path) -> None:
    """The jar needs javac and the jars of Spark; the pages are in docs/ of the repository."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "Cargo.lock",
        "LICENSE",
        "build_backend/deltasql_build.py",
        "crates/core/Cargo.toml",
        "python/deltasql/pages/config.md",
        "python/deltasql/pages/troubleshooting.md",
        "python/deltasql/spark/deltasql-spark.jar",
    } <= names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "docs/"))]


def test_installing_the_sdist_without_cargo_says_that_cargo_is_needed(
    sdist: Path, tmp_path: Path
) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    code = "import deltasql_build; deltasql_build.get_requires_for_build_wheel()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=CLEAN | {"PATH": "/nonexistent", "PYTHONPATH": str(unpacked / "build_backend")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("cargo is needed to build deltasql from source: install Rust")


@SLOW
def test_sdist_installs_without_the_repository(
    sdist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CLEAN, "CARGO_TARGET_DIR", str(tmp_path / "target"))
    bare = installed(tmp_path, str(sdist))
    run_quickstart(bare)
    assert "DELTASQL_POOL__MAX_SIZE" in bare.command("docs", "config")
    found = bare.python("""
        from importlib.resources import files
        print(files("deltasql").joinpath("spark/deltasql-spark.jar").is_file())
    """)
    assert found == "True\n"
