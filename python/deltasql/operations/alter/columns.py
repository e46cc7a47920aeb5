"""ALTER TABLE: add, rename and drop columns; set their type, NOT NULL, default and metadata."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deltasql.exceptions import TxnLogError, TxnLogSchemaError, UnsupportedFeatureError
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
from deltasql.model.schema.identity import KEYS, START
from deltasql.model.schema.schema import (
    CURRENT_DEFAULT,
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
from deltasql.model.schema.widening import (
    ENABLED,
    FEATURE,
    can_widen,
    is_enabled,
    with_type_changes,
)
from deltasql.operations.rules.schema_merge import GENERATED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deltasql.operations.table_stage import TableStage

_STATS_COLUMNS = "delta.dataSkippingStatsColumns"


def add_columns(stage: TableStage, columns: StructType) -> None:
    """Add columns at the end of the table, and fields at the end of existing structs.

    Column mapping in the metadata of the given columns is ignored, because the table assigns its
    own ids and physical names.
    """
    columns = without_mapping(columns)
    for column in columns.fields:
        if GENERATED in column.metadata or START in column.metadata:
            raise TxnLogError(
                "New columns cannot be a generated column",
                help="Create the table with its generated columns.",
            )
        if CURRENT_DEFAULT in column.metadata:
            raise TxnLogSchemaError(
                f"column {column.name!r} cannot be added with a default, because existing rows "
                "would not have it",
                column=column.name,
                help="First add the column, then run ALTER COLUMN … SET DEFAULT, which applies to "
                "new rows.",
            )
        if column.nullable or stage.schema.find(column.name) is not None:
            continue
        stage.read(whole_table=True)  # rows of a concurrent append would not have the column
        if len(stage.files()):
            raise TxnLogSchemaError(
                f"column {column.name!r} cannot be NOT NULL: the table has rows without it",
                column=column.name,
                help="Add it as a nullable column, or add it to a table without rows.",
            )
    _stage_schema(stage, _merged(stage.schema, columns, ()))
    stage.set_commit_info("ADD COLUMN", {"fields": _fields_json(columns)})


def drop_column_not_null(stage: TableStage, column: str) -> None:
    """Make a column nullable."""
    path = _existing(stage, column, f"No column with the name '{column}' in the schema")
    found = _at(stage.schema, path)
    if found.nullable:
        raise TxnLogError(
            f"Column '{column}' is already nullable",
            prefix=TABLE_ERROR,
            help="Nothing to do: the column has no NOT NULL constraint.",
        )
    changed = replace(found, nullable=True)
    _stage_schema(stage, _changed(stage.schema, path, lambda _: changed))
    stage.set_commit_info("CHANGE COLUMN", {"column": _field_json(changed)})


def set_column_not_null(stage: TableStage, column: str) -> None:
    """Make a column NOT NULL; raise if an existing row has a null there."""
    # lazy import: loads the SQL parser
    from deltasql.operations.alter.constraints import check_existing_rows
    from deltasql.operations.rules.not_null import NotNull, null_condition

    path = _existing(stage, column, f"No column with the name '{column}' in the schema")
    if len(path) > 1:
        raise TxnLogSchemaError(
            f"field {column!r} of a struct cannot be made NOT NULL",
            column=column,
            help=f"Add a constraint: CHECK ({path[0]} IS NULL OR {column} IS NOT NULL). "
            "pyarrow cannot read existing files with null structs if a field is NOT NULL.",
        )
    changed = replace(_at(stage.schema, path), nullable=False)
    check_existing_rows(stage, {f"{column} NOT NULL": null_condition(NotNull(path))})
    stage.read(whole_table=True)
    _stage_schema(stage, _changed(stage.schema, path, lambda _: changed))
    stage.set_commit_info("CHANGE COLUMN", {"column": _field_json(changed)})


def set_column_type(stage: TableStage, column: str, data_type: DataType) -> None:
    """Change a column to a wider type, without rewriting files.

    `a.b` is a field of a struct, `a.element` the elements of an array, `a.key` and `a.value` the
    keys and the values of a map.
    """
    path, inner = _type_path(stage, column)
    present = _inner_type(_at(stage.schema, path).type, inner)
    if present == data_type:
        return
    shown = f"column {column!r} cannot change from {type_name(present)} to {type_name(data_type)}"
    if not can_widen(present, data_type):
        raise TxnLogSchemaError(
            shown,
            column=column,
            help="Possible changes: an integer type to a larger one, or to a decimal that holds "
            "all its values; byte, short, integer or float to double; a decimal to one with more "
            "digits; date to timestamp_ntz. For other types, add a column, UPDATE it, drop the old "
            "column and rename the new one.",
        )
    if not is_enabled(stage.configuration):
        raise UnsupportedFeatureError(
            f"{shown}: type widening is not enabled",
            features=(FEATURE,),
            help=f"First set the table property {ENABLED} to true.",
        )
    _check_unused(stage, path, "changed to another type")
    after = _changed(
        stage.schema, path, lambda f: replace(f, type=_with_inner_type(f.type, inner, data_type))
    )
    recorded = with_type_changes(stage.schema, after)
    _stage_schema(stage, recorded)
    stage.set_commit_info("CHANGE COLUMN", {"column": _field_json(_at(recorded, path))})


def set_column_metadata(stage: TableStage, column: str, metadata: Mapping[str, str]) -> None:
    """Add entries to a column's metadata; existing entries with the same key are replaced."""
    path = _existing(stage, column, "No field with the provided name in the schema")
    present = _at(stage.schema, path).metadata
    for key in (COLUMN_ID, PHYSICAL_NAME, *KEYS):
        if key in metadata and metadata[key] != present.get(key):
            user = "the identity column" if key in KEYS else "column mapping"
            raise TxnLogSchemaError(
                f"{key} of column {column!r} cannot be set: {user} uses it",
                column=column,
                help="To change the name of a column, rename it. Define identity columns when the "
                "table is created.",
            )
    if CURRENT_DEFAULT in metadata:
        from deltasql.operations.sql.defaults import check_default  # lazy import: SQL parser

        check_default(column, metadata[CURRENT_DEFAULT])
    schema = _changed(stage.schema, path, lambda f: replace(f, metadata={**f.metadata, **metadata}))
    _stage_schema(stage, schema)
    stage.set_commit_info("UPDATE FIELD METADATA", {"fields": _fields_json(schema)})


