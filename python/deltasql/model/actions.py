"""Delta's actions as frozen dataclasses, and their conversion from and to JSON.

Every class stores unknown fields in `extra`, so that no information from a newer writer is lost
when an action is read and written again. Unknown keys next to the action in its JSON line are also
stored in `extra`, under the key `BESIDE`. Only this file uses the camelCase names of the JSON.

>>> add = AddFile(path="a.parquet", partition_values={}, size=1, modification_time=0)
>>> action_from_dict(add.to_dict()) == add
True
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from deltasql._core import canonical_path

Json = Any
# The key in `extra` for unknown keys next to the action. The Rust core uses the same key.
BESIDE = "deltasql.beside"


@dataclass(frozen=True, slots=True)
class Action:
    """One line of a Delta commit: `{kind: {...}}`."""

    kind: ClassVar[str]

    def to_dict(self) -> dict[str, Json]:
        """Return the action as a dictionary in Delta's JSON format: `{kind: {...}}`."""
        beside = self.extra.get(BESIDE, {})  # type: ignore[attr-defined]
        return {self.kind: self.body(), **{k: v for k, v in beside.items() if k not in _BY_KIND}}

    def body(self) -> dict[str, Json]:
        """Return the fields of the action by JSON name, without fields that are None."""
        out: dict[str, Json] = {}
        for name, json_name in _json_names(type(self)):
            value = getattr(self, name)
            if value is None:
                continue
            out[json_name] = value.body() if isinstance(value, Action) else _plain(value)
        out.update(self.extra)  # type: ignore[attr-defined]
        out.pop(BESIDE, None)
        return out

    def to_json(self) -> str:
        """Return the action as one line of a commit file."""
        return json.dumps(self.to_dict(), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Json]) -> Self:
        """Create the action from `{kind: {...}}`.

        >>> SetTransaction.from_dict({"txn": {"appId": "etl", "version": 3}}).version
        3
        """
        body = data[cls.kind]
        if len(data) > 1:
            beside = {k: v for k, v in data.items() if k != cls.kind and v is not None}
            body = {**body, BESIDE: beside}
        return cls.from_body(body)

    @classmethod
    def from_body(cls, body: Mapping[str, Json]) -> Self:
        """Create the action from its JSON fields, without the kind."""
        known = {json_name: name for name, json_name in _json_names(cls)}
        kwargs: dict[str, Any] = {}
        extra: dict[str, Json] = {}
        for key, value in body.items():
            name = known.get(key)
            if name is None:
                extra[key] = value
            elif value is not None:
                nested = _NESTED.get((cls.__name__, name))
                kwargs[name] = nested.from_body(value) if nested else value
        return cls(**kwargs, extra=extra)  # type: ignore[call-arg]


@dataclass(frozen=True, slots=True)
class DeletionVector(Action):
    """The deletion vector of a file: its deleted rows, inline or as a reference to a file."""

    kind: ClassVar[str] = "deletionVector"
    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: int
    cardinality: int
    offset: int | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)

    @property
    def unique_id(self) -> str:
        """The id of the vector. With the path of the data file, it identifies a logical file."""
        base = f"{self.storage_type}{self.path_or_inline_dv}"
        return base if self.offset is None else f"{base}@{self.offset}"


@dataclass(frozen=True, slots=True)
class AddFile(Action):
    """A data file that a commit adds to the table."""

    kind: ClassVar[str] = "add"
    path: str
    partition_values: Mapping[str, str | None]
    size: int
    modification_time: int
    data_change: bool = True
    stats: str | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RemoveFile(Action):
    """A data file that a commit removes from the table."""

    kind: ClassVar[str] = "remove"
    path: str
    deletion_timestamp: int | None = None
    data_change: bool = True
    extended_file_metadata: bool | None = None
    partition_values: Mapping[str, str | None] | None = None
    size: int | None = None
    stats: str | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AddCdcFile(Action):
    """A change data file of a commit."""

    kind: ClassVar[str] = "cdc"
    path: str
    partition_values: Mapping[str, str | None]
    size: int
    data_change: bool = False
    tags: Mapping[str, str | None] | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Format(Action):
    """The format of the data files; always Parquet."""

    kind: ClassVar[str] = "format"
    provider: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Metadata(Action):
    """The schema, partitioning and properties of a table."""

    kind: ClassVar[str] = "metaData"
    id: str
    # Empty for a table that has no schema yet; such a table cannot be read.
    schema_string: str = ""
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    format: Format = field(default_factory=Format)
    name: str | None = None
    description: str | None = None
    created_time: int | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "partition_columns", tuple(self.partition_columns))


