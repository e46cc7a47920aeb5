"""The messages in docs/troubleshooting.md are real."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pages import without_varying_values
from tests.troubleshooting import MADE, PAGE, Trouble, entries

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE_MESSAGES = entries(PAGE.read_text("utf-8"))


@pytest.fixture
def trouble(tmp_path: Path) -> Iterator[Trouble]:
    made = Trouble(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("heading", MADE)
def test_message_on_the_page_is_the_real_one(heading: str, trouble: Trouble) -> None:
    message = trouble.message(heading)
    assert _normalized(message) == _normalized(PAGE_MESSAGES[heading])
    assert all(part in message for part in heading.split(" … "))


def test_every_message_on_the_page_is_tested() -> None:
    assert {*PAGE_MESSAGES} == {*MADE}


def _normalized(text: str) -> str:
    """Remove what depends on the machine: process ids, times and messages of the driver."""
    text = re.sub(r"held in \S+ \(PID \d+\)", "held", without_varying_values(text))
    return re.sub(r"in [\d.]+(ms|µs|s) - .*", "", text)
