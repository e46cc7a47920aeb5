"""The releases of libraries and servers that deltasql supports."""

from __future__ import annotations

import re

from deltasql.exceptions.store import UnsupportedReleaseError

# The oldest supported release, and the first newer one that is not supported (None: there is none).
SUPPORTED: dict[str, tuple[tuple[int, ...], tuple[int, ...] | None]] = {
    "DuckDB": ((1, 4), (2,)),
    "PostgreSQL": ((12,), None),
    "PySpark": ((4, 0), (4, 4)),
    "SQLite": ((3, 37), None),  # the first with STRICT tables
    "Spark": ((4, 0), (4, 4)),  # the server of Spark Connect
    "deltalake": ((1, 3), (1, 7)),
    "obstore": ((0, 8), (1,)),
    "psycopg": ((3, 2), (4,)),
}
_REMEDIES = {
    "DuckDB": "Run: pip install 'duckdb>=1.4,<2'",
    "PostgreSQL": "Upgrade the server, or use another one.",
    "PySpark": "Run: pip install 'pyspark>=4.0,<4.4'",
    "SQLite": "Use a Python that was built with a newer SQLite; sqlite3.sqlite_version shows it.",
    "Spark": "Connect to a server with another release of Spark.",
    "deltalake": "Run: pip install 'deltalake>=1.3,<1.7'",
    "obstore": "Run: pip install 'obstore>=0.8,<1'",
    "psycopg": "Run: pip install 'psycopg[binary]>=3.2,<4'",
}


def check_release(component: str, found: str, purpose: str | None = None) -> None:
    """Raise UnsupportedReleaseError if a release is outside the range that deltasql supports.

    `purpose` is the function that needs the release, if deltasql can do other things without it.

    >>> check_release("PySpark", "4.2.0")
    >>> try:
    ...     check_release("PySpark", "3.5.7")
    ... except UnsupportedReleaseError as error:
    ...     error.help
    "Run: pip install 'pyspark>=4.0,<4.4'"
    """
    oldest, before = SUPPORTED[component]
    numbers = tuple(map(int, re.findall(r"\d+", found)))
    if numbers < oldest or (before is not None and numbers >= before):
        supported, remedy = supported_releases(component)
        rejected = f"{component} {found} is not supported"
        if purpose is not None:
            rejected = f"{purpose} does not support {component} {found}"
        raise UnsupportedReleaseError(
            f"{rejected}: deltasql supports {supported}",
            component=component,
            found=found,
            supported=supported,
            help=remedy,
        )


def supported_releases(component: str) -> tuple[str, str]:
    """Return the range of supported releases as text, and how to install one of them."""
    oldest, before = SUPPORTED[component]
    supported = f"{_text(oldest)} or newer"
    if before is not None:
        supported += f", before {_text(before)}"
    return supported, _REMEDIES[component]


def _text(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))
