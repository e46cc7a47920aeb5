-- name: taken_txn_ids
SELECT txn_id FROM dl_table_versions WHERE table_id = $table_id AND txn_id {in:txn_ids};

-- name: begin_loading
-- The table is not live until its log is loaded completely, so that no commit is possible before.
INSERT INTO dl_tables (table_uuid, namespace, name, location, created_at_ms, dropped_at_ms, properties)
VALUES ($table_uuid, $namespace, $name, $location, $created_at_ms, $dropped_at_ms, $properties)
RETURNING table_id;

-- name: finish_loading
UPDATE dl_tables
SET namespace = $namespace, name = $name, live_name = $live_name, dropped_at_ms = NULL, properties = $properties
WHERE table_id = $table_id AND dropped_at_ms IS NOT NULL;

-- name: table_by_uuid
SELECT table_id, table_uuid, namespace, name, location, created_at_ms, dropped_at_ms, properties
FROM dl_tables WHERE table_uuid = $table_uuid;
