"""Fixtures for tests of migration: tables of other writers, and catalogs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conftest import new_catalog_uri
from tests.migrate.authority_support import NAME, open_catalog
from tests.migrate.imported import ImportedCorpus
from tests.migrate.sources import copy_of, make_table
from tests.mirror.published import publish_history
from tests.mirror.support import open_mirrored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri
    from tests.migrate.corpus import Corpus


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table that no test changes."""
    return make_table(tmp_path_factory.mktemp("pristine") / NAME)


@pytest.fixture
def place(pristine: Path, tmp_path: Path) -> Path:
    """A table that other programs write."""
    return copy_of(pristine, tmp_path / NAME)


@pytest.fixture
def source(place: Path) -> Path:
    """The same table, for tests that damage it."""
    return place


@pytest.fixture
def other(backend: str, tmp_path: Path) -> Iterator[Catalog]:
    """A second catalog, in the same kind of database."""
    folder = tmp_path / "other"
    folder.mkdir()
    for uri in new_catalog_uri(backend, folder):
        with open_catalog(uri, table={"data_root": str(tmp_path / "lake")}) as opened:
            yield opened


@pytest.fixture
def published(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog with a published table `t`."""
    with publish_history(catalog_uri, tmp_path / "lake") as catalog:
        yield catalog


@pytest.fixture
def published_in_sqlite(sqlite_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    """The same in SQLite, for tests that do not depend on the database."""
    with publish_history(sqlite_uri, tmp_path / "lake") as catalog:
        yield catalog


@pytest.fixture(scope="module")
def imported(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImportedCorpus]:
    """The corpus tables in a catalog."""
    folder = tmp_path_factory.mktemp("catalog")
    for uri in new_catalog_uri("sqlite", folder):
        with open_mirrored(uri, folder) as catalog:
            yield ImportedCorpus(catalog, corpus)
