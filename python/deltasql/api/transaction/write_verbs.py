"""Writing and reading rows inside of a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.exceptions import TableExistsError
from deltasql.exceptions.prefixes import GENERIC_ERROR
from deltasql.storage.location import location_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from deltasql.engine.base import WriteOptions
    from deltasql.operations.table_stage import TableStage


class WriteVerbs:
    """The operations that bring rows into a table, and show those that are staged."""

    if TYPE_CHECKING:

        def target(
            self, table: str, data: object = None, *, engine: str | None = None
        ) -> TableStage: ...
        def has_table(self, table: str) -> bool: ...
        def create_table(
            self,
            name: str,
            schema: object,
            *,
            location: str | None = None,
            partition_by: Sequence[str] | str | None = None,
            properties: Mapping[str, str] | None = None,
            description: str | None = None,
            title: str | None = None,
        ) -> None: ...
        def create_missing(self, name: str, schema: object, **options: Any) -> None: ...

    def write(
        self,
        table: str,
        data: object,
        *,
        mode: str = "append",
        schema_mode: str | None = None,
        predicate: str | None = None,
        partition_by: Sequence[str] | str | None = None,
        options: WriteOptions | None = None,
        engine: str | None = None,
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        title: str | None = None,
        description: str | None = None,
    ) -> dict[str, Any]:
        """Write rows as files now and stage them: they become visible with the commit.

        With `overwrite` and a predicate they replace the rows that match it. `options` say how
        the files are written; `engine` is `duckdb` or `spark`. A table that does not exist is
        created; the last four are for such a one. Returns deltalake's metrics.
        """
        # late: who stages files that others wrote needs no Parquet and no SQL
        from deltasql.operations.write import (
            check_modes,
            rows_to_write,
            schema_to_create,
            stage_write,
        )

        check_modes(mode, schema_mode)
        rows = data
        if not self.has_table(table):
            rows = rows_to_write(data)
            create = self.create_table if mode in ("error", "ignore") else self.create_missing
            create(
                table,
                schema_to_create(rows),
                location=location,
                partition_by=partition_by,
                properties=properties,
                title=title,
                description=description,
            )
        elif mode == "error":
            place = location_url(self.target(table).location)
            raise TableExistsError(
                f"A table already exists at: {place}/",
                prefix=GENERIC_ERROR,
                table=table,
                help="say mode='append' or mode='overwrite', or choose another name.",
            )
        elif mode == "ignore":
            return {}
        return stage_write(
            self.target(table, data, engine=engine),
            rows,
            mode=mode,
            schema_mode=schema_mode,
            predicate=predicate,
            partition_by=partition_by,
            options=options,
        )

    def read(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        *,
        engine: str | None = None,
    ) -> pa.Table:
        """Return rows as this transaction sees them: its own changes are there already.

        What was read must not have changed when a commit to the same table is ratified.
        """
        return self.read_batches(table, columns, predicate, engine=engine).read_all()

    def read_batches(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        *,
        engine: str | None = None,
    ) -> pa.RecordBatchReader:
        """Return the same rows batch by batch, as long as the transaction is open."""
        from deltasql.operations.read import read_rows  # late: it parses SQL

        return read_rows(self.target(table, engine=engine), columns, predicate)
