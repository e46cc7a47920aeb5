"""ALTER TABLE: columns are added, described, made nullable, renamed and dropped."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import TxnLogError, TxnLogSchemaError
from deltasql.exceptions.prefixes import SCHEMA_ERROR, TABLE_ERROR
from deltasql.model.properties import TableProperties
from deltasql.model.protocol import upgraded_protocol
from deltasql.model.schema.column_mapping import (
    COLUMN_ID,
    with_column_mapping,
    with_new_columns_mapped,
    without_mapping,
)
from deltasql.model.schema.column_paths import split_column_list, split_column_path
from deltasql.model.schema.schema import (
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    column_mapping_mode,
    nearest,
    type_name,
)
from deltasql.operations.commit_info import set_commit_info

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deltasql.operations.target import TableStage

_GENERATED = "delta.generationExpression"
_STATS_COLUMNS = "delta.dataSkippingStatsColumns"


def add_columns(target: TableStage, columns: StructType) -> None:
    """Add columns at the end, and members at the end of structs that are there.

    They are new, also those that were taken from a schema of before.
    """
    columns = without_mapping(columns)
    for column in columns.fields:
        if _GENERATED in column.metadata:
            raise TxnLogError(
                "New columns cannot be a generated column",
                help="Create the table with its generated columns.",
            )
        if column.nullable or target.schema.find(column.name) is not None:
            continue
        target.read(whole_table=True)  # rows that others add meanwhile do not have it either
        if len(target.files()):
            raise TxnLogSchemaError(
                f"column {column.name!r} cannot be NOT NULL: the table has rows without it",
                column=column.name,
                help="Add it nullable, or add it to a table without rows.",
            )
    _stage_schema(target, _merged(target.schema, columns, ()))
    set_commit_info(target, "ADD COLUMN", {"fields": _fields_json(columns)})


def drop_column_not_null(target: TableStage, column: str) -> None:
    """Let a column have nulls."""
    path = _existing(target, column, f"No column with the name '{column}' in the schema")
    found = _at(target.schema, path)
    if found.nullable:
        raise TxnLogError(
            f"Column '{column}' is already nullable",
            prefix=TABLE_ERROR,
            help="There is nothing to drop.",
        )
    changed = replace(found, nullable=True)
    _stage_schema(target, _changed(target.schema, path, lambda _: changed))
    set_commit_info(target, "CHANGE COLUMN", {"column": _field_json(changed)})


def set_column_metadata(target: TableStage, column: str, metadata: Mapping[str, str]) -> None:
    """Add entries to a column's metadata, or put others in their place."""
    path = _existing(target, column, "No field with the provided name in the schema")
    present = _at(target.schema, path).metadata
    for key in (COLUMN_ID, PHYSICAL_NAME):
        if key in metadata and metadata[key] != present.get(key):
            raise TxnLogSchemaError(
                f"{key} of column {column!r} cannot be set: it tells where its values are",
                column=column,
                help="Rename the column instead; the table keeps track of it.",
            )
    schema = _changed(
        target.schema, path, lambda f: replace(f, metadata={**f.metadata, **metadata})
    )
    _stage_schema(target, schema)
    set_commit_info(target, "UPDATE FIELD METADATA", {"fields": _fields_json(schema)})


def rename_column(target: TableStage, column: str, new_name: str) -> None:
    """Give a column, or a member of a struct, another name; no file is touched.

    The table gets column mapping by name if it has none.
    """
    path = _existing(target, column, f"No column with the name '{column}' in the schema")
    _refuse_used(target, path, "renamed")
    siblings = _siblings(target.schema, path)
    clash = siblings.find(new_name)
    if clash is not None and clash.name != path[-1]:
        raise TxnLogSchemaError(
            f"column {new_name!r} is there already",
            column=new_name,
            help="Choose a name that the table does not have, in any case.",
        )
    renamed = (*path[:-1], new_name)
    schema, configuration = _with_mapping(target)
    _stage_schema(
        target,
        _changed(schema, path, lambda f: replace(f, name=new_name)),
        configuration=_stats_columns(configuration, path, renamed),
        partition_columns=[
            new_name if (name,) == path else name for name in target.partition_columns
        ],
    )
    set_commit_info(
        target,
        "RENAME COLUMN",
        {"oldColumnPath": ".".join(path), "newColumnPath": ".".join(renamed)},
    )


