"""Sort a stream of rows: what does not fit in memory waits on disk."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from deltasql.config import EngineSettings
from deltasql.engine.duckdb.connection import connected
from deltasql.engine.duckdb.scan import identifier

_MEMORY = "1GB"

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa


@contextmanager
def sorted_stream(
    reader: pa.RecordBatchReader, columns: Sequence[str]
) -> Iterator[pa.RecordBatchReader]:
    """Lend the rows of a stream in the order of some columns."""
    with connected(EngineSettings(memory_limit=_MEMORY)) as connection:
        # The bare stream: a reader would be read ahead by threads of Arrow, which wait for
        # Python while others wait for them.
        connection.register("rows", reader.__arrow_c_stream__())
        order = ", ".join(identifier(name) for name in columns)
        yield connection.execute(f"FROM rows ORDER BY {order}").to_arrow_reader(65_536)