def set_column_default(stage: TableStage, column: str, default: str | None) -> None:
    """Set the default value of a column for new rows, or drop it.

    The default is an expression in Spark's SQL.
    """
    path = _existing(stage, column, f"No column with the name '{column}' in the schema")
    found = _at(stage.schema, path)
    metadata = {k: v for k, v in found.metadata.items() if k != CURRENT_DEFAULT}
    if default is not None:
        if len(path) > 1 or GENERATED in metadata or START in metadata:
            kind = "a field of a struct" if len(path) > 1 else "a generated column"
            raise TxnLogSchemaError(
                f"column {column!r} cannot have a default, because it is {kind}",
                column=column,
                help="Give its value in every INSERT." if len(path) > 1 else "It is computed.",
            )
        from deltasql.operations.sql.defaults import check_default  # lazy import: SQL parser

        check_default(column, default)
        metadata[CURRENT_DEFAULT] = default
    changed = replace(found, metadata=metadata)
    _stage_schema(stage, _changed(stage.schema, path, lambda _: changed))
    stage.set_commit_info("CHANGE COLUMN", {"column": _field_json(changed)})


def rename_column(stage: TableStage, column: str, new_name: str) -> None:
    """Rename a column or a struct field, without rewriting files.

    The table gets column mapping by name if it has no column mapping.
    """
    path = _existing(stage, column, f"No column with the name '{column}' in the schema")
    _check_unused(stage, path, "renamed")
    siblings = _siblings(stage.schema, path)
    clash = siblings.find(new_name)
    if clash is not None and clash.name != path[-1]:
        raise TxnLogSchemaError(
            f"column {new_name!r} already exists",
            column=new_name,
            help="Choose another name; names that differ only in case count as equal.",
        )
    renamed = (*path[:-1], new_name)
    schema, configuration = _with_mapping(stage)
    _stage_schema(
        stage,
        _changed(schema, path, lambda f: replace(f, name=new_name)),
        configuration=_stats_columns(configuration, path, renamed),
        partition_columns=[
            new_name if (name,) == path else name for name in stage.partition_columns
        ],
    )
    stage.set_commit_info(
        "RENAME COLUMN",
        {"oldColumnPath": ".".join(path), "newColumnPath": ".".join(renamed)},
    )


def drop_columns(stage: TableStage, columns: Sequence[str]) -> None:
    """Remove columns or struct fields from the schema, without rewriting files.

    The table gets column mapping by name if it has no column mapping. Without column mapping, a
    column with the same name that is added later would show the old values.
    """
    paths = [
        _existing(stage, name, f"No column with the name '{name}' in the schema")
        for name in columns
    ]
    paths = [path for path in dict.fromkeys(paths) if not _is_inside(path, paths)]
    schema, configuration = _with_mapping(stage)
    for path in paths:
        _check_unused(stage, path, "dropped")
        if path[0] in stage.partition_columns:
            raise TxnLogSchemaError(
                f"partition column {path[0]!r} cannot be dropped",
                column=path[0],
                help="Overwrite the table with other partition columns.",
            )
        if len(_siblings(schema, path).fields) == 1:
            raise TxnLogSchemaError(
                f"column {'.'.join(path)!r} is the only one left and cannot be dropped",
                column=".".join(path),
                help="Keep at least one field, or drop the table.",
            )
        schema = _changed(schema, path, lambda _: None)
        configuration = _stats_columns(configuration, path, None)
    _stage_schema(stage, schema, configuration=configuration)
    names = json.dumps([".".join(path) for path in paths], ensure_ascii=False)
    stage.set_commit_info("DROP COLUMNS", {"columns": names})


