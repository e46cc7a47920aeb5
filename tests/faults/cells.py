"""The fault matrix: which fault, at which point of which commit, on which database."""

from __future__ import annotations

import zlib
from dataclasses import astuple, dataclass
from itertools import product
from typing import TYPE_CHECKING, Literal, get_args

from deltasql.phases import MIRROR_PHASES, PHASES, WRITE_PHASES

if TYPE_CHECKING:
    from collections.abc import Iterator

Operation = Literal["append", "merge", "overwrite"]
Way = Literal["cold", "warm"]
"""The first commit of a process, or a later one, which has its table cached."""
Fault = Literal[
    "kill",  # SIGKILL at the point
    "kill soon",  # SIGKILL shortly after it, for example during a write or during COMMIT
    "error",  # a disk error
    "lost",  # a database error: the connection is lost, or a concurrent transaction interferes
    "pause",  # other clients read, commit and reconcile during the pause
]
POINTS: tuple[str, ...] = (*WRITE_PHASES, *PHASES, *MIRROR_PHASES)
BACKENDS = ("sqlite", "duckdb", "postgres")
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
WAYS: tuple[Way, ...] = get_args(Way)
FAULTS: tuple[Fault, ...] = get_args(Fault)
DURABLE = POINTS.index("ratified")
# Points that are reached once per table; the others once per commit.
OF_A_TABLE = {"intended", "written", "inserting", *POINTS[DURABLE + 1 :]}
# While a commit holds the locks of its tables, other commits wait.
LOCKED = ("locked", "checked", "sending", "inserting", "committing")


@dataclass(frozen=True, slots=True)
class Cell:
    """One fault at the nth time that a commit reaches a point."""

    backend: str
    point: str
    fault: Fault
    operation: Operation
    tables: int
    nth: int
    way: Way

    def __str__(self) -> str:
        return "-".join(str(each).replace(" ", "_") for each in astuple(self))

    @property
    def is_short(self) -> bool:
        """Whether the commit is a short append of one file, which has fewer points."""
        is_one_file = self.operation == "append" and self.tables == 1
        return self.way == "warm" and is_one_file and self.backend != "duckdb"

    @property
    def is_reached(self) -> bool:
        """Whether the commit reaches the point."""
        if not self.is_short or self.point not in LOCKED:
            return True
        passed = {"sqlite": {"checked", "inserting"}, "postgres": {*LOCKED} - {"sending"}}
        return self.point not in passed[self.backend]

    @property
    def is_ratified(self) -> bool | None:
        """Whether the commit must exist afterwards; None if both are allowed."""
        if POINTS.index(self.point) >= DURABLE:
            return True
        if self.fault == "kill soon":
            return None
        if self.fault == "pause":
            return True
        return self.fault == "lost" and self.point in LOCKED

    @property
    def is_acknowledged(self) -> bool | None:
        """Whether the client must get an acknowledgement; None if both are allowed."""
        if self.fault == "kill":
            return False
        if self.fault == "kill soon":
            return None
        if self.point == "ratified":
            return self.fault != "error"
        return self.is_ratified


def cells() -> Iterator[Cell]:
    """Yield every cell of the matrix."""
    for backend, point, fault, operation in product(BACKENDS, POINTS, FAULTS, OPERATIONS):
        # Database errors are injected only while the database is asked to commit.
        if fault == "lost" and point not in (*LOCKED, "ratified"):
            continue
        for tables, way in _shapes(fault, operation, f"{backend}{point}{fault}{operation}"):
            # With two tables, one of them is after the point and the other is not.
            nth = 2 if tables == 2 and point in OF_A_TABLE else 1
            cell = Cell(backend, point, fault, operation, tables, nth, way)
            if cell.is_reached:
                yield cell


def _shapes(fault: Fault, operation: Operation, name: str) -> list[tuple[int, Way]]:
    """Return the numbers of tables and the ways of the cells of a fault.

    A fault occurs in a commit to one table and in a commit to two tables, one in each way. An
    append to one table is tested in both ways.
    """
    turn = zlib.crc32(name.encode())
    one, two = (1, WAYS[turn % 2]), (2, WAYS[1 - turn % 2])
    found = [one, two]
    if fault in ("kill soon", "lost"):
        found = [found[turn // 2 % 2]]
    if operation == "append":
        found += [(1, way) for way in WAYS if (1, way) not in found]
    return found
