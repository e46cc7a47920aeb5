-- name: applied_migrations
SELECT version, checksum FROM dl_migrations;

-- name: insert_migration
INSERT INTO dl_migrations (version, name, checksum, applied_at_ms) VALUES ($version, $name, $checksum, $applied_at_ms);

-- name: has_ledger [sqlite]
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'dl_migrations';

-- name: has_ledger [duckdb]
SELECT 1 FROM duckdb_tables()
WHERE table_name = 'dl_migrations' AND database_name = current_database() AND schema_name = current_schema();

-- name: lock_schema
SELECT 1;

-- name: lock_schema [postgres]
-- One lock per schema, so that catalogs in the same database do not wait for each other.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema(), 7021480021));
