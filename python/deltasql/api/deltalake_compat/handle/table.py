"""RawTable: implements all methods of deltalake's RawDeltaTable for a table in SQL."""

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
    """A table at one version; reads come from SQL, and changes are committed to SQL."""

    def __repr__(self) -> str:
        return f"RawTable({self.name!r}, version={self.snapshot.version})"

    @classmethod
    def open(
        cls,
        table_uri: TableUri,
        version: int | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> RawTable:
        """Open a table with two SQL statements; `version` overrides the version of the URI."""
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
        """Return whether a table exists at this URI."""
        try:
            find_table(parse_table_uri(table_uri), storage_options)
        except TxnLogTableNotFoundError:
            return False
        return True
