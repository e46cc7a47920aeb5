"""Write the table of statements into docs/reference/sql.md: `python -m tests.sql`."""

from __future__ import annotations

from tests.sql.page import PAGE, with_table

if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")
