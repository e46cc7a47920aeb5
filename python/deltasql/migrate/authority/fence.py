"""The result of fencing a table, and the warnings about writers that a fence affects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from deltasql.migrate.authority.handover import SPARK, recent_engines
from deltasql.model.protocol import FENCE
from deltasql.model.report import Report
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

FenceState = Literal["fenced", "was fenced", "would fence", "unfenced", "was not fenced"]
_TEXTS: dict[FenceState, str] = {
    "fenced": "fenced by version {}",
    "was fenced": "was fenced already",
    "would fence": "would be fenced",
    "unfenced": "the fence is removed by version {}",
    "was not fenced": "was not fenced",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceReport(Report):
    """The result of `fence` and `unfence`.

    `version` is the commit that changed the fence; None if nothing changed. Other engines notice
    the change when this version is published.
    """

    KEYS: ClassVar[tuple[str, ...]] = ("table", "state", "version", "is_published", "warnings")

    table: str
    state: FenceState
    version: int | None = None
    is_published: bool = True
    warnings: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return the state as text."""
        return _TEXTS[self.state].format(self.version)

    def summary(self) -> str:
        """Return the report as text."""
        warnings = (f"warning: {each}" for each in self.warnings)
        return "\n  ".join([f"{self.table}: {self.line()}", *warnings])


def fenced_tables(store: Store) -> list[str]:
    """Return the names of all fenced tables."""
    rows = store.query("tables_with_writer_feature", pattern=f'%"{FENCE}"%')
    return [join_table_name(namespace, name) for namespace, name in rows]


def blocked_jobs(store: Store, table: TableRow, *, has_log_store: bool) -> list[str]:
    """Return a warning if the fence stops jobs of delta-spark that commit through the database."""
    seen = recent_engines(store, table, SPARK)
    if not (seen or has_log_store):
        return []
    why = "delta-spark commits through the LogStore of deltasql"
    if not has_log_store:
        why = f"delta-spark committed to this table ({', '.join(seen)})"
    return [
        f"{why}: the fence stops these jobs, also those with the LogStore. Move them to the Spark "
        f"catalog or to deltasql.spark, or run `deltasql table unfence {table.full_name}`"
    ]
