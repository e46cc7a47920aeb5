"""Tables that are taken over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.migrate.handing_over import NAME
from tests.migrate.sources import copy_of, make_table

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table that no test changes."""
    return make_table(tmp_path_factory.mktemp("pristine") / NAME)


@pytest.fixture
def place(pristine: Path, tmp_path: Path) -> Path:
    """A table that others write by its path."""
    return copy_of(pristine, tmp_path / NAME)


@pytest.fixture
def source(place: Path) -> Path:
    """The same, which a test may damage."""
    return place
