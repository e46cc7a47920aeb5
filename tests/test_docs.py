"""The reference pages say what the code says, and links lead somewhere."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import deltasql.exceptions
from deltasql.cli.main import COMMANDS
from deltasql.config import Config
from deltasql.config.problems import known_keys
from deltasql.telemetry import METRICS
from deltasql.uri import PARAMETERS

if TYPE_CHECKING:
    from types import ModuleType

BUILD = Path(__file__).parent.parent / "docs" / "build.py"


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_build", BUILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_fresh_and_links_resolve(
    build: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build.main(["--check"]) == 0, capsys.readouterr().err


def test_a_stale_page_is_reported(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "ROOT", tmp_path)
    assert build.main(["--check"]) == 1
    assert build.main([]) == 0
    assert build.main(["--check"]) == 0
    (tmp_path / "docs" / "reference" / "uri.md").write_text("old")
    assert build.main(["--check"]) == 1


def test_a_broken_link_is_reported(build: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(
        "# Two words\n[b](b.md) [web](https://x.y) [c](#two-words)"
    )
    (tmp_path / "README.md").write_text("[a](docs/a.md#two-words) [b](docs/a.md#three)")
    assert build.broken_links(tmp_path) == [
        "README.md: docs/a.md#three leads nowhere",
        "docs/a.md: b.md leads nowhere",
    ]


def test_nothing_is_left_out(build: ModuleType) -> None:
    pages = build.pages()
    for name in deltasql.exceptions.__all__:
        if name.endswith("Error"):
            assert f"## {name}\n" in pages["errors.md"]
    assert all(f"`{name}`" in pages["uri.md"] for name in PARAMETERS)
    assert all(f"`{name}`" in pages["metrics.md"] for name in METRICS)
    assert all(f"## deltasql {name}\n" in pages["cli.md"] for name in COMMANDS)
    for key in known_keys(Config):
        assert key.rpartition(".")[2] in pages["config.md"]
