"""A table whose data is checked: its files as the log lists them, and who reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltasql.engine.files.live_files import LiveFiles
from deltasql.model.schema.schema import StructType

if TYPE_CHECKING:
    import pyarrow as pa

    from deltasql.config import Config
    from deltasql.engine.base import Engine, Relation
    from deltasql.model.actions import Metadata


@dataclass(frozen=True, slots=True)
class CheckedData:
    """The live files of one version."""

    name: str
    location: str
    metadata: Metadata
    files: pa.Table
    """With the columns of `Scan.arrow`."""
    config: Config
    engine: Engine

    @property
    def schema(self) -> StructType:
        return StructType.from_json(self.metadata.schema_string)

    def scan(self, files: pa.Table, *, positions: bool = False) -> Relation:
        """Return the live rows of some of the files."""
        live = LiveFiles(self.location, self.metadata, files, self.config.storage)
        return self.engine.scan(live, positions=positions)
