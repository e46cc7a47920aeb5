"""The public names of `import deltasql`."""

from __future__ import annotations

import re
from pathlib import Path

import deltalake

import deltasql


def test_public_names_are_sorted_and_documented() -> None:
    assert deltasql.__all__ == sorted(deltasql.__all__)
    for name in deltasql.__all__:
        assert getattr(deltasql, name) is not None
    # Names of deltalake are documented there.
    documented = set(deltasql.__all__) - {"__version__"} - set(_names_of_deltalake())
    assert [name for name in documented if not getattr(deltasql, name).__doc__] == []


def test_deltasql_has_every_name_of_deltalake() -> None:
    assert set(deltalake.__all__) <= set(deltasql.__all__)
    own = set(deltalake.__all__) - set(_names_of_deltalake())
    assert own >= {"DeltaTable", "Metadata", "QueryBuilder", "__version__", "write_deltalake"}


def _names_of_deltalake() -> list[str]:
    return [
        name for name in deltalake.__all__ if getattr(deltasql, name) is getattr(deltalake, name)
    ]


def test_no_package_imports_from_the_top_level_module() -> None:
    """The layer contract cannot check this: it takes the extension for the package itself."""
    package = Path(deltasql.__file__).parent
    modules = {"_core", "deltalake_internals", "phases", "telemetry"}
    for path in package.glob("*/**/*.py"):
        named = re.findall(r"^ *from deltasql import (.+)$", path.read_text("utf-8"), re.M)
        for name in (each.strip() for line in named for each in line.split(",")):
            assert name in modules or (package / name).exists(), path
