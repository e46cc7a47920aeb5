"""WRITE of files that somebody else wrote: their actions are committed as they are given."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from deltasql.commit.staged import actions_from
from deltasql.model.column_mapping import with_new_columns_mapped
from deltasql.model.protocol import upgraded_protocol
from deltasql.model.schema_convert import schema_from_any
from deltasql.operations.info import tell
from deltasql.operations.write import MODES, check_modes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.operations.target import Target


def stage_actions(
    target: Target,
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
    target.staged.extend(actions_from(actions))
    target.follows()
    partitions = json.dumps(list(partition_by), separators=(",", ":"), ensure_ascii=False)
    tell(target, "WRITE", {"mode": MODES[mode], "partitionBy": partitions})
