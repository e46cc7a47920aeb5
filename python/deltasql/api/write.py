"""`write_deltalake` for `deltasql://` tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from deltasql.api.connect import shared
from deltasql.config import Config
from deltasql.engine.arrow import batches
from deltasql.exceptions import TableExistsError, TxnLogUriError
from deltasql.uri import parse_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    catalog = shared(uri, Config.load())
    exists = catalog.exists(name)
    if exists and mode == "error":
        raise TableExistsError(f"A table already exists at: {uri}", table=name)
    if exists and mode == "ignore":
        return
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
