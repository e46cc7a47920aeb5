"""Helpers for tests of checkpoints: write one, read one, and compute its expected content."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from deltasql.mirror.checkpoint.write import write_checkpoint
from deltasql.mirror.log.last_checkpoint import checkpoint_file
from deltasql.storage import open_storage

if TYPE_CHECKING:
    from deltasql import AddFile, Catalog, DomainMetadata, RemoveFile, SetTransaction
    from deltasql.mirror.log.last_checkpoint import CheckpointInfo
    from deltasql.model.actions import Action
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow


def table_row(catalog: Catalog, name: str = "t") -> TableRow:
    """Return the table's row in the store."""
    found = catalog.store.find_table("default", name)
    assert found is not None
    return found


def table_storage(catalog: Catalog, name: str = "t") -> Storage:
    """Return the storage of a table's location."""
    return open_storage(table_row(catalog, name).location)


def checkpoint(catalog: Catalog, name: str = "t", version: int | None = None) -> CheckpointInfo:
    """Write a checkpoint, by default of the latest version."""
    table = table_row(catalog, name)
    newest = catalog.table(name).snapshot().version
    return write_checkpoint(
        catalog.store,
        table,
        open_storage(table.location),
        newest if version is None else version,
    )


def actions_in(location: str, version: int) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a checkpoint by kind of action."""
    table = pq.read_table(Path(location) / checkpoint_file(version))
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in table.column_names}
    for row in table.to_pylist(maps_as_pydicts="strict"):
        ((kind, body),) = ((k, v) for k, v in row.items() if v is not None)
        found[kind].append(body)
    return found


class Replay:
    """Delta's action reconciliation, in plain Python."""

    def __init__(self) -> None:
        self.adds: dict[tuple[str, str | None], AddFile] = {}
        self.removes: dict[tuple[str, str | None], RemoveFile] = {}
        self.txns: dict[str, SetTransaction] = {}
        self.domains: dict[str, DomainMetadata] = {}

    def commit(self, actions: list[Action]) -> None:
        """Apply one commit."""
        for action in actions:
            each: Any = action
            if each.kind in ("add", "remove"):
                vector = each.deletion_vector
                key = (each.path, vector.unique_id if vector else None)
                self.adds.pop(key, None)
                self.removes.pop(key, None)
                (self.adds if each.kind == "add" else self.removes)[key] = each
            elif each.kind == "txn":
                self.txns[each.app_id] = each
            elif each.kind == "domainMetadata":
                self.domains.pop(each.domain, None)
                if not each.removed:
                    self.domains[each.domain] = each

    def expected(self, *, deleted_after_ms: int) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of a checkpoint, with `dataChange` false and without unknown fields."""
        recent = [
            each
            for each in self.removes.values()
            if (each.deletion_timestamp or 0) > deleted_after_ms
        ]
        return {
            "add": [_body(each, data_change=False) for each in self.adds.values()],
            "remove": [_body(each, data_change=False) for each in recent],
            "txn": [_body(each) for each in self.txns.values()],
            "domainMetadata": [_body(each) for each in self.domains.values()],
        }


def compact(body: Any) -> Any:
    """Drop null values, also in nested objects but not in string maps."""
    return {
        name: compact(value) if name in ("deletionVector", "format") else value
        for name, value in body.items()
        if value is not None
    }


def _body(action: Any, **changes: Any) -> dict[str, Any]:
    known = replace(action, extra={}, **changes)
    if getattr(known, "deletion_vector", None) is not None:
        known = replace(known, deletion_vector=replace(known.deletion_vector, extra={}))
    body = known.body()
    if body.get("stats") == "":  # no statistics
        del body["stats"]
    if body.get("clusteringProvider") == "":
        del body["clusteringProvider"]
    return dict(body)
