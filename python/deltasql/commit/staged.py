"""The staged actions of a transaction for one table, its read set, and the checks of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from deltasql._core import canonical_path, nests_too_deep
from deltasql.exceptions import InvalidActionError, TxnLogTransactionError
from deltasql.model.actions import (
    Action,
    AddCdcFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    action_from_dict,
    logical_file,
)
from deltasql.model.json_text import load_json, read_stats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.commit.identity import Numbers
    from deltasql.commit.table_state import TableState
    from deltasql.model.predicates.predicate import Predicate
    from deltasql.store.records import Head, TableRow


class Isolation(Enum):
    """Delta's isolation levels. They define which concurrent commits do not conflict."""

    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"
    SNAPSHOT = "SnapshotIsolation"


_STRICTNESS = (Isolation.SNAPSHOT, Isolation.WRITE_SERIALIZABLE, Isolation.SERIALIZABLE)


@dataclass(frozen=True, slots=True)
class ReadSet:
    """What a transaction read from a table; the conflict rules compare it with winning commits."""

    whole_table: bool = False
    predicates: tuple[Predicate, ...] = ()
    paths: frozenset[str] = frozenset()
    listed: tuple[Predicate, ...] = ()
    """Predicates whose files are all in `paths`, so only files added later can conflict."""

    def __bool__(self) -> bool:
        return self.whole_table or bool(self.predicates or self.paths or self.listed)

    def merge(self, other: ReadSet) -> ReadSet:
        """Return the union of both read sets."""
        return ReadSet(
            self.whole_table or other.whole_table,
            self.predicates + other.predicates,
            self.paths | other.paths,
            self.listed + other.listed,
        )


@dataclass(slots=True)
class Staged:
    """Actions for one table, not yet ratified."""

    table: TableRow
    creates: bool = False
    must_be_new: bool = True
    """Whether a table that another commit creates first is a TableExistsError, not a conflict."""
    allows_nested: bool = False
    """Whether a new table may be inside another table's location, or contain it."""
    read_version: int | None = None
    must_be_next: bool = False
    """Whether any commit after `read_version` is a conflict (`max_commit_retries=0`)."""
    is_external: bool = False
    """Whether another Delta writer wrote the commit: its commitInfo and times stay unchanged."""
    yields: bool = False
    """Whether the commit fails if a transaction holds the files of the table (auto compaction)."""
    reads: ReadSet = field(default_factory=ReadSet)
    adds: list[AddFile] = field(default_factory=list)
    removes: list[RemoveFile] = field(default_factory=list)
    cdc: list[AddCdcFile] = field(default_factory=list)
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    txns: list[SetTransaction] = field(default_factory=list)
    domains: list[DomainMetadata] = field(default_factory=list)
    identity: dict[str, Numbers] = field(default_factory=dict)
    """The values reserved for identity columns, by physical column name."""
    restarts_identity: bool = False
    """Whether the commit replaces the table, so that its identity columns start again."""
    info: CommitInfo = field(default_factory=CommitInfo)

    def extend(self, actions: Iterable[Action]) -> None:
        """Add actions; raise if they contain a second, different metaData or protocol action."""
        given = list(actions)
        if {type(action) for action in given} == {AddFile}:
            self.adds += cast("list[AddFile]", given)  # faster for appends of many files
            return
        for action in given:
            match action:
                case AddFile():
                    self.adds.append(action)
                case RemoveFile():
                    self.removes.append(action)
                case AddCdcFile():
                    self.cdc.append(action)
                case SetTransaction():
                    self.txns.append(action)
                case DomainMetadata():
                    self.domains.append(action)
                case Metadata():
                    self._reject_second(self.metadata, action)
                    self.metadata = action
                case Protocol():
                    self._reject_second(self.protocol, action)
                    self.protocol = action
                case CommitInfo():
                    self.info = action
                case _:
                    raise InvalidActionError(
                        f"a commit cannot contain a {action.kind} action",
                        help="Leave the action out: only a checkpoint can contain it.",
                    )

    def _reject_second(self, present: Action | None, action: Action) -> None:
        if present is not None and present != action:
            raise InvalidActionError(
                f"the transaction has two different {action.kind} actions for "
                f"{self.table.full_name}",
                help="Stage one metaData and one protocol per table and transaction.",
            )

    @property
    def is_empty(self) -> bool:
        return not (
            self.adds
            or self.removes
            or self.cdc
            or self.metadata
            or self.protocol
            or self.txns
            or self.domains
            or self.identity
            or self.info.operation
        )

    @property
    def is_blind_append(self) -> bool:
        """Whether the commit only adds files and read nothing from the table."""
        return bool(self.adds) and not (
            self.removes or self.reads or self.metadata or self.protocol
        )

    @property
    def is_plain_append(self) -> bool:
        """Whether this is a blind append that conflicts only with metadata and protocol changes."""
        return self.is_blind_append and not (
            self.txns or self.domains or self.identity or self.must_be_next
        )

    def may_conflict(self, read_version: int, head: Head) -> bool:
        """Return whether the conflict rules must run. Most commits are appends and skip them."""
        if self.is_plain_append and read_version >= max(
            head.metadata_version, head.protocol_version
        ):
            return False
        return read_version < head.version

    @property
    def changes_data(self) -> bool:
        return any(f.data_change for f in self.adds) or any(f.data_change for f in self.removes)

    def isolation(self, level: str) -> Isolation:
        """Return the level to use; for a commit that only moves rows, it is snapshot isolation.

        A commit that changes the metadata or the protocol does more than that: concurrently added
        files must also get what it gives to the existing files, such as row ids.
        """
        changes_table = bool(self.metadata or self.protocol)
        if (self.adds or self.removes) and not (self.changes_data or changes_table):
            return Isolation.SNAPSHOT
        # A table may be set to snapshot isolation. With that level, an overwrite could be applied
        # after commits whose rows it did not see. So commits that change data use at least
        # WriteSerializable.
        return max(Isolation(level), Isolation.WRITE_SERIALIZABLE, key=_STRICTNESS.index)


