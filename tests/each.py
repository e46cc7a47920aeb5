"""Run one check over many inputs; the failure message names every input that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")


def check_each(
    inputs: Iterable[T], check: Callable[[T], object], *, name: Callable[[T], object] = str
) -> None:
    """Call `check` with each input, and fail once with all inputs that failed."""
    checked = 0
    failed: list[str] = []
    for each in inputs:
        checked += 1
        try:
            check(each)
        except (Exception, pytest.fail.Exception) as error:
            failed.append(f"{name(each)}: {type(error).__name__}: {error}")
    assert checked, "there was nothing to check"
    if failed:
        pytest.fail(f"{len(failed)} of {checked} failed\n" + "\n".join(failed), pytrace=False)
