-- Reads all heads in one statement, so that a commit over several tables is seen completely or not at all.
-- name: live_heads
SELECT t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.created_at_ms, t.dropped_at_ms, t.properties,
  h.version, h.committed_at_ms, h.next_file_id, h.metadata_version, h.protocol_version
FROM dl_tables t JOIN dl_table_heads h ON h.table_id = t.table_id
WHERE t.dropped_at_ms IS NULL
ORDER BY t.table_id;

-- name: table_uuids
SELECT table_id, table_uuid FROM dl_tables WHERE table_id {in:table_ids};

-- name: catalog_target
SELECT value FROM dl_meta WHERE key = $key;

-- name: tables_shown_at
SELECT table_id FROM dl_mirror_targets WHERE kind = 'duckdb' AND location = $location;

-- name: insert_catalog_target
INSERT INTO dl_meta (key, value) VALUES ($key, $value)
ON CONFLICT (key) DO NOTHING;

-- name: delete_catalog_target
DELETE FROM dl_meta WHERE key = $key;

-- name: add_missing_views
INSERT INTO dl_mirror_targets
SELECT t.table_id, 'duckdb:' || m.value, 'duckdb', m.value, $now_ms, -1, 0, 'ACTIVE', 0, 0, NULL, NULL, 0
FROM dl_meta m CROSS JOIN dl_tables t JOIN dl_table_heads h ON h.table_id = t.table_id
WHERE substr(m.key, 1, length($prefix)) = $prefix AND t.dropped_at_ms IS NULL
ON CONFLICT (table_id, target) DO NOTHING;

-- name: view_locations
SELECT DISTINCT location FROM dl_mirror_targets WHERE kind = 'duckdb' ORDER BY location;

-- name: delete_view_targets
DELETE FROM dl_mirror_targets WHERE kind = 'duckdb' AND location = $location;

-- name: count_all_further_targets
UPDATE dl_mirror_targets
SET further_targets = (SELECT count(*) FROM dl_mirror_targets o
                       WHERE o.table_id = dl_mirror_targets.table_id AND o.target <> 'table')
WHERE target = 'table';
