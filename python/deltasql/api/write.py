"""`write_deltalake` for `deltasql://` tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from deltasql.api.connect import shared
from deltasql.config import Config
from deltasql.engine.arrow import batches
from deltasql.exceptions import TableExistsError, TxnLogSchemaError, TxnLogUriError
from deltasql.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltasql.api.catalog import Catalog

Mode = Literal["error", "append", "overwrite", "ignore"]


def write_deltalake(
    table_or_uri: str,
    data: object,
    *,
    partition_by: list[str] | str | None = None,
    mode: Mode = "error",
    description: str | None = None,
    configuration: Mapping[str, str] | None = None,
) -> None:
    """Write rows to a table, creating it when it does not exist.

    >>> import tempfile, pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"deltasql://sqlite/{folder.name}/meta.db?table=sales"
    >>> write_deltalake(uri, pa.table({"id": [1, 2]}), mode="append")
    """
    uri = parse_uri(table_or_uri)
    name = uri.table_name
    if name is None:
        raise TxnLogUriError(
            f"{uri} names a catalog, not a table", help="Add ?table=name, or /table for PostgreSQL."
        )
    if mode not in get_args(Mode):
        raise ValueError(f"mode is one of {', '.join(get_args(Mode))}; got {mode!r}")
    if uri.version is not None or uri.timestamp is not None:
        raise TxnLogUriError(
            f"{uri} names an old version, which cannot be written to",
            help="Leave out ?version= and ?timestamp=.",
        )
    catalog = shared(uri, Config.load())
    exists = catalog.exists(name)
    if exists and mode == "error":
        raise TableExistsError(f"A table already exists at: {uri}", table=name)
    if exists and mode == "ignore":
        return
    if exists:
        _refuse_other_partitions(catalog, name, partition_by)
    reader = batches(data)
    with catalog.begin() as tx:
        if not exists:
            tx.create_table(
                name,
                reader.schema,
                location=uri.location,
                partition_by=partition_by,
                properties=configuration,
                description=description,
            )
        tx.write(name, reader, mode="append" if not exists else mode)


def _refuse_other_partitions(
    catalog: Catalog, name: str, partition_by: list[str] | str | None
) -> None:
    if partition_by is None:
        return
    wanted = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    found = list(catalog.table(name).snapshot().partition_columns)
    if wanted != found:
        raise TxnLogSchemaError(
            "Specified table partitioning does not match table partitioning: "
            f"{wanted}, not {found}",
            table=name,
            help="Leave out partition_by: the table knows its own.",
        )
