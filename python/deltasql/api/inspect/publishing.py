"""The state of each version at a target of the mirror, failed versions first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.api.inspect.page import (
    ABOVE_ALL,
    Page,
    check_choice,
    page_size,
    read_cursor,
    write_cursor,
)
from deltasql.mirror.publish.status import version_status
from deltasql.mirror.publish.targets import named, targets_of
from deltasql.model.clock import now_ms

if TYPE_CHECKING:
    from deltasql.api.catalog.base import BaseCatalog
    from deltasql.mirror.publish.status import VersionStatus
    from deltasql.mirror.publish.targets import PublishTarget

STATUSES = ("PENDING", "IN_FLIGHT", "COMPLETE", "FAILED")


def mirror_versions(
    catalog: BaseCatalog,
    name: str,
    *,
    target: str,
    only: str | None,
    limit: int,
    cursor: str | None,
) -> Page[VersionStatus]:
    """Return the failed versions, newest first, then the other versions, newest first."""
    if only is not None:
        check_choice("only", only, STATUSES)
    place = named(targets_of(catalog.store, catalog.resolve(name, fresh=True)), target)
    is_failing, before = (
        (1, ABOVE_ALL) if cursor is None else read_cursor("mirror", cursor, int, int)
    )
    wanted = page_size(limit) + 1
    found: list[tuple[int, VersionStatus]] = []
    key = {"table_id": place.table.table_id, "target": place.name}
    if is_failing:
        if only in (None, "FAILED"):
            rows = catalog.store.query("failed_versions", before=before, limit=wanted, **key)
            found += [(1, version_status(row, place)) for row in rows]
        before = ABOVE_ALL
    if only != "FAILED" and len(found) < wanted:
        low, high = _span(place, only)
        rows = catalog.store.query(
            "versions_at_target",
            first=low,
            before=min(before, high),
            limit=wanted - len(found),
            **key,
        )
        found += [(0, version_status(row, place)) for row in rows]
    page = found[:limit]
    last = write_cursor("mirror", page[-1][0], page[-1][1].version) if len(found) > limit else None
    return Page(tuple(each for _, each in page), last)


def _span(place: PublishTarget, only: str | None) -> tuple[int, int]:
    """Return the range of versions that can have a status; the end is exclusive."""
    following = place.published_version + 1
    is_claimed = place.claimed_until_ms > now_ms()
    if only == "COMPLETE":
        return 0, following
    if only == "IN_FLIGHT":
        return (following, following + 1) if is_claimed else (0, 0)
    if only == "PENDING":
        return following + is_claimed, ABOVE_ALL
    return 0, ABOVE_ALL
