"""A published history that tests can damage: created once per module, copied for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.mirror.published import copied_history, keep_history

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return keep_history(tmp_path_factory.mktemp("history"))


@pytest.fixture
def published(kept: tuple[Path, Path]) -> Iterator[Catalog]:
    with copied_history(*kept) as catalog:
        yield catalog
