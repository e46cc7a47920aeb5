"""The DuckDB engine passes the tests of every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deltasql.config import Config
from deltasql.engine.duckdb.engine import DuckDbEngine
from tests.engine.protocol import EngineProtocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.engine.base import Engine


class TestOnDuckDb(EngineProtocol):
    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        with DuckDbEngine(Config()) as engine:
            yield engine
