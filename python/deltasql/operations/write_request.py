"""WriteRequest: the parameters of one write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.engine.base import WriteOptions


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """How to write rows to a table, and how to create the table if it does not exist."""

    mode: str = "append"
    schema_mode: str | None = None
    predicate: str | None = None
    """The rows that the mode `overwrite` replaces; all rows without it."""
    partition_by: Sequence[str] | str | None = None
    options: WriteOptions | None = None
    """How the Parquet files are written."""
    engine: str | None = None

    location: str | None = None
    """Used only for a new table, as are the fields below."""
    properties: Mapping[str, str] | None = None
    title: str | None = None
    description: str | None = None
