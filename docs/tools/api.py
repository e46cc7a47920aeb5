"""Generate the pages of the Python API; the site inserts the docstrings."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import deltalake

import deltasql
import deltasql.aio
import deltasql.spark
from docs.tools.text import as_markdown, first_line, table


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its public names, and the classes that they return, with an introduction."""

    title: str
    own: tuple[str, ...]
    how: str = ""
    returned: tuple[str, ...] = ()


# Public names that are not listed here are on the first page.
PAGES = {
    "delta-table": Page(
        "DeltaTable",
        ("DeltaTable", "QueryBuilder"),
        "`alter` is an `Alterer`; `changes` and `Catalog.cursor` return a `ChangeCursor`.",
        ("api.deltalake_compat.handle.alter.Alterer", "api.changes.ChangeCursor"),
    ),
    "catalog": Page(
        "Catalog",
        ("Catalog",),
        "`catalog.table(name)` is a `CatalogTable`, its `snapshot()` a `Snapshot`, its `scan()` a "
        "`Scan`. `catalog.mirror` publishes and repairs, `catalog.inspect` reports sizes, history "
        "and problems, and `catalog.health()` checks the connection to the database.",
        (
            *(
                "api.catalog.base.CatalogTable",
                "api.catalog.mirror.Mirror",
                "api.inspect.inspector.Inspect",
            ),
            *("snapshot.snapshot.Snapshot", "snapshot.snapshot.Scan", "api.catalog.catalog.Health"),
        ),
    ),
    "transaction": Page(
        "MultiTableTransaction",
        ("MultiTableTransaction", "ReadSet"),
        "`tx.merge(…)` is a `Merger`, which does nothing before `execute()`.",
        ("api.transaction.merger.Merger",),
    ),
    "actions": Page(
        "Actions",
        (
            *("AddFile", "RemoveFile", "AddCdcFile", "DeletionVector", "Metadata", "Protocol"),
            *("SetTransaction", "DomainMetadata", "CommitInfo"),
        ),
        "All actions have these methods:",
        ("model.actions.Action",),
    ),
    "reports": Page(
        "Reports",
        (),
        "Results of operations. They are immutable; `to_dict()` returns their values for JSON, and "
        "most of them have a `summary()` for people. A function that is passed as `on_progress` "
        "is called with a `Progress`.",
        (
            "model.progress.Progress",
            *("migrate.importing.report.ImportReport", "migrate.importing.report.ImportSummary"),
            *(
                "migrate.authority.follow.FollowReport",
                "migrate.authority.cutover.CutoverReport",
                "migrate.authority.fence.FenceReport",
            ),
            *(
                "migrate.authority.rollback.RollbackReport",
                "migrate.exporting.export.ExportReport",
                "operations.clone.clone.CloneReport",
                "operations.expire_history.ExpiredHistory",
                "operations.expire_history.HistoryLimit",
            ),
            *("migrate.rebuild.RebuildReport", "migrate.rebuild.RebuiltTable"),
            "migrate.authority.foreign_commits.ForeignReport",
            *("verify.report.VerifyReport", "verify.report.DataReport", "verify.report.Difference"),
            *("verify.repair.RepairReport", "mirror.publish.status.MirrorStatus"),
            *(
                "mirror.publish.status.VersionStatus",
                "mirror.log.last_checkpoint.CheckpointInfo",
            ),
            *("api.inspect.doctor.DoctorReport", "store.records.VersionRow"),
        ),
    ),
    "inspect": Page(
        "Inspection",
        (),
        "Results of `catalog.inspect`. They are immutable, and `to_dict()` returns their values "
        "for JSON.",
        (
            *("api.inspect.overview.Overview", "api.inspect.overview.CatalogTotals"),
            *("api.inspect.overview.TableSummary", "api.inspect.overview.HourCount"),
            *("api.inspect.stats.TableStats", "api.inspect.stats.SizeBucket"),
            *("api.inspect.stats.PartitionStats", "api.inspect.stats.Skew"),
            *("api.inspect.stats.DayGrowth", "api.inspect.files.FileEntry"),
            *("api.inspect.advice.MaintenanceAdvice", "api.inspect.advice.OptimizeAdvice"),
            *("api.inspect.advice.VacuumAdvice", "api.inspect.definition.Column"),
            *("api.inspect.definition.SchemaChange", "api.inspect.definition.ColumnChange"),
            *("api.inspect.definition.ValueChange", "api.inspect.diff.VersionDiff"),
            *("api.inspect.diff.FileTotals", "api.inspect.diff.FileChange"),
            *("api.inspect.diff.RowDiff", "api.inspect.history.CommitEntry"),
            *("api.inspect.history.FileChanges", "api.inspect.audit.AuditEntry"),
            *("api.inspect.history.TransactionEvent", "api.inspect.history.Participant"),
            *("api.inspect.history.RecentCommit", "api.inspect.checks.Check"),
            "api.inspect.page.Page",
        ),
    ),
}
SPARK_BUILDERS = (
    *(
        "spark.delta_table.merge.DeltaMergeBuilder",
        "spark.delta_table.optimize.DeltaOptimizeBuilder",
    ),
    *("spark.delta_table.builder.DeltaTableBuilder", "spark.streaming.StreamWriter"),
)


