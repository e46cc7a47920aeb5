"""MkDocs hooks: adapt pages that are also read in the repository.

Files outside `docs/` that pages link to, such as the changelog or an example, become pages of the
site. So all links work when the site is opened from a folder. Notes and warnings are written as
GitHub shows them (`> [!WARNING]`), and become admonitions.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from mkdocs.structure.files import File, Files, InclusionLevel

from docs.tools.menu import OUTSIDE, menu, weight

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

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
ALERT = re.compile(r"^> \[!(\w+)\]\n((?:>.*\n?)+)", re.MULTILINE)
# The admonition of the theme that is shown for each type of GitHub alert (`> [!NOTE]`).
ADMONITIONS = {
    "NOTE": "note",
    "TIP": "tip",
    "IMPORTANT": 'info "Important"',
    "WARNING": "warning",
    "CAUTION": 'danger "Caution"',
}
LANGUAGES = {".py": "python", ".sql": "sql", ".toml": "toml", ".yaml": "yaml", ".json": "json"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show the version, and link to the repository if `pyproject.toml` has its address.

    The address is `Repository` in `[project.urls]`. Each page then has a link that edits it.
    """
    root = Path(config.config_file_path).parent
    version = _toml(root / "Cargo.toml")["workspace"]["package"]["version"]
    config.site_name = f"{config.site_name} {version}"
    address = _toml(root / "pyproject.toml")["project"].get("urls", {}).get("Repository")
    if address:
        config.repo_url = address.removesuffix(".git").rstrip("/")
        config.repo_name = "Repository"
        config.edit_uri = "edit/main/docs/"
    return config


def _toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


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


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Rewrite links to the pages of the site, and lists to the syntax of Python-Markdown."""
    uri = page.file.src_uri
    page.meta.setdefault("search", {"boost": weight(uri)})
    if NOTICE.match(markdown):  # the page is generated
        page.edit_url = None
    here = uri.removeprefix(f"{OUTSIDE}/") if uri.startswith(f"{OUTSIDE}/") else f"docs/{uri}"
    if uri.startswith(f"{OUTSIDE}/") and FENCED_FILE.match(markdown):
        return markdown
    # MkDocs takes the title from the heading only if it is first: remove the notice before it.
    parts = FENCE.split(NOTICE.sub("", markdown))
    for number in range(0, len(parts), 2):
        text = PICTURE.sub(_two_pictures, parts[number])
        for pattern in (LINK, ATTRIBUTE):
            text = pattern.sub(lambda found: found[1] + _lead(found[2], here, uri), text)
        parts[number] = _lists(ALERT.sub(_admonition, text))
    return "".join(parts)


def _admonition(found: re.Match[str]) -> str:
    lines = [line.removeprefix(">").removeprefix(" ") for line in found[2].splitlines()]
    body = "\n".join(f"    {line}".rstrip() for line in lines)
    return f"!!! {ADMONITIONS[found[1]]}\n\n{body}\n"


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
