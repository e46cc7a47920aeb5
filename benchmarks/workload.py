"""The table that all systems get: its schema, its files and their statistics.

File number i of n is in the partition of day i*1000//n and has a thousand rows. `id` is clustered
in the order of ingestion, `code` has disjoint ranges in another order, and the ranges of `amount`
overlap in all files.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = pa.schema(
    [
        pa.field("day", pa.string()),
        pa.field("id", pa.int64()),
        pa.field("code", pa.int64()),
        pa.field("amount", pa.float64()),
    ]
)
PARTITION_BY = ["day"]
SKIPPING_COLUMNS = ("id", "code", "amount")
ROWS_PER_FILE = 1000
MODIFIED_MS = 1_760_000_000_000
# This number is coprime to every size used, so that i -> i*STRIDE % n visits each slot once.
STRIDE = 617_039


class Facts(NamedTuple):
    """The metadata of one data file, independent of any system."""

    path: str
    day: str
    size: int
    modified_ms: int
    records: int
    bounds: tuple[tuple[float, float], ...]
    stats: str

    @property
    def keys(self) -> list[tuple[bytes, bytes]]:
        """The bounds as order-preserving keys, one pair for each column with statistics."""
        return [(_key(low), _key(high)) for low, high in self.bounds]


class Predicate(NamedTuple):
    """A predicate that matches one file in a thousand, and the matching files."""

    name: str
    sql: str
    files: tuple[int, ...]


def facts(number: int, total: int) -> Facts:
    """Describe file `number` of a table that will have `total` files.

    >>> facts(0, 10).day, facts(9, 10).bounds[0]
    ('d0000', (9000, 9999))
    """
    first = number * ROWS_PER_FILE
    slot = number * STRIDE % total * ROWS_PER_FILE
    amount = float(number * 7 % 1000)
    bounds = (
        (first, first + ROWS_PER_FILE - 1),
        (slot, slot + ROWS_PER_FILE - 1),
        (amount, amount + 5000.5),
    )
    day = f"d{number * 1000 // total:04d}"
    document = {
        "numRecords": ROWS_PER_FILE,
        "minValues": {c: b[0] for c, b in zip(SKIPPING_COLUMNS, bounds, strict=True)},
        "maxValues": {c: b[1] for c, b in zip(SKIPPING_COLUMNS, bounds, strict=True)},
        "nullCount": dict.fromkeys(SKIPPING_COLUMNS, 0),
    }
    return Facts(
        path=f"day={day}/part-{number:08d}-5f0c7e52-6e2b-4f7c-9d0a-1f3f0c9b7a11.c000.snappy.parquet",
        day=day,
        size=1_000_000 + number % 4096,
        modified_ms=MODIFIED_MS + number,
        records=ROWS_PER_FILE,
        bounds=bounds,
        stats=json.dumps(document, separators=(",", ":")),
    )


def batch(first: int, count: int, total: int) -> list[Facts]:
    """Describe `count` files, starting with number `first`."""
    return [facts(number, total) for number in range(first, first + count)]


def stream(total: int = 1_000_000) -> Iterator[Facts]:
    """Yield files without end, for commits of one file each."""
    number = 0
    while True:
        yield facts(number, total)
        number += 1


def predicates(total: int) -> list[Predicate]:
    """Return the predicates of the planning scenario; each matches one file in a thousand."""
    share = total // 1000
    start = 500 * share
    low, high = start * ROWS_PER_FILE, (start + share) * ROWS_PER_FILE - 1
    slots = range(start, start + share)
    inverse = pow(STRIDE, -1, total)
    scattered = tuple(sorted(slot * inverse % total for slot in slots))
    clustered = tuple(range(start, start + share))
    return [
        Predicate("partition", "day = 'd0500'", clustered),
        Predicate("clustered", f"id BETWEEN {low} AND {high}", clustered),
        Predicate("scattered", f"code BETWEEN {low} AND {high}", scattered),
    ]


def _key(value: float) -> bytes:
    if isinstance(value, int):
        return b"\x01" + struct.pack(">Q", value + (1 << 63))
    # Amounts are never negative, so the raw bits sort like the values.
    return b"\x01" + struct.pack(">d", value)
