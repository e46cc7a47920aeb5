"""Hand-written logs with every variation that the protocol allows."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.mirror.support import LOG, commit_path

if TYPE_CHECKING:
    from pathlib import Path

_SCHEMA = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
}
_METADATA = {
    "id": "0d6f7f38-7e0c-4a44-9f0a-6f3a54a4f3c1",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": json.dumps(_SCHEMA, indent=1),
    "partitionColumns": [],
    "configuration": {},
    "createdTime": None,
}
_LATER = {"a": [1, None]}
_INFO: dict[str, Any] = {"timestamp": 1_500_000_000_000, "operation": "WRITE", "later": _LATER}


def older_writers(place: Path) -> None:
    """A log without commit info; fields are null, missing or unknown, and actions in any order."""
    first, second, third = (_rows(place, name) for name in ("a b", "c", "d"))
    no_time = {"path": third["path"], "dataChange": True, "extendedFileMetadata": False}
    gone = {"path": first["path"], "deletionTimestamp": 1_500_000_100_000, "dataChange": True}
    restated = {**second, "dataChange": False, "stats": '{"numRecords":2}'}
    commits: list[list[dict[str, Any]]] = [
        [
            {"add": first},
            {"metaData": _METADATA},
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        ],
        [
            {"add": {**second, "stats": None, "tags": None}},
            {"commitInfo": _INFO},
            {"txn": {"appId": "etl", "version": 1, "lastUpdated": None}},
        ],
        [],
        [
            {"remove": gone},
            {"add": {**third, "stats": '{"numRecords": 2}', "later": [1]}},
        ],
        [{"add": restated}],
        [{"remove": {**no_time, "path": "unknown.parquet"}}, {"remove": no_time}],
        [{"add": {**first, "stats": "{}"}}],
    ]
    for version, actions in enumerate(commits):
        text = "\n".join(json.dumps(action) for action in actions)
        file = commit_path(place, version)
        file.write_text(text + ("\n\n" if version % 2 else ""))
        at_s = _INFO["timestamp"] // 1000 + version - 1
        os.utime(file, (at_s, at_s))


def _rows(place: Path, name: str) -> dict[str, Any]:
    """Write a file with two rows and return an add action with only the required fields."""
    (place / LOG).mkdir(parents=True, exist_ok=True)
    file = place / f"{name}.parquet"
    pq.write_table(pa.table({"id": [len(name), 10 + len(name)]}), file)
    return {
        "path": f"{name}.parquet".replace(" ", "%20"),
        "size": file.stat().st_size,
        "partitionValues": {},
        "modificationTime": 1,
        "dataChange": True,
    }
