"""The messages of the page on troubleshooting are those that users meet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pages import steady
from tests.trouble import MADE, PAGE, Trouble, entries

if TYPE_CHECKING:
    from collections.abc import Iterator

TOLD = entries(PAGE.read_text("utf-8"))


@pytest.fixture
def trouble(tmp_path: Path) -> Iterator[Trouble]:
    made = Trouble(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("heading", MADE)
def test_a_message_of_the_page_is_the_real_one(heading: str, trouble: Trouble) -> None:
    told = trouble.told(heading)
    assert _plain(told) == _plain(TOLD[heading])
    assert all(part in told for part in heading.split(" … "))


def test_every_message_of_the_page_is_made_on_purpose() -> None:
    assert {*TOLD} == {*MADE}


def _plain(text: str) -> str:
    """Leave out what belongs to a machine: processes, times, the driver's own words."""
    text = re.sub(r"held in \S+ \(PID \d+\)", "held", steady(text))
    return re.sub(r"in [\d.]+(ms|µs|s) - .*", "", text)
