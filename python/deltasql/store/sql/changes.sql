-- name: versions_between
-- Change feeds show the timestamp of the commitInfo. Time travel uses another one, the time of the log file.
SELECT version, coalesce(
    in_commit_timestamp, CASE WHEN commit_timestamp BETWEEN 0 AND 253402300799999 THEN commit_timestamp END, committed_at_ms
), next_file_id FROM dl_table_versions
WHERE table_id = $table_id AND version >= $first AND version <= $last
ORDER BY version LIMIT $limit;

-- part: changed_file
f.path, p.partition_values, f.deletion_vector, f.size, f.stats, f.data_change;

-- name: files_added_between
SELECT {use:changed_file}, f.added_version, f.removed_version FROM dl_add_files f
JOIN dl_partitions p ON p.table_id = f.table_id AND p.partition_id = f.partition_id
WHERE f.table_id = $table_id AND f.file_id >= $first_file_id AND f.file_id < $next_file_id
ORDER BY f.file_id;

-- name: files_ended_between
SELECT {use:changed_file}, f.removed_version, f.removed_version FROM dl_add_files f
JOIN dl_partitions p ON p.table_id = f.table_id AND p.partition_id = f.partition_id
WHERE f.table_id = $table_id AND f.removed_version > $after AND f.removed_version <= $last
ORDER BY f.removed_version, f.file_id;

-- name: rearranged_between
-- Files that were removed without a data change, for example by a compaction.
SELECT version, path FROM dl_remove_files
WHERE table_id = $table_id AND version > $after AND version <= $last AND NOT data_change;

-- name: rearranged_between [sqlite]
SELECT version, path FROM dl_remove_files
WHERE table_id = $table_id AND version > $after AND version <= $last AND data_change = 0;
