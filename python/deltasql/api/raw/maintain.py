"""Care for the files and the log of a handle."""

from __future__ import annotations

from deltasql.api.raw.base import RawBase


class MaintainSide(RawBase):
    """The maintenance half of deltalake's RawDeltaTable."""