@dataclass(frozen=True, slots=True)
class Protocol(Action):
    """The versions and table features that readers and writers must support."""

    kind: ClassVar[str] = "protocol"
    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("reader_features", "writer_features"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, tuple(value))


@dataclass(frozen=True, slots=True)
class SetTransaction(Action):
    """The latest version that an application committed, for idempotent writes."""

    kind: ClassVar[str] = "txn"
    app_id: str
    version: int
    last_updated: int | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DomainMetadata(Action):
    """A metadata domain: the configuration of one feature or application."""

    kind: ClassVar[str] = "domainMetadata"
    domain: str
    configuration: str
    removed: bool = False
    extra: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitInfo(Action):
    """Provenance of a commit; fields that are not listed here are in `extra`."""

    kind: ClassVar[str] = "commitInfo"
    timestamp: int | None = None
    in_commit_timestamp: int | None = None
    operation: str | None = None
    operation_parameters: Mapping[str, Json] | None = None
    operation_metrics: Mapping[str, Json] | None = None
    read_version: int | None = None
    isolation_level: str | None = None
    is_blind_append: bool | None = None
    engine_info: str | None = None
    user_metadata: str | None = None
    txn_id: str | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sidecar(Action):
    """A sidecar file of a V2 checkpoint."""

    kind: ClassVar[str] = "sidecar"
    path: str
    size_in_bytes: int
    modification_time: int
    tags: Mapping[str, str | None] | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckpointMetadata(Action):
    """The version of a V2 checkpoint."""

    kind: ClassVar[str] = "checkpointMetadata"
    version: int
    tags: Mapping[str, str | None] | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)


ACTIONS: tuple[type[Action], ...] = (
    AddFile,
    RemoveFile,
    AddCdcFile,
    Metadata,
    Protocol,
    SetTransaction,
    DomainMetadata,
    CommitInfo,
    Sidecar,
    CheckpointMetadata,
)

_BY_KIND = {cls.kind: cls for cls in ACTIONS}
_NESTED: dict[tuple[str, str], type[Action]] = {
    ("AddFile", "deletion_vector"): DeletionVector,
    ("RemoveFile", "deletion_vector"): DeletionVector,
    ("Metadata", "format"): Format,
}
_NAMES: dict[type[Action], tuple[tuple[str, str], ...]] = {}


def action_from_dict(data: Mapping[str, Json]) -> Action:
    """Create an action of the class for its kind from `{kind: {...}}`; keep unknown keys."""
    kinds = [kind for kind in data if kind in _BY_KIND and data[kind] is not None]
    if len(kinds) > 1:
        raise ValueError(f"an action has exactly one kind, got {sorted(kinds)}")
    if not kinds:
        raise ValueError(f"unknown action {sorted(data)}; known: {', '.join(sorted(_BY_KIND))}")
    return _BY_KIND[kinds[0]].from_dict(data)


def logical_file(file: AddFile | RemoveFile) -> tuple[str, str | None]:
    """Return the identity of a file: its normalized path and the id of its deletion vector.

    >>> logical_file(RemoveFile("file:/lake/a")) == logical_file(RemoveFile("/lake/a"))
    True
    """
    vector = file.deletion_vector
    return canonical_path(file.path), None if vector is None else vector.unique_id


def _json_names(cls: type[Action]) -> tuple[tuple[str, str], ...]:
    names = _NAMES.get(cls)
    if names is None:
        names = tuple((f.name, _camel(f.name)) for f in fields(cls) if f.name != "extra")
        _NAMES[cls] = names
    return names


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _plain(value: Json) -> Json:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value
