-- Read-only checks of `deltasql doctor`.

-- name: database_version [sqlite]
SELECT sqlite_version();

-- name: database_version [postgres]
SELECT current_setting('server_version');

-- name: database_version [duckdb]
SELECT version();

-- name: index_names [sqlite]
SELECT name FROM sqlite_master WHERE type = 'index';

-- name: index_names [postgres]
-- If the creation of an index was interrupted, the index exists but is not valid.
SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND i.indisvalid;

-- name: index_names [duckdb]
SELECT index_name FROM duckdb_indexes()
WHERE database_name = current_database() AND schema_name = current_schema();

-- name: longest_transaction [postgres]
-- The age in seconds of the oldest other transaction in this database.
SELECT coalesce(max(extract(epoch FROM now() - a.xact_start)), 0)::float8 FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.state <> 'idle'
  AND a.backend_type = 'client backend';

-- name: replica_lag [postgres]
-- No row on a primary server. On a read replica: the age in seconds of the last commit that readers see, or 0 if the
-- replica is connected and has replayed everything that it received.
SELECT CASE WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() AND EXISTS (SELECT 1 FROM pg_stat_wal_receiver)
  THEN 0 ELSE greatest(0, extract(epoch FROM
    clock_timestamp() - coalesce(pg_last_xact_replay_timestamp(), pg_postmaster_start_time()))) END::float8
WHERE pg_is_in_recovery();

-- name: head_facts
-- Every live table, with the values in its head and the same values computed from its rows.
SELECT t.table_id, t.namespace, t.name, h.version, h.next_file_id,
  (SELECT max(v.version) FROM dl_table_versions v WHERE v.table_id = t.table_id),
  (SELECT min(v.version) FROM dl_table_versions v WHERE v.table_id = t.table_id),
  (SELECT count(*) FROM dl_table_versions v WHERE v.table_id = t.table_id),
  (SELECT max(f.file_id) FROM dl_add_files f WHERE f.table_id = t.table_id),
  (SELECT max(f.removed_version) FROM dl_add_files f
   WHERE f.table_id = t.table_id AND f.removed_version IS NOT NULL),
  (SELECT count(*) FROM dl_metadata_updates m WHERE m.table_id = t.table_id AND m.version = h.metadata_version),
  (SELECT count(*) FROM dl_protocol_updates p WHERE p.table_id = t.table_id AND p.version = h.protocol_version)
FROM dl_tables t LEFT JOIN dl_table_heads h ON h.table_id = t.table_id
WHERE t.dropped_at_ms IS NULL ORDER BY t.namespace, t.name;

-- name: live_location_keys
SELECT t.namespace, t.name, t.location, coalesce(l.location_key, '')
FROM dl_tables t LEFT JOIN dl_table_locations l ON l.table_id = t.table_id WHERE t.dropped_at_ms IS NULL;

-- name: orphan_rows
SELECT 'dl_table_heads', count(*) FROM dl_table_heads o
WHERE NOT EXISTS (SELECT 1 FROM dl_tables t WHERE t.table_id = o.table_id)
UNION ALL
SELECT 'dl_mirror_targets', count(*) FROM dl_mirror_targets o
WHERE NOT EXISTS (SELECT 1 FROM dl_tables t WHERE t.table_id = o.table_id)
UNION ALL
SELECT 'dl_metadata_updates', count(*) FROM dl_metadata_updates o
WHERE NOT EXISTS (SELECT 1 FROM dl_tables t WHERE t.table_id = o.table_id);

-- name: orphan_logs
-- Finds each distinct table id with one index lookup, instead of reading every row of a large table.
WITH RECURSIVE files (id) AS (
  SELECT min(table_id) FROM dl_add_files
  UNION ALL
  SELECT (SELECT min(f.table_id) FROM dl_add_files f WHERE f.table_id > files.id) FROM files WHERE files.id IS NOT NULL
), versions (id) AS (
  SELECT min(table_id) FROM dl_table_versions
  UNION ALL
  SELECT (SELECT min(v.table_id) FROM dl_table_versions v WHERE v.table_id > versions.id)
  FROM versions WHERE versions.id IS NOT NULL
)
SELECT 'dl_add_files', id FROM files
WHERE id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM dl_tables t WHERE t.table_id = id)
UNION ALL
SELECT 'dl_table_versions', id FROM versions
WHERE id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM dl_tables t WHERE t.table_id = id);

-- name: orphan_logs [duckdb]
SELECT DISTINCT 'dl_add_files', f.table_id FROM dl_add_files f
WHERE NOT EXISTS (SELECT 1 FROM dl_tables t WHERE t.table_id = f.table_id)
UNION ALL
SELECT DISTINCT 'dl_table_versions', v.table_id FROM dl_table_versions v
WHERE NOT EXISTS (SELECT 1 FROM dl_tables t WHERE t.table_id = v.table_id);

-- name: staged_count
-- Intents of existing tables.
SELECT count(*), min(s.staged_at_ms) FROM dl_staged_files s
WHERE s.staged_at_ms < $before_ms
  AND EXISTS (SELECT 1 FROM dl_tables t WHERE t.table_id = s.table_id AND t.dropped_at_ms IS NULL);

-- name: small_files
-- The files that OPTIMIZE considers, by partition: small files, and files with a deletion vector.
SELECT f.table_id, count(*), sum(f.size), count(f.deletion_vector),
  sum(CASE WHEN f.size > $half THEN 1 ELSE 0 END), sum(CASE WHEN f.size < $below THEN 1 ELSE 0 END),
  sum(CASE WHEN f.size < $below THEN f.size ELSE 0 END)
FROM dl_add_files f
WHERE f.table_id {in:table_ids} AND (f.size < $below OR f.deletion_vector IS NOT NULL)
  AND coalesce(f.removed_version, -1) = -1
GROUP BY f.table_id, f.partition_id;
