"""The Delta Lake transaction log, in a database you already run.

What `deltalake` exports is here under the same names, so that `from deltasql import …` takes the
place of `from deltalake import …`; only `Metadata` is the action of the log, as its neighbours are,
and not the class that `DeltaTable.metadata()` returns, which is `deltalake.Metadata`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from deltalake import (
    BloomFilterProperties,
    ColumnProperties,
    CommitProperties,
    DataType,
    Field,
    PostCommitHookProperties,
    Schema,
    TableFeatures,
    Transaction,
    VariantType,
    WriterProperties,
    enable_nanosecond_timestamps,
    init_tracing,
    rust_core_version,
)

from deltasql._core import __version__
from deltasql.api.catalog import Catalog
from deltasql.api.connect import begin, connect
from deltasql.api.duckdb_catalog import mirror_duckdb
from deltasql.api.import_table import import_table, import_tables
from deltasql.api.rebuild import rebuild
from deltasql.api.transaction import MultiTableTransaction
from deltasql.api.write import write_deltalake
from deltasql.commit.staged import ReadSet
from deltasql.model.actions import (
    AddCdcFile,
    AddFile,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)

if TYPE_CHECKING:
    from deltasql import aio
    from deltasql.api.convert import convert_to_deltalake
    from deltasql.api.delta_table import DeltaTable
    from deltasql.api.export import export_table
    from deltasql.api.query import QueryBuilder
    from deltasql.api.register import register, unregister

# Found when first asked for: whoever only commits actions does not pay for them.
_LATER = {
    "DeltaTable": "deltasql.api.delta_table",
    "QueryBuilder": "deltasql.api.query",
    "aio": "deltasql.aio",
    "convert_to_deltalake": "deltasql.api.convert",
    "export_table": "deltasql.api.export",
    "register": "deltasql.api.register",
    "unregister": "deltasql.api.register",
}

__all__ = [
    "AddCdcFile",
    "AddFile",
    "BloomFilterProperties",
    "Catalog",
    "ColumnProperties",
    "CommitInfo",
    "CommitProperties",
    "DataType",
    "DeletionVector",
    "DeltaTable",
    "DomainMetadata",
    "Field",
    "Metadata",
    "MultiTableTransaction",
    "PostCommitHookProperties",
    "Protocol",
    "QueryBuilder",
    "ReadSet",
    "RemoveFile",
    "Schema",
    "SetTransaction",
    "TableFeatures",
    "Transaction",
    "VariantType",
    "WriterProperties",
    "__version__",
    "aio",
    "begin",
    "connect",
    "convert_to_deltalake",
    "enable_nanosecond_timestamps",
    "export_table",
    "import_table",
    "import_tables",
    "init_tracing",
    "mirror_duckdb",
    "rebuild",
    "register",
    "rust_core_version",
    "unregister",
    "write_deltalake",
]


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    loaded = import_module(module)
    found = loaded if name == "aio" else getattr(loaded, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
