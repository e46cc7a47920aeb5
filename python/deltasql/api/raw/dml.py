"""DELETE, UPDATE and MERGE of a handle."""

from __future__ import annotations

from deltasql.api.raw.base import RawBase


class DmlSide(RawBase):
    """The row-changing half of deltalake's RawDeltaTable."""
