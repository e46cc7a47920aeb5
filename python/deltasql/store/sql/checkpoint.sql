-- name: removes_page
-- One page of tombstones, in the order of the log. A NULL string is returned as ''.
SELECT r.version, r.ordinal, r.path, r.deletion_timestamp, r.extended_file_metadata,
  coalesce(r.partition_values, '') AS partition_values, r.size, coalesce(r.stats, '') AS stats,
  coalesce(r.tags, '') AS tags, coalesce(r.deletion_vector, '') AS deletion_vector, r.base_row_id,
  r.default_row_commit_version
FROM dl_remove_files r
WHERE r.table_id = $table_id AND (r.version, r.ordinal) > ($after, $ordinal) AND r.version <= $version
  AND r.deletion_timestamp > $deleted_after_ms
ORDER BY r.version, r.ordinal LIMIT $limit;

-- part: has_more
CASE WHEN coalesce(f.tags, f.deletion_vector, f.clustering_provider) IS NULL
    AND coalesce(f.base_row_id, f.default_row_commit_version) IS NULL THEN 0 ELSE 1 END;

-- name: files_plain
-- To fetch less data, this returns only the columns that nearly every file uses, and whether the file uses others.
SELECT f.path, f.partition_id, f.size, f.modification_time, coalesce(f.stats, '') AS stats,
  {use:has_more} AS has_more
FROM dl_add_files f
WHERE f.table_id = $table_id AND f.file_id >= $first_file_id AND f.file_id < $next_file_id AND {use:live_at_version}
ORDER BY f.file_id;

-- name: added_keys
SELECT f.path_key, f.added_version FROM dl_add_files f
WHERE f.table_id = $table_id AND f.file_id >= $first_file_id AND f.file_id < $next_file_id
ORDER BY f.file_id;

-- name: ended_totals
-- Totals of the files that stopped being live at a version: it removed them, or added the same file again.
SELECT count(*), {use:size_sum} FROM dl_add_files f
WHERE f.table_id = $table_id AND f.removed_version = $version;

-- name: added_totals
SELECT count(*), {use:size_sum} FROM dl_add_files f
WHERE f.table_id = $table_id
  AND f.file_id >= coalesce((SELECT b.next_file_id FROM dl_table_versions b
                             WHERE b.table_id = $table_id AND b.version < $version
                             ORDER BY b.version DESC LIMIT 1), 1)
  AND f.file_id < (SELECT e.next_file_id FROM dl_table_versions e
                   WHERE e.table_id = $table_id AND e.version = $version);

-- name: size_totals
SELECT count(*), {use:size_sum} FROM dl_add_files f
WHERE f.table_id = $table_id AND {use:live_at_version};
