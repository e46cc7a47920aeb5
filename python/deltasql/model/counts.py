"""Format counts for messages."""

from __future__ import annotations


def many(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural where needed.

    >>> many(1, "commit"), many(2_500, "file"), many(0, "checkpoint")
    ('1 commit', '2,500 files', '0 checkpoints')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
