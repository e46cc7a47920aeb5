"""`deltasql docs` prints every page and every error that a message names."""

from __future__ import annotations

import re

from click.testing import CliRunner

from deltasql.cli.main import main
from deltasql.exceptions.documentation import documentation, topics
from tests.pages import ROOT


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["docs", *arguments])
    return result.exit_code, result.output


def test_topics_are_listed_and_printed() -> None:
    code, listed = run()
    assert code == 0
    titles = dict(re.split(r" {2,}", line, maxsplit=1) for line in listed.splitlines())
    assert titles["sql"] == "SQL statements"
    assert titles["TxnLogUriError"] == "A `deltasql://` URI is not valid."
    assert {*topics()} == titles.keys() - {"topic"}
    code, text = run("txnlogurierror")
    assert code == 0
    assert text.startswith("# TxnLogUriError\n\n- **Cause**: A `deltasql://` URI is not valid.")


def test_unknown_topic_suggests_the_most_similar_one() -> None:
    code, text = run("confg")
    assert code == 2
    assert "Did you mean 'config'?" in text
    assert "Did you mean 'TxnLogError'?" in run("TxnLogErr")[1]


def test_pages_are_printed_without_links_to_files() -> None:
    for topic in topics():
        assert not re.search(r"\]\([^)\s]*\)", documentation(topic)), topic


def test_messages_name_topics_and_never_files_of_the_repository() -> None:
    named, files = set(), []
    for path in sorted((ROOT / "python" / "deltasql").rglob("*.py")):
        text = path.read_text("utf-8")
        named |= set(re.findall(r"`deltasql docs ([a-z-]+)`", text))
        if re.search(r"docs/[a-z-]+[./]", text) and "/serve/" not in str(path):
            files.append(str(path.relative_to(ROOT)))
    assert {"config", "object-stores", "production", "sql", "troubleshooting"} <= named
    assert named <= set(topics())
    assert not files
