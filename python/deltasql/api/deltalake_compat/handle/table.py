"""RawTable: a handle that answers whatever deltalake's classes ask of their RawDeltaTable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.api.deltalake_compat.handle.alter import AlterSide
from deltasql.api.deltalake_compat.handle.arguments import unsigned
from deltasql.api.deltalake_compat.handle.base import end_version_error
from deltasql.api.deltalake_compat.handle.cdf import CdfSide
from deltasql.api.deltalake_compat.handle.dml import DmlSide
from deltasql.api.deltalake_compat.handle.maintain import MaintainSide
from deltasql.api.deltalake_compat.handle.opening import find_table, parse_table_uri
from deltasql.api.deltalake_compat.handle.read import ReadSide
from deltasql.api.deltalake_compat.handle.write import WriteSide
from deltasql.exceptions import TxnLogTableNotFoundError, VersionNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.api.deltalake_compat.handle.opening import TableUri


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