def pages() -> dict[str, str]:
    """Return the text of every page by file name."""
    out = {"deltasql.md": _front_page()}
    for name, page in PAGES.items():
        options = ("inherited_members: false",) if name in ("actions", "inspect") else ()
        parts = [
            f"# {page.title}",
            *(_directive(f"deltasql.{each}", *options) for each in page.own),
        ]
        if name == "delta-table":
            parts.append(_inherited())
        if page.own and page.how:
            parts.append("## Returned classes" if name != "actions" else "## Common methods")
        shown = () if name == "actions" else options
        parts += [page.how, *(_directive(f"deltasql.{each}", *shown) for each in page.returned)]
        out[f"{name}.md"] = "\n\n".join(parts)
    builders = [_directive(f"deltasql.{each}") for each in SPARK_BUILDERS]
    out["spark.md"] = "\n\n".join([_module_page(deltasql.spark), "## Returned classes", *builders])
    out["aio.md"] = _module_page(deltasql.aio)
    return out


def reexported_names() -> list[str]:
    """Return the public names that are re-exported from deltalake."""
    return [
        name
        for name in deltasql.__all__
        if getattr(deltasql, name) is getattr(deltalake, name, None)
    ]


def own_names() -> list[str]:
    """Return the public names that deltasql defines, without modules."""
    left_out = {"__version__", *reexported_names()}
    return [
        name
        for name in deltasql.__all__
        if name not in left_out and not inspect.ismodule(getattr(deltasql, name))
    ]


def _front_page() -> str:
    pages = {each: f"{name}.md" for name, page in PAGES.items() for each in page.own}
    rows = []
    # Actions last: few users need them, and in order of name they would precede `begin`.
    for name in sorted(own_names(), key=lambda each: (each in PAGES["actions"].own, each.lower())):
        page = pages.get(name, "")
        rows.append((f"[`{name}`]({page}#deltasql.{name})", first_line(getattr(deltasql, name))))
    functions = [f"deltasql.{name}" for name in own_names() if name not in pages]
    stock = ", ".join(f"`{name}`" for name in reexported_names())
    return "\n\n".join(
        [
            "# deltasql",
            as_markdown(deltasql.__doc__ or ""),
            table(("name", "meaning"), rows),
            "See also [`deltasql.spark`](spark.md) for PySpark, [`deltasql.aio`](aio.md) for "
            "asyncio and [`deltasql.exceptions`](../errors.md) for all exceptions.",
            f"These names are re-exported from deltalake without changes: {stock}.",
            *map(_directive, functions),
        ]
    )


def _module_page(module: Any) -> str:
    name = module.__name__
    parts = [f"# {name}", as_markdown(module.__doc__ or "")]
    parts += [_directive(f"{name}.{each}") for each in module.__all__]
    return "\n\n".join(parts)


def _inherited() -> str:
    """Return a table of the methods that DeltaTable inherits from deltalake's class."""
    rows = []
    for name in dir(deltalake.DeltaTable):
        if name.startswith("_") or name in vars(deltasql.DeltaTable):
            continue
        found = inspect.getattr_static(deltalake.DeltaTable, name)
        if isinstance(found, property):
            rows.append((f"`{name}`", "attribute"))
            continue
        taken = inspect.signature(getattr(deltalake.DeltaTable, name)).parameters
        rows.append((f"`{name}`", ", ".join(f"`{each}`" for each in taken if each != "self")))
    return (
        "## DeltaTable: from deltalake\n\n"
        "`DeltaTable` is a subclass of deltalake's `DeltaTable`. These inherited methods and "
        "attributes have the same meaning as in deltalake, and work on the log in the database. "
        "`help(deltasql.DeltaTable)` shows them with their documentation.\n\n"
        + table(("name", "takes"), rows)
    )


def _directive(path: str, *options: str) -> str:
    lines = [
        f"::: {path}",
        *(["    options:"] if options else []),
        *(f"      {o}" for o in options),
    ]
    return "\n".join(lines)
