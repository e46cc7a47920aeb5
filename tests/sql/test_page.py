"""The reference page lists exactly the statements that the tests run."""

from __future__ import annotations

from tests.sql.page import PAGE, with_table


def test_page_has_the_table_of_the_tested_statements() -> None:
    text = PAGE.read_text("utf-8")
    assert text == with_table(text), "run `python -m tests.sql`"
