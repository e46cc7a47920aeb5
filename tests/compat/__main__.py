"""Fill the compatibility matrix: `python -m tests.compat [RELEASE …]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import deltasql
from tests.compat import page
from tests.compat.checks import Broken, Place, checks
from tests.compat.environments import RELEASES, ROOT, Release, ReleaseError, python_of
from tests.oracles.fixed_set import Lake

PAGE = ROOT / "docs" / "reference" / "compatibility.md"


def main() -> int:
    """Run every check with every release; return 1 if a guarantee is violated."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.compat",
        description="What other releases of deltalake make of our tables, and we of theirs.",
        epilog="example: python -m tests.compat 1.5.1",
    )
    parser.add_argument("release", nargs="*", help=f"default: {', '.join(RELEASES)}")
    chosen = parser.parse_args().release
    releases = tuple(chosen or RELEASES)
    lines = list(checks())
    cells: dict[tuple[str, str, str], str] = {}
    broken = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        settings = {"table": {"data_root": str(folder / "lake")}}
        with deltasql.connect(f"deltasql://sqlite/{folder}/meta.db", **settings) as catalog:
            lake = Lake(catalog)
            for number, name in enumerate(releases, 1):
                print(f"{number} of {len(releases)}: deltalake {name}", file=sys.stderr)
                with Release(python_of(name)) as release:
                    place = Place(release, lake, folder / name)
                    for check in lines:
                        try:
                            cell = check.run(place)
                        except (Broken, ReleaseError, deltasql.exceptions.TxnLogError) as error:
                            cell = "BROKEN"
                            broken.append(f"{name}: {check.topic}: {check.title}: {error}")
                        cells[check.topic, check.title, name] = cell
    print(page.terminal(lines, releases, cells))
    for problem in broken:
        print(problem, file=sys.stderr)
    if releases == RELEASES and not broken:
        PAGE.write_text(page.markdown(lines, releases, cells), encoding="utf-8")
        print(f"written: {PAGE.relative_to(ROOT)}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
