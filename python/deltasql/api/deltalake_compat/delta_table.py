"""`DeltaTable`: deltalake's class, which also opens `deltasql://` tables."""

from __future__ import annotations

import inspect
import warnings
from typing import TYPE_CHECKING, Any, Literal

import deltalake

from deltasql import deltalake_internals
from deltasql.api.catalog.connect import is_deltasql
from deltasql.api.deltalake_compat.handle.alter import Alterer
from deltasql.api.deltalake_compat.handle.raw_table import RawTable
from deltasql.exceptions import TxnLogError
from deltasql.model.schema.schema import has_nanoseconds

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    import pyarrow as pa
    import pyarrow.fs as pa_fs
    from arro3.core.types import ArrowSchemaExportable
    from deltalake import CommitProperties, PostCommitHookProperties, Schema, WriterProperties
    from deltalake.table import FilePruningPredicateType, FilterType, TableAlterer
    from pyarrow.dataset import Dataset, Expression, ParquetReadOptions

    from deltasql.model.progress import OnProgress

# deltalake's default for `raise_if_key_not_exists`; it distinguishes an omitted argument from True.
_UNSET: bool = getattr(
    inspect.signature(deltalake.DeltaTable.create).parameters.get("raise_if_key_not_exists"),
    "default",
    True,
)
_NO_EFFECT = {
    "without_files": "the files of a table are listed when they are needed",
    "log_buffer_size": "the log is not read from files",
    "skip_stats": "statistics are fetched when they are needed",
}


