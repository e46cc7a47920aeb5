"""MkDocs hooks: build the menu, and adapt pages that are also read in the repository.

The menu follows the folders. Files outside `docs/` that pages link to, such as the changelog or an
example, become pages of the site. So all links work when the site is opened from a folder.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from mkdocs.structure.files import File, Files, InclusionLevel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

OUTSIDE = "repository"
# The order of the menu. A name that ends with a slash is the rest of a folder, a pair is a group.
MENU: dict[str, tuple[Any, ...]] = {
    "Start": (
        *("index", "quickstart", f"{OUTSIDE}/examples/README"),
        *("limitations", "troubleshooting"),
    ),
    "Guides": (
        *("guides/backends", "guides/transactions", "guides/spark", "guides/streaming"),
        *("guides/mirror", "guides/object-stores", "guides/migrating", "guides/mixed"),
        "guides/maintenance",
        *("guides/production", "guides/observability", "guides/console", "guides/cli"),
        *("guides/disaster-recovery", "guides/"),
    ),
    "How to": ("how-to/",),
    "Explanation": ("explanation/architecture", "explanation/commits", "explanation/"),
    "Reliability": ("reliability/index", "reliability/"),
    "Reference": (
        (
            "Python",
            (
                *("reference/api/deltasql", "reference/api/delta-table", "reference/api/catalog"),
                *("reference/api/transaction", "reference/api/spark", "reference/api/aio"),
                *("reference/api/actions", "reference/api/reports", "reference/api/"),
            ),
        ),
        *("reference/cli", "reference/config", "reference/uri", "reference/errors"),
        *(
            "reference/schema",
            "reference/metrics",
            "reference/versions",
            "reference/glossary",
            "reference/",
        ),
    ),
    "Benchmarks": ("benchmarks/README", "benchmarks/results", "benchmarks/"),
    "Internals": (
        *("internals/architecture", "internals/", f"{OUTSIDE}/CONTRIBUTING"),
        f"{OUTSIDE}/CHANGELOG",
        ("Decisions", ("internals/decisions/README", "internals/decisions/")),
    ),
}
LINK = re.compile(r"(\]\(<?)([^)\s>]+)")
ATTRIBUTE = re.compile(r"(\b(?:src|srcset|href)=\")([^\"]+)")
NOTICE = re.compile(r"\A<!--.*?-->\s*", re.DOTALL)
FENCE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
# The start of a page that shows a file. Four backticks, because the file may contain three.
FENCED_FILE = re.compile(r"# [^\n]+\n\n````")
PICTURE = re.compile(
    r'<picture><source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\s*'
    r'<img src="([^"]+)" alt="([^"]*)"[^>]*></picture>'
)
ITEM = re.compile(r"(?:[-*]|\d+\.) ")
LANGUAGES = {".py": "python", ".sql": "sql", ".toml": "toml", ".yaml": "yaml", ".json": "json"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside `docs/` that pages link to, and set the menu."""
    root = Path(config.config_file_path).parent
    always = [root / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")]
    waiting = [*always]
    for file in files.documentation_pages():
        here = posixpath.join("docs", file.src_uri)
        waiting += _outside(root, here, file.content_string)
    done: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in done or not path.exists():
            continue
        done.add(path)
        here = path.relative_to(root).as_posix()
        text = _text(path)
        level = InclusionLevel.INCLUDED if path in always else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, _place(here), content=text, inclusion=level))
        if path.suffix == ".md":
            waiting += _outside(root, here, text)
        elif path.is_dir():
            waiting += [path / name for name in _listed(path)]
    config.nav = menu(sorted(file.src_uri for file in files.documentation_pages()))
    return files


def menu(pages: list[str]) -> list[dict[str, Any]]:
    """Return the menu of these pages: missing pages are omitted, new folders are last."""
    known = [(title, _entries(wanted, pages)) for title, wanted in MENU.items()]
    named = set(_flat([found for _, found in known]))
    new: dict[str, list[Any]] = {}
    for page in pages:
        # Files outside `docs/` are in the menu only if MENU names them.
        if page not in named and not page.startswith(f"{OUTSIDE}/"):
            new.setdefault(_title(posixpath.dirname(page)), []).append(page)
    return [{title: found} for title, found in [*known, *new.items()] if found]


