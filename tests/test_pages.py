"""The code of the documentation pages runs and prints the output that they show."""

from __future__ import annotations

import re
from codeop import compile_command
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.each import check_each
from tests.pages import (
    POSTGRES,
    REASONS,
    ROOT,
    Console,
    place,
    reasons,
    without_varying_values,
    written_pages,
)
from tests.s3 import new_bucket
from tests.selection import smoke

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltasql.uri import DeltaSqlUri

# The commands of this guide start with a lost catalog: tests/migrate/test_runbook.py runs them.
OF_ITS_OWN = "docs/guides/disaster-recovery.md"
PAGES = {
    str(page.relative_to(ROOT)): text
    for page in written_pages()
    if re.search(r"^```(python|console|sh)$", text := page.read_text("utf-8"), re.MULTILINE)
    and page != ROOT / OF_ITS_OWN
}
WITH_SPARK = [name for name, text in PAGES.items() if re.search(r"^import.*\bspark\b", text, re.M)]
WITH_S3 = [name for name, text in PAGES.items() if "http://127.0.0.1:9000" in text]
WITH_POSTGRES = ["docs/quickstart-postgresql.md"]
ALONE = [name for name in PAGES if name not in {*WITH_SPARK, *WITH_S3, *WITH_POSTGRES}]


@pytest.mark.parametrize("name", ALONE)
def test_page_shows_the_real_output(name: str, tmp_path: Path) -> None:
    assert without_varying_values(Console(tmp_path).page(PAGES[name])) == without_varying_values(
        PAGES[name]
    )


@pytest.mark.parametrize("name", WITH_S3)
def test_page_with_s3_shows_the_real_output(name: str, tmp_path: Path, s3_server: str) -> None:
    bucket = new_bucket(s3_server)
    moved = {"http://127.0.0.1:9000": s3_server, "s3://lake": bucket}
    assert without_varying_values(
        Console(tmp_path, moved).page(PAGES[name])
    ) == without_varying_values(PAGES[name])


@pytest.mark.parametrize("name", WITH_POSTGRES)
def test_page_with_postgres_shows_the_real_output(
    name: str, tmp_path: Path, postgres_uri: DeltaSqlUri
) -> None:
    moved = {POSTGRES: postgres_uri.to_string()}
    assert without_varying_values(
        Console(tmp_path, moved).page(PAGES[name])
    ) == without_varying_values(PAGES[name])


@pytest.mark.parametrize("name", smoke(WITH_SPARK, ("README.md",), "more pages with Spark"))
def test_page_with_spark_shows_the_real_output(
    name: str, tmp_path: Path, spark: SparkSession
) -> None:
    for attempt in range(3):
        console = Console(tmp_path / str(attempt))
        console.folder.mkdir()
        try:
            followed = console.page(PAGES[name])
            break
        except Exception as error:
            # Spark gives a Python worker only ten seconds to start.
            if attempt == 2 or "failed to connect back" not in str(error):
                raise
    assert without_varying_values(followed) == without_varying_values(PAGES[name])
    assert console.names["spark"] is spark


def test_each_page_uses_its_own_folder_below_tmp() -> None:
    """Otherwise the tables of one page would be in the way of another."""
    used = Counter(filter(None, map(place, PAGES.values())))
    assert [folder for folder, pages in used.items() if pages > 1 or folder == "/srv"] == []


def test_python_blocks_can_be_pasted_into_an_interpreter() -> None:
    """Before Python 3.13, only an empty line ends an indented block there."""
    check_each(PAGES, check_pasting)


def check_pasting(name: str) -> None:
    for body in re.findall(r"^```python\n(.*?)^```", PAGES[name], re.M | re.S):
        typed: list[str] = []
        for line in [*body.splitlines(), ""]:
            typed.append(line)
            if compile_command("\n".join(typed)) is not None:
                typed.clear()
        assert not typed


def test_blocks_that_are_not_run_have_a_reason() -> None:
    found = {name: reasons(text) for name, text in PAGES.items()}
    assert {each for page in found.values() for each in page} <= {*REASONS}
    assert {name for name, page in found.items() if len(page) > 2} == set()
