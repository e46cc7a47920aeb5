"""RawTable: a handle that answers whatever deltalake's classes ask of their RawDeltaTable."""

from __future__ import annotations

from deltasql.api.raw.alter import AlterSide
from deltasql.api.raw.cdf import CdfSide
from deltasql.api.raw.dml import DmlSide
from deltasql.api.raw.maintain import MaintainSide
from deltasql.api.raw.read import ReadSide
from deltasql.api.raw.write import WriteSide


class RawTable(ReadSide, WriteSide, DmlSide, MaintainSide, AlterSide, CdfSide):
    """One table at one version: reads come from SQL, changes are commits of SQL."""

    def __repr__(self) -> str:
        return f"RawTable({self.name!r}, version={self.snapshot.version})"
