-- name: discard_files
DELETE FROM dl_add_files WHERE table_id = $table_id;

-- name: discard_file_stats
DELETE FROM dl_file_stats WHERE table_id = $table_id;

-- name: discard_remove_files
DELETE FROM dl_remove_files WHERE table_id = $table_id;

-- name: discard_cdc_files
DELETE FROM dl_cdc_files WHERE table_id = $table_id;

-- name: discard_partitions
DELETE FROM dl_partitions WHERE table_id = $table_id;

-- name: discard_skipping_columns
DELETE FROM dl_skipping_columns WHERE table_id = $table_id;

-- name: discard_metadata
DELETE FROM dl_metadata_updates WHERE table_id = $table_id;

-- name: discard_protocols
DELETE FROM dl_protocol_updates WHERE table_id = $table_id;

-- name: discard_txns
DELETE FROM dl_txn_actions WHERE table_id = $table_id;

-- name: discard_domains
DELETE FROM dl_domain_metadata WHERE table_id = $table_id;

-- name: discard_versions
DELETE FROM dl_table_versions WHERE table_id = $table_id;

-- name: discard_head
DELETE FROM dl_table_heads WHERE table_id = $table_id;

-- name: discard_mirror_status
DELETE FROM dl_mirror_status WHERE table_id = $table_id;

-- name: discard_mirror_targets
DELETE FROM dl_mirror_targets WHERE table_id = $table_id;

-- name: discard_location
DELETE FROM dl_table_locations WHERE table_id = $table_id;

-- name: discard_table
-- Deletes a table only if it was dropped or never became live.
DELETE FROM dl_tables WHERE table_id = $table_id AND dropped_at_ms IS NOT NULL;

-- name: live_files_after
SELECT f.file_id, f.path, coalesce(f.deletion_vector, '') AS deletion_vector FROM dl_add_files f
WHERE f.table_id = $table_id AND f.file_id > $after AND f.removed_version IS NULL
ORDER BY f.file_id LIMIT $limit;
