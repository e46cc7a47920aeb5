"""The systems that parity tests run on, and helpers to read and write their tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


_BY_WRITER_VERSION = (
    (2, ("appendOnly", "invariants")),
    (3, ("checkConstraints",)),
    (4, ("changeDataFeed", "generatedColumns")),
    (5, ("columnMapping",)),
    (6, ("identityColumns",)),
)


@dataclass(frozen=True)
class Lake:
    """One system: its four entry points and the addresses of its tables."""

    system: str
    DeltaTable: Any
    write_deltalake: Any
    QueryBuilder: Any
    convert_to_deltalake: Any
    uri: Callable[[str], str]
    """Return the address of the table with this name."""
    nowhere: Callable[[str], str]
    """Return an address at which no table exists."""
    root: Path

    def make(self, table: str, data: Any, /, **options: Any) -> Any:
        """Write a table and open it."""
        self.write_deltalake(self.uri(table), data, **options)
        return self.DeltaTable(self.uri(table))

    def append(self, table: str, data: Any, /, **options: Any) -> Any:
        """Append to a table by address and open it."""
        return self.make(table, data, mode="append", **options)

    def folder(self, table: Any) -> Path:
        """Return the folder of a table's data and log."""
        return Path(unquote(urlsplit(table.table_uri).path))

    def log(self, table: Any) -> list[str]:
        """Return the names of the files in a table's log."""
        return sorted(each.name for each in (self.folder(table) / "_delta_log").iterdir())

    def features(self, table: Any) -> set[str]:
        """Return the writer features that the protocol lists or implies by its version."""
        protocol = table.protocol()
        if protocol.writer_features is not None:
            return set(protocol.writer_features)
        return {
            name
            for version, names in _BY_WRITER_VERSION
            if version <= protocol.min_writer_version
            for name in names
        }


def rows(table: Any, *by: str, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows of a table, sorted by the given columns or by the first one."""
    found = table.to_pyarrow_table(columns=list(columns) if columns else None)
    keys = by or (found.column_names[0],)
    return list(found.sort_by([(key, "ascending") for key in keys]).to_pylist())


def column(table: Any, name: str) -> list[Any]:
    """Return the sorted values of one column, nulls last."""
    values = table.to_pyarrow_table(columns=[name])[name].to_pylist()
    return sorted(values, key=lambda value: (value is None, value))


def sample(**changes: Any) -> pa.Table:
    """Return three rows: `id` 1 to 3, a partition column `p`, a double `v` with a null."""
    columns: Mapping[str, Any] = {
        "id": pa.array([1, 2, 3], pa.int64()),
        "p": pa.array(["a", "b", "a"]),
        "v": pa.array([1.5, None, 2.5], pa.float64()),
    }
    return pa.table({**columns, **changes})


def numbers(start: int, stop: int) -> pa.Table:
    """Return rows with `id` from start to stop - 1 and `v` ten times `id`."""
    ids = range(start, stop)
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "v": pa.array([each * 10 for each in ids], pa.int64())}
    )


def counts(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics without durations."""
    return {key: value for key, value in metrics.items() if not key.endswith("_ms")}
