"""The pages of the Python interface: which names stand where; the site fills in the docstrings."""

from __future__ import annotations

import inspect
from typing import Any

import deltalake

import deltasql
import deltasql.aio
import deltasql.spark
from docs.tools.text import as_markdown, first_line, table

# What stands on a page of its own, with what it hands out; all other names are on the first page.
CLASSES = {
    "catalog": (
        "Catalog",
        ("deltasql.Catalog",),
        (
            *("deltasql.api.table.CatalogTable", "deltasql.api.mirror.Mirror"),
            *("deltasql.api.inspect.inspector.Inspect", "deltasql.api.catalog.Health"),
            *("deltasql.snapshot.snapshot.Snapshot", "deltasql.snapshot.scan.Scan"),
        ),
    ),
    "transaction": (
        "MultiTableTransaction",
        ("deltasql.MultiTableTransaction", "deltasql.ReadSet"),
        ("deltasql.api.merger.Merger",),
    ),
    "delta-table": (
        "DeltaTable",
        ("deltasql.DeltaTable", "deltasql.QueryBuilder"),
        ("deltasql.api.alterer.Alterer", "deltasql.api.changes.ChangeCursor"),
    ),
    "actions": (
        "Actions",
        tuple(
            f"deltasql.{name}"
            for name in (
                *("AddFile", "RemoveFile", "AddCdcFile", "DeletionVector", "Metadata"),
                *("Protocol", "SetTransaction", "DomainMetadata", "CommitInfo"),
            )
        ),
        (),
    ),
}


def pages() -> dict[str, str]:
    """The text of every page by file name."""
    out = {"deltasql.md": _front_page()}
    for name, (title, own, given) in CLASSES.items():
        parts = [f"# {title}", *map(_directive, own)]
        if name == "delta-table":
            parts.append(_inherited())
        parts += map(_directive, given)
        out[f"{name}.md"] = "\n\n".join(parts)
    out["spark.md"] = _room(deltasql.spark)
    out["aio.md"] = _room(deltasql.aio)
    return out


def taken_over() -> list[str]:
    """The public names that are deltalake's own objects."""
    return [
        name
        for name in deltasql.__all__
        if getattr(deltasql, name) is getattr(deltalake, name, None)
    ]


def own_names() -> list[str]:
    """The public names of the package that are deltasql's own, rooms left out."""
    left_out = {"__version__", *taken_over()}
    return [
        name
        for name in deltasql.__all__
        if name not in left_out and not inspect.ismodule(getattr(deltasql, name))
    ]


def _front_page() -> str:
    homes = {
        each.removeprefix("deltasql."): f"{page}.md"
        for page, (_, own, _) in CLASSES.items()
        for each in own
    }
    rows = []
    for name in sorted(own_names(), key=str.lower):
        page = homes.get(name, "")
        rows.append((f"[`{name}`]({page}#deltasql.{name})", first_line(getattr(deltasql, name))))
    functions = [f"deltasql.{name}" for name in own_names() if name not in homes]
    stock = ", ".join(f"`{name}`" for name in taken_over())
    return "\n\n".join(
        [
            "# deltasql",
            as_markdown(deltasql.__doc__ or ""),
            table(("name", "meaning"), rows),
            "[`deltasql.spark`](spark.md) is what PySpark users import, "
            "[`deltasql.aio`](aio.md) is for code with an event loop, "
            "[`deltasql.exceptions`](../errors.md) has everything that is raised.",
            f"deltalake's own, unchanged: {stock}.",
            *map(_directive, functions),
        ]
    )


def _room(module: Any) -> str:
    name = module.__name__
    parts = [f"# {name}", *(_directive(f"{name}.{each}") for each in module.__all__)]
    return "\n\n".join(parts)


def _inherited() -> str:
    """The methods that DeltaTable has from deltalake's class, which work on tables in SQL."""
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
        "`DeltaTable` is a subclass of deltalake's. These have deltalake's meaning and work on the "
        "log in SQL; `help(deltasql.DeltaTable)` shows them with their documentation.\n\n"
        + table(("name", "takes"), rows)
    )


def _directive(path: str) -> str:
    return f"::: {path}"
