"""The tables of the fixed set, built once per module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conftest import new_catalog_uri
from tests.mirror.support import open_mirrored
from tests.oracles.fixed_set import Lake
from tests.s3 import s3_location, s3_options, s3_server  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A catalog in SQLite whose tables are on local disk."""
    folder = tmp_path_factory.mktemp("lake")
    for uri in new_catalog_uri("sqlite", folder):
        with open_mirrored(uri, folder / "lake") as catalog:
            yield Lake(catalog)