def actions_from(items: object) -> list[Action]:
    """Convert Action objects, Delta JSON (dicts or lines) and deltalake's AddAction to actions.

    >>> actions_from('{"txn": {"appId": "etl", "version": 1}}')
    [SetTransaction(app_id='etl', version=1, last_updated=None, extra={})]
    """
    if isinstance(items, bytes):
        return actions_from(items.decode())
    if isinstance(items, str):
        return [_action(load_json(line)) for line in items.splitlines() if line.strip()]
    if isinstance(items, Action | Mapping) or _is_add_action(items) or _is_remove_action(items):
        return [_action(items)]
    if not isinstance(items, Iterable):
        raise InvalidActionError(
            f"cannot read actions from {type(items).__name__}",
            help="Give actions of deltasql.model.actions, Delta JSON dicts or JSON lines.",
        )
    given = list(items)
    if all(issubclass(kind, Action) for kind in {type(item) for item in given}):
        return given
    return [action for item in given for action in _each(item)]


def _each(item: Any) -> list[Action]:
    return actions_from(item) if isinstance(item, str | bytes) else [_action(item)]


def _action(item: Any) -> Action:
    if isinstance(item, Action):
        return item
    if isinstance(item, Mapping):
        try:
            return action_from_dict(item)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidActionError(
                f"not a Delta action: {error}", help='An action looks like {"add": {"path": …}}.'
            ) from error
    if _is_add_action(item):
        return AddFile(
            path=item.path,
            partition_values=item.partition_values,
            size=item.size,
            modification_time=item.modification_time,
            data_change=item.data_change,
            stats=item.stats,
        )
    if _is_remove_action(item):
        return RemoveFile(
            path=item.path,
            deletion_timestamp=item.deletion_timestamp,
            data_change=item.data_change,
            extended_file_metadata=item.size is not None and item.partition_values is not None,
            partition_values=item.partition_values,
            size=item.size,
        )
    raise InvalidActionError(
        f"not a Delta action: {type(item).__name__}",
        help="Give actions of deltasql.model.actions, Delta JSON dicts or JSON lines.",
    )


