"""A Spark session for one command."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def session_for(engine: str | None) -> Iterator[None]:
    """Run the block with a Spark session if the engine is Spark."""
    if engine != "spark":
        yield
        return
    # lazy import: most commands do not need Spark
    from deltasql.engine.spark.session import started_session

    with started_session():
        yield
