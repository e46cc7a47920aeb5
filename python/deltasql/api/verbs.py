"""What a transaction can do to the rows and the shape of its tables: one method per operation."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from deltasql.api.alter_verbs import AlterVerbs
from deltasql.engine.arrow import batches
from deltasql.operations.write import stage_write

if TYPE_CHECKING:
    from deltasql.operations.target import Target


class Verbs(AlterVerbs):
    """The operations of a MultiTableTransaction; each stages its part of the commit."""

    if TYPE_CHECKING:

        def target(
            self, table: str, data: object = None, *, engine: str | None = None
        ) -> Target: ...

    def write(self, table: str, data: object, *, mode: str = "append") -> None:
        """Write rows as files now and stage them: they become visible with the commit."""
        if mode not in ("append", "overwrite"):
            raise ValueError(f"mode is 'append' or 'overwrite', got {mode!r}")
        target = self.target(table, data)
        replaced = target.files() if mode == "overwrite" else None
        stage_write(target, batches(data))
        if replaced is not None:
            target.remove(replaced)
            target.read(whole_table=True)
        # The files are for the schema of this moment: an append is in vain once it changed.
        target.follows()
        parameters = {
            "mode": mode.capitalize(),
            "partitionBy": json.dumps(list(target.partition_columns)),
        }
        info = target.staged.info
        target.staged.info = replace(info, operation="WRITE", operation_parameters=parameters)
