"""Clients that read and change tables at random and record what they read."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import deltasql
from deltasql import ReadSet, RemoveFile
from deltasql.exceptions import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    RetriesExhaustedError,
)
from tests.commit.support import SCHEMA, file
from tests.serializability.checker import Log, Version
from tests.serializability.record import COMMITTED, FAILED, READ, Recorder, Transaction
from tests.serializability.rows import APPEND, INSERT, KINDS, REPLACE, UPSERT, Change, RowLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql import Catalog
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.uri import DeltaSqlUri
    from tests.serializability.rows import Row

# Half of the tables allow blind appends in between, which is Delta's default.
LEVELS = {
    "a": "Serializable",
    "b": "Serializable",
    "c": "WriteSerializable",
    "d": "WriteSerializable",
}
# Tables with rows, changed by operations; the tables above only have file names.
ROW_LEVELS = {"r": "Serializable", "s": "WriteSerializable"}
ROWS = pa.schema([("id", pa.int64()), ("part", pa.string()), ("writer", pa.string())])
_KEYS = range(12)
_MANY_FILES = 30
MIN_TRANSACTIONS = 10
"""The minimum number of transactions of a client, on any machine."""


def open_lake(uri: DeltaSqlUri, folder: Path) -> Catalog:
    """Open the catalog with a mirror, whose log the checker reads."""
    settings = {"data_root": str(folder / "lake")}
    return deltasql.connect(uri, mirror={"mode": "sync"}, table=settings)


def create(catalog: Catalog) -> None:
    """Create the tables, each with its isolation level."""
    for name, level in LEVELS.items():
        catalog.create_table(name, SCHEMA, properties={"delta.isolationLevel": level})
    for name, level in ROW_LEVELS.items():
        properties = {"delta.isolationLevel": level}
        catalog.create_table(name, ROWS, partition_by="part", properties=properties)


def logs(catalog: Catalog) -> dict[str, Log]:
    """Read the logs of the tables as files, without SQL or our own reader."""
    found = {}
    for name, level in {**LEVELS, **ROW_LEVELS}.items():
        paths = sorted((Path(catalog.table(name).location) / "_delta_log").glob("*[0-9].json"))
        versions = [_version(path.read_text()) for path in paths]
        assert [int(path.stem) for path in paths] == list(range(len(paths)))
        found[name] = Log(versions, serializable=level == "Serializable")
    return found


def row_logs(catalog: Catalog, logs: Mapping[str, Log]) -> dict[str, RowLog]:
    """Read the rows of every version with pyarrow, from the files that the log names."""
    found = {}
    for name, level in ROW_LEVELS.items():
        location, states = Path(catalog.table(name).location), logs[name].states()
        rows = {path: _rows(location, path) for path in frozenset().union(*states)}
        versions = [
            (version.txn_id, sum((rows[path] for path in state), Counter()))
            for version, state in zip(logs[name].versions, states, strict=True)
        ]
        found[name] = RowLog(versions, serializable=level == "Serializable")
    return found


def _rows(location: Path, path: str) -> Counter[Row]:
    part = path.partition("part=")[2].partition("/")[0]
    found = pq.ParquetFile(location / path).read().to_pylist()
    return Counter((row["id"], part, row["writer"]) for row in found)


def _version(text: str) -> Version:
    actions = [json.loads(line) for line in text.splitlines()]
    [txn_id] = [each["commitInfo"]["txnId"] for each in actions if "commitInfo" in each]
    return Version(
        txn_id,
        frozenset(each["add"]["path"] for each in actions if "add" in each),
        frozenset(each["remove"]["path"] for each in actions if "remove" in each),
    )


def work(catalog: Catalog, out: Path, seed: str, end: float) -> None:
    """Run transactions until the time is over, at least a minimum number, or until killed."""
    rng = random.Random(seed)
    with out.open("a") as lines:
        recorder = Recorder(lines)
        for number in count():
            if number >= MIN_TRANSACTIONS and time.monotonic() > end:
                return
            # The first only reads, the second only appends, independent of the random numbers.
            kinds = {0: (4, 0), 1: (0, 1)}
            many = kinds.get(number) or _kind(rng)
            change = _change(rng, number, f"{out.stem}-{number}")
            _run_transaction(catalog, recorder, rng, f"{out.stem}-{number}", many, change)


def _kind(rng: random.Random) -> tuple[int, int]:
    """Return how many tables a transaction reads and how many it changes."""
    read = rng.choice((0, 1, 1, 2, 3, 4))
    return read, rng.choice((0, 1, 1, 1, 2, 3)) if read else rng.choice((1, 2))


def _change(rng: random.Random, number: int, name: str) -> Change | None:
    """Choose a change of a table with rows, mostly none.

    The first three clients try every kind, independent of the random numbers.
    """
    client = int(name.partition("-")[0])
    if number < 2 or (number > 3 and rng.random() < 0.7):
        return None
    kind = KINDS[(2 * client + number) % len(KINDS)] if number < 4 else rng.choice(KINDS)
    part = rng.choice("xyz") if kind == REPLACE else None
    keys = rng.sample(_KEYS, rng.choice((1, 2, 3)))
    rows = tuple((key, part or "xyz"[key % 3], name) for key in keys)
    return Change(kind, rows, -1, part)


def _run_transaction(
    catalog: Catalog,
    recorder: Recorder,
    rng: random.Random,
    name: str,
    many: tuple[int, int],
    change: Change | None,
) -> None:
    tx = catalog.begin()
    done = Transaction(tx.txn_id, time.monotonic_ns())
    read = rng.sample(list(LEVELS), many[0])
    for table in read:
        snapshot = tx.snapshot(table)
        paths = frozenset(snapshot.file_paths()["path"].to_pylist())
        done.reads[table] = (snapshot.version, paths)
        if rng.random() < 0.2:
            time.sleep(rng.random() / 200)  # lets other commits occur between two reads
    changed = rng.sample(list(LEVELS), many[1])
    for table in changed:
        _stage(tx, done, table, rng, name)
    if change is not None:
        stage_rows(tx, done, rng.choice(list(ROW_LEVELS)), change)
    recorder.record_start(done)
    try:
        versions = tx.commit()
    except (CommitConflictError, RetriesExhaustedError):
        recorder.record_end(tx.txn_id, FAILED, {})
    except CommitOutcomeUnknownError:
        pass  # there was no response
    else:
        recorder.record_end(tx.txn_id, COMMITTED if done.tables else READ, versions)


def stage_rows(tx: MultiTableTransaction, done: Transaction, table: str, change: Change) -> None:
    """Apply the change to a table with rows."""
    change = replace(change, read_version=tx.snapshot(table).version)
    keys, parts, writers = zip(*change.rows, strict=True)
    rows = pa.table({"id": keys, "part": parts, "writer": writers}, ROWS)
    if change.kind in (INSERT, UPSERT):
        merger = tx.merge(table, rows, "target.id = source.id").when_not_matched_insert_all()
        if change.kind == UPSERT:
            merger = merger.when_matched_update_all()
        merger.execute()
    else:
        predicate = f"part = '{change.part}'" if change.kind == REPLACE else None
        mode = "append" if change.kind == APPEND else "overwrite"
        tx.write(table, rows, mode=mode, predicate=predicate)
    staged = tx.target(table).staged
    if staged.adds or staged.removes:  # an insert of existing keys commits nothing
        done.changes[table] = change
        done.adds[table] = frozenset(add.path for add in staged.adds)
        done.removes[table] = frozenset(remove.path for remove in staged.removes)


def _stage(
    tx: MultiTableTransaction, done: Transaction, table: str, rng: random.Random, name: str
) -> None:
    adds = [f"{name}-{table}-{number}" for number in range(rng.choice((1, 1, 2)))]
    actions: list[Any] = [file(path) for path in adds]
    done.adds[table] = frozenset(adds)
    if table not in done.reads:
        tx.stage_table(table, actions)
        return
    version, paths = done.reads[table]
    ends = rng.choice((0, 1, 2)) if len(paths) < _MANY_FILES else len(paths) // 2
    removes = rng.sample(sorted(paths), min(ends, len(paths)))
    done.removes[table] = frozenset(removes)
    actions += [RemoveFile(path=path, data_change=True) for path in removes]
    tx.stage_table(table, actions, read_version=version, reads=ReadSet(whole_table=True))
