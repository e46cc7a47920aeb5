"""Helpers for tests of exports: read a copy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
from deltalake.exceptions import DeltaError

from tests.oracles.readers import Deltalake, Place

if TYPE_CHECKING:
    from tests.oracles.states import Rows


def rows(location: Path | str, version: int) -> Rows:
    """Return the rows that deltalake reads."""
    return Deltalake().rows(Place(str(location)), version)


def is_readable(location: Path, version: int | None = None) -> bool:
    """Return whether deltalake can open a table there, at a version."""
    try:
        deltalake.DeltaTable(str(location), version=version)
    except DeltaError:
        return False
    return True
