"""The method of a catalog that gives a table away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.api.catalog.import_verbs import settings_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deltasql.config import Config
    from deltasql.migrate.exporting.report import ExportProgress, ExportReport
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store


class ExportVerbs:
    """What a catalog can do for those who want a table without it."""

    if TYPE_CHECKING:
        store: Store
        config: Config

        def resolve(self, name: str, *, fresh: bool = False) -> TableRow: ...

    def export_table(
        self,
        name: str,
        directory: str,
        *,
        version: int | None = None,
        from_version: int | None = None,
        with_data: bool = False,
        storage_options: Mapping[str, str] | None = None,
        on_progress: Callable[[ExportProgress], None] | None = None,
    ) -> ExportReport:
        """Write versions of a table to an empty place, as a table that any Delta reader opens.

        `storage_options` are those of the destination. See `deltasql.export_table`.
        """
        from deltasql.migrate.exporting.export import (
            export_table,  # late: few processes export a table
        )

        return export_table(
            self.store,
            self.resolve(name, fresh=True),
            directory,
            settings=settings_for(self.config.storage, directory, storage_options),
            checkpoint_interval=self.config.mirror.checkpoint_interval,
            version=version,
            from_version=from_version,
            with_data=with_data,
            on_progress=on_progress,
        )
