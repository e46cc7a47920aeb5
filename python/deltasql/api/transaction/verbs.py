"""What a transaction can do to the rows and the shape of its tables: one method per operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.api.transaction.alter_verbs import AlterVerbs
from deltasql.api.transaction.dml_verbs import DmlVerbs
from deltasql.api.transaction.maintain_verbs import MaintainVerbs
from deltasql.api.transaction.write_verbs import WriteVerbs

if TYPE_CHECKING:
    from deltasql.operations.table_stage import TableStage


class Verbs(WriteVerbs, DmlVerbs, AlterVerbs, MaintainVerbs):
    """The operations of a MultiTableTransaction; each stages its part of the commit."""

    if TYPE_CHECKING:

        def target(
            self, table: str, data: object = None, *, engine: str | None = None
        ) -> TableStage: ...