def _flat(entries: list[Any]) -> Iterator[str]:
    for each in entries:
        if isinstance(each, str):
            yield each
        else:
            yield from _flat(list(each.values()) if isinstance(each, dict) else each)


def _title(folder: str) -> str:
    parts = folder.replace("-", " ").split("/")
    return ": ".join(parts).capitalize() or "More"


def _entries(wanted: tuple[Any, ...], pages: list[str]) -> list[Any]:
    named = {f"{each}.md" for each in wanted if isinstance(each, str)}
    out: list[Any] = []
    for each in wanted:
        if isinstance(each, tuple):
            inner = _entries(each[1], pages)
            out += [{each[0]: inner}] if inner else []
        elif each.endswith("/"):
            out += [page for page in pages if _in_folder(page, each) and page not in named]
        elif f"{each}.md" in pages:
            out.append(f"{each}.md")
    return out


def _in_folder(page: str, folder: str) -> bool:
    return page.startswith(folder) and "/" not in page.removeprefix(folder)


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Rewrite links to the pages of the site, and lists to the syntax of Python-Markdown."""
    uri = page.file.src_uri
    here = uri.removeprefix(f"{OUTSIDE}/") if uri.startswith(f"{OUTSIDE}/") else f"docs/{uri}"
    if uri.startswith(f"{OUTSIDE}/") and FENCED_FILE.match(markdown):
        return markdown
    # MkDocs takes the title from the heading only if it is first: remove the notice before it.
    parts = FENCE.split(NOTICE.sub("", markdown))
    for number in range(0, len(parts), 2):
        text = PICTURE.sub(_two_pictures, parts[number])
        for pattern in (LINK, ATTRIBUTE):
            text = pattern.sub(lambda found: found[1] + _lead(found[2], here, uri), text)
        parts[number] = _lists(text)
    return "".join(parts)


def _outside(root: Path, here: str, text: str) -> Iterator[Path]:
    """Yield the files outside `docs/` that a page links to."""
    for _, link in LINK.findall(FENCE.sub("", text)):
        target = _target(link, here)
        if target is not None and not target.startswith(("docs/", "../")):
            yield root / target


def _target(link: str, here: str) -> str | None:
    """Return the path in the repository that a link refers to, or None if it is external."""
    place = unquote(link).partition("#")[0]
    if not place or re.match(r"[a-z][a-z0-9+.-]*:|/", link):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(here), place))


def _lead(link: str, here: str, uri: str) -> str:
    target = _target(link, here)
    if target is None:
        return link
    place = target.removeprefix("docs/") if target.startswith("docs/") else _place(target)
    _, mark, anchor = link.partition("#")
    return posixpath.relpath(place, posixpath.dirname(uri) or ".") + mark + anchor


def _place(target: str) -> str:
    """Return the page of the site that shows a file outside `docs/`."""
    return f"{OUTSIDE}/{target}" if target.endswith(".md") else f"{OUTSIDE}/{target}.md"


def _text(path: Path) -> str:
    if path.is_dir():
        names = "\n".join(f"- [{name}]({path.name}/{name})" for name in _listed(path))
        return f"# {path.name}/\n\n{names}\n"
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    return f"# {path.name}\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{text}\n````\n"


def _listed(folder: Path) -> list[str]:
    return sorted(
        each.name for each in folder.iterdir() if not each.name.startswith(("_", ".")) and each.name
    )


def _two_pictures(found: re.Match[str]) -> str:
    """Return images that follow the colour scheme chosen on the site, not that of the system."""
    dark, light, alt = found.groups()
    return f'<img src="{light}#only-light" alt="{alt}"><img src="{dark}#only-dark" alt="{alt}">'


def _lists(text: str) -> str:
    """Rewrite lists: Python-Markdown needs an empty line before them and four-space indents."""
    out: list[str] = []
    in_list = False
    for line in text.split("\n"):
        starts = ITEM.match(line) is not None
        if starts and not in_list and out and out[-1].strip():
            out.append("")
        # A list ends at the next empty line.
        in_list = starts or (in_list and bool(line.strip()))
        nested = re.match(r" {2,3}(?=[-*] |\d+\. )", line)
        out.append(f"    {line.lstrip()}" if nested else line)
    return "\n".join(out)
