"""Read checkpoints into Arrow tables: classic, multi-part, and V2 with sidecars."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltasql._core import Table, encode_commit, nests_too_deep, parse_commit
from deltasql.exceptions import LogParseError, TxnLogError
from deltasql.mirror.log.file_tables import (
    FILES,
    TOMBSTONES,
    canonical_files,
    compact,
    partition_text,
    replayed_files,
    tombstone_table,
)
from deltasql.model.actions import DomainMetadata, Metadata, Protocol, SetTransaction, Sidecar
from deltasql.model.typed_stats import INT96_UNIT, stats_texts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from deltasql.mirror.log.listing import Checkpoint
    from deltasql.storage import Storage

SIDECARS = "_delta_log/_sidecars/"
_PARSED = ("stats_parsed", "partitionValues_parsed")
_BATCH_ROWS = 16_384
_BATCH_BYTES = 64 << 20
# Every row has another path, so a real checkpoint cannot be compressed by more than this factor. A
# file with a higher compression ratio is rejected as a decompression bomb.
_MAX_COMPRESSION_RATIO = 1_000
# File systems and object stores do not allow longer names.
_MAX_PATH_BYTES = 32_768
_FEW_BRACKETS = 100
_BUFFER = 1 << 20

Kind = Literal["add", "remove"]


@dataclass(slots=True)
class CheckpointState:
    """The state of a table, as read from a checkpoint."""

    version: int
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    txns: dict[str, SetTransaction] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)
    _files: list[pa.Table] = field(default_factory=list)
    _tombstones: list[pa.Table] = field(default_factory=list)

    @property
    def files(self) -> pa.Table:
        """The live files."""
        return pa.concat_tables([FILES.empty_table(), *self._files])

    @property
    def tombstones(self) -> pa.Table:
        """The removed files."""
        return pa.concat_tables([TOMBSTONES.empty_table(), *self._tombstones])


def read_checkpoint(storage: Storage, checkpoint: Checkpoint) -> CheckpointState:
    """Read every part of a checkpoint."""
    state = read_non_file_actions(storage, checkpoint)
    for name in state.parts:
        state._files += read_files(storage, name, "add")
        state._tombstones += read_files(storage, name, "remove")
    return state


def read_non_file_actions(storage: Storage, checkpoint: Checkpoint) -> CheckpointState:
    """Read all actions except `add` and `remove`; set `parts` to the files with these two."""
    state = CheckpointState(checkpoint.version)
    sidecars: list[Sidecar] = []
    for each in checkpoint.files:
        if each.name.endswith(".json"):
            sidecars += _read_json(storage, each.name, state)
            continue
        state.parts.append(each.name)
        for kind, row in _rows(storage, each.name):
            _check_action(each.name, kind, row)
            sidecars += _take_action(kind, row, state)
    for sidecar in sidecars:
        name = sidecar.path if "/" in sidecar.path else SIDECARS + sidecar.path
        state.parts.append(name)
    if state.metadata is None or state.protocol is None:
        name = checkpoint.files[0].name
        raise LogParseError(f"{name} has no metadata or no protocol", path=name)
    return state


def count_row_groups(storage: Storage, name: str) -> int:
    """Return the number of row groups in one file of a checkpoint."""
    with _reading(storage, name) as file:
        return int(file.num_row_groups)


def read_files(
    storage: Storage, name: str, kind: Kind, *, row_groups: Sequence[int] | None = None
) -> Iterator[pa.Table]:
    """Yield the added or removed files in one file of a checkpoint, in batches."""
    schema = FILES if kind == "add" else TOMBSTONES
    with _reading(storage, name) as file:
        columns = _columns(file.schema_arrow, (kind,), parsed=_lacks_stats(file, kind))
        if not columns:
            return
        batch_size = _batch_size(storage, name, file, columns)
        size, limit = 0, _BATCH_BYTES
        for batch in file.iter_batches(batch_size, row_groups, columns):
            size += batch.nbytes
            if size > limit:
                limit = max(limit, _MAX_COMPRESSION_RATIO * storage.size(name))
            if size > limit:
                raise LogParseError(
                    f"{name} decompresses to more than {_MAX_COMPRESSION_RATIO:,} times its size",
                    path=name,
                )
            column = batch.column(kind)
            rows = column.filter(pc.is_valid(column))
            if len(rows):
                _check_paths(name, rows)
                found = _files(rows, schema)
                _check_stats(name, found)
                yield found


def _batch_size(storage: Storage, name: str, file: pq.ParquetFile, columns: Sequence[str]) -> int:
    """Return how many rows to decode at once, so that long strings do not exhaust the memory.

    The Parquet footer does not contain the length of dictionary-encoded strings. The file stores
    each distinct string once, but decoding copies the string to every row that has it.
    """
    longest = 0
    dictionaries: set[str] = set()
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            path = column.path_in_schema
            if column.physical_type != "BYTE_ARRAY" or not path.startswith(tuple(columns)):
                continue
            longest = max(longest, column.total_uncompressed_size // max(column.num_values, 1))
            # A dictionary contains whole values, so none of them is longer than the dictionary.
            largest = min(group.num_rows, _BATCH_ROWS) * column.total_uncompressed_size
            if column.has_dictionary_page and largest > _BATCH_BYTES:
                dictionaries.add(path)
    if dictionaries:
        longest = max(longest, _longest_in_dictionary(storage, name, sorted(dictionaries)))
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(longest, 1)))


def _longest_in_dictionary(storage: Storage, name: str, columns: list[str]) -> int:
    """Return the length of the longest dictionary value; reading one row loads the dictionary."""
    longest = 0
    with _reading(storage, name, read_dictionary=columns) as file:
        for number in range(file.num_row_groups):
            for batch in file.iter_batches(1, [number], columns):
                for column in batch.columns:
                    for leaf in _leaves(column):
                        if pa.types.is_dictionary(leaf.type) and len(leaf.dictionary):
                            length = pc.max(pc.binary_length(leaf.dictionary)).as_py()
                            longest = max(longest, length or 0)
                break
    return longest


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_struct(column.type):
        for child in column.flatten():
            yield from _leaves(child)
    elif pa.types.is_map(column.type):
        yield from (column.keys, column.items)
    else:
        yield column


def _read_json(storage: Storage, name: str, state: CheckpointState) -> list[Sidecar]:
    # The main file of a V2 checkpoint is small enough to be parsed at once: most `add` and `remove`
    # actions are in its sidecars.
    commit = parse_commit(storage.read(name), path=name)
    table = Table()
    table.apply(commit, state.version, name)
    state.metadata, state.protocol = table.metadata, table.protocol
    state.txns.update({txn.app_id: txn for txn in table.txns})
    state.domains.update(table.domain_metadata)
    state._files.append(replayed_files(table))
    state._tombstones.append(tombstone_table(table.tombstones))
    return [action for action in commit.actions() if isinstance(action, Sidecar)]


def _rows(storage: Storage, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (kind, body) of all actions except files in one file of a checkpoint."""
    with _reading(storage, name) as file:
        kinds = [each for each in file.schema_arrow.names if each not in ("add", "remove")]
        columns = _columns(file.schema_arrow, kinds)
        if not columns:
            return
        batch_size = _batch_size(storage, name, file, columns)
        for batch in file.iter_batches(batch_size=batch_size, columns=columns):
            for kind in batch.schema.names:
                column = batch.column(kind)
                rows = column.filter(pc.is_valid(column))
                for body in rows.to_pylist(maps_as_pydicts="lossy"):
                    yield kind, _without_nulls(body)


