"""Compare two versions of a table, and return the rows that only one of them has.

Only files that are not in both versions are read. A row that was copied to another file is in both
versions and cancels out. If a row occurs several times, the difference of the counts is reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from deltasql.engine.files.live_files import LiveFiles
from deltasql.engine.inputs import python_rows
from deltasql.operations.sql.queries import column, identifier
from deltasql.snapshot.files import removed_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.config import Config
    from deltasql.engine.base import Engine, Relation
    from deltasql.snapshot.snapshot import Snapshot

_COUNT = "__deltasql_count"


@dataclass(frozen=True, slots=True)
class RowDifference:
    """Some inserted and some deleted rows, and whether there are more."""

    columns: tuple[str, ...]
    inserted: tuple[dict[str, Any], ...]
    deleted: tuple[dict[str, Any], ...]
    more: bool


def row_difference(
    engine: Engine, config: Config, old: Snapshot, new: Snapshot, *, limit: int
) -> RowDifference:
    """Compare two versions of a table by their common columns; `old` is the earlier version."""
    names = [name for name in new.schema.names if name in old.schema.names]
    before = old.scan().arrow
    gone = _ids(before, _removed_ids(old, new))
    removed = before.filter(pc.is_in(before["file_id"], value_set=gone))
    after = new.scan().arrow
    added = after.filter(pc.greater_equal(after["file_id"], old.next_file_id))
    sides = [
        _signed("a", names, 1),
        _signed("b", names, -1),
    ]
    columns = [column(name) for name in names]
    total = exp.Sum(this=column(_COUNT))
    query = (
        exp.select(*columns, exp.alias_(total, identifier(_COUNT)))
        .from_(exp.union(*sides, distinct=False).subquery("u"))
        .group_by(*(each.copy() for each in columns))
        .having(exp.NEQ(this=total.copy(), expression=exp.Literal.number(0)))
    )
    kept = engine.keep(
        engine.query(
            query,
            a=_rows(engine, config, new, added),
            b=_rows(engine, config, old, removed),
        )
    )
    inserted = _some(engine, kept, exp.GT, limit)
    deleted = _some(engine, kept, exp.LT, limit)
    return RowDifference(
        tuple(names),
        tuple(inserted[:limit]),
        tuple(deleted[:limit]),
        len(inserted) > limit or len(deleted) > limit,
    )


def _removed_ids(old: Snapshot, new: Snapshot) -> set[int]:
    at = {"table_id": old.table.table_id, "after": old.version, "last": new.version}
    found = removed_ids(old.store, **at)
    if found is None:
        old.check_not_expired()
    return set(found or ())


def _ids(files: pa.Table, chosen: set[int]) -> pa.Array:
    return pa.array(sorted(chosen), files["file_id"].type)


def _rows(engine: Engine, config: Config, snapshot: Snapshot, files: pa.Table) -> Relation:
    live = LiveFiles(snapshot.table.location, snapshot.metadata, files, config.storage)
    return engine.scan(live)


def _signed(relation: str, names: Sequence[str], sign: int) -> exp.Select:
    return exp.select(
        *(column(name, relation) for name in names),
        exp.alias_(exp.Literal.number(sign), identifier(_COUNT)),
    ).from_(exp.to_table(relation))


def _some(
    engine: Engine, kept: Relation, comparison: type[exp.Binary], limit: int
) -> list[dict[str, Any]]:
    """Return up to `limit + 1` rows that one version has more often than the other.

    Each row is repeated according to the difference of the counts.
    """
    zero = exp.Literal.number(0)
    query = exp.select(exp.Star()).from_(exp.to_table("t")).limit(limit + 1)
    chosen = query.where(comparison(this=column(_COUNT), expression=zero))
    found: list[dict[str, Any]] = []
    for row in python_rows(engine.collect(engine.query(chosen, t=kept))):
        count = abs(int(row.pop(_COUNT)))
        found += [row] * min(count, limit + 1 - len(found))
        if len(found) > limit:
            break
    return found
