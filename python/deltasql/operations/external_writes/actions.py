"""WRITE of existing data files: stage the add and remove actions that the caller passes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from deltasql.commit.staged import actions_from
from deltasql.exceptions import TxnLogSchemaError
from deltasql.model.actions import AddFile, RemoveFile
from deltasql.model.protocol import upgraded_protocol
from deltasql.model.schema.column_mapping import with_new_columns_mapped
from deltasql.model.schema.convert import schema_from_any
from deltasql.operations.rewrite import in_partitions
from deltasql.operations.write import MODES, check_modes
from deltasql.storage.location import parse_location

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.model.actions import Action
    from deltasql.operations.table_stage import TableStage


def file_actions(actions: object, location: str) -> list[Action]:
    """Convert deltalake's actions, and make their paths relative to the table's folder.

    In deltalake's actions, a path that starts with a slash is below the table's folder. In the log,
    such a path would be absolute.
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
    stage: TableStage,
    actions: object,
    *,
    mode: str,
    schema: object,
    partition_by: Sequence[str] = (),
    partition_filters: object = None,
) -> None:
    """Stage actions. The mode `overwrite` also removes live files, and sets the given schema.

    It removes the files that the filters select, or all files if there are no filters.
    """
    check_modes(mode)
    if mode == "overwrite":
        predicate = stage.predicate(partition_filters) if partition_filters else None
        replaced = stage.files(predicate)
        if predicate is not None:
            if not predicate.partition_only:
                raise TxnLogSchemaError(
                    f"partition_filters of {stage.name} name a column that is not a partition "
                    "column",
                    help="Filter on partition columns, or overwrite rows with write_deltalake.",
                )
            replaced = in_partitions(stage, replaced, predicate) if len(replaced) else replaced
        stage.remove(replaced)
        wanted = schema_from_any(schema)
        changes_schema = wanted != stage.schema
        # If the schema changes, every file that another commit adds concurrently is a conflict,
        # because it has the old schema.
        whole_table = changes_schema or predicate is None
        stage.read(whole_table=whole_table, predicate=predicate, files=replaced)
        if changes_schema:
            mapped, properties = with_new_columns_mapped(wanted, stage.configuration)
            changed = replace(
                stage.metadata, schema_string=mapped.to_json(), configuration=properties
            )
            stage.change_metadata(changed, upgraded_protocol(stage.protocol, mapped, properties))
    stage.staged.extend(file_actions(actions, stage.location))
    stage.record_read_version()
    partitions = json.dumps(list(partition_by), separators=(",", ":"), ensure_ascii=False)
    stage.set_commit_info("WRITE", {"mode": MODES[mode], "partitionBy": partitions})
