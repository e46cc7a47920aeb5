"""The reference pages match the code, links resolve, and the site builds."""

from __future__ import annotations

import inspect
import re
import shutil
import sqlite3
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from docs import build
from docs.tools import api, hooks, schema
from docs.tools.links import broken_links
from docs.tools.menu import menu
from docs.tools.ratios import PEERS, ratio, ratios
from mkdocs.config.defaults import MkDocsConfig

import deltasql
import deltasql.aio
import deltasql.exceptions
import deltasql.spark
from deltasql.cli.main import COMMANDS
from deltasql.config import Config
from deltasql.config.problems import known_keys
from deltasql.telemetry import METRICS
from deltasql.uri import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

ROOT = Path(__file__).parent.parent
MODULES = (deltasql, deltasql.aio, deltasql.spark)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site like `make docs`, where a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    assert build.build_site(folder) == 0
    return folder


def test_pages_are_up_to_date_and_links_resolve(capsys: pytest.CaptureFixture[str]) -> None:
    assert build.main(["--check"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("page", ["transactions.md", "spark.md"])
def test_idempotent_load_of_a_guide_works_from_the_first_load(page: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "guides" / page).read_text()
    found = re.search(r"^def load\(.*?^    return True$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    uri = f"deltasql://sqlite/{tmp_path}/meta.db"
    names: dict[str, Any] = {"deltasql": deltasql, "pa": pa, "uri": uri, "catalog_uri": uri}
    exec(found[0], names)
    rows = pa.table({"id": [1]})
    assert [names["load"](batch, rows) for batch in (1, 1, 2, 1)] == [True, False, True, False]
    assert deltasql.DeltaTable(f"{uri}?table=orders").count() == 2


def test_uris_with_an_ampersand_are_quoted_for_the_shell() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    for folder in ("python/deltasql/cli", "examples"):
        pages += [
            path for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".py", ".sh")
        ]
    for page in pages:
        for line in page.read_text(encoding="utf-8").splitlines():
            quoted = re.sub(r"""'[^']*'|"[^"]*"|``?[^`]+``?""", "", line)
            assert not re.search(r"deltasql://\S*&", quoted), f"{page}: {line}"


def test_architecture_page_names_every_package_and_sub_package() -> None:
    page = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("## Packages")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", section, re.MULTILINE)
    # A link is `[text](address)`; only its text can name a folder.
    texts = {name: re.sub(r"\]\(.*?\)", "]", text) for name, text in rows}
    named = {each for name in texts for each in re.findall(r"`([^`]+)`", name)}
    source = ROOT / "python" / "deltasql"
    packages = {f"{path.parent.name}/" for path in source.glob("*/__init__.py")}
    modules = {path.name for path in source.glob("*.py")} - {"__init__.py"}
    assert named == packages | modules | {"_core"}
    for name in packages:
        text = next(text for each, text in texts.items() if f"`{name}`" in each)
        folders = {f"{each.name}/" for each in (source / name).rglob("*") if each.is_dir()}
        folders -= {"__pycache__/", "static/", "templates/", "migrations/"}
        listed = set(re.findall(r"`(\w+/)`", text))
        assert folders <= listed <= folders | packages | {"jvm/"}, name


def test_stale_page_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "ROOT", tmp_path)
    assert build.main(["--check"]) == 1
    build.main([])
    uri = tmp_path / "docs" / "reference" / "uri.md"
    fresh = uri.read_text()
    uri.write_text("old")
    assert build.main(["--check"]) == 1
    build.main([])
    assert uri.read_text() == fresh


def test_broken_link_is_reported(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(
        '# Two words\n[b](b.md) [web](https://x.y) [c](#two-words) <img src="no.png">'
    )
    (tmp_path / "README.md").write_text("[a](docs/a.md#two-words) [b](docs/a.md#three)")
    assert broken_links(tmp_path) == [
        "README.md: docs/a.md#three is broken",
        "docs/a.md: b.md is broken",
        "docs/a.md: no.png is broken",
    ]


def test_reference_pages_are_complete() -> None:
    pages = build.pages()
    for name in deltasql.exceptions.__all__:
        if name.endswith("Error"):
            assert f"## {name}\n" in pages["errors.md"]
    assert all(f"`{name}`" in pages["uri.md"] for name in PARAMETERS)
    assert all(f"`{name}`" in pages["metrics.md"] for name in METRICS)
    assert all(f"## deltasql {name}\n" in pages["cli.md"] for name in COMMANDS)
    for key in known_keys(Config):
        assert key.rpartition(".")[2] in pages["config.md"]


def test_front_page_shows_the_real_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (build.ROOT / "docs" / "index.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    (shown,) = re.findall(r"^```text\n(.*?)^```", page, re.M | re.S)
    exec(code.replace("/tmp/first", str(tmp_path)), {})
    assert capsys.readouterr().out == shown


def test_every_plotted_ratio_is_a_benchmark_result() -> None:
    """Bars show the benchmark results, also where a peer is faster."""
    found = {
        (peer, pair.label): ratio(pair) for peer, (_, pairs) in PEERS.items() for pair in pairs
    }
    assert {label for _, label in found} >= {
        "data skipping, unclustered column",
        "scan 20,000,000 rows",
    }
    drawn = ratios()
    for (_, label), value in found.items():
        assert f">{label}<" in drawn
        assert f">{value:,.0f}×<" in drawn or f">{value:.1f}×<" in drawn


def test_every_column_of_the_database_schema_is_documented(tmp_path: Path) -> None:
    with deltasql.connect(f"deltasql://sqlite/{tmp_path}/meta.db", create=True) as catalog:
        catalog.tables()
    with sqlite3.connect(tmp_path / "meta.db") as database:
        found = database.execute(
            "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c "
            "WHERE t.type = 'table' AND t.name LIKE 'dl\\_%' ESCAPE '\\'"
        ).fetchall()
    described = {
        (name, column) for name, columns in schema.tables().items() for column, *_ in columns
    }
    assert described == set(found)
    kept = schema.meanings()
    assert {(name, column) for name in kept for column in kept[name] if column} == described
    assert all(
        len(text) > 3 and text.endswith(".") for each in kept.values() for text in each.values()
    )


def test_every_public_name_has_a_docstring() -> None:
    assert [name for name, thing in public_objects() if not inspect.getdoc(thing)] == []


def public_objects() -> Iterator[tuple[str, object]]:
    """Yield the public names and members of deltasql with the object that has their docstring."""
    for module in MODULES:
        for name in module.__all__:
            thing = getattr(module, name)
            if module is deltasql and name not in api.own_names():
                continue
            yield f"{module.__name__}.{name}", thing
            if not inspect.isclass(thing):
                continue
            for member in dir(thing):
                found = inspect.getattr_static(thing, member)
                is_deltasql = any(
                    member in vars(each) and each.__module__.startswith("deltasql")
                    for each in thing.__mro__
                )
                has_doc = callable(getattr(thing, member, None)) or isinstance(found, property)
                if not member.startswith("_") and is_deltasql and has_doc:
                    yield f"{module.__name__}.{name}.{member}", found


def test_repository_and_edit_links_come_from_the_project_metadata(tmp_path: Path) -> None:
    (tmp_path / "Cargo.toml").write_text('[workspace.package]\nversion = "1.2.3"\n')
    project = tmp_path / "pyproject.toml"
    project.write_text("[project]\n")
    config = MkDocsConfig(config_file_path=str(tmp_path / "mkdocs.yml"))
    config.site_name = "deltasql"
    assert hooks.on_config(config).repo_url is None
    assert config.site_name == "deltasql 1.2.3"
    project.write_text('[project.urls]\nRepository = "https://git.example/deltasql.git"\n')
    assert hooks.on_config(config).repo_url == "https://git.example/deltasql"
    assert config.edit_uri == "edit/main/docs/"


# What a new user looks for, and the page that has it.
FINDABLE = {
    "commit two tables": "guides/transactions",
    "use it with Spark": "guides/spark",
    "my process died": "guides/process-dies",
    "back up": "guides/backup",
}


def test_start_page_links_to_what_new_users_look_for() -> None:
    page = (build.ROOT / "docs" / "index.md").read_text("utf-8")
    for wanted, guide in FINDABLE.items():
        assert re.search(rf"^\|[^|]*{wanted}[^|]*\| \[[^\]]+\]\({guide}\.md\)", page, re.MULTILINE)


@pytest.mark.everything("builds the whole site")
def test_search_finds_guides_first(site: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/index.html"
        with sync_api.sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            found = {wanted: first_found(browser, address, wanted) for wanted in FINDABLE}
        server.shutdown()
    assert found == {wanted: f"{guide}.html" for wanted, guide in FINDABLE.items()}


def first_found(browser: Browser, address: str, words: str) -> str:
    """Return the first result of the site search."""
    page = browser.new_page()
    page.goto(address)
    box = page.locator("input.md-search__input")
    box.focus()
    box.press_sequentially(words)
    page.wait_for_function("document.querySelector('.md-search-result__item mark')", timeout=60_000)
    link = page.locator(".md-search-result__item > .md-search-result__link").first
    place = urlsplit(link.evaluate("each => each.href")).path.removeprefix("/")
    page.close()
    return place


@pytest.mark.everything("builds the whole site")
def test_site_documents_every_public_name(site: Path) -> None:
    text = "".join(page.read_text("utf-8") for page in (site / "reference/api").glob("*.html"))
    wanted = {f"deltasql.{name}" for name in api.own_names()}
    wanted |= {f"{module.__name__}.{name}" for module in MODULES[1:] for name in module.__all__}
    assert wanted - set(re.findall(r'id="([\w.]+)"', text)) == set()


@pytest.mark.everything("builds the whole site")
def test_site_loads_nothing_from_other_hosts(site: Path) -> None:
    """Links to other hosts are allowed."""
    loaded = r"<(?:script|img|source|iframe)\b[^>]*\bsrc(?:set)?=\"(?:https?:)?//|@import"
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        assert re.search(loaded, text) is None, page
        for sheet in re.findall(r"<link\b[^>]*rel=\"(?:stylesheet|icon|preload)\"[^>]*>", text):
            assert "//" not in sheet
    assert (site / "search" / "search_index.js").stat().st_size > 100_000


@pytest.mark.everything("builds the whole site")
def test_site_has_pages_for_repository_files(site: Path) -> None:
    shown = (site / "repository/examples/pipeline/run.py.html").read_text("utf-8")
    assert "import" in shown
    assert "docs/" not in re.findall(r'href="([^"]+architecture[^"]*)"', shown)
    steps = (site / "repository/CONTRIBUTING.html").read_text("utf-8")
    assert 'href="../internals/architecture.html"' in steps


def test_menu_groups_guides_by_task_and_adds_new_guides() -> None:
    pages = ["guides/a.md", "guides/spark.md", "how-to/spark.md", "index.md", "how-to/b.md"]
    assert menu([*pages, "reference/api/aio.md"]) == [
        {"Start": ["index.md"]},
        {
            "Guides": [
                {"Spark": ["guides/spark.md", "how-to/spark.md"]},
                {"More": ["guides/a.md", "how-to/b.md"]},
            ]
        },
        {"Reference": [{"Python": ["reference/api/aio.md"]}]},
    ]


def test_menu_adds_pages_of_new_folders() -> None:
    pages = ["guides/deep/a.md", "how-we-test/b.md", "new.md", "repository/x.py.md"]
    assert menu(pages) == [
        {"Guides: deep": ["guides/deep/a.md"]},
        {"How we test": ["how-we-test/b.md"]},
        {"More": ["new.md"]},
    ]


def test_every_guide_is_in_a_group_of_the_menu() -> None:
    docs = build.ROOT / "docs"
    pages = sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))
    (guides,) = [each["Guides"] for each in menu(pages) if "Guides" in each]
    assert [group for group in guides if "More" in group] == []


def test_every_page_is_in_the_menu() -> None:
    docs = build.ROOT / "docs"
    pages = sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))
    entries = str(menu(pages))
    assert not [page for page in pages if f"'{page}'" not in entries]
