"""`deltasql.export_table`: versions of a table as a Delta table of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.api.catalog.connect import open_existing, resolved
from deltasql.exceptions import TxnLogUriError
from deltasql.uri import join_table_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deltasql.config import Config
    from deltasql.migrate.exporting.report import ExportProgress, ExportReport
    from deltasql.uri import DeltaSqlUri


def export_table(
    uri: str | DeltaSqlUri,
    directory: str,
    *,
    version: int | None = None,
    from_version: int | None = None,
    with_data: bool = False,
    storage_options: Mapping[str, str] | None = None,
    on_progress: Callable[[ExportProgress], None] | None = None,
    config: Config | None = None,
    **settings: Any,
) -> ExportReport:
    """Write versions of a table to an empty folder or bucket, as a table any Delta reader opens.

    `version` is the last one exported, the latest by default (or the `?version=` of the URI);
    `from_version` the first, by default the oldest there is. Without `with_data` the copy names
    the files of the table by their URLs. `storage_options` are those of the destination.

    >>> import tempfile, pyarrow as pa
    >>> from deltasql import connect
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"deltasql://sqlite/{folder.name}/meta.db?table=sales"
    >>> with connect(uri) as catalog:
    ...     _ = catalog.create_table("sales", pa.schema([("id", pa.int64())]))
    >>> report = export_table(uri, f"{folder.name}/copy", with_data=True)
    >>> report.first_version, report.last_version
    (0, 0)
    """
    parsed = resolved(uri, config, **settings)
    if parsed.table is None:
        raise TxnLogUriError(
            "the URI names no table to export",
            part="table",
            help="Add ?table=name, or /name to the URI of a catalog in PostgreSQL.",
        )
    with open_existing(parsed, config, **settings) as catalog:
        return catalog.export_table(
            join_table_name(parsed.namespace, parsed.table),
            directory,
            version=parsed.version if version is None else version,
            from_version=from_version,
            with_data=with_data,
            storage_options=storage_options,
            on_progress=on_progress,
        )