class DeltaTable(deltalake_internals.StockTable):
    """A table at one version; deltalake opens paths and URIs of other schemes.

    >>> import tempfile, deltasql, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"deltasql://sqlite/{folder.name}/meta.db?table=sales"
    >>> deltasql.write_deltalake(uri, pa.table({"id": [1, 2]}))
    >>> DeltaTable(uri).to_pyarrow_table().to_pydict()
    {'id': [1, 2]}
    """

    def __init__(
        self,
        table_uri: str | Path | os.PathLike[str],
        version: int | None = None,
        storage_options: dict[str, str] | None = None,
        without_files: bool = False,
        log_buffer_size: int | None = None,
        skip_stats: bool = False,
    ) -> None:
        if not is_deltasql(table_uri):
            super().__init__(table_uri, version, storage_options)
        else:
            raw = RawTable.open(table_uri, version, storage_options)
            deltalake_internals.set_raw_table(self, raw, storage_options)
        given = {
            "without_files": without_files,
            "log_buffer_size": log_buffer_size is not None,
            "skip_stats": skip_stats,
        }
        for name in (name for name, is_given in given.items() if is_given):
            message = f"The {name!r} parameter is deprecated and ignored: {_NO_EFFECT[name]}"
            warnings.warn(message, DeprecationWarning, stacklevel=2)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the URI and the version, not the connection; unpickling opens the table."""
        raw = self._raw
        if raw is None:
            place = self.table_uri
        else:
            # Include the password, because unpickling could not open the table without it.
            place = raw.catalog.uri.with_table(raw.row.name, raw.row.namespace).to_string()
        options = deltalake_internals.storage_options(self)
        return type(self), (place, self.version(), options)

    @property
    def _raw(self) -> RawTable | None:
        """The table in the database; None for a table that deltalake opened."""
        raw = deltalake_internals.raw_table(self)
        return raw if isinstance(raw, RawTable) else None

    @staticmethod
    def is_deltatable(
        table_uri: str | Path | os.PathLike[str], storage_options: dict[str, str] | None = None
    ) -> bool:
        """Return whether a table exists at this URI."""
        if not is_deltasql(table_uri):
            return deltalake.DeltaTable.is_deltatable(table_uri, storage_options)
        return RawTable.is_deltatable(table_uri, storage_options)

    @classmethod
    def create(
        cls,
        table_uri: str | Path,
        schema: Schema | ArrowSchemaExportable,
        mode: Literal["error", "append", "overwrite", "ignore"] = "error",
        partition_by: list[str] | str | None = None,
        name: str | None = None,
        description: str | None = None,
        configuration: Mapping[str, str | None] | None = None,
        storage_options: dict[str, str] | None = None,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
        raise_if_key_not_exists: bool = _UNSET,
    ) -> deltalake.DeltaTable:
        """Create a table, or replace one with mode="overwrite"; returns the table."""
        given = (commit_properties, post_commithook_properties)
        strict = raise_if_key_not_exists
        named = _given(*given)
        if strict is not _UNSET:
            named["raise_if_key_not_exists"] = strict
        if not is_deltasql(table_uri):
            return super().create(
                table_uri,
                schema,
                mode,
                partition_by,
                name,
                description,
                configuration,
                storage_options,
                *args,
                **named,
            )
        from deltasql.api.deltalake_compat.create import create_deltalake

        commit, post, strict = _with_positional(args, *given, strict)
        create_deltalake(
            str(table_uri),
            schema,
            [partition_by] if isinstance(partition_by, str) else partition_by or [],
            mode,
            strict,
            name,
            description,
            configuration,
            storage_options,
            commit,
            post,
        )
        return cls(table_uri, storage_options=storage_options)

    @property
    def alter(self) -> TableAlterer:
        """ALTER TABLE; columns of `deltasql://` tables can also be renamed and dropped."""
        return super().alter if self._raw is None else Alterer(self)

    def update(
        self,
        updates: dict[str, str] | None = None,
        new_values: dict[str, int | float | str | datetime | bool | list[Any]] | None = None,
        predicate: str | None = None,
        writer_properties: WriterProperties | None = None,
        error_on_type_mismatch: bool = True,
        *args: Any,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> dict[str, Any]:
        """Set columns of the rows that match a predicate, or of all rows; returns metrics.

        A datetime in `new_values` is stored correctly in a column of nanosecond timestamps, while
        deltalake's own code converts it to a number of microseconds for every column.
        """
        raw = self._raw
        if raw is not None and new_values is not None:
            from deltasql.model.predicates.filters import with_timestamp_texts

            new_values = with_timestamp_texts(new_values, raw.snapshot.schema)
        return super().update(
            updates,
            new_values,
            predicate,
            writer_properties,
            error_on_type_mismatch,
            *args,
            **_given(commit_properties, post_commithook_properties),
        )

    def undo(
        self,
        *,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> dict[str, Any]:
        """Undo the last commit with a new commit; a second undo reverts the first."""
        raw = self._raw
        if raw is None:
            given = _given(commit_properties, post_commithook_properties)
            return self.restore(self.version() - 1, **given)
        return raw.commit(
            lambda tx: tx.undo(raw.name), commit_properties, post_commithook_properties
        )

    def clone(
        self,
        target: str,
        *,
        shallow: bool = False,
        replace: bool = False,
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        on_progress: OnProgress | None = None,
    ) -> DeltaTable:
        """Clone this version to the table `target` of the same catalog; returns that table.

        See `Catalog.clone`.
        """
        raw = self._raw
        if raw is None:
            raise TxnLogError(
                f"{self.table_uri} is not a table of a catalog, so it cannot be cloned",
                help="Import it into a catalog first.",
            )
        catalog = raw.catalog
        with catalog.begin() as tx:
            tx.clone(
                raw.name,
                target,
                shallow=shallow,
                version=self.version(),
                replace=replace,
                location=location,
                properties=properties,
                on_progress=on_progress,
            )
        return type(self)(catalog.table(target).uri)

    def changes(
        self,
        from_version: int,
        to_version: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
    ) -> pa.RecordBatchReader:
        """Stream the rows that a range of versions inserted and deleted.

        The table does not need change data feed. Both ends of the range are included;
        `to_version` defaults to the latest version.
        """
        raw = self._raw
        if raw is None:
            raise TxnLogError(
                f"{self.table_uri} is not a table of a catalog, so changes() cannot read it",
                help="Use load_cdf(), or import the table into a catalog.",
            )
        from deltasql.api.changes import changes  # lazy import: needed only to read rows

        return changes(
            raw.catalog, raw.row, from_version, to_version, columns=columns, predicate=predicate
        )

    def count(self) -> int:
        """Return the number of rows from file statistics; a file without them counts as 0 rows."""
        raw = self._raw
        if raw is None:
            return super().count()
        import pyarrow.compute as pc  # lazy import: listing files does not need it

        stored = int(pc.sum(raw.snapshot.file_paths()["num_records"]).as_py() or 0)
        return stored - raw.snapshot.deleted_rows()

    def to_pyarrow_dataset(
        self,
        partitions: FilterType | None = None,
        filesystem: str | pa_fs.FileSystem | None = None,
        parquet_read_options: ParquetReadOptions | None = None,
        schema: pa.Schema | None = None,
        as_large_types: bool = False,
        file_pruning_predicate: FilePruningPredicateType | None = None,
    ) -> Dataset:
        """Return the table as a pyarrow dataset, which skips files that cannot match a filter."""
        pruning = file_pruning_predicate
        if partitions is not None and pruning is None:
            _warn_deprecated("`partitions`", "`file_pruning_predicate`")
            pruning = partitions
        elif partitions is not None:
            raise ValueError("`partitions` is deprecated; pass only `file_pruning_predicate`")
        if self._raw is not None and parquet_read_options is None:
            from pyarrow.dataset import ParquetReadOptions

            # INT96 is read as nanoseconds by default, whose range is smaller than that of Delta.
            unit = "ns" if has_nanoseconds(self._raw.snapshot.schema) else "us"
            parquet_read_options = ParquetReadOptions(coerce_int96_timestamp_unit=unit)
        return super().to_pyarrow_dataset(
            None,
            self._file_system(filesystem),
            parquet_read_options,
            schema,
            as_large_types,
            pruning,
        )

    def to_pyarrow_table(
        self,
        partitions: FilterType | None = None,
        columns: list[str] | None = None,
        filesystem: str | pa_fs.FileSystem | None = None,
        filters: FilterType | Expression | None = None,
    ) -> pa.Table:
        """Return rows as an Arrow table, even if pyarrow alone cannot read the table's files."""
        if partitions is not None:
            _warn_deprecated("`partitions`", "`filters`")
        # lazy import: loads pyarrow.dataset
        from deltasql.api.deltalake_compat.dataset import (
            can_pyarrow_read,
            dataset_rows,
            filter_expression,
            read_table,
        )

        condition = filter_expression(filters)
        raw = self._raw
        if raw is not None and not can_pyarrow_read(raw):
            pruning = deltalake_internals.encoded_filters(self, partitions)
            return read_table(raw, columns, condition, pruning)
        chosen: FilePruningPredicateType | None = partitions
        if raw is not None and partitions is None and filters is not None:
            # lazy import: loads the SQL parser
            from deltasql.api.deltalake_compat.handle.pruning import pruning_of

            chosen = pruning_of(filters, raw.snapshot)
        dataset = self.to_pyarrow_dataset(filesystem=filesystem, file_pruning_predicate=chosen)
        if raw is None:
            return dataset.to_table(columns=columns, filter=condition)
        return dataset_rows(raw, dataset, columns, condition)

    def _file_system(self, given: str | pa_fs.FileSystem | None) -> str | pa_fs.FileSystem | None:
        """Return the table's folder as a pyarrow file system; None lets deltalake choose one."""
        raw = self._raw
        if raw is None:
            return given
        from deltasql.api.deltalake_compat.dataset import check_pyarrow_can_read, file_system

        check_pyarrow_can_read(raw)
        return given or file_system(raw, deltalake_internals.storage_options(self))


