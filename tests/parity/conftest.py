"""The `lake` fixture runs a test on stock deltalake and on every catalog backend."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import deltalake
import pytest

import deltasql
from deltasql.api.catalog.connect import close_all
from tests.conftest import new_catalog_uri
from tests.parity.lakes import Lake
from tests.selection import DATABASES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri

# The runs on stock deltalake check the tests themselves, so they are needed only after the tests or
# deltalake have changed.
_STOCK = "stock deltalake: its answers change only with its release"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "lake" not in metafunc.fixturenames:
        return
    stock = pytest.param("stock", marks=pytest.mark.everything(_STOCK))
    metafunc.parametrize("lake", [stock, *DATABASES], indirect=True)


@pytest.fixture
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """Yield an empty lake of one system."""
    if request.param == "stock":
        yield _stock(tmp_path)
        return
    for uri in new_catalog_uri(request.param, tmp_path):
        yield _ours(request.param, uri, tmp_path)
        close_all()  # otherwise connections stay open until the last test


def _stock(folder: Path) -> Lake:
    return Lake(
        system="stock",
        DeltaTable=deltalake.DeltaTable,
        write_deltalake=deltalake.write_deltalake,
        QueryBuilder=deltalake.QueryBuilder,
        convert_to_deltalake=deltalake.convert_to_deltalake,
        uri=lambda name: str(folder / "lake" / name),
        nowhere=lambda name: str(folder / "missing" / name),
        root=folder,
    )


def _ours(system: str, catalog: DeltaSqlUri, folder: Path) -> Lake:
    def address(name: str) -> str:
        text = catalog.with_table(name).to_string()
        place = quote(str(folder / "lake" / name))
        return f"{text}{'&' if '?' in text else '?'}location={place}"

    return Lake(
        system=system,
        DeltaTable=deltasql.DeltaTable,
        write_deltalake=deltasql.write_deltalake,
        QueryBuilder=deltasql.QueryBuilder,
        convert_to_deltalake=deltasql.convert_to_deltalake,
        uri=address,
        nowhere=address,
        root=folder,
    )
