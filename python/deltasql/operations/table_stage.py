"""One table in a transaction: its state including staged changes, and methods to stage changes."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa

from deltasql import _core
from deltasql.commit.identity import move_mark, reserve
from deltasql.commit.staged import ReadSet
from deltasql.engine.base import WriteOptions, WritePlan
from deltasql.engine.files.live_files import LiveFiles
from deltasql.engine.spark.schema import reject_nanoseconds
from deltasql.exceptions import TxnLogError, TxnLogTransactionError
from deltasql.model.actions import AddFile, RemoveFile, logical_file
from deltasql.model.clustering import DOMAIN, FEATURE, check_clustered, clustered_by
from deltasql.model.features.iceberg_compat import materializes_partitions
from deltasql.model.features.row_tracking import materialized_columns
from deltasql.model.json_text import read_stats
from deltasql.model.protocol import writer_features
from deltasql.model.schema.schema import StructType, column_mapping_mode, schema_of
from deltasql.phases import reached
from deltasql.snapshot.files import arrow_schema, from_arrow, to_arrow
from deltasql.storage import open_storage
from deltasql.store.records import dump, dump_dv, dump_extra, load, load_dv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from deltasql.commit.staged import Staged
    from deltasql.config import Config
    from deltasql.engine.base import Engine
    from deltasql.model.actions import DomainMetadata, Metadata, Protocol
    from deltasql.model.predicates.parser import Flavour
    from deltasql.model.predicates.predicate import Predicate
    from deltasql.model.schema.schema import StructField
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.storage import Storage
    from deltasql.store.store import Store

_P = ParamSpec("_P")
_R = TypeVar("_R")
STAGED_VERSION = -1
"""The `added_version` of files that this transaction added."""


class TableStage:
    """The table that an operation reads and changes; a transaction may run several operations."""

    def __init__(
        self,
        staged: Staged,
        snapshot: Snapshot | None,
        *,
        config: Config,
        engine: Callable[[], Engine],
        intend: Callable[[Staged, list[str]], None],
    ) -> None:
        """`snapshot` is None for a table that the transaction creates.

        `intend` records intents for data files that an engine will write.
        """
        if snapshot is None and not staged.creates:
            raise TxnLogTransactionError(
                f"{staged.table.full_name} is changed without having been read",
                table=staged.table.full_name,
            )
        self.staged, self.snapshot, self.config = staged, snapshot, config
        self._engine, self._intend = engine, intend

    @property
    def name(self) -> str:
        return self.staged.table.full_name

    @property
    def location(self) -> str:
        return self.staged.table.location

    @property
    def storage(self) -> Storage:
        return open_storage(self.location, self.config.storage)

    @property
    def engine(self) -> Engine:
        """The engine of the transaction; it starts on first use."""
        found = self._engine()
        if found.name == "spark":
            reject_nanoseconds(self.schema)
        return found

    # State of the table, including staged changes

    @property
    def metadata(self) -> Metadata:
        if self.staged.metadata is not None:
            return self.staged.metadata
        assert self.snapshot is not None
        return self.snapshot.metadata

    @property
    def protocol(self) -> Protocol:
        if self.staged.protocol is not None:
            return self.staged.protocol
        assert self.snapshot is not None
        return self.snapshot.protocol

    @property
    def schema(self) -> StructType:
        return schema_of(self.metadata.schema_string)

    @property
    def row_columns(self) -> tuple[StructField, ...]:
        """The columns of files for row ids and commit versions; empty without row tracking."""
        return materialized_columns(self.configuration)

    @property
    def stored_schema(self) -> StructType:
        """The columns of files with rows of other files: the table's columns and `row_columns`."""
        return StructType((*self.schema.fields, *self.row_columns))

    @property
    def configuration(self) -> Mapping[str, str]:
        return self.metadata.configuration

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.metadata.partition_columns

    # Files

    def predicate(self, text: object, *, flavour: Flavour | None = None) -> Predicate:
        """Parse a predicate (SQL, or deltalake's filter lists) with the current schema."""
        # lazy import: sqlglot is large
        from deltasql.model.predicates.predicate import parse_predicate

        mode = column_mapping_mode(self.configuration)
        return parse_predicate(text, self.schema, self.partition_columns, mode, flavour=flavour)

    def files(self, predicate: Predicate | None = None) -> pa.Table:
        """Return the live files that may contain a row for which the predicate is true.

        The result has the columns of `Scan.arrow`. Files that this transaction added come last.
        """
        tables = []
        if self.snapshot is not None:
            found = self.snapshot.scan(predicate).arrow
            removed = {logical_file(each) for each in self.staged.removes}
            if removed:
                vectors = [load_dv(text) for text in found["deletion_vector"].to_pylist()]
                paths = map(_core.canonical_path, found["path"].to_pylist())
                keys = zip(paths, vectors, strict=True)
                kept = [(path, v and v.unique_id) not in removed for path, v in keys]
                found = found.filter(pa.array(kept, pa.bool_()))
            tables.append(found)
        if self.staged.adds or not tables:
            tables.append(_listed(self.staged.adds, predicate))
        return pa.concat_tables(tables)

    def listed(self, adds: Sequence[AddFile]) -> pa.Table:
        """Return new files as a table with the same columns as `files` returns."""
        return _listed(adds, None)

    def count_files(self) -> int:
        """Return the number of live files, without fetching them."""
        own = len(self.staged.adds) - len(self.staged.removes)
        return own if self.snapshot is None else self.snapshot.totals().num_files + own

    def live(self, files: pa.Table) -> LiveFiles:
        """Return listed files with what an engine needs to read them."""
        return LiveFiles(self.location, self.metadata, files, self.config.storage)

    # Reads and changes

    def read(
        self, *, whole_table: bool = False, predicate: Predicate | None = None, files: object = None
    ) -> None:
        """Add to the read set. A concurrent commit that changes what was read is a conflict.

        `files` is a table of listed files: all files that the predicate selects.
        """
        if self.snapshot is None:
            return
        paths = files["path"].to_pylist() if isinstance(files, pa.Table) else ()
        predicates = () if predicate is None else (predicate,)
        if isinstance(files, pa.Table):
            read = ReadSet(whole_table, paths=frozenset(paths), listed=predicates)
        else:
            read = ReadSet(whole_table, predicates)
        self.staged.reads = self.staged.reads.merge(read)
        self.record_read_version()

    def record_read_version(self) -> None:
        """Record that the change was computed from the version of the transaction's snapshot."""
        if self.snapshot is not None and self.staged.read_version is None:
            self.staged.read_version = self.snapshot.version

    def plan(
        self,
        options: WriteOptions | None = None,
        *,
        data_change: bool = True,
        folder: str = "",
        rewrites: bool = False,
    ) -> WritePlan:
        """Return the plan for an engine to write files of this table.

        `rewrites` says that rows come from other files, with the columns of `stored_schema`.
        """
        return WritePlan(
            location=self.location,
            storage=self.storage,
            schema=self.stored_schema if rewrites else self.schema,
            partition_columns=self.partition_columns,
            configuration=self.configuration,
            intend=partial(self._intend, self.staged),
            options=options or WriteOptions(),
            data_change=data_change,
            materializes_partitions=not folder
            and materializes_partitions(self.configuration, writer_features(self.protocol)),
            folder=folder,
        )

    def add(self, files: Iterable[AddFile]) -> None:
        """Stage new files."""
        reached("written")
        self.staged.adds.extend(files)

    def remove(self, files: pa.Table, *, data_change: bool = True) -> list[RemoveFile]:
        """Stage the removal of listed files, and return the new remove actions.

        If this transaction added a file, its add action is discarded instead.
        """
        rows = files.to_pylist()
        own = {row["path"] for row in rows if row["added_version"] == STAGED_VERSION}
        if own:
            dropped = [add for add in self.staged.adds if add.path in own]
            self.staged.adds[:] = [add for add in self.staged.adds if add.path not in own]
            if data_change and not all(add.data_change for add in dropped):
                self._change_data()
        removed = [
            remove_file(row, data_change=data_change) for row in rows if row["path"] not in own
        ]
        self.staged.removes.extend(removed)
        self.record_read_version()
        return removed

    def _change_data(self) -> None:
        """Set dataChange on all staged actions.

        This is necessary if the transaction rewrote a file and then changed rows of the new file.
        """
        staged = self.staged
        staged.adds[:] = [replace(add, data_change=True) for add in staged.adds]
        staged.removes[:] = [replace(remove, data_change=True) for remove in staged.removes]

    def clustered_by(self) -> list[tuple[str, ...]]:
        """Return the physical paths of the clustering columns; empty if there are none."""
        if FEATURE not in writer_features(self.protocol):
            return []
        return clustered_by(self.domains().get(DOMAIN))

    def domains(self) -> dict[str, DomainMetadata]:
        """Return the metadata domains, including staged changes."""
        found = {} if self.snapshot is None else self.snapshot.domains()
        found |= {each.domain: each for each in self.staged.domains}
        return {name: each for name, each in found.items() if not each.removed}

    def change_metadata(self, metadata: Metadata, protocol: Protocol | None = None) -> None:
        """Stage new metadata and, optionally, a new protocol; replace what was staged before."""
        check_clustered(self.clustered_by(), metadata)
        self.staged.metadata = metadata
        if protocol is not None and protocol != self.protocol:
            self.staged.protocol = protocol
        self.record_read_version()

    def reserve_numbers(self, column: str, count: int) -> int:
        """Reserve a range of identity values for new rows; return the first value."""
        return reserve(self.staged, *self._identity(column), count)

    def move_mark(self, column: str, value: int) -> None:
        """Move the high-water mark of an identity column past a value that a row has."""
        move_mark(self.staged, *self._identity(column), value)
        self.record_read_version()

    def _identity(self, column: str) -> tuple[Store | None, StructField, str | None]:
        field = self.schema.find(column)
        assert field is not None
        is_own = self.snapshot is None or self.staged.restarts_identity
        store = None if is_own or self.snapshot is None else self.snapshot.store
        return store, field, column_mapping_mode(self.configuration)

    def set_commit_info(
        self,
        operation: str,
        parameters: Mapping[str, Any] | None = None,
        metrics: Mapping[str, Any] | None = None,
        *,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Set the operation of the commit. If it has several operations, the last is recorded."""
        info = self.staged.info
        self.staged.info = replace(
            info,
            operation=operation,
            operation_parameters=dict(parameters or {}),
            operation_metrics=None if metrics is None else dict(metrics),
            extra={**info.extra, **(extra or {})},
        )


def adds_table_to_errors(
    operation: Callable[Concatenate[TableStage, _P], _R],
) -> Callable[Concatenate[TableStage, _P], _R]:
    """Decorate an operation so that all its errors, even the engine's, have the table's name."""

    @wraps(operation)
    def named(stage: TableStage, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return operation(stage, *args, **kwargs)
        except TxnLogError as error:
            if "table" not in error.fields and hasattr(error, "table"):
                error.table = stage.name
            raise

    return named


def remove_file(row: Mapping[str, Any], *, data_change: bool = True) -> RemoveFile:
    """Return the remove action of a listed file, with the extended file metadata."""
    return RemoveFile(
        path=row["path"],
        data_change=data_change,
        extended_file_metadata=True,
        partition_values=load(row["partition"]) or {},
        size=row["size"],
        tags=load(row["tags"]),
        deletion_vector=load_dv(row["deletion_vector"]),
        base_row_id=row["base_row_id"],
        default_row_commit_version=row["default_row_commit_version"],
    )


def add_file(row: Mapping[str, Any]) -> AddFile:
    """Return the add action of a listed file."""
    return AddFile(
        path=row["path"],
        partition_values=load(row["partition"]) or {},
        size=row["size"],
        modification_time=row["modification_time"],
        stats=row["stats"] or None,
        tags=load(row["tags"]),
        deletion_vector=load_dv(row["deletion_vector"]),
        base_row_id=row["base_row_id"],
        default_row_commit_version=row["default_row_commit_version"],
        clustering_provider=row["clustering_provider"] or None,
        extra=load(row["extra"]) or {},
    )


def _listed(adds: Sequence[AddFile], predicate: Predicate | None) -> pa.Table:
    """Return staged files as a table with the columns of a scan."""
    partitions: dict[str, int] = {}
    rows = []
    for add in adds:
        text = json.dumps(dict(add.partition_values), separators=(",", ":"), ensure_ascii=False)
        stats = read_stats(add.stats)
        rows.append(
            {
                "file_id": -1,
                "path": add.path,
                "partition_id": partitions.setdefault(text, len(partitions)),
                "size": add.size,
                "modification_time": add.modification_time,
                "data_change": add.data_change,
                "stats": add.stats or "",
                "num_records": stats.get("numRecords"),
                "tags": dump(add.tags) or "",
                "deletion_vector": dump_dv(add.deletion_vector) or "",
                "base_row_id": add.base_row_id,
                "default_row_commit_version": add.default_row_commit_version,
                "clustering_provider": add.clustering_provider or "",
                "extra": dump_extra(add.extra) or "",
                "added_version": STAGED_VERSION,
            }
        )
    table = pa.Table.from_pylist(rows, arrow_schema("files_all"))
    files = _core.FileList.from_arrow(from_arrow(table, "files_all"))
    known = files.with_partitions({number: text for text, number in partitions.items()})
    if predicate is not None:
        known = known.prune(_core.Predicate(predicate.to_pruning_json()))
    return to_arrow(known)
