"""Some files of a version as a deltalake table: a temporary log with one commit."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from deltalake._internal import RawDeltaTable

from deltasql.engine.files.addresses import address_url, data_addresses
from deltasql.storage.location import parse_location

if TYPE_CHECKING:
    import pyarrow as pa

    from deltasql.api.deltalake_compat.handle.table import RawTable


def can_excerpt(raw: RawTable, listed: pa.Table) -> bool:
    """Return whether a temporary log can list the files: local, without deletion vectors."""
    is_local = parse_location(raw.row.location).is_local
    return is_local and not pc.any(pc.not_equal(listed["deletion_vector"], "")).as_py()


def excerpt(raw: RawTable, listed: pa.Table) -> RawDeltaTable:
    """Return a deltalake table of the listed files; its temporary log is deleted again."""
    with tempfile.TemporaryDirectory(prefix="deltasql-") as folder:
        log = Path(folder, "_delta_log")
        log.mkdir()
        lines = map(_line, _actions(raw, listed))
        Path(log, f"{0:020d}.json").write_text("\n".join(lines), encoding="utf-8")
        return RawDeltaTable(folder, version=None, storage_options=None)


def _actions(raw: RawTable, listed: pa.Table) -> list[dict[str, object]]:
    snapshot = raw.snapshot
    info = {"timestamp": snapshot.committed_at_ms, "operation": "READ"}
    actions: list[dict[str, object]] = [
        {"commitInfo": {"inCommitTimestamp": snapshot.committed_at_ms, **info}},
        {"protocol": snapshot.protocol.body()},
        {"metaData": snapshot.metadata.body()},
    ]
    paths = data_addresses(raw.row.location, listed["path"].to_pylist())
    columns = ("partition", "size", "modification_time", "stats")
    rows = zip(paths, *(listed[name].to_pylist() for name in columns), strict=True)
    for path, partition, size, modified, stats in rows:
        add = {
            "path": address_url(path),
            "partitionValues": json.loads(partition or "{}"),
            "size": size,
            "modificationTime": modified,
            "dataChange": True,
        }
        actions.append({"add": {**add, "stats": stats} if stats else add})
    return actions


def _line(action: dict[str, object]) -> str:
    return json.dumps(action, separators=(",", ":"), ensure_ascii=False)
