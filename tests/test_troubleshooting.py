"""The messages in docs/troubleshooting.md are real."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pages import steady
from tests.troubleshooting import MADE, PAGE, Trouble, entries

if TYPE_CHECKING:
    from collections.abc import Iterator

TOLD = entries(PAGE.read_text("utf-8"))


@pytest.fixture
def trouble(tmp_path: Path) -> Iterator[Trouble]:
    made = Trouble(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("heading", MADE)
def test_message_on_the_page_is_the_real_one(heading: str, trouble: Trouble) -> None:
    told = trouble.told(heading)
    assert _plain(told) == _plain(TOLD[heading])
    assert all(part in told for part in heading.split(" … "))


def test_every_message_on_the_page_is_tested() -> None:
    assert {*TOLD} == {*MADE}


def _plain(text: str) -> str:
    """Remove what depends on the machine: process ids, times and messages of the driver."""
    text = re.sub(r"held in \S+ \(PID \d+\)", "held", steady(text))
    return re.sub(r"in [\d.]+(ms|µs|s) - .*", "", text)
