"""RawTable: a handle that answers whatever deltalake's classes ask of their RawDeltaTable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.api.raw.alter import AlterSide
from deltasql.api.raw.arguments import unsigned
from deltasql.api.raw.base import end_version_error
from deltasql.api.raw.cdf import CdfSide
from deltasql.api.raw.dml import DmlSide
from deltasql.api.raw.maintain import MaintainSide
from deltasql.api.raw.opening import find_table, parse_table_uri
from deltasql.api.raw.read import ReadSide
from deltasql.api.raw.write import WriteSide
from deltasql.exceptions import TxnLogTableNotFoundError, VersionNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.api.raw.opening import TableUri


class RawTable(ReadSide, WriteSide, DmlSide, MaintainSide, AlterSide, CdfSide):
    """One table at one version: reads come from SQL, changes are commits of SQL."""

    def __repr__(self) -> str:
        return f"RawTable({self.name!r}, version={self.snapshot.version})"

    @classmethod
    def open(
        cls,
        table_uri: TableUri,
        version: int | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> RawTable:
        """Open a handle with two statements; a version of the call wins over the URI's."""
        uri = parse_table_uri(table_uri)
        wanted = uri.version if version is None else unsigned(version)
        catalog, row = find_table(uri, storage_options)
        if wanted is None:
            return cls(catalog, row, timestamp=uri.timestamp)
        try:
            return cls(catalog, row, version=wanted)
        except VersionNotFoundError as error:
            raise end_version_error(error, uri.table_name) from error

    @staticmethod
    def is_deltatable(
        table_uri: TableUri, storage_options: Mapping[str, str] | None = None
    ) -> bool:
        """Tell whether a table is there."""
        try:
            find_table(parse_table_uri(table_uri), storage_options)
        except TxnLogTableNotFoundError:
            return False
        return True
