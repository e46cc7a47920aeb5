"""Runs named checks in the environment of a cell, and prints their results as one line of JSON."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.matrix.behaviours import OK


def main(checks: Mapping[str, Callable[[Path], None]]) -> int:
    """Run the checks with a new folder each; return 1 if one failed.

    The arguments of the process are a folder and names of checks; the default is all of them.
    """
    folder, *chosen = sys.argv[1:]
    found = {}
    for number, name in enumerate(chosen or checks):
        place = Path(folder, str(number))
        place.mkdir()
        try:
            checks[name](place)
        except Exception as error:
            traceback.print_exc()
            lines = str(error).strip().splitlines() or [""]
            found[name] = f"{type(error).__name__}: {lines[0]}"
        else:
            found[name] = OK
    print(json.dumps(found), flush=True)
    return 0 if set(found.values()) == {OK} else 1
