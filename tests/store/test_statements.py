"""Every SQL statement runs on every database, is used, and inserts its columns in order."""

from __future__ import annotations

import re
import sqlite3
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import BACKENDS
from tests.each import check_each

import deltasql
from deltasql.store.statements import (
    LIST_PARAMETER,
    PARAMETER,
    blocks,
    insert_shape,
    statement,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.catalog.catalog import Catalog

PACKAGE = Path(deltasql.__file__).parent
NAMES = sorted(blocks())
INSERTS = [name for name in NAMES if name.startswith("insert_")]
BULK = [name for name in NAMES if name.startswith("files_") and "$pairs" not in str(blocks()[name])]

INT_LISTS = {"table_ids", "file_ids", "partition_ids", "firsts", "lasts", "versions"}
FLAGS = {
    "data_change",
    "in_commit_timestamps",
    "extended_file_metadata",
    "is_blind_append",
    "is_local",
    "removed",
}
TEXTS = {
    "action",
    "after_name",
    "after_namespace",
    "after_path",
    "app_id",
    "application_name",
    "audit_id",
    "before_id",
    "before_path",
    "before_txn",
    "checksum",
    "claimed_by",
    "clustering_provider",
    "configuration",
    "deletion_vector",
    "description",
    "domain",
    "end_key",
    "engine_info",
    "extra",
    "file_stats",
    "format",
    "id",
    "info_extra",
    "isolation_level",
    "key",
    "kind",
    "last_error",
    "lease",
    "live_location_key",
    "live_name",
    "location",
    "location_key",
    "longest",
    "name",
    "namespace",
    "now",
    "operation",
    "operation_metrics",
    "operation_parameters",
    "partition_columns",
    "partition_values",
    "path",
    "pattern",
    "prefix",
    "properties",
    "reader_features",
    "schema_string",
    "state",
    "stats",
    "status",
    "table_uuid",
    "tags",
    "target",
    "txn_id",
    "txn_ids",
    "type",
    "user_metadata",
    "user_name",
    "value",
    "writer_features",
}
# Statements that only some databases need.
ONLY = {
    "append_one_file": {"postgres"},
    "has_ledger": {"sqlite", "duckdb"},
    "head_as_known": {"sqlite"},
    "allow_idle": {"postgres"},
    "apply_settings": {"postgres"},
    "lock_holders": {"postgres"},
    "longest_transaction": {"postgres"},
    "replica_lag": {"postgres"},
    "record_staged_files": {"postgres"},
    "record_published": {"postgres"},
    "relax_durability": {"sqlite", "postgres"},
    "restore_durability": {"sqlite"},
    "use_settings": {"postgres"},
}
# SQLite changes its durability only between transactions.
BETWEEN = {"relax_durability", "restore_durability"}
BYTES = {"path_key", "min_key", "max_key", "low", "high", "file_bounds"}


def dummy(parameter: str, number: int = 1) -> Any:
    """Return a value of the parameter's type; another number gives another value."""
    if parameter in INT_LISTS:
        return [1, 2]
    if parameter == "bounds":
        return '[{"id": 1, "low": "01", "high": null, "nulls": 0, "rows": 3}]'
    if parameter == "search_path":
        return "pg_catalog"
    if parameter.startswith("has_"):
        return bool(number % 2)
    if parameter.endswith("_timeout"):
        return f"{number}s"
    if parameter == "keys":
        return [b"\x01", b"\x02"]
    if parameter in ("paths", "location_keys"):
        return ["a", "b"]
    if parameter == "pairs":
        return [[1, 2]]
    if parameter in FLAGS:
        return bool(number % 2)
    if parameter in BYTES:
        return number.to_bytes(4, "big")
    return f"{parameter} {number}" if parameter in TEXTS else number


def parameters(name: str, backend: str) -> dict[str, Any]:
    """Return dummy values for the parameters of a statement."""
    text = statement(name, backend)
    listed = set(LIST_PARAMETER.findall(text))
    values = {each: dummy(each) for each in PARAMETER.findall(text)}
    return values | {each: ["a", "b"] if each in TEXTS else dummy(each) for each in listed}


@pytest.fixture
def rolled_back_session(catalog: Catalog) -> Iterator[Any]:
    """A session in a transaction that is rolled back."""
    with catalog.store.session() as session:
        session.begin()
        yield session
        session.rollback()


def test_every_statement_has_a_variant_for_every_database() -> None:
    check_each(NAMES, check_forms)


def check_forms(name: str) -> None:
    variants = blocks()[name]
    unknown = variants.keys() - {None, *BACKENDS}
    assert not unknown
    assert None in variants or variants.keys() == set(BACKENDS) or variants.keys() == ONLY.get(name)
    # If every database has its own variant, the common one would never run.
    assert None not in variants or not variants.keys() > set(BACKENDS)


def test_every_statement_runs(catalog: Catalog, backend: str) -> None:
    elsewhere = {name for name, only in ONLY.items() if backend not in only}
    # Migration 1 is already recorded; the next test covers this insert.
    for name in sorted(set(NAMES) - {"insert_migration"} - elsewhere):
        # Each in its own transaction: two statements may insert the same dummy key.
        with catalog.store.session() as session:
            if backend != "sqlite" or name not in BETWEEN:
                session.begin()
            run = session.query if _returns_rows(name, backend) else session.execute
            run(name, **parameters(name, backend))
            session.rollback()


@pytest.mark.parametrize("rows", [1, 200], ids=["few", "bulk"])
def test_every_insert_takes_rows_in_column_order(
    rolled_back_session: Any, backend: str, rows: int
) -> None:
    for place, name in enumerate(INSERTS):
        table, columns = insert_shape(name, backend)
        # Different numbers for each statement: two of them may insert into one table.
        numbers = range(10 + place * 1000, 10 + place * 1000 + rows)
        rolled_back_session.insert(name, [tuple(dummy(c, i) for c in columns) for i in numbers])
        listed = rolled_back_session._connection.execute(
            f"SELECT {', '.join(columns)} FROM {table}"
        ).fetchall()
        found = sorted(_with_bytes(row) for row in listed)
        wanted = sorted(tuple(dummy(c, i) for c in columns) for i in numbers)
        assert [row for row in found if row in wanted] == wanted, name


def test_insert_parameters_match_its_columns() -> None:
    check_each(product(INSERTS, BACKENDS), check_placeholders)


def check_placeholders(insert: tuple[str, str]) -> None:
    _, columns = insert_shape(*insert)
    values = statement(*insert).partition("VALUES")[2]
    assert tuple(PARAMETER.findall(values)) == columns


def test_every_bulk_read_returns_arrow(catalog: Catalog, backend: str) -> None:
    def check(name: str) -> None:
        assert catalog.store.arrow(name, **parameters(name, backend)).num_rows == 0

    check_each(BULK, check)


def test_every_statement_is_used() -> None:
    source = "\n".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    used = set(re.findall(r"[\"'](\w+)[\"']", source))
    assert sorted(set(NAMES) - used) == []


def test_every_statement_part_is_used() -> None:
    text = " ".join(text for variants in blocks().values() for text in variants.values())
    assert {name for name in blocks("part") if f"{{use:{name}}}" not in text} == set()


def test_no_statement_is_defined_twice() -> None:
    headers = [
        line
        for path in PACKAGE.glob("store/sql/*.sql")
        for line in path.read_text("utf-8").splitlines()
        if line.startswith(("-- name:", "-- part:"))
    ]
    assert sorted(headers) == sorted(set(headers))


def test_code_names_only_existing_statements() -> None:
    call = re.compile(r"\.(?:query|execute|insert|arrow)\(\s*\"([a-z_]+)\"")
    for path in PACKAGE.rglob("*.py"):
        assert set(call.findall(path.read_text("utf-8"))) <= set(NAMES), path


def _returns_rows(name: str, backend: str) -> bool:
    text = statement(name, backend)
    return text.startswith(("SELECT", "WITH", "PRAGMA")) or "RETURNING" in text


def _with_bytes(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(bytes(v) if isinstance(v, memoryview) else v for v in row)


def test_version_bounds_do_not_read_the_whole_history() -> None:
    def steps(versions: int) -> int:
        """Return how many steps SQLite needs for a table with this many versions."""
        database = sqlite3.connect(":memory:")
        database.execute(
            "CREATE TABLE dl_table_versions (table_id INT, version INT, "
            "PRIMARY KEY (table_id, version)) WITHOUT ROWID"
        )
        rows = ((1, version) for version in range(versions))
        database.executemany("INSERT INTO dl_table_versions VALUES (?, ?)", rows)
        counted = []
        database.set_progress_handler(lambda: counted.append(1), 1)
        [found] = database.execute(statement("version_bounds", "sqlite"), {"table_id": 1})
        assert found == (0, versions - 1)
        return len(counted)

    assert steps(5_000) < 2 * steps(5)
