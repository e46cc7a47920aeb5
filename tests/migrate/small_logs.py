"""Hand-written logs, and the content of SQL after one was loaded."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from deltasql.model.clock import now_ms
from deltasql.storage import open_storage
from deltasql.store.records import TableRow

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql.storage import Storage
    from deltasql.store.store import Store

TABLES = (
    "dl_table_heads",
    "dl_table_versions",
    "dl_add_files",
    "dl_remove_files",
    "dl_partitions",
    "dl_skipping_columns",
    "dl_file_stats",
    "dl_metadata_updates",
    "dl_protocol_updates",
    "dl_txn_actions",
    "dl_domain_metadata",
    "dl_cdc_files",
)


def write_log(folder: Path, commits: list[list[dict[str, Any]]]) -> Storage:
    """Write a log with these commits."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    for version, actions in enumerate(commits):
        lines = "\n".join(json.dumps(action) for action in actions)
        (log / f"{version:020d}.json").write_text(lines)
    return open_storage(str(folder))


def random_commits(seed: int, count: int = 12) -> list[list[dict[str, Any]]]:
    """Return random commits that add, remove, update and restore files with a few names."""
    choose = random.Random(seed)
    commits: list[list[dict[str, Any]]] = [[protocol(), metadata(["id"])]]
    for version in range(1, count):
        actions: list[dict[str, Any]] = [{"commitInfo": {"timestamp": version, "operation": "X"}}]
        for _ in range(choose.randrange(6)):
            actions.append(added(f"f{choose.randrange(9)}", choose))
        for _ in range(choose.randrange(4)):
            actions.append(removed(f"f{choose.randrange(9)}", choose))
        if choose.random() < 0.2:
            actions.append(metadata(choose.choice([["id"], ["id", "x"], ["x"]])))
        if choose.random() < 0.3:
            actions.append({"txn": {"appId": f"a{choose.randrange(2)}", "version": version}})
        if choose.random() < 0.2:
            domain = {"domain": "d", "configuration": f"{version}", "removed": version % 2 == 0}
            actions.append({"domainMetadata": domain})
        commits.append(actions)
    return commits


def protocol() -> dict[str, Any]:
    features = ["deletionVectors", "domainMetadata"]
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features[:1],
            "writerFeatures": features,
        }
    }


def metadata(columns: list[str]) -> dict[str, Any]:
    """Return the metadata of a table with these columns and a partition column."""
    kinds = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in columns]
    kinds.append({"name": "p", "type": "string", "nullable": True, "metadata": {}})
    return {
        "metaData": {
            "id": "7d7f3a0e-57b6-4b52-8f5c-0a6f1f3f0c9b",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": kinds}),
            "partitionColumns": ["p"],
            "configuration": {},
            "createdTime": 1,
        }
    }


def added(path: str, choose: random.Random) -> dict[str, Any]:
    low = choose.randrange(100)
    stats = {
        "numRecords": 10,
        "minValues": {"id": low, "x": -low},
        "maxValues": {"id": low + 9, "x": 9 - low},
        "nullCount": {"id": 0, "x": 1},
    }
    body: dict[str, Any] = {
        "path": path,
        "partitionValues": {"p": choose.choice(["a", 'b "', None])},
        "size": choose.randrange(1000),
        "modificationTime": low,
        "dataChange": choose.random() < 0.5,
    }
    if choose.random() < 0.9:
        body["stats"] = json.dumps(stats)
    if choose.random() < 0.2:
        body["tags"] = {"k": "v", "n": None}
    if choose.random() < 0.2:
        body["deletionVector"] = vector(choose)
    if choose.random() < 0.1:
        body["unknown"] = {"kept": [1.50]}
    return {"add": body}


def removed(path: str, choose: random.Random) -> dict[str, Any]:
    body: dict[str, Any] = {"path": path, "deletionTimestamp": 5, "dataChange": True}
    if choose.random() < 0.6:
        body |= {"extendedFileMetadata": True, "partitionValues": {"p": "a"}, "size": 3}
    if choose.random() < 0.2:
        body["deletionVector"] = vector(choose)
    return {"remove": body}


def vector(choose: random.Random) -> dict[str, Any]:
    return {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": choose.randrange(2),
        "sizeInBytes": 40,
        "cardinality": 2,
    }


def hidden_table(store: Store, storage: Storage, name: str = "t") -> TableRow:
    """Create a hidden table to load a log into."""
    row: dict[str, Any] = {
        "table_uuid": "11111111-2222-4333-8444-555555555555",
        "namespace": "default",
        "name": name,
        "location": storage.location,
        "created_at_ms": 1,
    }
    properties = {TableRow.LOADING: "true", "kept": "yes"}
    dropped_at_ms = now_ms()
    with store.change() as (session, _):
        (found,) = session.query(
            "begin_loading", **row, dropped_at_ms=dropped_at_ms, properties=json.dumps(properties)
        )
    return TableRow(found[0], **row, dropped_at_ms=dropped_at_ms, properties=properties)


def everything(store: Store, table: TableRow) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row that SQL has for a table."""
    found = {}
    with store.session() as session:
        connection: Any = session._connection  # type: ignore[attr-defined]
        for name in TABLES:
            text = f"SELECT * FROM {name} WHERE table_id = {table.table_id}"
            rows = connection.execute(text).fetchall()
            found[name] = sorted((tuple(map(_plain, row[1:])) for row in rows), key=repr)
    return found


def _plain(value: object) -> object:
    return bytes(value) if isinstance(value, bytearray | memoryview) else value
