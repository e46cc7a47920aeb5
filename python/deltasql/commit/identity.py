"""High-water marks of identity columns in commits.

A transaction reserves values in `dl_identity_numbers` before it writes rows, so no two
transactions generate the same values, whichever of them commits first. The commit that uses values
raises the marks in the metadata to the last reserved values, those of other transactions included.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.schema.identity import (
    Identity,
    identity_columns,
    marks_of,
    with_marks,
    without_marks,
)
from deltasql.model.schema.schema import column_mapping_mode, schema_of

if TYPE_CHECKING:
    from deltasql.commit.staged import Staged
    from deltasql.model.actions import Metadata
    from deltasql.model.schema.schema import StructField
    from deltasql.store.dialect import Session
    from deltasql.store.store import Store

TAGS = {"tags": {"delta.identity.schemaUpdate": "true"}}
"""Fields of the commitInfo of a commit that only raises high-water marks. With these fields,
delta-spark does not treat the commit as a change of the metadata."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The first and the last value of an identity column that a transaction has reserved.

    They cover all its reservations. `first` is None if it only moves the high-water mark.
    """

    first: int | None
    last: int


def reserve(
    staged: Staged, store: Store | None, field: StructField, mode: str | None, count: int
) -> int:
    """Reserve a range of values for a transaction and return the first.

    The reservation is a SQL transaction of its own. Values that are not used leave a gap. `store`
    is None for a table that the transaction creates or replaces: no other transaction can use it.
    """
    identity, key = Identity.of(field), field.physical_name(mode)
    assert identity is not None
    known = staged.identity.get(key)
    base = identity.last if known is None else identity.later(identity.last, known.last)
    last = _move(staged, store, identity, key, base, count * identity.step)
    first = last - (count - 1) * identity.step
    earliest = first if known is None or known.first is None else known.first
    staged.identity[key] = Numbers(earliest, last)
    return first


def move_mark(
    staged: Staged, store: Store | None, field: StructField, mode: str | None, value: int
) -> None:
    """Reserve all values up to a value that rows of the table already have."""
    identity, key = Identity.of(field), field.physical_name(mode)
    assert identity is not None
    before = identity.start - identity.step
    base = identity.later(before, identity.last, identity.rounded(value))
    if base == before:  # no value from the start on is used, so the column keeps its start
        return
    known = staged.identity.get(key)
    last = _move(staged, store, identity, key, base, 0)
    staged.identity[key] = Numbers(None if known is None else known.first, last)


def _move(
    staged: Staged, store: Store | None, identity: Identity, key: str, base: int, advance: int
) -> int:
    limit = identity.limit - advance
    last: int | None = None
    if identity.later(base, limit) == limit:
        if store is None:
            last = base + advance
        else:
            last = store.reserve_numbers(
                staged.table.table_id, key, base=base, advance=advance, step=identity.step,
                limit=limit,
            )  # fmt: skip
    if last is None:
        raise TxnLogSchemaError(
            f"the identity column {key!r} has no more values: BIGINT ends at {identity.limit}",
            table=staged.table.full_name,
            column=key,
            help="Create the table again with an identity column that starts elsewhere.",
        )
    return last


def with_current_marks(
    session: Session | None, staged: Staged, before: Metadata | None
) -> Metadata | None:
    """Return the metadata for a commit, with the new marks; None if the commit needs no metadata.

    `before` is the metadata of the latest version. The metadata of an external commit is returned
    unchanged.
    """
    metadata = staged.metadata or before
    if metadata is None or staged.is_external or not (staged.identity or staged.metadata):
        return staged.metadata
    schema, mode = schema_of(metadata.schema_string), column_mapping_mode(metadata.configuration)
    if not identity_columns(schema):
        return staged.metadata
    changed = schema
    if before is not None and not staged.restarts_identity:
        known = schema_of(before.schema_string)
        changed = with_marks(changed, mode, marks_of(known, mode))
        if session is not None:
            changed = with_marks(changed, mode, reserved_numbers(session, staged.table.table_id))
    changed = with_marks(changed, mode, {key: each.last for key, each in staged.identity.items()})
    if changed == schema:
        return staged.metadata
    return replace(metadata, schema_string=changed.to_json())


def reserved_numbers(session: Session, table_id: int) -> dict[str, int]:
    """Return the last reserved value of each identity column by physical column name."""
    return dict(session.query("reserved_numbers", table_id=table_id))


def unpublished_numbers(reserved: dict[str, int], metadata: Metadata) -> dict[str, Numbers]:
    """Return the reserved values that are beyond the marks of the metadata."""
    mode = column_mapping_mode(metadata.configuration)
    schema = schema_of(metadata.schema_string)
    now = marks_of(schema, mode)
    wanted = marks_of(with_marks(schema, mode, reserved), mode)
    return {key: Numbers(None, mark) for key, mark in wanted.items() if now.get(key) != mark}


def changes_only_marks(before: Metadata, after: Metadata) -> bool:
    """Return whether two versions of the metadata differ, but only in high-water marks."""
    if after == before or replace(after, schema_string=before.schema_string) != before:
        return False
    one, other = (without_marks(schema_of(each.schema_string)) for each in (before, after))
    return one == other


def overlapping(staged: Staged, marks: Metadata) -> str | None:
    """Return a column whose reserved values another writer may have used; None if there is none.

    `marks` is the metadata that the other writer committed.
    """
    schema, mode = schema_of(marks.schema_string), column_mapping_mode(marks.configuration)
    for field in schema.fields:
        identity, ours = Identity.of(field), staged.identity.get(field.physical_name(mode))
        if identity is None or identity.mark is None or ours is None or ours.first is None:
            continue
        if identity.later(identity.mark, ours.first) == identity.mark:
            return field.name
    return None
