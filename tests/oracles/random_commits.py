"""Random sequences of commits to a few tables, and the expected content of every version."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

from deltasql import DomainMetadata, SetTransaction
from deltasql.model.schema.convert import schema_from_any
from tests.oracles.tables import STRINGS
from tests.oracles.writing import Row, Written, removal

if TYPE_CHECKING:
    from deltasql import AddFile, Catalog
    from deltasql.api.transaction.transaction import MultiTableTransaction

NAMES = ("a", "b", "c")
APPS = ("etl", "job é")
DOMAINS = ("acme.x", "acme.y")
_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
# A folder name has at most 255 bytes, and an encoded character takes up to 12 of them.
parts = st.one_of(st.sampled_from([each for each in STRINGS if len(each or "") < 100]), _TEXT)


@dataclass(slots=True)
class Random:
    """Draws commits and runs them; `written` records every version of every table."""

    catalog: Catalog
    namespace: str
    data: st.DataObject
    written: dict[str, Written] = field(default_factory=dict)
    contents: dict[str, dict[str, list[Row]]] = field(default_factory=dict)
    rows: int = 0

    def step(self) -> None:
        """Commit a random change to one or several tables."""
        missing = [name for name in NAMES if name not in self.written]
        known = st.lists(
            st.sampled_from(sorted(self.written) or [""]), unique=True, min_size=1, max_size=2
        )
        chosen = self._draw(known, "tables") if self.written else []
        if missing and (not chosen or self._draw(st.integers(0, 5), "create") == 5):
            chosen = [missing[0], *chosen]
        with self.catalog.begin() as tx:
            changes = {name: self._change(tx, name) for name in chosen}
        for name, (removed, added) in changes.items():
            self._record_rows(name, removed, added)

    # Each change stages something, and returns the removed paths and the added rows

    def _change(self, tx: MultiTableTransaction, name: str) -> tuple[set[str], list[Row]]:
        if name not in self.written:
            return self._create(tx, name)
        kinds = ["write", "files", "overwrite", "metadata", "application"]
        kinds += ["domain"] if self._has_domains(name) else []
        kinds += ["remove", "rewrite"] if self.contents[name] else []
        kind = self._draw(st.sampled_from(kinds), "kind")
        change = getattr(self, f"_{kind}")
        result: tuple[set[str], list[Row]] = change(tx, name)
        return result

    def _create(self, tx: MultiTableTransaction, name: str) -> tuple[set[str], list[Row]]:
        partition_by = ["part"] if self._draw(st.booleans(), "partitioned") else []
        properties = {"delta.checkpointInterval": str(self._draw(st.integers(1, 4), "interval"))}
        if self._draw(st.booleans(), "domains"):
            properties["delta.feature.domainMetadata"] = "supported"
        schema = pa.schema([("id", pa.int64()), ("part", pa.string())])
        full = f"{self.namespace}.{name}"
        tx.create_table(full, schema, partition_by=partition_by, properties=properties)
        self.written[name] = Written(self.catalog, full, schema, tuple(partition_by))
        self.contents[name] = {}
        return self._write(tx, name) if self._draw(st.booleans(), "filled") else (set(), [])

    def _write(self, tx: MultiTableTransaction, name: str) -> tuple[set[str], list[Row]]:
        rows = self._new_rows(name)
        tx.write(self.written[name].name, self.written[name].arrow(rows))
        return set(), rows

    def _overwrite(self, tx: MultiTableTransaction, name: str) -> tuple[set[str], list[Row]]:
        rows = self._new_rows(name)
        tx.write(self.written[name].name, self.written[name].arrow(rows), mode="overwrite")
        return set(self.contents[name]), rows

    def _files(self, tx: MultiTableTransaction, name: str) -> tuple[set[str], list[Row]]:
        rows = self._new_rows(name)[:1]
        tx.stage_table(self.written[name].name, [self._file(name, rows[0])])
        return set(), rows

    def _remove(self, tx: MultiTableTransaction, name: str) -> tuple[set[str], list[Row]]:
        paths = self._some_paths(name)
        live = [add for add in self.written[name].live() if add.path in paths]
        tx.stage_table(self.written[name].name, [removal(add) for add in live])
        return paths, []

    def _rewrite(self, tx: MultiTableTransaction, name: str) -> tuple[set[str], list[Row]]:
        """Replace a file without a data change."""
        chosen = self._some_paths(name)
        path = next(each for each in self.contents[name] if each in chosen)
        (old,) = [add for add in self.written[name].live() if add.path == path]
        rows = self.contents[name][path]
        new = self._file(name, *rows, partition=old.partition_values, data_change=False)
        tx.stage_table(self.written[name].name, [removal(old, data_change=False), new])
        return {path}, rows

    def _metadata(self, tx: MultiTableTransaction, name: str) -> tuple[set[str], list[Row]]:
        table = self.written[name]
        metadata = tx.snapshot(table.name).metadata
        if self._draw(st.booleans(), "add a column"):
            column = (f"c{len(table.schema)}", pa.list_(pa.int32()))
            table.schema = pa.schema([*table.schema, column])
            text = schema_from_any(table.schema).to_json()
            metadata = replace(metadata, schema_string=text)
        else:
            known = dict(metadata.configuration)
            known["owner"] = self._draw(_TEXT, "owner")
            description = self._draw(_TEXT, "description")
            metadata = replace(metadata, configuration=known, description=description)
        tx.stage_table(table.name, [metadata])
        return set(), []

    def _application(self, tx: MultiTableTransaction, name: str) -> tuple[set[str], list[Row]]:
        app = self._draw(st.sampled_from(APPS), "application")
        version = self._draw(st.integers(0, 2**63 - 1), "its version")
        rows = self._new_rows(name)[:1]
        actions = [SetTransaction(app, version, 1), self._file(name, rows[0])]
        tx.stage_table(self.written[name].name, actions)
        return set(), rows

    def _domain(self, tx: MultiTableTransaction, name: str) -> tuple[set[str], list[Row]]:
        domain = self._draw(st.sampled_from(DOMAINS), "domain")
        removed = self._draw(st.booleans(), "removed")
        action = DomainMetadata(domain, self._draw(_TEXT, "configuration"), removed)
        tx.stage_table(self.written[name].name, [action], operation="DOMAIN")
        return set(), []

    # Helpers of the changes

    def _record_rows(self, name: str, removed: set[str], added: list[Row]) -> None:
        """Record the rows of each new file: those with its partition value."""
        table, contents = self.written[name], self.contents[name]
        for path in removed:
            del contents[path]
        for add in table.live():
            if add.path not in contents:
                part = add.partition_values.get("part")
                partitioned = "part" in add.partition_values
                contents[add.path] = [
                    row for row in added if not partitioned or (row["part"] or None) == part
                ]
        table.became([row for rows in contents.values() for row in rows])

    def _new_rows(self, name: str) -> list[Row]:
        rows = []
        for part in self._draw(st.lists(parts, min_size=1, max_size=3), "parts"):
            self.rows += 1
            rows.append({"id": self.rows, "part": part})
        return rows

    def _file(self, name: str, *rows: Row, partition: Any = None, **fields: Any) -> AddFile:
        table = self.written[name]
        data = table.arrow(rows)
        if table.partition_by:
            data = data.drop_columns(list(table.partition_by))
            values = partition or {"part": rows[0]["part"] or None}
        else:
            values = {}
        name_of_file = f"{self.rows}-{table.files} é %.parquet"
        return table.file(data, partition=values, name=name_of_file, **fields)

    def _some_paths(self, name: str) -> set[str]:
        paths = st.sampled_from(list(self.contents[name]))
        return self._draw(st.sets(paths, min_size=1, max_size=3), "paths")

    def _has_domains(self, name: str) -> bool:
        protocol = self.written[name].table.snapshot().protocol
        return "domainMetadata" in (protocol.writer_features or ())

    def _draw(self, strategy: st.SearchStrategy[Any], label: str) -> Any:
        return self.data.draw(strategy, label)
