"""`deltasql://` for fsspec, so that dask can open the local files of a table by the table's URI."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from deltasql.api.catalog.connect import find_table, is_deltasql, parse_table_uri
from deltasql.exceptions import TxnLogStorageError
from deltasql.storage import parse_location
from deltasql.storage.location import root_address

# Without fsspec, no code uses the class.
_Local: Any = (
    import_module("fsspec.implementations.local").LocalFileSystem if find_spec("fsspec") else object
)


class DeltaSqlFileSystem(_Local):  # type: ignore[misc]
    """The local file system; a table's URI is replaced by the folder of the table's files."""

    protocol = "deltasql"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if not is_deltasql(path):
            return super()._strip_protocol(path)
        location = find_table(parse_table_uri(path))[1].location
        if not parse_location(location).is_local:
            raise TxnLogStorageError(
                f"the files of this table are not on a local disk, but at {location}",
                location=location,
                help="Open the location of the files instead: the table_uri of DeltaTable "
                "returns it.",
            )
        return root_address(location)
