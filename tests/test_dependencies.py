"""Every package that deltasql imports is declared, and its release is checked."""

from __future__ import annotations

import ast
import re
import sqlite3
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import obstore
import psycopg
import pyarrow as pa
import pyspark
import pytest

import deltasql
import deltasql.spark
from deltasql.exceptions import MissingDriverError, UnsupportedReleaseError
from deltasql.exceptions.releases import SUPPORTED, check_release
from deltasql.storage.driver import driver
from tests.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = ROOT / "python" / "deltasql"
# Distributions whose name differs from the module they install.
DISTRIBUTIONS = {
    "arro3": "arro3-core",
    "opentelemetry": "opentelemetry-api",
    "yaml": "pyyaml",
}
# Used only if installed: dask installs fsspec, and pyspark installs py4j unless it is only
# the Spark Connect client.
OPTIONAL = {"fsspec", "py4j"}
FOR_DEVELOPERS = {"dev", "demo", "all"}


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*, for_developers: bool) -> set[str]:
    """Return the distributions in pyproject.toml, from dependencies and extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = list(project["dependencies"])
    for extra, names in project["optional-dependencies"].items():
        if for_developers or extra not in FOR_DEVELOPERS:
            lines += names
    return {normalized(match[0]) for line in lines if (match := re.match(r"[\w.-]+", line))}


def imports(tree: ast.AST, *, typing_only: bool = False) -> Iterator[tuple[str, int, bool]]:
    """Yield each absolute import: module, line, and whether it is for type checking only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, typing_only) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or "", node.lineno, typing_only
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from imports(ast.Module(node.body, []), typing_only=True)
            yield from imports(ast.Module(node.orelse, []), typing_only=typing_only)
        else:
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                name = node.args[0]
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    yield name.value, node.lineno, typing_only
            yield from imports(node, typing_only=typing_only)


def test_every_imported_package_is_declared() -> None:
    """This includes late imports; imports for type checking may need a developer extra."""
    for_users, for_all = declared(for_developers=False), declared(for_developers=True)
    undeclared, found = [], set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for module, line, typing_only in imports(ast.parse(path.read_text("utf-8"))):
            top = module.partition(".")[0]
            if top in {"deltasql", *OPTIONAL} or top in sys.stdlib_module_names:
                continue
            found.add(top)
            allowed = for_all if typing_only else for_users
            if normalized(DISTRIBUTIONS.get(top, top)) not in allowed:
                undeclared.append(f"{path.relative_to(ROOT)}:{line} imports {top}")
    assert {"pyarrow", "obstore", "psycopg_pool", "yaml"} <= found
    assert not undeclared, "not declared in pyproject.toml:\n" + "\n".join(undeclared)


def test_supported_releases_are_those_of_pyproject() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    for component in ("DuckDB", "PySpark", "obstore", "psycopg[binary]"):
        window = SUPPORTED[component.removesuffix("[binary]")]
        oldest, before = (".".join(map(str, each or ())) for each in window)
        assert f'"{component.lower()}>={oldest},<{before}"' in text
    # Newer releases of deltalake can be installed: only some functions reject them.
    oldest = ".".join(map(str, SUPPORTED["deltalake"][0]))
    assert f'"deltalake>={oldest},<2"' in text


def test_unsupported_releases_are_named_with_the_supported_ones() -> None:
    for component, found, supported in (
        ("PostgreSQL", "11.22", "12 or newer"),
        ("SQLite", "3.34.1", "3.37 or newer"),
        ("PySpark", "3.5.7", "4.0 or newer, before 4.4"),
        ("PySpark", "4.4.0", "4.0 or newer, before 4.4"),
        ("deltalake", "1.7.0", "1.3 or newer, before 1.7"),
    ):
        with pytest.raises(UnsupportedReleaseError) as caught:
            check_release(component, found)
        message = f"{component} {found} is not supported: deltasql supports {supported}"
        assert caught.value.message == message


def test_unsupported_release_is_rejected_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deltalake, "__version__", "1.9.0")
    with pytest.raises(UnsupportedReleaseError, match=r"deltalake 1\.9\.0"):
        deltasql.register()
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.34.1")
    with pytest.raises(UnsupportedReleaseError, match=r"SQLite 3\.34\.1"):
        deltasql.begin(f"deltasql://sqlite/{tmp_path}/catalog.db").__enter__()
    assert not list(tmp_path.iterdir())


def test_unsupported_driver_is_rejected_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psycopg, "__version__", "3.1.20")
    with pytest.raises(
        UnsupportedReleaseError, match=r"psycopg 3\.1\.20 is not supported"
    ) as found:
        # Nothing is at this address: the release is checked before a connection is opened.
        deltasql.connect("deltasql://postgres/user@127.0.0.1:1/db")
    assert found.value.help == "Run: pip install 'psycopg[binary]>=3.2,<4'"
    monkeypatch.setattr(obstore, "__version__", "1.0.0")
    driver.cache_clear()
    uri = f"deltasql://sqlite/{tmp_path}/catalog.db"
    with pytest.raises(UnsupportedReleaseError, match=r"obstore 1\.0\.0 is not supported"):
        deltasql.write_deltalake(f"{uri}?table=t&location=s3://lake/t", pa.table({"id": [1]}))
    with deltasql.connect(uri) as catalog:
        assert catalog.tables() == []


@pytest.mark.parametrize("release", ["3.5.7", "5.0.0"])
def test_unsupported_pyspark_is_rejected_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setattr(pyspark, "__version__", release)
    uri = f"deltasql://sqlite/{tmp_path}/catalog.db"
    for call in spark_calls(uri):
        with pytest.raises(UnsupportedReleaseError, match=f"PySpark {release} is not supported"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_missing_pyspark_is_named_with_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for call in spark_calls(f"deltasql://sqlite/{tmp_path}/catalog.db"):
        with pytest.raises(MissingDriverError, match=r"pip install 'deltasql\[spark\]'"):
            call()
    assert list(tmp_path.iterdir()) == []


def spark_calls(uri: str) -> list[Callable[[], object]]:
    """Return a call of each function of `deltasql.spark` that needs pyspark."""
    session: Any = object()
    table = f"{uri}?table=t"
    return [
        lambda: deltasql.spark.register(session, uri),
        lambda: deltasql.spark.mirror_spark(session, uri),
        lambda: deltasql.spark.read(session, table),
        lambda: deltasql.spark.write(session, table),
        lambda: deltasql.spark.sql(session, "CREATE TABLE t (id INT)", catalog=uri),
        lambda: deltasql.spark.stream_writer("t", app_id="a", catalog=uri),
        lambda: deltasql.spark.catalog_options(uri),
        lambda: deltasql.spark.log_store_options(uri),
    ]


def test_deltasql_spark_is_imported_without_pyspark() -> None:
    code = "import sys; sys.modules['pyspark'] = None; import deltasql.spark"
    subprocess.run([sys.executable, "-c", code], check=True)
