-- name: table_and_head
SELECT t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.created_at_ms, t.dropped_at_ms, t.properties,
  h.version, h.committed_at_ms, h.next_file_id, h.metadata_version, h.protocol_version, t.live_name
FROM dl_tables t JOIN dl_table_heads h ON h.table_id = t.table_id
WHERE t.live_name = $live_name;

-- name: record_staged_files [postgres]
-- `insert_staged_file` for every path in one round trip, without waiting for the disk.
WITH relaxed AS (SELECT set_config('synchronous_commit', 'off', TRUE) AS setting)
INSERT INTO dl_staged_files (txn_id, table_id, path, staged_at_ms)
SELECT $txn_id, $table_id, intent.path, $now_ms
FROM relaxed, unnest($paths::text[]) AS intent (path) WHERE relaxed.setting = 'off'
ON CONFLICT DO NOTHING
RETURNING staged_at_ms;