def drop_columns(target: TableStage, columns: Sequence[str]) -> None:
    """Take columns, or members of structs, out of the schema; their data stays in the files.

    The table gets column mapping by name if it has none: a column of the same name that is
    added later does not show the old values.
    """
    paths = [
        _existing(target, name, f"No column with the name '{name}' in the schema")
        for name in columns
    ]
    paths = [path for path in dict.fromkeys(paths) if not _is_inside(path, paths)]
    schema, configuration = _with_mapping(target)
    for path in paths:
        _refuse_used(target, path, "dropped")
        if path[0] in target.partition_columns:
            raise TxnLogSchemaError(
                f"partition column {path[0]!r} cannot be dropped",
                column=path[0],
                help="Write the table again with other partition columns.",
            )
        if len(_siblings(schema, path).fields) == 1:
            raise TxnLogSchemaError(
                f"column {'.'.join(path)!r} is the last one and cannot be dropped",
                column=".".join(path),
                help="A table and a struct have at least one field.",
            )
        schema = _changed(schema, path, lambda _: None)
        configuration = _stats_columns(configuration, path, None)
    _stage_schema(target, schema, configuration=configuration)
    names = json.dumps([".".join(path) for path in paths], ensure_ascii=False)
    set_commit_info(target, "DROP COLUMNS", {"columns": names})


def _is_inside(path: tuple[str, ...], others: Sequence[tuple[str, ...]]) -> bool:
    """Tell whether a member goes with a struct that goes.

    >>> _is_inside(("s", "x"), [("s",), ("s", "x")]), _is_inside(("s",), [("s",), ("s", "x")])
    (True, False)
    """
    return any(path != other and path[: len(other)] == other for other in others)


def _with_mapping(target: TableStage) -> tuple[StructType, dict[str, str]]:
    if column_mapping_mode(target.configuration) is not None:
        return target.schema, dict(target.configuration)
    return with_column_mapping(target.schema, target.configuration)


def _stage_schema(
    target: TableStage,
    schema: StructType,
    *,
    configuration: Mapping[str, str] | None = None,
    partition_columns: Sequence[str] | None = None,
) -> None:
    properties = target.configuration if configuration is None else configuration
    mapped, wanted = with_new_columns_mapped(schema, properties)
    partitions = target.partition_columns if partition_columns is None else partition_columns
    target.change_metadata(
        replace(
            target.metadata,
            schema_string=mapped.to_json(),
            configuration=wanted,
            partition_columns=tuple(partitions),
        ),
        upgraded_protocol(target.protocol, mapped, wanted),
    )


def _existing(target: TableStage, column: str, problem: str) -> tuple[str, ...]:
    """Find a column by its exact name, else by its path through structs."""
    schema = target.schema
    if any(member.name == column for member in schema.fields):
        return (column,)
    path = split_column_path(column)
    here: DataType = schema
    for name in path:
        members = here.fields if isinstance(here, StructType) else ()
        step = next((member for member in members if member.name == name), None)
        if step is None:
            raise TxnLogError(
                problem,
                prefix=TABLE_ERROR,
                help=f"{nearest(column, schema.names)}Names are matched by their case.",
            )
        here = step.type
    return path


def _at(schema: StructType, path: Sequence[str]) -> StructField:
    found = next(member for member in schema.fields if member.name == path[0])
    return _at(found.type, path[1:]) if len(path) > 1 else found  # type: ignore[arg-type]


def _siblings(schema: StructType, path: Sequence[str]) -> StructType:
    if len(path) == 1:
        return schema
    parent = _at(schema, path[:-1]).type
    assert isinstance(parent, StructType)
    return parent


