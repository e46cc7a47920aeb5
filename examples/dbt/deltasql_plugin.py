"""A plugin for dbt-duckdb: sources and external models are tables of a deltasql catalog."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from dbt.adapters.duckdb.plugins import BasePlugin
from dbt_common.invocation import get_invocation_id
from deltalake.exceptions import DeltaProtocolError

import deltasql

if TYPE_CHECKING:
    import pyarrow as pa
    from dbt.adapters.duckdb.utils import SourceConfig, TargetConfig


class Plugin(BasePlugin):
    """Reads every source at one point in time; commits every model that names this plugin."""

    def initialize(self, plugin_config: dict[str, Any]) -> None:
        self._catalog = deltasql.connect(plugin_config["uri"])
        self._run: str | None = None
        self._lock = threading.Lock()  # dbt loads sources from several threads

    def load(self, source_config: SourceConfig) -> Any:
        """Return a source; `meta.version` selects an older version."""
        name = source_config.get("table", source_config.identifier)
        version = source_config.get("version")
        if version is None:
            version = self._version(name)
        table = deltasql.DeltaTable(self._catalog.table(name).uri, version=version)
        try:
            return table.to_pyarrow_dataset()  # DuckDB reads only the columns and files it needs
        except DeltaProtocolError:  # the table has deletion vectors
            return table.to_pyarrow_table()

    def _version(self, name: str) -> int:
        """Return the version of a table when this run of dbt read its first source."""
        with self._lock:
            if self._run != get_invocation_id():  # a process may run dbt several times
                self._run, self._reader = get_invocation_id(), self._catalog.begin()
            return self._reader.snapshot(name).version

    def default_materialization(self) -> str:
        return "view"

    def store(self, target_config: TargetConfig) -> None:
        """Commit a model: merge its rows by the columns `key`, or replace all rows."""
        rows = _without_placeholder(pq.read_table(target_config.location.path))
        name, key = target_config.relation.identifier, target_config.config.get("key")
        with self._catalog.begin() as tx:
            if key is None or not tx.has_table(name):
                tx.write(name, rows, mode="overwrite", schema_mode="overwrite")
                return
            columns = [key] if isinstance(key, str) else key
            condition = " AND ".join(f"t.{each} = s.{each}" for each in columns)
            merge = tx.merge(name, rows, condition, source_alias="s", target_alias="t")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _without_placeholder(rows: pa.Table) -> pa.Table:
    """Remove the row of nulls that dbt-duckdb writes for a model without rows."""
    is_placeholder = rows.num_rows == 1 and all(each.null_count == 1 for each in rows.columns)
    return rows.slice(0, 0) if is_placeholder else rows
