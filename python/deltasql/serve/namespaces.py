"""Requests about namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.uri import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.api.catalog.catalog import Catalog


def listed(catalog: Catalog) -> dict[str, Any]:
    """List all namespaces; the default namespace always exists."""
    found = catalog.namespaces() if catalog.store.exists() else []
    return {"namespaces": sorted({DEFAULT_NAMESPACE, *found})}


def create(catalog: Catalog, body: Mapping[str, Any]) -> dict[str, Any]:
    """Create a namespace, unless it exists."""
    catalog.create_namespace(str(body["namespace"]))
    return {}


def drop(catalog: Catalog, body: Mapping[str, Any]) -> dict[str, Any]:
    """Drop an empty namespace; with `cascade`, drop its tables first."""
    namespace = str(body["namespace"])
    if body.get("cascade"):
        for table in catalog.tables(namespace):
            catalog.drop(table.full_name)
    catalog.drop_namespace(namespace)
    return {}