@contextmanager
def _reading(
    storage: Storage, name: str, *, read_dictionary: list[str] | None = None
) -> Iterator[pq.ParquetFile]:
    try:
        # Read page by page, because a row group may contain the whole table.
        with pq.ParquetFile(
            storage.open_input(name),
            buffer_size=_BUFFER,
            pre_buffer=False,
            read_dictionary=read_dictionary,
            coerce_int96_timestamp_unit=INT96_UNIT,
        ) as file:
            yield file
    except (pa.ArrowException, KeyError, TypeError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise LogParseError(f"{name} cannot be read: {error}", path=name) from error


def _lacks_stats(file: pq.ParquetFile, kind: str) -> bool:
    """Return whether some files have no JSON statistics, by the null counts in the footer.

    With `delta.checkpoint.writeStatsAsJson=false`, the column of JSON statistics is missing or
    null.
    """
    missing = 0
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            if column.path_in_schema in (f"{kind}.stats", f"{kind}.path"):
                counts = column.statistics
                if counts is None or not counts.has_null_count:
                    continue
                is_stats = column.path_in_schema.endswith(".stats")
                missing += counts.null_count if is_stats else -counts.null_count
    return missing > 0


def _columns(schema: pa.Schema, kinds: Collection[str], *, parsed: bool = False) -> list[str]:
    """Return the columns to read, without the parsed columns of values that also exist as JSON.

    With `parsed`, the parsed statistics are read in addition to the JSON.
    """
    columns = []
    for kind in schema:
        if kind.name not in kinds:
            continue
        children = [child.name for child in kind.type] if pa.types.is_struct(kind.type) else []
        redundant = {"partitionValues_parsed"} | (
            {"stats_parsed"} if "stats" in children and not parsed else set()
        )
        columns += [f"{kind.name}.{child}" for child in children if child not in redundant]
    return columns


def _check_paths(name: str, rows: pa.StructArray) -> None:
    at = rows.type.get_field_index("path")
    paths = _plain(rows.field(at)) if at >= 0 else None
    if paths is None or not pa.types.is_string(paths.type):
        return  # reported later, when the column is converted
    if (pc.max(pc.binary_length(paths)).as_py() or 0) > _MAX_PATH_BYTES:
        raise LogParseError(
            f"{name} has a file path of more than {_MAX_PATH_BYTES:,} bytes", path=name
        )


def _check_stats(name: str, files: pa.Table) -> None:
    """Raise LogParseError for statistics that are nested too deeply for other readers."""
    stats = files["stats"]
    brackets = pc.add(pc.count_substring(stats, "{"), pc.count_substring(stats, "["))
    # Strings with few brackets cannot be nested too deeply, so they are not converted to Python.
    suspects = stats.filter(pc.greater(brackets, _FEW_BRACKETS)).to_pylist()
    if any(map(nests_too_deep, suspects)):
        raise LogParseError(f"{name} has statistics that are nested too deeply", path=name)


def _check_action(name: str, kind: str, body: dict[str, Any]) -> None:
    """Raise LogParseError for an action that would not be valid in a commit file.

    This is needed because the columns of a checkpoint may have any type.
    """
    try:
        encode_commit([{kind: body}])
    except TxnLogError as error:
        raise LogParseError(f"{name} cannot be read: {error.message}", path=name) from error


def _take_action(kind: str, body: dict[str, Any], state: CheckpointState) -> list[Sidecar]:
    match kind:
        case "metaData":
            state.metadata = Metadata.from_body(body)
        case "protocol":
            state.protocol = Protocol.from_body(body)
        case "txn":
            state.txns[body["appId"]] = SetTransaction.from_body(body)
        case "domainMetadata":
            if not body.get("removed"):
                state.domains[body["domain"]] = DomainMetadata.from_body(body)
        case "sidecar":
            return [Sidecar.from_body(body)]
    return []


def _files(rows: pa.StructArray, schema: pa.Schema) -> pa.Table:
    found = {child.name: rows.field(i) for i, child in enumerate(rows.type)}
    columns, unknown = {}, {}
    for name, column in found.items():
        if name == "partitionValues":
            columns["partition"] = _partition_texts(column)
        elif _snake(name) in schema.names:
            columns[_snake(name)] = _plain(column)
        elif name not in _PARSED:
            unknown[name] = column
    if "stats_parsed" in found and pa.types.is_struct(found["stats_parsed"].type):
        columns["stats"] = _all_stats(columns.get("stats"), found["stats_parsed"])
    if schema is FILES and "stats" in columns:
        columns["num_records"] = _num_records(columns["stats"])
    columns["extra"] = _extra(unknown, len(rows))
    return canonical_files(pa.table(columns), schema)


def _all_stats(texts: pa.Array | None, parsed: pa.StructArray) -> pa.Array:
    """Return statistics as JSON; missing ones are computed from the parsed statistics."""
    if texts is None:
        return stats_texts(parsed)
    missing = pc.is_null(texts)
    if not pc.any(missing).as_py():
        return texts
    return pc.replace_with_mask(texts, missing, stats_texts(parsed.filter(missing)))


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def _num_records(stats: pa.Array) -> pa.Array:
    """Extract `numRecords` from statistics."""
    found = pc.extract_regex(stats, r'"numRecords"\s*:\s*(?P<rows>\d+)')
    return pc.struct_field(found, "rows").cast(pa.int64())


def _partition_texts(column: pa.MapArray) -> pa.Array:
    """Return partition values as JSON; each distinct partition is converted only once."""
    names = sorted(pc.unique(column.keys).to_pylist()) if len(column.keys) else []
    if not names:
        return pa.repeat("{}", len(column))
    values = [pc.map_lookup(column, name, "first") for name in names]
    shown = [pc.coalesce(pc.binary_join_element_wise("v", _escaped(v), ""), "n") for v in values]
    encoded = pc.binary_join_element_wise(*shown, "\x00").dictionary_encode()
    distinct = pa.array(range(len(encoded.dictionary)), pa.int32())
    firsts = pc.index_in(distinct, encoded.indices)
    rows = zip(*(each.take(firsts).to_pylist() for each in values), strict=True)
    texts = [partition_text(dict(zip(names, row, strict=True))) for row in rows]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _escaped(values: pa.Array) -> pa.Array:
    plain = pc.replace_substring(values, "\x01", "\x01\x01")
    return pc.replace_substring(plain, "\x00", "\x01\x02")


def _plain(column: pa.Array) -> pa.Array:
    """Return maps and structs as JSON, without the null fields of structs."""
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    if not pa.types.is_nested(column.type):
        return column
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.string())
    shorten = _without_nulls if pa.types.is_struct(column.type) else dict
    rows = column.to_pylist(maps_as_pydicts="lossy")
    return pa.array(
        [None if each is None else compact(shorten(each)) for each in rows], pa.string()
    )


def _extra(columns: dict[str, pa.Array], length: int) -> pa.Array:
    used = {name: column for name, column in columns.items() if column.null_count < length}
    lists = [column.to_pylist(maps_as_pydicts="lossy") for column in used.values()]
    if not lists:
        return pa.nulls(length, pa.string())
    rows = [_without_nulls(dict(zip(used, row, strict=True))) for row in zip(*lists, strict=True)]
    return pa.array([compact(row) if row else None for row in rows], pa.string())


def _without_nulls(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}
