"""The menu of the site, and the weight of its pages in search.

Guides are grouped by task. A page that `MENU` does not name is added where `MENU` has its folder.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTSIDE = "repository"  # the folder of the site for pages that are not in `docs/`
# The order of the menu. `folder/` stands for the pages of a folder that are not named elsewhere. A
# tuple of a title and entries is a group.
MENU: dict[str, tuple[Any, ...]] = {
    "Start": (
        *("index", "quickstart", "quickstart-postgresql", f"{OUTSIDE}/examples/README"),
        *("faq", "troubleshooting", "limitations"),
    ),
    "Guides": (
        "guides/overview",
        (
            "Read and write",
            (
                *("guides/transactions", "how-to/deltalake", "how-to/query"),
                *("how-to/change-feed", "how-to/clone", "how-to/other-libraries"),
                *("how-to/integrations", "how-to/async"),
            ),
        ),
        (
            "Spark",
            (
                *("guides/spark", "guides/streaming", "how-to/spark-catalog", "how-to/spark"),
                "how-to/delta-spark-jobs",
            ),
        ),
        (
            "Where tables are stored",
            (
                *("guides/mirror", "guides/object-stores", "guides/object-stores/s3"),
                *("guides/object-stores/azure", "guides/object-stores/google"),
                *("guides/object-stores/s3-compatible", "how-to/duckdb-catalog"),
                "guides/object-stores/",
            ),
        ),
        ("Migrate", ("guides/migrating", "guides/mixed", "how-to/fence")),
        (
            "Operate",
            (
                *("guides/backends", "guides/production", "guides/high-availability"),
                *("guides/maintenance", "guides/observability"),
            ),
        ),
        (
            "When something fails",
            ("guides/process-dies", "guides/backup", "guides/disaster-recovery"),
        ),
        ("Tools", ("guides/cli", "guides/console", "how-to/inspect")),
        ("More", ("guides/", "how-to/")),
    ),
    "Reference": (
        (
            "Python",
            (
                *("reference/api/deltasql", "reference/api/delta-table", "reference/api/catalog"),
                *("reference/api/transaction", "reference/api/spark", "reference/api/aio"),
                *("reference/api/actions", "reference/api/reports", "reference/api/"),
            ),
        ),
        *("reference/cli", "reference/sql", "reference/config", "reference/uri"),
        *("reference/errors", "reference/data-types", "reference/table-features"),
        *("reference/schema", "reference/metrics", "reference/glossary"),
        ("Releases", ("reference/versions", "reference/tested-with", "reference/compatibility")),
        "reference/",
    ),
    "Explanation": ("explanation/architecture", "explanation/commits", "explanation/"),
    "Reliability": ("reliability/index", "reliability/"),
    "Benchmarks": ("benchmarks/README", "benchmarks/results", "benchmarks/"),
    "Internals": (
        *("internals/architecture", "internals/", "internals/screens/README"),
        f"{OUTSIDE}/CONTRIBUTING",
        f"{OUTSIDE}/CHANGELOG",
        ("Decisions", ("internals/decisions/README", "internals/decisions/")),
    ),
}
# The weight of a page in search: that of the first prefix that matches its path. Guides are found
# first, decision records and benchmark results last.
WEIGHTS = (
    ("guides/transactions", 6.0),
    ("guides/spark", 6.0),
    ("guides/", 4.0),
    ("quickstart", 4.0),
    ("how-to/", 3.0),
    ("faq", 2.0),
    ("troubleshooting", 2.0),
    ("index", 0.5),
    ("guides/overview", 0.5),
    ("explanation/", 1.5),
    ("reference/api/", 0.5),
    ("reference/cli", 0.5),
    ("reference/", 1.0),
    ("limitations", 1.0),
    ("reliability/", 0.1),
    ("benchmarks/", 0.05),
    ("internals/", 0.05),
    (f"{OUTSIDE}/", 0.02),
)


def weight(page: str) -> float:
    """Return the factor by which search multiplies the score of a page."""
    return next((factor for prefix, factor in WEIGHTS if page.startswith(prefix)), 1.0)


def menu(pages: list[str]) -> list[dict[str, Any]]:
    """Return the pages in the order of `MENU`. Folders that it does not name come last."""
    named = {f"{name}.md" for entries in MENU.values() for name in _names(entries)}
    known = [(title, _entries(wanted, pages, named)) for title, wanted in MENU.items()]
    placed = set(_flat([found for _, found in known]))
    new: dict[str, list[Any]] = {}
    for page in pages:
        # Files outside `docs/` are in the menu only if MENU names them.
        if page not in placed and not page.startswith(f"{OUTSIDE}/"):
            new.setdefault(_title(posixpath.dirname(page)), []).append(page)
    return [{title: found} for title, found in [*known, *new.items()] if found]


def _names(entries: tuple[Any, ...]) -> Iterator[str]:
    """Yield the names in entries of MENU, also those in groups."""
    for each in entries:
        if isinstance(each, str):
            yield each
        else:
            yield from _names(each[1])


def _entries(wanted: tuple[Any, ...], pages: list[str], named: set[str]) -> list[Any]:
    out: list[Any] = []
    for each in wanted:
        if isinstance(each, tuple):
            inner = _entries(each[1], pages, named)
            out += [{each[0]: inner}] if inner else []
        elif each.endswith("/"):
            out += [page for page in pages if _in_folder(page, each) and page not in named]
        elif f"{each}.md" in pages:
            out.append(f"{each}.md")
    return out


def _flat(entries: list[Any]) -> Iterator[str]:
    for each in entries:
        if isinstance(each, str):
            yield each
        else:
            yield from _flat(list(each.values()) if isinstance(each, dict) else each)


def _title(folder: str) -> str:
    parts = folder.replace("-", " ").split("/")
    return ": ".join(parts).capitalize() or "More"


def _in_folder(page: str, folder: str) -> bool:
    return page.startswith(folder) and "/" not in page.removeprefix(folder)
