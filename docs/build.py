"""Generate pages and pictures from the code, check links, and build the site.

python docs/build.py            generate the files and check the links
python docs/build.py --check    write nothing; exit 1 if a file is stale or a link is broken
python docs/build.py --site     also build the site into site/; a warning is an error
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# `python docs/build.py` puts only the folder of this file on the path.
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

from docs.tools import api, pictures, reference, reliability, schema, tested_with, versions  # noqa: E402
from docs.tools.links import broken_links  # noqa: E402
from docs.tools.ratios import ratios  # noqa: E402

NOTICE = "<!-- Written by docs/build.py from the code; edit the code, then run `make docs`. -->"


def main(arguments: list[str]) -> int:
    """Build or check the documentation; the exit code is 1 if there is a problem."""
    parser = argparse.ArgumentParser(description="Build the documentation.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when stale")
    parser.add_argument("--site", action="store_true", help="build the site into site/")
    options = parser.parse_args(arguments)
    problems = []
    for name, text in generated().items():
        path = ROOT / "docs" / name
        if options.check and (not path.is_file() or path.read_text(encoding="utf-8") != text):
            problems.append(f"{path.relative_to(ROOT)} is stale: run `make docs`")
        elif not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    problems += broken_links(ROOT)
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return 1
    return build_site(ROOT / "site") if options.site else 0


def generated() -> dict[str, str]:
    """Return the text of every generated file by its path in `docs/`."""
    return {
        **{f"reference/{name}": text for name, text in pages().items()},
        "reliability/index.md": f"{NOTICE}\n\n{reliability.index_page()}",
        "images/architecture.svg": pictures.architecture(),
        "images/commit.svg": pictures.commit_path(),
        "images/ratios.svg": ratios(),
    }


def pages() -> dict[str, str]:
    """Return the text of every generated page by its path in `docs/reference/`."""
    bodies = {
        "errors.md": reference.errors_page(),
        "uri.md": reference.uri_page(),
        "config.md": reference.config_page(),
        "metrics.md": reference.metrics_page(),
        "cli.md": reference.cli_page(),
        "schema.md": schema.schema_page(),
        "tested-with.md": tested_with.tested_with_page(),
        "versions.md": versions.versions_page(),
        **{f"api/{name}": body for name, body in api.pages().items()},
    }
    return {name: f"{NOTICE}\n\n{body.strip()}\n" for name, body in bodies.items()}


def build_site(folder: Path) -> int:
    """Build the site into a folder; return the exit code of MkDocs."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    # Hides the theme's advertisement for its successor.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
