"""What `import deltasql` offers, exactly."""

from __future__ import annotations

import re
from pathlib import Path

import deltalake

import deltasql


def test_public_names_are_exactly_these() -> None:
    assert deltasql.__all__ == sorted(deltasql.__all__)
    for name in deltasql.__all__:
        assert getattr(deltasql, name) is not None
    # What is deltalake's own is documented there.
    documented = set(deltasql.__all__) - {"__version__"} - set(_taken_over())
    assert [name for name in documented if not getattr(deltasql, name).__doc__] == []


def test_it_takes_the_place_of_deltalake() -> None:
    assert set(deltalake.__all__) <= set(deltasql.__all__)
    own = set(deltalake.__all__) - set(_taken_over())
    assert own >= {"DeltaTable", "Metadata", "QueryBuilder", "__version__", "write_deltalake"}


def _taken_over() -> list[str]:
    return [
        name for name in deltalake.__all__ if getattr(deltasql, name) is getattr(deltalake, name)
    ]


def test_no_room_imports_from_the_front_door() -> None:
    """The layer contract cannot see it: to it, the extension is the package itself."""
    package = Path(deltasql.__file__).parent
    for path in package.glob("*/**/*.py"):
        named = re.findall(r"^ *from deltasql import (.+)$", path.read_text("utf-8"), re.M)
        for name in (each.strip() for line in named for each in line.split(",")):
            assert name in {"_core", "telemetry", "phases"} or (package / name).exists(), path