def _is_inside(path: tuple[str, ...], others: Sequence[tuple[str, ...]]) -> bool:
    """Return whether a path is inside a struct whose path is in the list.

    >>> _is_inside(("s", "x"), [("s",), ("s", "x")]), _is_inside(("s",), [("s",), ("s", "x")])
    (True, False)
    """
    return any(path != other and path[: len(other)] == other for other in others)


def _with_mapping(stage: TableStage) -> tuple[StructType, dict[str, str]]:
    if column_mapping_mode(stage.configuration) is not None:
        return stage.schema, dict(stage.configuration)
    return with_column_mapping(stage.schema, stage.configuration)


def _stage_schema(
    stage: TableStage,
    schema: StructType,
    *,
    configuration: Mapping[str, str] | None = None,
    partition_columns: Sequence[str] | None = None,
) -> None:
    properties = stage.configuration if configuration is None else configuration
    mapped, wanted = with_new_columns_mapped(schema, properties)
    partitions = stage.partition_columns if partition_columns is None else partition_columns
    stage.change_metadata(
        replace(
            stage.metadata,
            schema_string=mapped.to_json(),
            configuration=wanted,
            partition_columns=tuple(partitions),
        ),
        upgraded_protocol(stage.protocol, mapped, wanted),
    )


def _existing(stage: TableStage, column: str, problem: str) -> tuple[str, ...]:
    """Return the path of a column, which is given by its exact name or by a dotted path."""
    schema = stage.schema
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
                help=f"{nearest(column, schema.names)}Column names are case-sensitive here.",
            )
        here = step.type
    return path


_INNER_TYPES = {
    "element": (ArrayType, "element_type"),
    "key": (MapType, "key_type"),
    "value": (MapType, "value_type"),
}
"""The steps of a path into arrays and maps: the class, and the attribute with the inner type."""


def _type_path(stage: TableStage, column: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the path of a column, and the steps into its arrays and maps."""
    problem = f"No column with the name '{column}' in the schema"
    parts = (column,) if column in stage.schema.names else split_column_path(column)
    for end in range(len(parts), 0, -1):
        inner = parts[end:]
        outer = ".".join(_quoted(name) for name in parts[:end]) if end > 1 else parts[0]
        if not all(step in _INNER_TYPES for step in inner):
            break
        try:
            path = _existing(stage, outer, problem)
            _inner_type(_at(stage.schema, path).type, inner)
        except TxnLogError:
            continue
        return path, inner
    return _existing(stage, column, problem), ()


def _inner_type(data_type: DataType, steps: Sequence[str]) -> DataType:
    for step in steps:
        kind, attribute = _INNER_TYPES[step]
        if not isinstance(data_type, kind):
            raise TxnLogError(f"a {type_name(data_type)} has no {step}", prefix=TABLE_ERROR)
        data_type = getattr(data_type, attribute)
    return data_type


def _with_inner_type(data_type: DataType, steps: Sequence[str], wanted: DataType) -> DataType:
    if not steps:
        return wanted
    step, *rest = steps
    inside = _with_inner_type(_inner_type(data_type, [step]), rest, wanted)
    if isinstance(data_type, ArrayType):
        return replace(data_type, element_type=inside)
    assert isinstance(data_type, MapType)
    if step == "key":
        return replace(data_type, key_type=inside)
    return replace(data_type, value_type=inside)


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
    """Return the struct with the field at the path changed, or removed if `change` returns None."""
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
                help="Rename one of them: Delta compares column names case-insensitively.",
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
        help="An existing column keeps its type: choose another name.",
    )


def _check_unused(stage: TableStage, path: tuple[str, ...], change: str) -> None:
    """Raise if a constraint, an invariant or a generated column uses the column."""
    rules = dict(TableProperties(stage.configuration).constraints)
    for member in stage.schema.fields:
        for key in (GENERATED, "delta.invariants"):
            if key in member.metadata and (member.name,) != path:
                rules[member.name] = str(member.metadata[key])
    for name, text in rules.items():
        if _names_column(stage, text, path):
            raise TxnLogSchemaError(
                f"column {'.'.join(path)!r} cannot be {change}: {name} uses it",
                column=".".join(path),
                help=f"First drop the rule that uses it: {text}",
            )


def _names_column(stage: TableStage, text: str, path: tuple[str, ...]) -> bool:
    used: Sequence[Any]
    try:
        used = stage.predicate(text).columns
    except TxnLogError:  # cannot be parsed: any occurrence of the name counts
        return path[-1].casefold() in text.casefold()
    wanted = [name.casefold() for name in path]
    return any([p.casefold() for p in each.path][: len(path)] == wanted for each in used)


def _stats_columns(
    configuration: Mapping[str, str], path: tuple[str, ...], renamed: tuple[str, ...] | None
) -> dict[str, str]:
    """Rename or drop a column in the property that lists the columns with statistics."""
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
