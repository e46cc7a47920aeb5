"""Releases of deltalake that deltasql does not know: what works, and what is rejected by name.

`make test-matrix` runs the supported releases; here, the installed one pretends to be another.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from deltasql import deltalake_internals
from tests.pages import ROOT

PACKAGE = ROOT / "python" / "deltasql"
WINDOW = "1.3 or newer, before 1.7"
REMEDY = "Run: pip install 'deltalake>=1.3,<1.7'"
# Simulates a release in which some methods of the raw table changed and private names are gone.
CHANGED = """
class RawDeltaTable:
    def vacuum(self, dry_run, retention_hours=None, purge=False): ...
    def history(self, limit=None): ...
    def rename(self, name): ...
deltalake._internal.RawDeltaTable = RawDeltaTable
del deltalake.table.DeltaTableConfig, deltalake.table.TableAlterer
del deltalake.transaction.RemoveAction
"""
START = """
import sys
import deltalake
import pyarrow as pa
deltalake.__version__ = sys.argv[1]
{changed}
import deltasql
from deltasql.exceptions import UnsupportedReleaseError
uri = f"deltasql://sqlite/{{sys.argv[2]}}/catalog.db?table=t"
def rejected(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except UnsupportedReleaseError as error:
        print(error.message)
        print(error.supported, error.help, sep="; ")
    else:
        print("not rejected")
"""


def run(release: str, folder: Path, code: str, changed: str = "") -> list[str]:
    """Run code in a new process with an installed deltalake of this release."""
    done = subprocess.run(
        [sys.executable, "-c", START.format(changed=changed) + code, release, str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_register_and_query_builder_reject_a_newer_deltalake_but_reads_and_writes_work(
    tmp_path: Path,
) -> None:
    code = """
deltasql.write_deltalake(uri, pa.table({"id": [1, 2, 3]}))
deltasql.write_deltalake(uri, pa.table({"id": [4]}), mode="append")
table = deltasql.DeltaTable(uri)
table.delete("id = 2")
table.update({"id": "id + 10"}, predicate="id = 3")
print(table.version(), sorted(table.to_pyarrow_table()["id"].to_pylist()), len(table.history()))
rejected(deltasql.register)
rejected(deltasql.QueryBuilder().register, "t", table)
rejected(table.__datafusion_table_provider__)
deltasql.unregister()
print(deltalake.DeltaTable.__module__)
"""
    window = f"deltasql supports {WINDOW}"
    assert run("1.7.0", tmp_path, code) == [
        "3 [1, 4, 13] 4",
        f"register() does not support deltalake 1.7.0: {window}",
        f"{WINDOW}; {REMEDY}",
        f"QueryBuilder does not support deltalake 1.7.0: {window}",
        f"{WINDOW}; {REMEDY}",
        f"the table provider for DataFusion does not support deltalake 1.7.0: {window}",
        f"{WINDOW}; {REMEDY}",
        "deltalake.table",
    ]


def test_methods_that_a_newer_deltalake_changed_are_rejected_before_anything_is_written(
    tmp_path: Path,
) -> None:
    code = """
deltasql.write_deltalake(uri, pa.table({"id": [1], "p": ["a"]}), partition_by="p")
table = deltasql.DeltaTable(uri)
rejected(table.vacuum)
rejected(table._table.rename, "u")
print(len(table.history()), deltasql.DeltaTable(uri).version())
table.merge(pa.table({"id": [1]}), "t.id = s.id", "s", "t").when_matched_delete().execute()
print(table.to_pyarrow_table(filters=[("p", "=", "a")]).num_rows)
"""
    assert run("2.0.0", tmp_path, code, CHANGED) == [
        "DeltaTable.vacuum does not support deltalake 2.0.0: vacuum() has new parameters: purge",
        f"{WINDOW}; {REMEDY}",
        "DeltaTable.rename does not support deltalake 2.0.0: rename() is new",
        f"{WINDOW}; {REMEDY}",
        "1 0",
        "0",
    ]


def test_older_deltalake_is_rejected_before_anything_is_written(tmp_path: Path) -> None:
    code = """
rejected(lambda: deltasql.write_deltalake(uri, pa.table({"id": [1]})))
rejected(lambda: deltasql.begin(uri.partition("?")[0]).__enter__())
"""
    found = run("1.2.1", tmp_path, code)
    message = f"deltalake 1.2.1 is not supported: deltasql supports {WINDOW}"
    assert found == [message, f"{WINDOW}; {REMEDY}"] * 2
    assert not list(tmp_path.iterdir())


def test_installed_deltalake_has_everything_that_deltasql_uses() -> None:
    assert deltalake_internals.MISSING == ()


def test_only_one_module_uses_private_names_of_deltalake() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}:{line} uses {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "deltalake_internals.py"
        for name, line in _private_names(ast.parse(path.read_text("utf-8")))
    }
    assert not found


def _private_names(tree: ast.AST) -> list[tuple[str, int]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{each.name}" for each in node.names]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            names = [ast.unparse(node)]
        else:
            continue
        for name in names:
            first, *others = name.split(".")
            private = [part for part in others if part.startswith("_") and part[:2] != "__"]
            if first == "deltalake" and private:
                found.append((name, node.lineno))
    return found
