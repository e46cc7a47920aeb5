"""Fixtures for the store tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psycopg
import pytest
from tests.store.guide import Guide

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def guide() -> Iterator[Guide]:
    """The commands of the production guide, with roles and a schema that only this test uses."""
    with psycopg.connect(os.environ["TEST_DATABASE_URL"], autocommit=True) as connection:
        begun = Guide.begin(connection)
        try:
            yield begun
        finally:
            begun.end()
