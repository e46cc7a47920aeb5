"""The documentation that is installed with the package, for `deltasql docs`."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from deltasql import exceptions
from deltasql.exceptions.base import TxnLogError

# `make wheel` copies these pages into the package. A clone has them in docs/.
PAGES = (
    *("*.md", "guides/*.md", "guides/*/*.md", "reference/config.md", "reference/data-types.md"),
    *("reference/glossary.md", "reference/sql.md", "reference/uri.md"),
)
_PACKAGE = Path(__file__).parents[1]
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_ALERT = re.compile(r"^> \[!(\w+)\]$", re.MULTILINE)


def topics() -> list[str]:
    """Return the names that `documentation` accepts: pages, then errors."""
    return [*sorted(_pages()), *_errors()]


def titles() -> dict[str, str]:
    """Return the titles of the pages and the causes of the errors, by topic."""
    pages = {name: _title(path) for name, path in sorted(_pages().items())}
    return pages | {name: _cause(cls) for name, cls in _errors().items()}


def documentation(topic: str) -> str:
    """Return a page or the description of an error, as Markdown without links.

    Raises:
        LookupError: No page or error has this name.
    """
    if cls := {name.lower(): each for name, each in _errors().items()}.get(topic.lower()):
        text = f"# {cls.__name__}\n\n" + "\n".join(error_facts(cls))
    else:
        text = _pages()[topic].read_text("utf-8")
    text = _ALERT.sub(lambda found: f"> **{found[1].capitalize()}**", text)
    return _LINK.sub(r"\1", _COMMENT.sub("", text)).strip()


def error_facts(cls: type[TxnLogError]) -> list[str]:
    """Return the cause, the remedy and the fields of an error, as a Markdown list."""
    names = [f"`{each.name}`" for each in fields(cls) if each.name not in ("message", "help")]
    facts = [
        f"- **Cause**: {_cause(cls)}",
        f"- **Remedy**: {cls.default_help}",
        f"- **Default message**: {cls.default_message}",
        f"- **Fields**: {', '.join(names) or 'none'}",
    ]
    if cls is not TxnLogError:
        parent = cls.__bases__[0].__name__
        facts.append(f"- **A kind of**: [`{parent}`](#{parent.lower()})")
    return facts


def _cause(cls: type[TxnLogError]) -> str:
    return (cls.__doc__ or "").partition("\n")[0]


def _title(page: Path) -> str:
    lines = page.read_text("utf-8").splitlines()
    return next((line[2:] for line in lines if line.startswith("# ")), "")


def _errors() -> dict[str, type[TxnLogError]]:
    found = {name: getattr(exceptions, name) for name in exceptions.__all__}
    return {
        name: cls
        for name, cls in found.items()
        if isinstance(cls, type) and issubclass(cls, TxnLogError)
    }


def _pages() -> dict[str, Path]:
    """Return the pages by name, from the package or from the clone that it is in."""
    packed = _PACKAGE / "pages"
    found = packed.glob("*.md")
    if not packed.is_dir():
        found = (path for each in PAGES for path in (_PACKAGE.parents[1] / "docs").glob(each))
    return {path.stem: path for path in found}
