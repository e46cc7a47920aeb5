"""WriteRequest: the parameters of one write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.engine.base import WriteOptions
    from deltasql.model.predicates.parser import Flavour


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """How to write rows to a table, and how to create the table if it does not exist."""

    mode: str = "append"
    schema_mode: str | None = None
    predicate: str | None = None
    """A condition for the rows that the mode `overwrite` replaces; None for all rows."""
    flavour: Flavour = "datafusion"
    """The SQL in which the predicate is written."""
    partition_by: Sequence[str] | str | None = None
    options: WriteOptions | None = None
    """How the Parquet files are written."""
    engine: str | None = None

    location: str | None = None
    """This field and the fields below are used only for a new table."""
    properties: Mapping[str, str] | None = None
    title: str | None = None
    description: str | None = None
