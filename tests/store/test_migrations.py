"""Schema migrations: create a new schema, upgrade an old one, reject an unknown one."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import deltasql
from deltasql.config import Config
from deltasql.exceptions import MigrationError, SchemaVersionError
from deltasql.mirror.log.encode import commit_actions
from deltasql.model.actions import AddFile, CommitInfo, Metadata, Protocol, RemoveFile
from deltasql.store import migrations
from deltasql.store.open import open_store
from deltasql.store.statements import statement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.store.store import Store
    from deltasql.uri import DeltaSqlUri

LATEST = migrations.latest_version()
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'

# A table in schema version 1: one file is added, then removed by a compaction.
VERSION_1_DATA = f"""
INSERT INTO dl_tables (table_id, table_uuid, namespace, name, live_name, location, created_at_ms)
VALUES (1, 'uuid-1', 'default', 'old', 'default/old', '/lake/old', 1);
INSERT INTO dl_table_heads VALUES (1, 1, 2000, 2, 0, 0);
INSERT INTO dl_table_versions (table_id, version, committed_at_ms, txn_id, group_size, next_file_id)
VALUES (1, 0, 1000, 'txn-0', 1, 2);
INSERT INTO dl_table_versions (table_id, version, committed_at_ms, txn_id, group_size, next_file_id)
VALUES (1, 1, 2000, 'txn-1', 1, 2);
INSERT INTO dl_partitions VALUES (1, 0, '{{}}');
INSERT INTO dl_metadata_updates
VALUES (1, 0, 'uuid-1', NULL, NULL, '{SCHEMA}', '[]', '{{}}', '{{"provider":"parquet"}}', 1, NULL);
INSERT INTO dl_protocol_updates VALUES (1, 0, 1, 2, NULL, NULL, NULL);
INSERT INTO dl_remove_files (table_id, version, ordinal, path, deletion_timestamp)
VALUES (1, 1, 0, 'a.parquet', 2000);
"""
INSERT_ADD = """
INSERT INTO dl_add_files (table_id, file_id, path, path_key, partition_id, size, modification_time,
  data_change, added_version, removed_version)
