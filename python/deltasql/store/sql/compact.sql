-- name: tables_to_compact
-- Live tables whose properties mention auto compaction, with their heads and properties.
SELECT t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.created_at_ms, t.dropped_at_ms, t.properties,
  h.version, h.next_file_id, m.configuration
FROM dl_tables t JOIN dl_table_heads h ON h.table_id = t.table_id
  JOIN dl_metadata_updates m ON m.table_id = h.table_id AND m.version = h.metadata_version
WHERE t.dropped_at_ms IS NULL AND m.configuration LIKE $pattern
ORDER BY t.table_id;

-- name: files_to_compact
-- Small live files in a range of ids, if their partition has at least $min_files of about the same size. The condition
-- on removed_version is written so that it does not match the index of live files: the range of ids is read instead.
SELECT g.file_id FROM (
  SELECT f.file_id, count(*) OVER (
    PARTITION BY f.partition_id,
      CASE WHEN f.size < 65536 THEN 0 WHEN f.size < 1048576 THEN 1 WHEN f.size < 16777216 THEN 2 ELSE 3 END
  ) AS files
  FROM dl_add_files f
  WHERE f.table_id = $table_id AND f.file_id >= $first_file_id AND f.size < $small_size
    AND coalesce(f.removed_version, -1) = -1
) g
WHERE g.files >= $min_files
ORDER BY g.file_id;

-- name: take_lease
-- Changes nothing while another process has the lease. A lease is the time at which it ends, in 15 digits, and its owner.
INSERT INTO dl_meta (key, value) VALUES ($key, $lease)
ON CONFLICT (key) DO UPDATE SET value = excluded.value
WHERE substr(dl_meta.value, 1, 15) < $now OR substr(dl_meta.value, 1, 15) > $longest;

-- name: release_lease
DELETE FROM dl_meta WHERE key = $key AND value = $lease;

-- name: release_hold
DELETE FROM dl_meta WHERE key = $key;

-- name: leases_held
SELECT count(*) FROM dl_meta
WHERE key LIKE $pattern AND substr(value, 1, 15) >= $now AND substr(value, 1, 15) <= $longest;

-- name: delete_ended_leases
DELETE FROM dl_meta
WHERE key LIKE $pattern AND (substr(value, 1, 15) < $now OR substr(value, 1, 15) > $longest);
