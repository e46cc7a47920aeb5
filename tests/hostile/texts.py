"""Malicious and unusual texts."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.selection import EXPLORES

MORE = 10 if EXPLORES else 1
"""Factor for the number of examples when new ones are explored."""

CRAFTED = (
    "",
    " ",
    "\0",
    "a\0b",
    "'",
    '"',
    "`",
    ";",
    "\\",
    "%",
    "%00",
    "%zz",
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "file:///etc/passwd",
    "'; DROP TABLE dl_tables; --",
    '"; DROP TABLE dl_tables; --',
    "' OR '1'='1",
    "1); DELETE FROM dl_tables; --",
    "x' UNION SELECT * FROM dl_tables --",
    "$1 $name :name ? %s %(name)s {in:ids} {use:x}",
    "${HOME}",
    "{{7*7}} {% for %} <%= 7 %>",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\r\nSet-Cookie: a=b\r\n\r\n<b>",
    "\u202e\u2066\U0001f600\u0301",
    "\ufeff",
    "İıſß",
    "SELECT",
    "select",
    "null",
    "NaN",
    "-0",
    "1e400",
    "9" * 5000,
    "-" * 3000,
    "x" * 20_000,
    "_" * 3000,
    "(" * 5000,
    "[" * 5000,
    "a:" * 2000,
    "password=" * 500,
)


def hostile_text() -> st.SearchStrategy[str]:
    """Return any text, and texts that an attacker would try."""
    crafted = st.sampled_from(CRAFTED)
    return crafted | st.text(max_size=60) | st.tuples(crafted, st.text(max_size=10)).map("".join)
