"""The fixed set: tables that every reader is tested with, and the known failures of readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from deltalake.exceptions import DeltaProtocolError

from tests.oracles import tables, tables_staged
from tests.oracles.readers import Deltalake, DeltalakeArrow, DuckDb, Place, Polars, Reader
from tests.selection import smoke

if TYPE_CHECKING:
    from deltasql import Catalog
    from tests.oracles.writing import Written

Builder = Callable[["Catalog"], list["Written"]]

TABLES: Mapping[str, Builder] = {
    build.__name__: build
    for build in (
        tables.string_partitions,
        tables.partition_names,
        tables.hive_null,
        tables.typed_partitions,
        tables.negative_decimal,
        tables.binary_partition,
        tables.primitives,
        tables.zoneless,
        tables.decimals,
        tables.nested,
        tables.rewritten,
        tables.evolved,
        tables.several_tables,
        tables.many_commits,
        tables_staged.flat_paths,
        tables_staged.absolute_path,
        tables_staged.column_mapping,
        tables_staged.mapped_partition,
        tables_staged.rules,
        tables_staged.deletion_vectors,
        tables_staged.change_data,
        tables_staged.applications,
        tables_staged.many_files,
    )
}
_LARGE = ("several_tables", "many_commits", "applications", "many_files")
SMALL = [build for name, build in TABLES.items() if name not in _LARGE]
"""One small table each."""
CHOSEN = smoke(
    SMALL,
    ("typed_partitions", "primitives", "nested", "rewritten", "column_mapping", "deletion_vectors"),
    "more kinds of tables",
    named=True,
)
PLAIN = [
    tables.string_partitions,
    tables.partition_names,
    tables.hive_null,
    tables.typed_partitions,
    tables.primitives,
    tables.zoneless,
    tables.decimals,
    tables.nested,
]
"""Tables with rows that any writer can write: no features, no unusual paths."""
READERS: Mapping[str, Callable[[], Reader]] = {
    "deltalake": Deltalake,
    "pyarrow": DeltalakeArrow,
    "polars": Polars,
    "duckdb": DuckDb,
}

_HIVE = "polars takes partition values from the names of folders, not from the log"
_ABSOLUTE = "takes the absolute URI of a file for a path below the table"
_FEATURES = "refuses the table feature by name"
# These readers return wrong rows or an error for such tables, whichever program wrote them.
Excuses = Mapping[tuple[str, str], tuple[type[Exception], str]]
EXCUSES: Excuses = {
    ("hive_null", "polars"): (AssertionError, _HIVE),
    ("flat_paths", "polars"): (Exception, _HIVE),
    ("binary_partition", "polars"): (Exception, f"{_HIVE}, and parses no bytes"),
    ("negative_decimal", "pyarrow"): (ValueError, "deltalake writes -1.50 as -1.-50 for pyarrow"),
    ("absolute_path", "pyarrow"): (FileNotFoundError, _ABSOLUTE),
    ("absolute_path", "polars"): (FileNotFoundError, _ABSOLUTE),
    ("absolute_path", "duckdb"): (Exception, _ABSOLUTE),
    ("column_mapping", "pyarrow"): (DeltaProtocolError, _FEATURES),
    ("column_mapping", "polars"): (DeltaProtocolError, _FEATURES),
    ("mapped_partition", "pyarrow"): (DeltaProtocolError, _FEATURES),
    ("mapped_partition", "polars"): (DeltaProtocolError, _FEATURES),
    ("mapped_partition", "duckdb"): (
        AssertionError,
        "DuckDB looks for a partition value under the column's logical name and finds null",
    ),
    ("deletion_vectors", "pyarrow"): (DeltaProtocolError, _FEATURES),
}


def table_and_reader(
    *readers: str,
    without: tuple[str, ...] = (),
    excuses: Excuses = EXCUSES,
    smoke: tuple[str, ...] | None = None,
) -> list[Any]:
    """Return every pair of a table and a reader as a parameter, with its known failure as xfail.

    `make test` runs only the tables in `smoke`; by default all but those with many files.
    """
    pairs = []
    for table in TABLES:
        for reader in readers:
            if table in without or (table, reader) == ("many_files", "pyarrow"):
                continue  # pyarrow opens every file twice, slowly, and in deltalake's order
            excuse = excuses.get((table, reader))
            marks = (
                [pytest.mark.xfail(raises=excuse[0], reason=excuse[1], strict=True)]
                if excuse
                else []
            )
            if table not in smoke if smoke else table == "many_files":
                marks.append(pytest.mark.everything("readers of more tables"))
            pairs.append(pytest.param(table, reader, id=f"{table}-{reader}", marks=marks))
    return pairs


@dataclass(slots=True)
class Lake:
    """A catalog with tables of the fixed set, each built on first use."""

    catalog: Catalog
    options: Mapping[str, str] = field(default_factory=dict)
    builders: Mapping[str, Builder] = field(default_factory=lambda: TABLES)
    built: dict[str, list[Written]] = field(default_factory=dict)
    readers: dict[str, Reader] = field(default_factory=dict)

    def tables(self, name: str) -> list[Written]:
        """Return the tables that a function of the fixed set writes."""
        if name not in self.built:
            self.built[name] = self.builders[name](self.catalog)
        return self.built[name]

    def reader(self, name: str) -> Reader:
        """Return a reader, the same one in every call."""
        if name not in self.readers:
            self.readers[name] = READERS[name]()
        return self.readers[name]

    def place(self, table: Written) -> Place:
        """Return the location of a table, for a reader."""
        return Place(table.table.location, self.options)


def checked_versions(table: Written) -> list[int]:
    """Return the versions to compare: all, or in a long log those around checkpoints."""
    last = len(table.states) - 1
    if table.name == "many_files":
        return [last]
    if last < 30:
        return list(range(last + 1))
    around = (each + step for each in range(0, last, 30) for step in (-1, 0, 1))
    return sorted({last, *(version for version in around if version >= 0)})