def _changed(
    struct: StructType,
    path: Sequence[str],
    change: Callable[[StructField], StructField | None],
) -> StructType:
    """Return the struct with another field at the path; None takes it out."""
    fields: list[StructField] = []
    for member in struct.fields:
        changed: StructField | None = member
        if member.name == path[0]:
            if len(path) == 1:
                changed = change(member)
            else:
                assert isinstance(member.type, StructType)
                changed = replace(member, type=_changed(member.type, path[1:], change))
        if changed is not None:
            fields.append(changed)
    return StructType(tuple(fields))


def _merged(present: StructType, new: StructType, path: tuple[str, ...]) -> StructType:
    fields = {member.name: member for member in present.fields}
    folded = {name.casefold() for name in fields}
    for member in new.fields:
        known = fields.get(member.name)
        if known is not None:
            where = (*path, member.name)
            fields[member.name] = replace(
                known,
                type=_merged_type(known.type, member.type, where),
                metadata={**known.metadata, **member.metadata},
            )
        elif member.name.casefold() in folded:
            raise TxnLogSchemaError(
                f"Duplicate field name (case-insensitive): '{member.name}'",
                column=".".join((*path, member.name)),
                help="Delta compares column names without regard to case.",
            )
        else:
            fields[member.name] = member
            folded.add(member.name.casefold())
    return StructType(tuple(fields.values()))


def _merged_type(present: DataType, new: DataType, path: tuple[str, ...]) -> DataType:
    if isinstance(present, StructType) and isinstance(new, StructType):
        return _merged(present, new, path)
    if isinstance(present, ArrayType) and isinstance(new, ArrayType):
        element = _merged_type(present.element_type, new.element_type, (*path, "element"))
        return replace(present, element_type=element)
    if isinstance(present, MapType) and isinstance(new, MapType):
        return replace(
            present,
            key_type=_merged_type(present.key_type, new.key_type, (*path, "key")),
            value_type=_merged_type(present.value_type, new.value_type, (*path, "value")),
        )
    if present == new:
        return present
    raise TxnLogSchemaError(
        f"Cannot merge types {type_name(present)} and {type_name(new)}",
        column=".".join(path),
        prefix=SCHEMA_ERROR,
        help="A column that is there keeps its type: choose another name.",
    )


def _refuse_used(target: TableStage, path: tuple[str, ...], done: str) -> None:
    """Refuse to touch a column that a rule of the table names."""
    rules = dict(TableProperties(target.configuration).constraints)
    for member in target.schema.fields:
        for key in (_GENERATED, "delta.invariants"):
            if key in member.metadata and (member.name,) != path:
                rules[member.name] = str(member.metadata[key])
    for name, text in rules.items():
        if _names_column(target, text, path):
            raise TxnLogSchemaError(
                f"column {'.'.join(path)!r} cannot be {done}: {name} uses it",
                column=".".join(path),
                help=f"Drop what uses it first: {text}",
            )


def _names_column(target: TableStage, text: str, path: tuple[str, ...]) -> bool:
    used: Sequence[Any]
    try:
        used = target.predicate(text).columns
    except TxnLogError:  # not a condition of ours: any mention counts
        return path[-1].casefold() in text.casefold()
    wanted = [name.casefold() for name in path]
    return any([p.casefold() for p in each.path][: len(path)] == wanted for each in used)


def _stats_columns(
    configuration: Mapping[str, str], path: tuple[str, ...], renamed: tuple[str, ...] | None
) -> dict[str, str]:
    """Follow a column in the list of those with statistics."""
    changed = dict(configuration)
    listed = configuration.get(_STATS_COLUMNS)
    if listed is None:
        return changed
    kept = []
    for text in split_column_list(listed):
        parts = split_column_path(text)
        if parts[: len(path)] != path:
            kept.append(text)
        elif renamed is not None:
            kept.append(".".join(_quoted(name) for name in (*renamed, *parts[len(path) :])))
    changed[_STATS_COLUMNS] = ",".join(kept)
    if not kept:
        del changed[_STATS_COLUMNS]
    return changed


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name.replace('`', '``')}`"


def _fields_json(struct: StructType) -> str:
    fields = json.loads(struct.to_json())["fields"]
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


def _field_json(member: StructField) -> str:
    field = json.loads(StructType((member,)).to_json())["fields"][0]
    return json.dumps(field, separators=(",", ":"), ensure_ascii=False)
