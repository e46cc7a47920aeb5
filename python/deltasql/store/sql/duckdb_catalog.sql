-- All heads in one statement: a commit over several tables is seen whole or not at all.
-- name: live_heads
SELECT t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.created_at_ms, t.dropped_at_ms, t.properties,
  h.version, h.committed_at_ms, h.next_file_id, h.metadata_version, h.protocol_version
FROM dl_tables t JOIN dl_table_heads h ON h.table_id = t.table_id
WHERE t.dropped_at_ms IS NULL
ORDER BY t.table_id;

-- name: table_uuids
SELECT table_id, table_uuid FROM dl_tables WHERE table_id {in:table_ids};