def _given(
    commit: CommitProperties | None, post: PostCommitHookProperties | None
) -> dict[str, Any]:
    """Return the arguments that are not None, because older releases do not accept all of them."""
    named = {"commit_properties": commit, "post_commithook_properties": post}
    return {name: value for name, value in named.items() if value is not None}


def _with_positional(
    args: tuple[Any, ...],
    commit: CommitProperties | None,
    post: PostCommitHookProperties | None,
    strict: bool,
) -> tuple[CommitProperties | None, PostCommitHookProperties | None, bool]:
    """Return the commit arguments, including those passed by position, which is deprecated."""
    if not args:
        return commit, post, True if strict is _UNSET else strict
    _warn_deprecated("a commit argument given positionally", "its name", stacklevel=4)
    names = ("commit_properties", "post_commithook_properties", "raise_if_key_not_exists")
    if len(args) > len(names):
        raise TypeError("create() got unexpected positional arguments")
    is_given = (commit is not None, post is not None, strict is not _UNSET)
    for name, twice, _ in zip(names, is_given, args, strict=False):
        if twice:
            raise TypeError(f"create() got multiple values for {name!r}")
    filled = [*args, *(commit, post, strict)[len(args) :]]
    return filled[0], filled[1], True if filled[2] is _UNSET else filled[2]


def _warn_deprecated(what: str, instead: str, *, stacklevel: int = 3) -> None:
    warnings.warn(
        f"{what} is deprecated; use {instead} instead", DeprecationWarning, stacklevel=stacklevel
    )