VALUES (1, 1, 'a.parquet', {key}, 0, 7, 1, {true}, 0, 1);
"""
KEY = {
    "sqlite": "x'01'",
    "duckdb": "'\\x01'::BLOB",
    "postgres": "'\\x01'::bytea",
}


@contextmanager
def opened(uri: DeltaSqlUri, up_to: int | None) -> Iterator[Store]:
    store = open_store(uri, Config.load(), migrate=False)
    try:
        if up_to is not None:
            store.migrate(up_to=up_to)
        yield store
    finally:
        store.close()


def run(store: Store, script: str) -> None:
    """Run SQL that is not one of the named statements."""
    with store.session() as session:
        session.begin()
        session.script(script)
        session.commit()


def tables(store: Store) -> set[str]:
    listing = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'dl_%'",
        "duckdb": "SELECT table_name FROM duckdb_tables()",
        "postgres": "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()",
    }
    with store.session() as session:
        connection: Any = session._connection  # type: ignore[attr-defined]
        return {row[0] for row in connection.execute(listing[store.dialect.name]).fetchall()}


def test_new_database_gets_every_migration(catalog_uri: DeltaSqlUri) -> None:
    with opened(catalog_uri, None) as store:
        assert store.migrate() == list(range(1, LATEST + 1))
        assert {"dl_tables", "dl_add_files", "dl_migrations"} <= tables(store)
        assert [row[0] for row in store.query("applied_migrations")] == list(range(1, LATEST + 1))


def test_migrating_again_changes_nothing(catalog_uri: DeltaSqlUri) -> None:
    with opened(catalog_uri, LATEST) as store:
        before = store.query("applied_migrations")
        assert store.migrate() == []
    with opened(catalog_uri, None) as store:
        assert store.migrate() == []
        assert store.query("applied_migrations") == before


def test_catalog_of_schema_version_1_is_upgraded_and_readable(
    catalog_uri: DeltaSqlUri, backend: str
) -> None:
    with opened(catalog_uri, 1) as store:
        true = store.dialect.types["true"]
        run(store, VERSION_1_DATA + INSERT_ADD.format(key=KEY[backend], true=true))
        assert store.migrate() == list(range(2, LATEST + 1))
        with store.session() as session:
            first = commit_actions(session, 1, 0)
            second = commit_actions(session, 1, 1)
    assert [type(action) for action in first] == [CommitInfo, Protocol, Metadata, AddFile]
    assert second[1] == RemoveFile("a.parquet", 2000, data_change=True)
    with deltasql.connect(catalog_uri, mirror={"mode": "off"}) as catalog:
        old = catalog.table("old")
        assert old.version() == 1
        assert old.files().num_rows == 0
        assert old.files(version=0)["path"].to_pylist() == ["a.parquet"]
        new = AddFile("b.parquet", {}, 1, 1)
        with catalog.begin() as tx:
            tx.stage_table("old", [new])
        assert old.scan().paths() == ["b.parquet"]
        catalog.create_table("new", SCHEMA, location="/lake/new")


# The mirror's rows in schema version 2: one table is half published, one not at all.
VERSION_2_MIRROR = """
INSERT INTO dl_tables (table_id, table_uuid, namespace, name, live_name, location, created_at_ms)
VALUES (2, 'uuid-2', 'default', 'new', 'default/new', '/lake/new', 5);
INSERT INTO dl_table_heads VALUES (2, 0, 1000, 1, 0, 0);
INSERT INTO dl_table_versions (table_id, version, committed_at_ms, txn_id, group_size, next_file_id)
VALUES (2, 0, 1000, 'txn-2', 1, 1);
INSERT INTO dl_mirror_status VALUES (1, 0, 'table', 'COMPLETE', 1, NULL, 7);
INSERT INTO dl_mirror_status VALUES (1, 1, 'table', 'FAILED', 3, 'no space', 8);
"""


def test_upgrade_keeps_the_published_versions_of_the_mirror(
    catalog_uri: DeltaSqlUri, backend: str
) -> None:
    with opened(catalog_uri, 2) as store:
        true = store.dialect.types["true"]
        run(store, VERSION_1_DATA + INSERT_ADD.format(key=KEY[backend], true=true))
        run(store, VERSION_2_MIRROR)
        assert store.migrate() == list(range(3, LATEST + 1))
    with deltasql.connect(catalog_uri, mirror={"mode": "off"}) as catalog:
        found = {
            s.table: (s.target, s.published_version, s.pending) for s in catalog.mirror.status()
        }
        assert found == {"old": ("table", 0, 1), "new": ("table", -1, 1)}
        [failed, complete] = catalog.mirror.versions("old")
        assert (failed.status, failed.attempts, failed.last_error) == ("FAILED", 3, "no space")
        assert complete.status == "COMPLETE"


def test_newer_schema_is_rejected(catalog_uri: DeltaSqlUri) -> None:
    with opened(catalog_uri, LATEST) as store:
        run(store, "INSERT INTO dl_migrations VALUES (99, 'from the future', 'x', 1)")
        with pytest.raises(SchemaVersionError) as caught:
            store.migrate()
    assert (caught.value.found, caught.value.supported) == (99, LATEST)
    with pytest.raises(SchemaVersionError, match="Upgrade deltasql"):
        deltasql.connect(catalog_uri)


def test_migration_with_another_checksum_is_rejected(catalog_uri: DeltaSqlUri) -> None:
    with opened(catalog_uri, LATEST) as store:
        run(store, "UPDATE dl_migrations SET checksum = 'other' WHERE version = 1")
        with pytest.raises(MigrationError, match="differs") as caught:
            store.migrate()
    assert caught.value.migration == "0001_base"


def test_line_endings_do_not_change_a_migration_checksum() -> None:
    for _, _, text in migrations.migration_files():
        assert migrations.checksum(text.replace("\n", "\r\n")) == migrations.checksum(text)


def test_failed_migration_is_rolled_back(
    catalog_uri: DeltaSqlUri, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = (
        "CREATE TABLE dl_half (id {bigint});\nINSERT INTO dl_half VALUES (1);\nSELECT nonsense;\n"
    )
    real = migrations.migration_files()
    with opened(catalog_uri, 1) as store:
        before = tables(store)
        with monkeypatch.context() as patch:
            patch.setattr(migrations, "migration_files", lambda: [*real, (99, "broken", broken)])
            with pytest.raises(MigrationError) as caught:
                store.migrate()
        assert caught.value.migration == "0099_broken"
        assert tables(store) == before
        assert [row[0] for row in store.query("applied_migrations")] == [1]
        assert store.migrate() == list(range(2, LATEST + 1))


def test_concurrent_first_opens_all_succeed(
    catalog_uri: DeltaSqlUri,
) -> None:
    barrier = threading.Barrier(4)
    applied: list[list[int]] = []
    problems: list[BaseException] = []

    def first_open() -> None:
        store = open_store(catalog_uri, Config.load(), migrate=False)
        try:
            barrier.wait(timeout=30)
            applied.append(store.migrate())
        except BaseException as error:
            problems.append(error)
        finally:
            store.close()

    threads = [threading.Thread(target=first_open) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert sorted(applied) == [[], [], [], list(range(1, LATEST + 1))]


def test_migration_does_not_wait_for_a_migration_in_another_schema(
    postgres_uri: DeltaSqlUri,
) -> None:
    with psycopg.connect(os.environ["TEST_DATABASE_URL"]) as elsewhere:
        elsewhere.execute(statement("lock_schema", "postgres"))
        with deltasql.connect(postgres_uri, create=True, store={"lock_timeout_ms": 200}) as catalog:
            assert catalog.tables() == []
