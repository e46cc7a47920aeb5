-- name: tombstones_between
-- Files that were removed in a range of time. Files removed after $after_version are included even if their time is
-- earlier.
SELECT r.path, coalesce(r.size, 0), coalesce(r.deletion_vector, '') FROM dl_remove_files r
WHERE r.table_id = $table_id AND coalesce(r.deletion_timestamp, 0) <= $before_ms
  AND (r.version > $after_version OR coalesce(r.deletion_timestamp, 0) > $after_ms)
ORDER BY r.version, r.ordinal;

-- name: files_since
-- Files in a range of ids that are live at this version or were added later.
SELECT f.path, f.size, coalesce(f.deletion_vector, '') FROM dl_add_files f
WHERE f.table_id = $table_id AND f.file_id >= $first_file_id AND f.file_id < $next_file_id
  AND (f.removed_version IS NULL OR f.removed_version > $version)
ORDER BY f.file_id;

-- name: files_at
SELECT f.path, f.size, coalesce(f.deletion_vector, '') FROM dl_add_files f
WHERE f.table_id = $table_id AND {use:live_at_version}
ORDER BY f.file_id;

-- name: files_outside
-- Files of other tables that are outside the location of their table and still needed: live, or removed after a time.
-- The first condition is the same as in the index dl_add_files_outside, so that the index is used.
SELECT f.path, coalesce(f.deletion_vector, '') FROM dl_add_files f
WHERE (substr(path, 1, 1) = '/' OR instr(path, ':/') > 0 OR instr(deletion_vector, '"p"') > 0)
  AND f.table_id <> $table_id
  AND (f.removed_version IS NULL OR EXISTS (
    SELECT 1 FROM dl_table_versions v
    WHERE v.table_id = f.table_id AND v.version = f.removed_version AND v.committed_at_ms > $before_ms));

-- name: files_outside [postgres]
SELECT f.path, coalesce(f.deletion_vector, '') FROM dl_add_files f
WHERE (left(path, 1) = '/' OR strpos(path, ':/') > 0 OR strpos(deletion_vector, '"p"') > 0)
  AND f.table_id <> $table_id
  AND (f.removed_version IS NULL OR EXISTS (
    SELECT 1 FROM dl_table_versions v
    WHERE v.table_id = f.table_id AND v.version = f.removed_version AND v.committed_at_ms > $before_ms));

-- name: target_locations
SELECT DISTINCT kind, location FROM dl_mirror_targets WHERE location IS NOT NULL;

-- name: change_files_between
SELECT c.version, c.path, c.size FROM dl_cdc_files c
WHERE c.table_id = $table_id AND c.version >= $first AND c.version < $before
ORDER BY c.version, c.ordinal;

-- name: change_files_since
SELECT c.path FROM dl_cdc_files c WHERE c.table_id = $table_id AND c.version >= $version;

-- name: last_operation
SELECT v.version, coalesce(v.extra, '') FROM dl_table_versions v
WHERE v.table_id = $table_id AND v.operation = $operation
ORDER BY v.version DESC LIMIT 1;

-- name: staged_files_of
SELECT s.txn_id, s.path, s.staged_at_ms FROM dl_staged_files s WHERE s.table_id = $table_id ORDER BY s.staged_at_ms, s.path;

-- name: staged_without_table
SELECT s.txn_id, s.table_id, s.path FROM dl_staged_files s
WHERE s.staged_at_ms < $before_ms
  AND NOT EXISTS (SELECT 1 FROM dl_tables t WHERE t.table_id = s.table_id AND t.dropped_at_ms IS NULL)
ORDER BY s.staged_at_ms, s.path;

-- name: intents_taken
-- When a vacuum takes over an intent, it puts a UUID and a slash before the transaction id.
SELECT count(*) FROM dl_staged_files s WHERE substr(s.txn_id, 38) = $txn_id;

-- name: vacuums_after
SELECT v.version, v.operation, v.txn_id FROM dl_table_versions v
WHERE v.table_id = $table_id AND v.version > $version AND v.operation = 'VACUUM START'
ORDER BY v.version DESC LIMIT 1;

-- name: take_staged_file
UPDATE dl_staged_files SET txn_id = $taken_by
WHERE txn_id = $txn_id AND table_id = $table_id AND path = $path;

-- name: take_staged_file [postgres]
-- Skips intents that a commit has locked, because waiting for several of them one by one could deadlock.
UPDATE dl_staged_files s SET txn_id = $taken_by
FROM (
  SELECT txn_id, table_id, path FROM dl_staged_files
  WHERE txn_id = $txn_id AND table_id = $table_id AND path = $path
  FOR UPDATE SKIP LOCKED
) free
WHERE s.txn_id = free.txn_id AND s.table_id = free.table_id AND s.path = free.path;

-- name: clear_staged_file
DELETE FROM dl_staged_files WHERE txn_id = $txn_id AND table_id = $table_id AND path = $path;
