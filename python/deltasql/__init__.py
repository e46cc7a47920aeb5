"""The Delta Lake transaction log, in a database you already run."""

from deltasql._core import __version__
from deltasql.api.catalog import Catalog
from deltasql.api.connect import begin, connect
from deltasql.api.duckdb_catalog import mirror_duckdb
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

__all__ = [
    "AddCdcFile",
    "AddFile",
    "Catalog",
    "CommitInfo",
    "DeletionVector",
    "DomainMetadata",
    "Metadata",
    "MultiTableTransaction",
    "Protocol",
    "ReadSet",
    "RemoveFile",
    "SetTransaction",
    "__version__",
    "begin",
    "connect",
    "mirror_duckdb",
    "rebuild",
    "write_deltalake",
]
