"""`sales`: a table of known sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.api.inspect.support import SCHEMA, add, commit

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog


@pytest.fixture
def sales(catalog: Catalog) -> Catalog:
    """A catalog whose table `sales` has files of known sizes, none of which exists."""
    properties = {"delta.enableDeletionVectors": "true"}
    catalog.create_table("sales", SCHEMA, partition_by=["day"], properties=properties)
    commit(catalog, add("a", "mon", 100, 10), add("b", "mon", 2_000_000, 20))
    commit(catalog, add("c", "tue", 200_000_000, 30), add("d", None, 300, 40))
    return catalog
