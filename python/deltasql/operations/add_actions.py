"""WRITE of files that somebody else wrote: their actions are committed as they are given."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from deltasql.commit.staged import actions_from
from deltasql.model.actions import AddFile, RemoveFile
from deltasql.model.protocol import upgraded_protocol
from deltasql.model.schema.column_mapping import with_new_columns_mapped
from deltasql.model.schema.convert import schema_from_any
from deltasql.operations.commit_info import set_commit_info
from deltasql.operations.write import MODES, check_modes
from deltasql.storage.location import parse_location

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.model.actions import Action
    from deltasql.operations.target import TableStage


def file_actions(actions: object, location: str) -> list[Action]:
    """Return deltalake's actions as ours, with paths that are relative to the table's folder.

    For deltalake a path that starts with a slash is one below the folder. In a log it would be
    one of the whole file system.
    """
    return [
        replace(each, path=_relative(each.path, location))
        if isinstance(each, AddFile | RemoveFile) and each.path.startswith("/")
        else each
        for each in actions_from(actions)
    ]


def _relative(path: str, location: str) -> str:
    place = parse_location(location)
    folder = quote(place.path.rstrip("/")) + "/"
    inside = place.is_local and path.startswith(folder)
    return path[len(folder) :] if inside else path.lstrip("/")


def stage_actions(
    target: TableStage,
    actions: object,
    *,
    mode: str,
    schema: object,
    partition_by: Sequence[str] = (),
    partition_filters: object = None,
) -> None:
    """Stage added and removed files; `overwrite` also removes the live files that filters name.

    Without filters it removes them all, and the table takes the given schema.
    """
    check_modes(mode)
    if mode == "overwrite":
        predicate = target.predicate(partition_filters) if partition_filters else None
        replaced = target.files(predicate)
        target.remove(replaced)
        wanted = schema_from_any(schema)
        changes_schema = wanted != target.schema
        # Files that others add for the schema of before must not end up below another one.
        whole_table = changes_schema or predicate is None
        target.read(whole_table=whole_table, predicate=predicate, files=replaced)
        if changes_schema:
            mapped, properties = with_new_columns_mapped(wanted, target.configuration)
            changed = replace(
                target.metadata, schema_string=mapped.to_json(), configuration=properties
            )
            target.change_metadata(changed, upgraded_protocol(target.protocol, mapped, properties))
    target.staged.extend(file_actions(actions, target.location))
    target.follows()
    partitions = json.dumps(list(partition_by), separators=(",", ":"), ensure_ascii=False)
    set_commit_info(target, "WRITE", {"mode": MODES[mode], "partitionBy": partitions})
