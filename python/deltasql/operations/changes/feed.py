"""Read the change feed: the rows that versions inserted, updated and deleted, for any table.

If a version has change data files, its changes are read from these files. Otherwise, rows of added
files are inserts and rows of removed files are deletes. A row that is in added and in removed
files, because an update copied it, cancels out.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from sqlglot import exp

from deltasql import _core
from deltasql.engine.base import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, FILE, ROW
from deltasql.engine.files.live_files import LiveFiles
from deltasql.engine.parquet.arrow_casts import cast_rows
from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.predicates.predicate import parse_predicate
from deltasql.model.schema.convert import schema_to_arrow
from deltasql.model.schema.schema import StructField, StructType, column_mapping_mode
from deltasql.operations.changes.log import ChangeLog, VersionChanges, physical_partitioning
from deltasql.operations.sql.expressions import with_semantics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from deltasql.config import Config
    from deltasql.engine.base import Engine, Relation
    from deltasql.model.predicates.predicate import Predicate
    from deltasql.operations.changes.log import ChangedFile
    from deltasql.snapshot.snapshot import Snapshot

FEED_FIELDS = (
    StructField(CHANGE_TYPE, "string"),
    StructField(COMMIT_VERSION, "long"),
    StructField(COMMIT_TIMESTAMP, "timestamp"),
)
# Several small versions are read by one query, up to a size that is cheap to sort.
_GROUP_BYTES = 32 * 1024 * 1024
_GROUP_VERSIONS = 500
_TOTAL, _COPY, _SIDE = "__deltasql_total", "__deltasql_copy", "__deltasql_side"
_TIMESTAMP = pa.timestamp("us", "UTC")


class MarkedFile(NamedTuple):
    """A file to read, its version, and the change type of its rows."""

    file: ChangedFile
    changes: VersionChanges
    kind: str | None
    """`insert` or `delete`; None for change data, where each row has its change type."""


class ChangeFeed:
    """The changes of a table, with the columns of one snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        config: Config,
        *,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        cancel_out: bool = True,
        in_file_order: bool = False,
    ) -> None:
        """`cancel_out` omits rows that a version both removed and added.

        `in_file_order` sorts the rows of a version: deletes first, then by file and position.
        """
        self.snapshot, self._settings, self._cancel_out = snapshot, config.storage, cancel_out
        self._in_file_order = in_file_order
        self._fields = StructType((*snapshot.schema.fields, *FEED_FIELDS))
        whole = schema_to_arrow(self._fields)
        self._columns = [self._known(name) for name in columns or whole.names]
        self.schema = pa.schema([_nullable(whole.field(name)) for name in self._columns])
        self._predicate = self._parse(predicate)

    @cached_property
    def log(self) -> ChangeLog:
        """The files that versions added and removed. Only this object queries the database."""
        return ChangeLog(self.snapshot.store, self.snapshot.table, self._settings)

    def between(self, engine: Engine, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Yield the changes of the versions from `first` to `last`, inclusive, in order."""
        for group in self._groups(self.log.versions(first, last)):
            self.log.require(group, last)
            yield from self.read(engine, group)

    def read(self, engine: Engine, group: Sequence[VersionChanges]) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a group of versions, ordered by version."""
        parts = [part for each in self._split_by_query(group) for part in self._parts(engine, each)]
        if not parts:
            return
        rows = parts[0]
        if len(parts) > 1:
            names = {f"part{number}": part for number, part in enumerate(parts)}
            every: exp.Query = _select(rows.columns, from_=next(iter(names)))
            for name in list(names)[1:]:
                every = exp.union(every, _select(rows.columns, from_=name), distinct=False)
            rows = engine.query(every, **names)
        query = _select(self._columns, from_="changes")
        if self._predicate is not None:
            condition = self._predicate.expression.copy()
            query = query.where(with_semantics(condition, self._predicate.flavour))
        if self._in_file_order:
            query = query.order_by(*map(_column, (COMMIT_VERSION, _SIDE, FILE, ROW)))
        elif len(group) > 1:
            query = query.order_by(_column(COMMIT_VERSION))
        for batch in engine.stream(engine.query(query, changes=rows)):
            if batch.num_rows:
                yield from cast_rows(pa.Table.from_batches([batch]), self.schema).to_batches()

    # Planning

    def _groups(self, versions: Iterable[VersionChanges]) -> Iterator[list[VersionChanges]]:
        group: list[VersionChanges] = []
        size = 0
        for each in map(self._pruned, versions):
            if not each.files():
                continue
            if group and (size + each.size > _GROUP_BYTES or len(group) == _GROUP_VERSIONS):
                yield group
                group, size = [], 0
            group.append(each)
            size += each.size
        if group:
            yield group

    def _pruned(self, changes: VersionChanges) -> VersionChanges:
        """Skip files that cannot contain a row for which the predicate is true."""
        if self._predicate is None:
            return changes
        tree = _core.Predicate(self._predicate.to_pruning_json())
        partitioned_by = physical_partitioning(self.snapshot.metadata)

        def kept(files: list[ChangedFile], partitioned: tuple[str, ...]) -> list[ChangedFile]:
            if partitioned != partitioned_by:
                return files  # the predicate was resolved for other partition columns
            return [file for file in files if tree.may_match(file.stats, file.partition)]

        return replace(
            changes,
            added=kept(changes.added, changes.partitioned_by),
            removed=kept(changes.removed, changes.partitioned_before),
        )

    def _split_by_query(self, group: Sequence[VersionChanges]) -> Iterator[list[VersionChanges]]:
        """Split a group into lists of versions that one query can read."""
        plain: dict[tuple[object, ...], list[VersionChanges]] = {}
        for each in group:
            if self._cancel_out and each.added and each.removed and not each.change_data:
                yield [each]
            else:
                key = (bool(each.change_data), each.partitioned_before, each.partitioned_by)
                plain.setdefault(key, []).append(each)
        yield from plain.values()

    def _parts(self, engine: Engine, alike: Sequence[VersionChanges]) -> Iterator[Relation]:
        first = alike[0]
        if first.change_data:
            marked = [MarkedFile(file, each, None) for each in alike for file in each.change_data]
            yield from self._scans(engine, marked, first.partitioned_by)
            return
        if len(alike) == 1 and self._cancel_out and first.added and first.removed:
            yield self._difference(engine, first)
            return
        added = [MarkedFile(file, each, "insert") for each in alike for file in each.added]
        removed = [MarkedFile(file, each, "delete") for each in alike for file in each.removed]
        yield from self._scans(engine, added, first.partitioned_by)
        yield from self._scans(engine, removed, first.partitioned_before)

    # Queries

    def _scans(
        self, engine: Engine, marked: Sequence[MarkedFile], partitioned_by: tuple[str, ...]
    ) -> Iterator[Relation]:
        """Yield scans that read every file of the list.

        One scan cannot read a path twice. If a path occurs again, as after a restore, another scan
        reads it.
        """
        left = marked
        while left:
            once: dict[str, MarkedFile] = {}
            for each in left:
                once.setdefault(each.file.path, each)
            yield self._scan(engine, list(once.values()), partitioned_by)
            left = [each for each in left if once[each.file.path] is not each]

    def _scan(
        self, engine: Engine, marked: Sequence[MarkedFile], partitioned_by: tuple[str, ...]
    ) -> Relation:
        """Return the rows of files with change type, commit version and commit timestamp."""
        from_row = marked[0].kind is None
        live = self.live([each.file for each in marked], partitioned_by, change_data=from_row)
        scanned = engine.scan(live, positions=True)
        marks = pa.table(
            {
                "position": pa.array(range(len(marked)), pa.int64()),
                CHANGE_TYPE: pa.array([each.kind for each in marked], pa.string()),
                COMMIT_VERSION: pa.array([each.changes.version for each in marked], pa.int64()),
                COMMIT_TIMESTAMP: pa.array(
                    [each.changes.committed_at_ms * 1000 for each in marked], _TIMESTAMP
                ),
            }
        )
        names = self.snapshot.schema.names
        shown: list[exp.Expr] = [_column(name, "scanned") for name in names]
        shown.append(_column(CHANGE_TYPE, "scanned" if from_row else "marks"))
        shown += [_column(name, "marks") for name in (COMMIT_VERSION, COMMIT_TIMESTAMP)]
        if self._in_file_order:
            side = exp.Literal.number(int(marked[0].kind == "insert"))
            shown += [exp.alias_(side, _SIDE), _column(FILE, "scanned"), _column(ROW, "scanned")]
        query = (
            exp.select(*shown)
            .from_("scanned")
            .join("marks", on=_column("position", "marks").eq(_column(FILE, "scanned")))
        )
        return engine.query(query, scanned=scanned, marks=engine.rows(marks))

    def _difference(self, engine: Engine, changes: VersionChanges) -> Relation:
        """Return the inserted and deleted rows of a version, without rows that cancel out."""
        names = list(self.snapshot.schema.names)
        sides: dict[str, Any] = {
            "added": engine.scan(self.live(changes.added, changes.partitioned_by)),
            "removed": engine.scan(self.live(changes.removed, changes.partitioned_before)),
        }
        plus, minus = (
            _select(names, from_=side).select(exp.alias_(exp.Literal.number(sign), _TOTAL))
            for side, sign in (("added", 1), ("removed", -1))
        )
        total = exp.Sum(this=_column(_TOTAL))
        counted = (
            _select(names, from_=exp.union(plus, minus, distinct=False).subquery("moved"))
            .select(exp.alias_(exp.cast(total, "bigint"), _TOTAL))
            .group_by(*(_column(name) for name in names))
            .having(total.copy().neq(0))
        )
        copies = exp.GenerateSeries(start=exp.Literal.number(1), end=exp.Abs(this=_column(_TOTAL)))
        repeated = (
            _select([*names, _TOTAL], from_=counted.subquery("counted"))
            .select(exp.alias_(exp.Explode(this=copies), _COPY))
            .subquery("repeated")
        )
        kind = exp.case().when(_column(_TOTAL) > 0, "'insert'").else_("'delete'")
        marks = pa.table(
            {
                COMMIT_VERSION: pa.array([changes.version], pa.int64()),
                COMMIT_TIMESTAMP: pa.array([changes.committed_at_ms * 1000], _TIMESTAMP),
            }
        )
        query = (
            exp.select(
                *(_column(name, "repeated") for name in names),
                exp.alias_(kind, CHANGE_TYPE),
                _column(COMMIT_VERSION, "marks"),
                _column(COMMIT_TIMESTAMP, "marks"),
            )
            .from_(repeated)
            .join("marks", join_type="cross")
        )
        return engine.query(query, **sides, marks=engine.rows(marks))

    def live(
        self,
        files: Sequence[ChangedFile],
        partitioned_by: tuple[str, ...],
        *,
        change_data: bool = False,
    ) -> LiveFiles:
        """Return files of a version for reading them with the columns of the snapshot.

        `partitioned_by` has the physical names of the partition columns at that version.
        """
        metadata, schema = self.snapshot.metadata, self.snapshot.schema
        if change_data:
            schema = StructType((*schema.fields, FEED_FIELDS[0]))
        listed = pa.table(
            {
                "path": pa.array([file.path for file in files], pa.string()),
                "partition": pa.array([file.partition for file in files], pa.string()),
                "deletion_vector": pa.array([file.vector for file in files], pa.string()),
            }
        )
        mode = column_mapping_mode(metadata.configuration)
        names = {field.physical_name(mode): field.name for field in schema.fields}
        read_as = replace(
            metadata,
            schema_string=schema.to_json(),
            partition_columns=tuple(names[each] for each in partitioned_by if each in names),
        )
        return LiveFiles(self.snapshot.table.location, read_as, listed, self._settings)

    # Columns and predicate

    def _known(self, name: str) -> str:
        found = self._fields.find(name)
        if found is None:
            names = ", ".join(self._fields.names)
            raise TxnLogSchemaError(
                f"Schema error: No field named {name}. Valid fields are {names}.",
                table=self.snapshot.table.full_name,
                column=name,
                help="Choose columns that the table has at the last requested version.",
            )
        return found.name

    def _parse(self, predicate: str | None) -> Predicate | None:
        if predicate is None:
            return None
        metadata = self.snapshot.metadata
        mode = column_mapping_mode(metadata.configuration)
        found = parse_predicate(predicate, self._fields, metadata.partition_columns, mode)
        _reject_tables(found)
        return found


def _reject_tables(predicate: Predicate) -> None:
    """Raise if a subquery of the predicate reads a table: only the feed itself can be read."""
    parsed = predicate.expression
    defined = {each.alias for each in parsed.find_all(exp.CTE)}
    for table in parsed.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and table.name not in defined:
            raise TxnLogSchemaError(
                f"the predicate {predicate.sql!r} reads the table {table.name!r}, but a predicate "
                "of the change data feed can only read the feed",
                help="Run the query first, and list its values in the predicate.",
            )


def _nullable(field: pa.Field) -> pa.Field:
    """Make a field nullable at every level, because results of an engine lose NOT NULL."""
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(member) for member in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_type, _nullable(kind.item_field))
    return pa.field(field.name, kind)


def _column(name: str, table: str | None = None) -> exp.Column:
    return exp.column(name, table=table, quoted=True)


def _select(names: Iterable[str], *, from_: str | exp.Expression) -> exp.Select:
    return exp.select(*(_column(name) for name in names)).from_(from_)
