"""Checks that a deltalake that is too old is named: `python -m tests.matrix.refused_deltalake DIR`.

The behaviours cannot be imported with such a release, so this module uses nothing of the tests.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import deltasql


def result(folder: Path) -> str:
    """Return `ok` if every call is rejected with the supported releases, and nothing is written."""
    uri = f"deltasql://sqlite/{folder}/catalog.db"
    calls: tuple[Callable[[], object], ...] = (
        lambda: deltasql.write_deltalake(f"{uri}?table=t", pa.table({"id": [1]})),
        lambda: deltasql.DeltaTable(f"{uri}?table=t"),
        lambda: deltasql.begin(uri).__enter__(),
        lambda: deltasql.register(),
    )
    for call in calls:
        try:
            call()
        except deltasql.exceptions.UnsupportedReleaseError as error:
            is_named = "supports 1.3 or newer, before 1.7" in error.message
            if not is_named or "pip install 'deltalake>=1.3,<1.7'" not in error.help:
                return f"the error is {error}"
        else:
            return "the release is not refused"
    return "something was written" if list(folder.iterdir()) else "ok"


if __name__ == "__main__":
    print(json.dumps({"refused by name": result(Path(sys.argv[1]))}))
