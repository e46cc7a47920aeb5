"""Publishing a commit takes one file and a fixed set of SQL statements, at every version."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.commit.support import file
from tests.mirror.support import open_mirrored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

SCHEMA = pa.schema([("id", pa.int64())])
EXPECTED_STATEMENTS = {
    "sqlite": [
        "relax_durability",
        "advance_target",
        "complete_versions",
        "restore_durability",
    ],
    "duckdb": ["advance_target", "complete_versions"],
    "postgres": ["record_published"],
}


@pytest.fixture
def recorded(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[tuple[Catalog, list[str]]]:
    """A catalog that publishes, and the statements that it sends during `after_commit`."""
    names: list[str] = []
    with open_mirrored(catalog_uri, tmp_path / "lake") as catalog:
        dialect: Any = catalog.store.dialect
        session, publish = dialect.session, catalog.mirror.after_commit

        class Counted:
            def __init__(self, borrowed: Any) -> None:
                self._borrowed = borrowed

            def __getattr__(self, attribute: str) -> Any:
                found = getattr(self._borrowed, attribute)
                if attribute not in ("query", "execute", "insert"):
                    return found

                def counted(name: str, /, *args: Any, **params: Any) -> Any:
                    names.append(name)
                    return found(name, *args, **params)

                return counted

        @contextmanager
        def counted_session() -> Iterator[Counted]:
            with session() as borrowed:
                yield Counted(borrowed)

        def counted_publish(ratified: Any, options: Any) -> None:
            names.clear()
            dialect.session = counted_session
            try:
                publish(ratified, options)
            finally:
                dialect.session = session

        catalog.mirror.after_commit = counted_publish  # type: ignore[method-assign]
        catalog.create_table("t", SCHEMA, properties={"delta.checkpointInterval": "1000"})
        yield catalog, names


def test_commit_is_published_without_reading_it_back(
    recorded: tuple[Catalog, list[str]], backend: str
) -> None:
    catalog, names = recorded
    for number in range(5):
        with catalog.begin() as tx:
            tx.stage_table("t", [file(str(number))])
        # DuckDB has no index to distinguish a new file from a live one, so it needs a query.
        statements = [name for name in names if name != "ended_totals" or backend != "duckdb"]
        assert statements == EXPECTED_STATEMENTS[backend], "the same for every version"
