"""Copy the pages that `deltasql docs` prints into the package: `python -m docs.tools.pack`."""

from __future__ import annotations

import shutil
from pathlib import Path

from deltasql.exceptions.documentation import PAGES

ROOT = Path(__file__).parents[2]
PACKED = ROOT / "python" / "deltasql" / "pages"


def main() -> None:
    """Replace the copies."""
    shutil.rmtree(PACKED, ignore_errors=True)
    PACKED.mkdir()
    for pattern in PAGES:
        for page in (ROOT / "docs").glob(pattern):
            shutil.copy(page, PACKED)


if __name__ == "__main__":
    main()