def _is_add_action(item: object) -> bool:
    # Check the name and the fields instead of using isinstance, because importing deltalake takes
    # half a second.
    return type(item).__name__ == "AddAction" and hasattr(item, "partition_values")


def _is_remove_action(item: object) -> bool:
    return type(item).__name__ == "RemoveAction" and hasattr(item, "deletion_timestamp")


def validate_staged(staged: Staged) -> None:
    """Check the actions of a commit on their own, without the state of the table."""
    table = staged.table.full_name
    _reject(table, "adds a file without a path", ("''" for f in staged.adds if not f.path))
    _reject(
        table,
        "adds a file with a negative size or time",
        (f.path for f in staged.adds if f.size < 0 or f.modification_time < 0),
    )
    _reject(
        table,
        "has a file with statistics that are nested too deep",
        (path for path, stats in _statistics(staged) if nests_too_deep(stats)),
        help="Omit the statistics: no reader of the log could parse them.",
    )
    if len(staged.adds) == 1 and staged.is_blind_append and not (staged.txns or staged.domains):
        return  # nothing can be duplicated
    paths = {canonical_path(f.path) for f in staged.adds}
    paths.update(canonical_path(f.path) for f in staged.removes)
    if len(paths) < len(staged.adds) + len(staged.removes):
        _reject_repeated(staged)  # a path may repeat if its deletion vectors differ
    apps = Counter(txn.app_id for txn in staged.txns)
    _reject(table, "sets an application's version twice", (a for a, n in apps.items() if n > 1))
    domains = Counter(domain.domain for domain in staged.domains)
    _reject(table, "sets a metadata domain twice", (d for d, n in domains.items() if n > 1))


def _statistics(staged: Staged) -> Iterator[tuple[str, str | None]]:
    yield from ((file.path, file.stats) for file in staged.adds)
    yield from ((file.path, file.stats) for file in staged.removes)


def _reject_repeated(staged: Staged) -> None:
    table = staged.table.full_name
    added = Counter(map(logical_file, staged.adds))
    removed = Counter(map(logical_file, staged.removes))
    _reject(table, "adds a file twice", (k[0] for k, n in added.items() if n > 1))
    _reject(table, "removes a file twice", (k[0] for k, n in removed.items() if n > 1))
    _reject(table, "adds and removes the same file", (k[0] for k in added.keys() & removed.keys()))


def validate_against(staged: Staged, state: TableState) -> None:
    """Check a commit against the protocol, schema and properties that the table has after it."""
    table = staged.table.full_name
    expected = state.partition_keys
    for add in staged.adds:
        if add.partition_values.keys() != expected:
            raise InvalidActionError(
                f"{add.path!r} has partition values for {sorted(add.partition_values)}, "
                f"but {table} is partitioned by {list(state.partition_columns)}",
                help="Give every partition column a value, or null.",
            )
    if state.iceberg_compat:
        _reject(
            table,
            f"adds a file without the number of its rows, which {state.iceberg_compat[0]} needs",
            (f.path for f in staged.adds if "numRecords" not in read_stats(f.stats)),
            help="Add numRecords to the statistics of the file.",
        )
    if "deletionVectors" not in state.features:
        _reject(
            table,
            "has a deletion vector but the table does not support the feature deletionVectors",
            (f.path for f in staged.adds if f.deletion_vector),
        )
    if staged.domains and "domainMetadata" not in state.features:
        raise InvalidActionError(
            f"{table} does not support the feature domainMetadata",
            help="Enable the table feature domainMetadata first.",
        )
    if state.append_only and any(f.data_change for f in staged.removes):
        raise TxnLogTransactionError(
            "The transaction includes Remove action with data change but "
            "Delta table is append-only",
            table=table,
            help="Set delta.appendOnly to false to delete or change rows.",
        )


def _reject(
    table: str,
    problem: str,
    paths: Iterable[str],
    *,
    help: str = "Stage each file, application and domain only once.",
) -> None:
    shown = sorted(paths)
    if shown:
        more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
        raise InvalidActionError(
            f"a commit to {table} {problem}: {', '.join(shown[:3])}{more}",
            help=help,
        )
