"""Any sequence of creates, commits, renames and drops gives the log that a model predicts.

Two catalogs are open on the same database and are used at random, so that stale caches show.
"""

from __future__ import annotations

import os
import random
import uuid
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from deltasql import Catalog, SetTransaction
from deltasql.exceptions import InvalidActionError, TableExistsError, TxnLogTableNotFoundError
from deltasql.model.schema.convert import schema_from_any
from tests.commit.model import Change, ModelTable
from tests.commit.support import audit, file, open_catalog, removal
from tests.selection import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.uri import DeltaSqlUri

NAMES = ("a", "b", "c")
APPS = ("etl", "job")
EXAMPLES = {"sqlite": (25, 25), "postgres": (15, 20), "duckdb": (6, 15)}

# A failure is shrunk only if DELTASQL_SEED is set to the printed seed, because shrinking takes
# minutes on a real database.
PHASES = tuple(Phase) if "DELTASQL_SEED" in os.environ else (Phase.generate,)

data = st.data()
sides = st.integers(0, 1)
names = st.sampled_from(NAMES)


class LogMachine(RuleBasedStateMachine):
    """The rules; the test sets `catalogs`."""

    catalogs: ClassVar[tuple[Catalog, Catalog]]

    @initialize()
    def start(self) -> None:
        # Each example uses its own namespace: a new database for each would be slow.
        self.namespace = f"n{uuid.uuid4().hex[:12]}"
        self.tables: dict[str, ModelTable] = {}
        self.dropped: list[ModelTable] = []
        self.touched: set[str] = set()
        self.files = 0

    # Names

    @rule(side=sides, name=names, files=st.integers(0, 2))
    def create(self, side: int, name: str, files: int) -> None:
        change = Change(adds=frozenset(self._new_path() for _ in range(files)))
        tx = self.catalogs[side].begin()
        tx.create_table(self._full(name), pa.schema([("id", pa.int64())]))
        if files:
            self._stage(tx, name, change)
        others = sorted(self.tables.keys() - {name})[:1]
        appends = {other: Change(adds=frozenset({self._new_path()})) for other in others}
        for other, append in appends.items():
            self._stage(tx, other, append)
        self.touched |= {name, *others}
        if name in self.tables:
            with pytest.raises(TableExistsError):
                tx.commit()
            return
        tx.commit()
        table = self.tables[name] = ModelTable(name)
        table.create(("id",), tx.txn_id, change)
        self._ratified(tx, appends)

    @rule(side=sides, name=names, new_name=names)
    def rename(self, side: int, name: str, new_name: str) -> None:
        catalog = self.catalogs[side]
        if name not in self.tables:
            with pytest.raises(TxnLogTableNotFoundError):
                catalog.rename(self._full(name), self._full(new_name))
        elif new_name in self.tables and new_name != name:
            with pytest.raises(TableExistsError):
                catalog.rename(self._full(name), self._full(new_name))
        else:
            catalog.rename(self._full(name), self._full(new_name))
            table = self.tables.pop(name)
            table.name = new_name
            self.tables[new_name] = table
            self.touched |= {name, new_name}

    @rule(side=sides, name=names)
    def drop(self, side: int, name: str) -> None:
        if name not in self.tables:
            with pytest.raises(TxnLogTableNotFoundError):
                self.catalogs[side].drop(self._full(name))
            return
        self.catalogs[side].drop(self._full(name))
        self.dropped.append(self.tables.pop(name))
        self.touched.add(name)

    @rule(side=sides, name=names)
    def undrop(self, side: int, name: str) -> None:
        catalog, full = self.catalogs[side], self._full(name)
        candidates = [table for table in self.dropped if table.name == name]
        if not candidates:
            with pytest.raises(TxnLogTableNotFoundError):
                catalog.undrop(full)
        elif name in self.tables:
            with pytest.raises(TableExistsError):
                catalog.undrop(full)
        else:
            catalog.undrop(full)
            self.dropped.remove(candidates[-1])
            self.tables[name] = candidates[-1]
            self.touched.add(name)

    # Commits

    @precondition(lambda self: self.tables)
    @rule(side=sides, data=data)
    def commit_one(self, side: int, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.tables)), "table")
        change = self._draw_change(data, self.tables[name])
        with self.catalogs[side].begin() as tx:
            self._stage(tx, name, change)
        self._ratified(tx, {name: change})

    @precondition(lambda self: len(self.tables) > 1)
    @rule(side=sides, data=data)
    def commit_many(self, side: int, data: st.DataObject) -> None:
        chosen = data.draw(st.permutations(sorted(self.tables)), "order")
        changes = {name: self._draw_change(data, self.tables[name]) for name in chosen}
        with self.catalogs[side].begin() as tx:
            for name, change in changes.items():
                self._stage(tx, name, change)
        self._ratified(tx, changes)

    @precondition(lambda self: self.tables)
    @rule(side=sides, data=data)
    def commit_stale(self, side: int, data: st.DataObject) -> None:
        """Commit a change based on an older version, alone or with another table."""
        name = data.draw(st.sampled_from(sorted(self.tables)), "table")
        table = self.tables[name]
        read_version = data.draw(st.integers(0, len(table.versions) - 1), "read version")
        before = ModelTable(name, table.versions[: read_version + 1])
        change = self._draw_change(data, before)
        expected = table.conflict(change, read_version)
        others = [other for other in sorted(self.tables) if other != name]
        changes = {name: change}
        tx = self.catalogs[side].begin()
        self._stage(tx, name, change, read_version=read_version)
        if others and data.draw(st.booleans(), "with another table"):
            changes[others[0]] = self._draw_change(data, self.tables[others[0]])
            self._stage(tx, others[0], changes[others[0]])
        if expected is None:
            tx.commit()
            self._ratified(tx, changes)
        else:
            with pytest.raises(expected):
                tx.commit()
            self.touched |= changes.keys()

    @precondition(lambda self: self.tables)
    @rule(side=sides, data=data)
    def roll_back_or_fail(self, side: int, data: st.DataObject) -> None:
        """Roll back, or stage a valid and an invalid action: nothing changes."""
        name = data.draw(st.sampled_from(sorted(self.tables)), "table")
        tx = self.catalogs[side].begin()
        for other in sorted(self.tables):
            tx.stage_table(self._full(other), file(self._new_path()))
        if data.draw(st.booleans(), "unlawful"):
            tx.stage_table(self._full(name), removal(file("never-added")))
            with pytest.raises(InvalidActionError):
                tx.commit()
        else:
            tx.rollback()
        self.touched |= self.tables.keys()

    # Invariants

    @invariant()
    def log_is_as_predicted(self) -> None:
        for catalog in self.catalogs:
            found = [table.name for table in catalog.tables(self.namespace)]
            assert found == sorted(self.tables)
            gone = [row.name for row in catalog.dropped() if row.namespace == self.namespace]
            assert gone == [table.name for table in reversed(self.dropped)]
            for name in NAMES:
                # First the check that may use a cached name, then the call that refreshes it.
                self._check(catalog, name, every_version=name in self.touched)
                assert catalog.exists(self._full(name)) == (name in self.tables)
        self.touched.clear()

    def teardown(self) -> None:
        if hasattr(self, "tables"):
            for name in self.tables:
                self._check(self.catalogs[0], name, every_version=True)

    # Helpers of the rules

    def _check(self, catalog: Catalog, name: str, *, every_version: bool) -> None:
        if name not in self.tables:
            with pytest.raises(TxnLogTableNotFoundError):
                catalog.table(self._full(name)).snapshot()
            return
        log = self.tables[name].versions
        table = catalog.table(self._full(name))
        assert table.version() == len(log) - 1
        history = table.history()
        assert [row.version for row in history] == list(range(len(log) - 1, -1, -1))
        assert [row.txn_id for row in history] == [each.txn_id for each in reversed(log)]
        for version in range(len(log)) if every_version else [len(log) - 1]:
            snapshot, expected = table.snapshot(version), log[version]
            assert sorted(snapshot.files()["path"].to_pylist()) == sorted(expected.live)
            assert snapshot.totals().num_files == len(expected.live)
            assert tuple(column.name for column in snapshot.schema.fields) == expected.columns
            assert snapshot.metadata.configuration.get("comment") == expected.comment
            apps = snapshot.transactions()
            assert {app: txn.version for app, txn in apps.items()} == expected.apps

    def _draw_change(self, data: st.DataObject, table: ModelTable) -> Change:
        head = table.head
        kinds = ["append", "add column", "set property", "application"]
        kinds += ["remove", "rewrite", "add a live file again"] if head.live else []
        kinds += ["restore"] if table.removed_paths else []
        kind = data.draw(st.sampled_from(kinds), "kind")
        fresh = frozenset({self._new_path()})
        some_live = st.sets(st.sampled_from(sorted(head.live) or [""]), min_size=1, max_size=2)
        if kind == "add column":
            return Change(columns=(*head.columns, f"c{len(head.columns)}"))
        if kind == "set property":
            return Change(comment=f"comment {self.files}")
        if kind == "application":
            app = data.draw(st.sampled_from(APPS), "application")
            return Change(adds=fresh, apps=((app, head.apps.get(app, 0) + 1),))
        if kind == "restore":
            return Change(
                adds=frozenset({data.draw(st.sampled_from(sorted(table.removed_paths)), "path")})
            )
        if kind == "add a live file again":
            return Change(adds=frozenset(data.draw(some_live, "paths")))
        removed = frozenset(data.draw(some_live, "paths")) if kind != "append" else frozenset()
        return Change(adds=fresh if kind != "remove" else frozenset(), removes=removed)

    def _stage(self, tx: MultiTableTransaction, name: str, change: Change, **options: Any) -> None:
        actions: list[Any] = [file(path) for path in sorted(change.adds)]
        actions += [removal(file(path)) for path in sorted(change.removes)]
        actions += [SetTransaction(app, version) for app, version in change.apps]
        if change.changes_metadata:
            metadata = tx.snapshot(self._full(name)).metadata
            if change.columns is not None:
                schema = pa.schema([(column, pa.int64()) for column in change.columns])
                metadata = replace(metadata, schema_string=schema_from_any(schema).to_json())
            if change.comment is not None:
                properties = {**metadata.configuration, "comment": change.comment}
                metadata = replace(metadata, configuration=properties)
            actions.append(metadata)
        tx.stage_table(self._full(name), actions, **options)

    def _ratified(self, tx: MultiTableTransaction, changes: dict[str, Change]) -> None:
        for name, change in changes.items():
            self.tables[name].apply(change, tx.txn_id)
            assert tx.versions[self._full(name)] == len(self.tables[name].versions) - 1
        self.touched |= changes.keys()

    def _full(self, name: str) -> str:
        return f"{self.namespace}.{name}"

    def _new_path(self) -> str:
        self.files += 1
        return f"f{self.files}"


@contextmanager
def two_catalogs(uri: DeltaSqlUri) -> Iterator[tuple[Catalog, Catalog]]:
    with open_catalog(uri) as one, open_catalog(uri) as other:
        yield one, other


def test_any_sequence_of_commits_gives_the_predicted_log(
    backend: str, catalog_uri: DeltaSqlUri
) -> None:
    tries, steps = EXAMPLES[backend]
    chosen = random.randrange(2**32) if os.environ.get("DELTASQL_EXPLORE") else 20261115
    seed = int(os.environ.get("DELTASQL_SEED", chosen))
    print(f"DELTASQL_SEED={seed}")
    with two_catalogs(catalog_uri) as catalogs:
        machine = type("Machine", (LogMachine,), {"catalogs": catalogs})
        run_state_machine_as_test(
            hypothesis.seed(seed)(machine),
            settings=settings(
                max_examples=examples(tries),
                stateful_step_count=steps,
                deadline=None,
                database=None,
                print_blob=True,
                phases=PHASES,
                suppress_health_check=list(HealthCheck),
            ),
        )
        audit(catalogs[0])
