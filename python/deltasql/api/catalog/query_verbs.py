"""The methods of a catalog that read rows: queries over tables by name, and changes of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.changes import ChangeCursor
    from deltasql.store.records import TableRow


class QueryVerbs:
    """What a catalog can be asked for in rows."""

    if TYPE_CHECKING:

        def resolve(self, name: str, *, fresh: bool = False) -> TableRow: ...

    def query(
        self,
        sql: str,
        *,
        limit: int | None = None,
        timeout: float | None = None,
        batch_rows: int | None = None,
    ) -> pa.RecordBatchReader:
        """Answer a query over tables by name; nothing but reading them is possible.

        `crm.sales` is a table of a namespace, `sales@3` a version, `sales@'2024-05-01'` a moment.
        See `deltasql.api.catalog.sql.query`.
        """
        from deltasql.api.catalog.sql import query  # late: it parses SQL

        return query(
            cast("Catalog", self), sql, limit=limit, timeout=timeout, batch_rows=batch_rows
        )

    def changes(
        self,
        table: str,
        from_version: int,
        to_version: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
    ) -> pa.RecordBatchReader:
        """Stream the rows that versions inserted and deleted; no table has to opt in to it.

        The first and the last version are included. See `deltasql.api.changes.changes`.
        """
        from deltasql.api.changes import changes  # late: it reads rows

        row = self.resolve(table, fresh=True)
        return changes(
            cast("Catalog", self),
            row,
            from_version,
            to_version,
            columns=columns,
            predicate=predicate,
        )

    def cursor(
        self,
        table: str,
        start: str | int = "snapshot",
        *,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
    ) -> ChangeCursor:
        """Return a cursor over a table's rows and, from there on, over its changes.

        `start` is "snapshot", the first version wanted, or the `position` of another cursor.
        """
        from deltasql.api.changes import ChangeCursor  # late: it reads rows

        row = self.resolve(table, fresh=True)
        return ChangeCursor(cast("Catalog", self), row, start, columns=columns, predicate=predicate)
