"""The Delta Lake transaction log in SQLite, DuckDB or PostgreSQL.

>>> import tempfile, deltasql, pyarrow as pa
>>> folder = tempfile.TemporaryDirectory()
>>> uri = f"deltasql://sqlite/{folder.name}/catalog.db"
>>> with deltasql.begin(uri) as tx:  # both tables, or neither
...     metrics = tx.write("orders", pa.table({"id": [1, 2]}))
...     metrics = tx.write("stock", pa.table({"left": [99]}))
>>> tx.versions
{'orders': 0, 'stock': 0}
>>> deltasql.DeltaTable(f"{uri}?table=orders").count()
2

`begin` starts a transaction, `connect` opens a catalog. `DeltaTable` and `write_deltalake` are
compatible with those of deltalake. `deltasql.spark` is for PySpark, `deltasql.aio` for async code,
and `deltasql.exceptions` has every error. Continue with `deltasql docs quickstart`.

All names of `deltalake` are here too, so that `from deltasql import …` can replace
`from deltalake import …`. Only `Metadata` differs: here it is the action of the log, not the class
`deltalake.Metadata` that `DeltaTable.metadata()` returns.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

# pip checks this, too. Without pip, a copy of the source would only fail when it loads the
# extension.
if sys.version_info < (3, 11):  # noqa: UP036
    raise ImportError(
        f"Python {sys.version_info[0]}.{sys.version_info[1]} is not supported: deltasql supports "
        "3.11 or newer. Create an environment with a newer Python."
    )

from deltasql._core import __version__

if TYPE_CHECKING:
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

    from deltasql import aio
    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.catalog.connect import begin, connect
    from deltasql.api.deltalake_compat.convert_to_deltalake import convert_to_deltalake
    from deltasql.api.deltalake_compat.delta_table import DeltaTable
    from deltasql.api.deltalake_compat.query_builder import QueryBuilder
    from deltasql.api.deltalake_compat.register import register, unregister
    from deltasql.api.deltalake_compat.write_deltalake import write_deltalake
    from deltasql.api.functions import (
        export_table,
        import_table,
        import_tables,
        mirror_duckdb,
        rebuild,
        sql,
    )
    from deltasql.api.sql.session import SqlSession
    from deltasql.api.transaction.transaction import MultiTableTransaction
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

# Names are imported on first use, so that `import deltasql` and `deltasql --help` start fast.
_NAMES_BY_MODULE = {
    "deltalake": (
        *("BloomFilterProperties", "ColumnProperties", "CommitProperties", "DataType", "Field"),
        *("PostCommitHookProperties", "Schema", "TableFeatures", "Transaction", "VariantType"),
        *("WriterProperties", "enable_nanosecond_timestamps", "init_tracing", "rust_core_version"),
    ),
    "deltasql.api.catalog.catalog": ("Catalog",),
    "deltasql.api.catalog.connect": ("begin", "connect"),
    "deltasql.api.deltalake_compat.convert_to_deltalake": ("convert_to_deltalake",),
    "deltasql.api.deltalake_compat.delta_table": ("DeltaTable",),
    "deltasql.api.functions": (
        *("export_table", "import_table", "import_tables", "mirror_duckdb", "rebuild"),
        "sql",
    ),
    "deltasql.api.sql.session": ("SqlSession",),
    "deltasql.api.deltalake_compat.query_builder": ("QueryBuilder",),
    "deltasql.api.deltalake_compat.register": ("register", "unregister"),
    "deltasql.api.transaction.transaction": ("MultiTableTransaction",),
    "deltasql.api.deltalake_compat.write_deltalake": ("write_deltalake",),
    "deltasql.commit.staged": ("ReadSet",),
    "deltasql.model.actions": (
        *("AddCdcFile", "AddFile", "CommitInfo", "DeletionVector", "DomainMetadata", "Metadata"),
        *("Protocol", "RemoveFile", "SetTransaction"),
    ),
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}
# Packages that can be used as attributes, as in `deltasql.exceptions.TableExistsError`.
_PACKAGES = frozenset(
    {"aio", "api", "config", "exceptions", "model", "storage", "telemetry", "uri"}
)

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
    "SqlSession",
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
    "sql",
    "unregister",
    "write_deltalake",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = globals()[name] = getattr(import_module(module), name)
    except AttributeError:
        if module != "deltalake":
            raise
        release = import_module(module).__version__
        raise AttributeError(f"deltalake {release} has no {name!r}: upgrade deltalake") from None
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
