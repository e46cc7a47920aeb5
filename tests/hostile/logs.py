"""Malicious logs, and helpers that try every operation on them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltasql.exceptions import TxnLogError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from deltasql import Catalog

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


@dataclass(slots=True)
class HostileTable:
    """A table folder with one commit file of arbitrary content."""

    folder: Path
    schema: str = SCHEMA
    metadata: dict[str, Any] = field(default_factory=dict)
    actions: Sequence[dict[str, Any]] = ()
    lines: Sequence[bytes] = ()

    def write(self) -> str:
        """Write the table, with a data file of three rows that the log need not contain."""
        log = self.folder / "_delta_log"
        log.mkdir(parents=True)
        write_rows(self.folder / "real.parquet")
        metadata = {
            "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self.schema,
            "partitionColumns": [],
            "configuration": {},
            **self.metadata,
        }
        output = [PROTOCOL, {"metaData": metadata}, *self.actions]
        lines = [*(json.dumps(each).encode() for each in output), *self.lines]
        (log / f"{0:020d}.json").write_bytes(b"\n".join(lines) + b"\n")
        return str(self.folder)


def write_rows(path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([1, 2, 3], pa.int64())}), path)


def added(path: str, **fields: Any) -> dict[str, Any]:
    body = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1}
    return {"add": {**body, "dataChange": True, **fields}}


def output(attempt: Callable[[], object]) -> TxnLogError | None:
    """Run something; return the deltasql error that it raises, or None.

    Other errors fail the test.
    """
    try:
        attempt()
    except TxnLogError as error:
        text = str(error)
        assert "Help: " in text
        assert "Traceback" not in text
        return error
    return None


def try_all(catalog: Catalog, source: str) -> None:
    """Import, read, change and vacuum a table: each operation works or raises a clear error."""
    output(lambda: catalog.import_table(source, name="t", dry_run=True))
    refused = output(lambda: catalog.import_table(source, name="t", force=True))
    if refused is not None:
        assert catalog.tables() == [], "what was refused left something behind"
        return
    output(lambda: catalog.query("SELECT count(*) FROM t").read_all())
    output(lambda: catalog.table("t").describe())
    output(lambda: catalog.table("t").history(5))
    output(lambda: _change(catalog, "id = 1"))
    output(lambda: _change(catalog, None))
    options: dict[str, Any] = {"dry_run": False, "enforce_retention_duration": False}
    output(lambda: catalog.vacuum("t", retention_hours=0, full=True, **options))
    catalog.drop("t")


def _change(catalog: Catalog, predicate: str | None) -> None:
    with catalog.begin() as tx:
        tx.delete("t", predicate)
