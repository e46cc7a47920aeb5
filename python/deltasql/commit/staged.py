"""The staged actions of a transaction for one table, and its read set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from deltasql.exceptions import InvalidActionError
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
)
from deltasql.model.json_text import load_json

if TYPE_CHECKING:
    from deltasql.model.predicates.predicate import Predicate
    from deltasql.store.records import TableRow


@dataclass(frozen=True, slots=True)
class ReadSet:
    """What a transaction read from a table; the conflict rules compare it with winning commits."""

    whole_table: bool = False
    predicates: tuple[Predicate, ...] = ()
    paths: frozenset[str] = frozenset()
    listed: tuple[Predicate, ...] = ()
    """Predicates whose matching files are all in `paths`: only files added later can conflict."""

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
    """Whether a table that another commit creates first is TableExistsError, or a conflict."""
    allows_nested: bool = False
    """Whether the location of a new table may be inside that of another table, or contain it."""
    read_version: int | None = None
    must_be_next: bool = False
    """Whether it conflicts with any commit after `read_version` (`max_commit_retries=0`)."""
    reads: ReadSet = field(default_factory=ReadSet)
    adds: list[AddFile] = field(default_factory=list)
    removes: list[RemoveFile] = field(default_factory=list)
    cdc: list[AddCdcFile] = field(default_factory=list)
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    txns: list[SetTransaction] = field(default_factory=list)
    domains: list[DomainMetadata] = field(default_factory=list)
    info: CommitInfo = field(default_factory=CommitInfo)

    def extend(self, actions: Iterable[Action]) -> None:
        """Add actions; a second, different metaData or protocol action is refused."""
        given = list(actions)
        if {type(action) for action in given} == {AddFile}:
            self.adds += cast("list[AddFile]", given)  # fast for appends of many files
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
                    self._refuse_second(self.metadata, action)
                    self.metadata = action
                case Protocol():
                    self._refuse_second(self.protocol, action)
                    self.protocol = action
                case CommitInfo():
                    self.info = action
                case _:
                    raise InvalidActionError(
                        f"a commit cannot hold a {action.kind} action",
                        help="Sidecars and checkpoint metadata belong to checkpoints.",
                    )

    def _refuse_second(self, present: Action | None, action: Action) -> None:
        if present is not None and present != action:
            raise InvalidActionError(
                f"a second {action.kind} action for {self.table.full_name} in one transaction",
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
            or self.info.operation
        )

    @property
    def is_blind_append(self) -> bool:
        """Whether it only adds files and read nothing from the table."""
        return bool(self.adds) and not (
            self.removes or self.reads or self.metadata or self.protocol
        )

    @property
    def is_plain_append(self) -> bool:
        """Whether it is a blind append that conflicts only with metadata and protocol changes."""
        return self.is_blind_append and not (self.txns or self.domains or self.must_be_next)

    @property
    def changes_data(self) -> bool:
        return any(f.data_change for f in self.adds) or any(f.data_change for f in self.removes)


def actions_from(items: object) -> list[Action]:
    """Convert to actions: our own, Delta JSON dicts, JSON lines, deltalake's AddAction.

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
    # By name and fields, not isinstance: importing deltalake takes half a second.
    return type(item).__name__ == "AddAction" and hasattr(item, "partition_values")


def _is_remove_action(item: object) -> bool:
    return type(item).__name__ == "RemoveAction" and hasattr(item, "deletion_timestamp")
