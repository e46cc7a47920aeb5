"""Write classic checkpoints: the state of a version as one Parquet file, read from the database.

Rows are read and written in pieces, so memory use does not grow with the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltasql import telemetry
from deltasql.exceptions import TxnLogMirrorError
from deltasql.mirror.checkpoint.rows import CheckpointRows, checkpoint_schema
from deltasql.mirror.checkpoint.source import FILES_PER_READ, CheckpointSource
from deltasql.mirror.log.last_checkpoint import (
    CheckpointInfo,
    checkpoint_file,
    move_last_checkpoint,
)
from deltasql.mirror.read_ahead import read_ahead
from deltasql.phases import reached

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

_WRITTEN_FOR = b"deltasql.table"
"""The key in the Parquet metadata of our checkpoints; the value is the UUID of the table."""
# The strings of these columns differ in every row, so a dictionary would make the file larger.
_UNIQUE_TEXTS = (".path", ".stats", ".schemaString")


def write_checkpoint(
    store: Store, table: TableRow, storage: Storage, version: int
) -> CheckpointInfo:
    """Write the checkpoint of a published version, then `_last_checkpoint`.

    This can be repeated, also concurrently, because the same content is written to the same name.
    """
    with telemetry.span("checkpoint", table=table.full_name, version=version):
        info = write_checkpoint_of(CheckpointSource(store, table, version), table, storage)
        store.set_table_gauge("files_active", info.num_of_add_files, table.full_name)
        return info


def write_checkpoint_of(
    source: CheckpointSource, table: TableRow, storage: Storage
) -> CheckpointInfo:
    """Write the checkpoint that a source describes, then `_last_checkpoint`."""
    reached("checkpointing")
    try:
        info = _write(source, storage)
    except pa.ArrowException as error:
        raise TxnLogMirrorError(
            f"the checkpoint of version {source.version} cannot be written: {error}",
            table=table.full_name,
            version=source.version,
            help="An action of this version has a number or string that Delta does not allow.",
        ) from error
    reached("checkpointed")
    move_last_checkpoint(storage, info)
    return info


def is_own_checkpoint(storage: Storage, table: TableRow, version: int) -> bool:
    """Return whether deltasql wrote the checkpoint of a version from the database."""
    try:
        with storage.open_input(checkpoint_file(version)) as file:
            found = pq.read_metadata(file).metadata or {}
    except (FileNotFoundError, pa.ArrowException):
        return False
    return bool(found.get(_WRITTEN_FOR) == table.table_uuid.encode())


def _write(source: CheckpointSource, storage: Storage) -> CheckpointInfo:
    schema = checkpoint_schema(source.metadata).with_metadata({_WRITTEN_FOR: source.table_uuid})
    rows = CheckpointRows(schema, source.partitions())
    actions = adds = 0
    with storage.writer(checkpoint_file(source.version)) as sink:
        with pq.ParquetWriter(sink, schema, **_layout(schema)) as writer:
            for group in read_ahead(_row_groups(_pieces(source, rows))):
                writer.write_table(group, row_group_size=group.num_rows)
                actions += group.num_rows
                adds += group.num_rows - group["add"].null_count
        size_in_bytes = sink.tell()
    return CheckpointInfo(source.version, actions, size_in_bytes, adds)


def _pieces(source: CheckpointSource, rows: CheckpointRows) -> Iterator[pa.Table]:
    yield rows.actions(source.actions())
    for removes in source.tombstones():
        yield rows.removes(removes)
    for files in source.live_files():
        yield rows.adds(files)
    source.check_not_expired()  # an error discards the file


def _row_groups(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join small pieces into row groups of at most twice the rows of one read."""
    pending: list[pa.Table] = []
    for piece in pieces:
        pending.append(piece)
        if sum(each.num_rows for each in pending) >= FILES_PER_READ:
            yield pa.concat_tables(pending)
            pending = []
    if pending:
        yield pa.concat_tables(pending)


def _layout(schema: pa.Schema) -> dict[str, Any]:
    leaves = [name for field in schema for name in _leaf_paths(field)]
    return {
        "compression": "snappy",
        "use_dictionary": [name for name in leaves if not name.endswith(_UNIQUE_TEXTS)],
        "write_statistics": [name for name in leaves if not name.endswith(".stats")],
    }


def _leaf_paths(field: pa.Field, prefix: str = "") -> Iterator[str]:
    """Yield the names of the Parquet columns of a field, for the options of the writer."""
    name, data_type = f"{prefix}{field.name}", field.type
    if pa.types.is_struct(data_type):
        for member in data_type.fields:
            yield from _leaf_paths(member, f"{name}.")
    elif pa.types.is_map(data_type):
        yield from (f"{name}.key_value.key", f"{name}.key_value.value")
    elif pa.types.is_list(data_type):
        yield f"{name}.list.element"
    else:
        yield name
