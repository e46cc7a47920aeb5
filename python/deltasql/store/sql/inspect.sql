-- Lists and summaries for the CLI and the console. Every list is read in pages; a page starts after the last row of
-- the previous page.

-- part: summary_columns
t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.created_at_ms, t.dropped_at_ms, t.properties,
  h.version, h.committed_at_ms, h.next_file_id, h.metadata_version, h.protocol_version, v.operation,
  coalesce(g.state, 'ACTIVE'), coalesce(g.published_version, -1), g.last_error, w.committed_at_ms;

-- part: summary_joins
JOIN dl_table_heads h ON h.table_id = t.table_id
  LEFT JOIN dl_table_versions v ON v.table_id = h.table_id AND v.version = h.version
  LEFT JOIN dl_mirror_targets g ON g.table_id = t.table_id AND g.target = 'table'
  LEFT JOIN dl_table_versions w ON w.table_id = t.table_id AND w.version = coalesce(g.published_version, -1) + 1;

-- name: summaries_page
-- Selects the tables of the page first, because some databases would otherwise join all tables.
SELECT {use:summary_columns}
FROM (
  SELECT t.* FROM dl_tables t
  WHERE t.dropped_at_ms IS NULL AND (CAST($namespace AS TEXT) IS NULL OR t.namespace = $namespace)
    AND (CAST($pattern AS TEXT) IS NULL
      OR lower(CASE WHEN t.namespace = 'default' THEN t.name ELSE t.namespace || '.' || t.name END) LIKE $pattern ESCAPE '!')
    AND (t.namespace > $after_namespace OR (t.namespace = $after_namespace AND t.name > $after_name))
    AND EXISTS (SELECT 1 FROM dl_table_heads h WHERE h.table_id = t.table_id)
  ORDER BY t.namespace, t.name LIMIT $limit
) t {use:summary_joins}
ORDER BY t.namespace, t.name;

-- name: summary_of
SELECT {use:summary_columns}
FROM dl_tables t {use:summary_joins}
WHERE t.table_id = $table_id;

-- part: file_sums
count(*) AS files, sum(f.size) AS bytes, sum(f.num_records) AS records, count(f.num_records) AS counted,
    count(f.deletion_vector) AS vectors;

-- name: catalog_heads
-- Every live table with its head and the published version of its own log.
SELECT t.table_id, h.version, h.next_file_id, t.properties, g.state, coalesce(g.published_version, -1),
  w.committed_at_ms
FROM dl_tables t JOIN dl_table_heads h ON h.table_id = t.table_id
  LEFT JOIN dl_mirror_targets g ON g.table_id = t.table_id AND g.target = 'table'
  LEFT JOIN dl_table_versions w ON w.table_id = t.table_id AND w.version = coalesce(g.published_version, -1) + 1
WHERE t.dropped_at_ms IS NULL AND (CAST($namespace AS TEXT) IS NULL OR t.namespace = $namespace);

-- name: tables_with_writer_feature
-- Live tables whose current protocol lists a writer feature; the pattern is that of LIKE.
SELECT t.namespace, t.name
FROM dl_tables t JOIN dl_table_heads h ON h.table_id = t.table_id
  JOIN dl_protocol_updates p ON p.table_id = h.table_id AND p.version = h.protocol_version
WHERE t.dropped_at_ms IS NULL AND p.writer_features LIKE $pattern
ORDER BY t.namespace, t.name;

-- name: table_sums
-- The head is read in the same statement, so its version is the version of the sums. The condition on removed_version
-- is written so that it does not match the index of live files. With that index, files would be read in the order of
-- their hashed keys instead of their ids.
SELECT h.table_id, h.version, h.next_file_id, g.files, g.bytes, g.records, g.counted, g.vectors
FROM dl_table_heads h LEFT JOIN (
  SELECT f.table_id, {use:file_sums}
  FROM dl_add_files f WHERE f.table_id {in:table_ids} AND coalesce(f.removed_version, -1) = -1
  GROUP BY f.table_id
) g ON g.table_id = h.table_id
WHERE h.table_id {in:table_ids};

-- name: table_sums [sqlite]
-- One statement for all tables of a catalog, because a list parameter would be split over several statements.
SELECT h.table_id, h.version, h.next_file_id, g.files, g.bytes, g.records, g.counted, g.vectors
FROM dl_table_heads h LEFT JOIN (
  SELECT f.table_id, {use:file_sums}
  FROM dl_add_files f
  WHERE f.table_id IN (SELECT value FROM json_each($table_ids)) AND coalesce(f.removed_version, -1) = -1
  GROUP BY f.table_id
) g ON g.table_id = h.table_id
WHERE h.table_id IN (SELECT value FROM json_each($table_ids));

-- name: table_sums_added
SELECT h.table_id, h.version, h.next_file_id, g.files, g.bytes, g.records, g.counted, g.vectors
FROM dl_table_heads h LEFT JOIN (
  SELECT f.table_id, {use:file_sums}
  FROM dl_add_files f
  WHERE f.table_id = $table_id AND f.file_id >= $first_file_id AND coalesce(f.removed_version, -1) = -1
  GROUP BY f.table_id
) g ON g.table_id = h.table_id
WHERE h.table_id = $table_id;

-- name: table_sums_ended
-- Sums of the files that were live at a version and are no longer live at a later version.
SELECT {use:file_sums}
FROM dl_add_files f
WHERE f.table_id = $table_id AND f.removed_version > $after AND f.removed_version <= $last
  AND +f.file_id < $first_file_id;

-- name: files_measured
-- All live and removed files. There may be millions, so values are packed into few columns: `place` combines the
-- partition and whether there is a deletion vector, and `life` combines the added version and the removed version plus
-- one.
SELECT f.partition_id * 2 + CASE WHEN f.deletion_vector IS NULL THEN 0 ELSE 1 END AS place, f.size,
  coalesce(f.num_records, -1) AS num_records,
  f.added_version * 4294967296 + coalesce(f.removed_version + 1, 0) AS life
FROM dl_add_files f
WHERE f.table_id = $table_id AND f.file_id < $next_file_id AND {use:version_is_left};

-- name: vector_rows [sqlite]
SELECT f.partition_id, sum(json_extract(f.deletion_vector, '$.cardinality')), count(*) FROM dl_add_files f
WHERE f.table_id = $table_id AND f.deletion_vector IS NOT NULL AND {use:live_at_version}
GROUP BY f.partition_id;

-- name: vector_rows [postgres]
SELECT f.partition_id, sum((f.deletion_vector::json ->> 'cardinality')::bigint), count(*) FROM dl_add_files f
WHERE f.table_id = $table_id AND f.deletion_vector IS NOT NULL AND {use:live_at_version}
GROUP BY f.partition_id;

-- name: vector_rows [duckdb]
SELECT f.partition_id, sum(CAST(regexp_extract(f.deletion_vector, '"cardinality": *([0-9]+)', 1) AS BIGINT)), count(*)
FROM dl_add_files f
WHERE f.table_id = $table_id AND f.deletion_vector IS NOT NULL AND {use:live_at_version}
GROUP BY f.partition_id;

-- name: partition_values_of
SELECT partition_id, partition_values FROM dl_partitions
WHERE table_id = $table_id AND partition_id {in:partition_ids};

-- name: commits_per_hour
-- The join with dl_tables makes the database use each table's index on time.
SELECT v.committed_at_ms - v.committed_at_ms % 3600000, count(*)
FROM dl_tables t JOIN dl_table_versions v ON v.table_id = t.table_id
WHERE t.dropped_at_ms IS NULL AND v.committed_at_ms >= $since_ms AND v.committed_at_ms < $until_ms
  AND (CAST($namespace AS TEXT) IS NULL OR t.namespace = $namespace)
GROUP BY 1 ORDER BY 1;

-- name: commits_per_hour_of
SELECT v.committed_at_ms - v.committed_at_ms % 3600000, count(*)
FROM dl_table_versions v
WHERE v.table_id = $table_id AND v.committed_at_ms >= $since_ms AND v.committed_at_ms < $until_ms
GROUP BY 1 ORDER BY 1;

-- name: commits_per_day
SELECT v.committed_at_ms - v.committed_at_ms % 86400000, count(*), min(v.version), max(v.version)
FROM dl_table_versions v
WHERE v.table_id = $table_id AND v.committed_at_ms >= $since_ms AND v.version <= $version
GROUP BY 1 ORDER BY 1;

-- name: metrics_between
SELECT v.version, v.operation, v.operation_metrics FROM dl_table_versions v
WHERE v.table_id = $table_id AND v.version >= $first AND v.version <= $last;

-- name: files_added_by
-- The ids of the files that a commit adds follow those of the commit before it.
SELECT f.added_version, count(*), {use:size_sum} FROM dl_add_files f
WHERE f.table_id = $table_id AND f.file_id >= $first_file_id AND f.file_id < $next_file_id
GROUP BY f.added_version;

-- name: files_removed_by
SELECT f.removed_version, count(*), {use:size_sum} FROM dl_add_files f
WHERE f.table_id = $table_id AND f.removed_version >= $first AND f.removed_version <= $last
GROUP BY f.removed_version;

-- name: count_versions
SELECT min(version), count(*) FROM dl_table_versions WHERE table_id = $table_id;

-- name: history_of_operation
SELECT {use:commit_columns} FROM dl_table_versions v
WHERE v.table_id = $table_id AND v.version <= $last AND upper(v.operation) = upper($operation)
ORDER BY v.version DESC LIMIT $limit;

-- part: page_columns
f.file_id, f.path, f.partition_id, f.size, f.num_records, f.modification_time, f.added_version, f.stats,
  f.deletion_vector;

-- name: ids_up
SELECT f.file_id, f.file_id FROM dl_add_files f
WHERE f.table_id = $table_id AND f.file_id > $after_id AND f.file_id < $next_file_id AND {use:live_at_version}
ORDER BY f.file_id LIMIT $limit;

-- name: ids_down
SELECT f.file_id, f.file_id FROM dl_add_files f
WHERE f.table_id = $table_id AND f.file_id < $after_id AND f.file_id < $next_file_id AND {use:live_at_version}
ORDER BY f.file_id DESC LIMIT $limit;

-- part: next_sizes
SELECT f.size, f.file_id FROM dl_add_files f
WHERE f.table_id = $table_id AND f.file_id < $next_file_id;

-- name: sizes_up
{use:next_sizes} AND {use:live_at_version}
  AND (f.size > $after_size OR (f.size = $after_size AND f.file_id > $after_id))
ORDER BY f.size, f.file_id LIMIT $limit;

-- name: sizes_down
{use:next_sizes} AND {use:live_at_version}
  AND (f.size < $after_size OR (f.size = $after_size AND f.file_id < $after_id))
ORDER BY f.size DESC, f.file_id DESC LIMIT $limit;

-- part: next_paths
SELECT f.path, f.file_id FROM dl_add_files f
WHERE f.table_id = $table_id AND f.file_id < $next_file_id;

-- name: paths_up
{use:next_paths} AND {use:live_at_version}
  AND (f.path > $after_path OR (f.path = $after_path AND f.file_id > $after_id))
ORDER BY f.path, f.file_id LIMIT $limit;

-- name: paths_up [postgres]
-- Sorts by bytes, as the other databases do.
{use:next_paths} AND {use:live_at_version}
  AND (f.path COLLATE "C" > $after_path OR (f.path = $after_path AND f.file_id > $after_id))
ORDER BY f.path COLLATE "C", f.file_id LIMIT $limit;

-- name: paths_down
{use:next_paths} AND {use:live_at_version}
  AND (CAST($before_path AS TEXT) IS NULL OR f.path < $before_path OR (f.path = $before_path AND f.file_id < $after_id))
ORDER BY f.path DESC, f.file_id DESC LIMIT $limit;

-- name: paths_down [postgres]
{use:next_paths} AND {use:live_at_version}
  AND (CAST($before_path AS TEXT) IS NULL OR f.path COLLATE "C" < $before_path
       OR (f.path = $before_path AND f.file_id < $after_id))
ORDER BY f.path COLLATE "C" DESC, f.file_id DESC LIMIT $limit;

-- name: page_files
SELECT {use:page_columns} FROM dl_add_files f WHERE f.table_id = $table_id AND f.file_id {in:file_ids};

-- name: live_files_of
SELECT {use:file_columns} FROM dl_add_files f
WHERE f.table_id = $table_id AND f.file_id {in:file_ids} AND {use:live_at_version} AND {use:version_is_left};

-- name: definition_versions
-- Versions that changed the metadata or the protocol, newest first.
SELECT d.version, v.committed_at_ms, v.operation FROM (
  SELECT m.version FROM dl_metadata_updates m WHERE m.table_id = $table_id AND m.version < $before
  UNION
  SELECT p.version FROM dl_protocol_updates p WHERE p.table_id = $table_id AND p.version < $before
) d LEFT JOIN dl_table_versions v ON v.table_id = $table_id AND v.version = d.version
ORDER BY d.version DESC LIMIT $limit;

-- name: definitions_before
SELECT (SELECT max(m.version) FROM dl_metadata_updates m WHERE m.table_id = $table_id AND m.version < $before),
  (SELECT max(p.version) FROM dl_protocol_updates p WHERE p.table_id = $table_id AND p.version < $before);

-- part: diff_sums
SELECT count(*), coalesce(sum(f.size), 0), coalesce(sum(f.num_records), 0), count(f.num_records),
  count(f.deletion_vector) FROM dl_add_files f;

-- part: diff_columns
SELECT f.file_id, f.path, p.partition_values, f.size, f.num_records, f.added_version, f.removed_version, f.deletion_vector
  FROM dl_add_files f JOIN dl_partitions p ON p.table_id = f.table_id AND p.partition_id = f.partition_id;

-- part: came_between
WHERE f.table_id = $table_id AND f.file_id >= $first_file_id AND f.file_id < $next_file_id
  AND (f.removed_version IS NULL OR f.removed_version > $last);

-- part: went_between
-- The unary plus prevents SQLite from scanning all files by their ids.
WHERE f.table_id = $table_id AND f.removed_version > $first AND f.removed_version <= $last
  AND +f.file_id < $first_file_id;

-- name: came_sums
{use:diff_sums} {use:came_between};

-- name: went_sums
{use:diff_sums} {use:went_between};

-- name: came_vectors
SELECT f.deletion_vector FROM dl_add_files f {use:came_between} AND f.deletion_vector IS NOT NULL;

-- name: went_vectors
SELECT f.deletion_vector FROM dl_add_files f {use:went_between} AND f.deletion_vector IS NOT NULL;

-- name: came_page
{use:diff_columns} {use:came_between} ORDER BY f.file_id LIMIT $limit;

-- name: went_page
{use:diff_columns} {use:went_between} ORDER BY +f.file_id LIMIT $limit;

-- name: group_page
-- Transactions over several tables, newest first. The timestamps of the participants may differ slightly, so the latest
-- one is used. A transaction whose latest timestamp is after the start of the page was on an earlier page. The join
-- with dl_tables makes the database use each table's index on time.
SELECT v.txn_id, max(v.committed_at_ms) AS at_ms
FROM dl_tables t JOIN dl_table_versions v ON v.table_id = t.table_id
WHERE v.group_size > 1 AND v.committed_at_ms >= $since_ms AND v.committed_at_ms <= $before_ms
  AND NOT EXISTS (SELECT 1 FROM dl_table_versions w WHERE w.txn_id = v.txn_id AND w.committed_at_ms > $before_ms)
GROUP BY v.txn_id
HAVING max(v.committed_at_ms) < $before_ms OR (max(v.committed_at_ms) = $before_ms AND v.txn_id < $before_txn)
ORDER BY at_ms DESC, v.txn_id DESC LIMIT $limit;

-- name: group_page_of
SELECT v.txn_id, v.committed_at_ms FROM dl_table_versions v
WHERE v.table_id = $table_id AND v.group_size > 1 AND v.committed_at_ms >= $since_ms
  AND (v.committed_at_ms < $before_ms OR (v.committed_at_ms = $before_ms AND v.txn_id < $before_txn))
ORDER BY v.committed_at_ms DESC, v.txn_id DESC LIMIT $limit;

-- name: participants
SELECT v.txn_id, t.namespace, t.name, v.version, v.committed_at_ms, v.operation, v.operation_metrics, v.user_metadata
FROM dl_table_versions v JOIN dl_tables t ON t.table_id = v.table_id
WHERE v.txn_id {in:txn_ids} ORDER BY t.namespace, t.name, t.table_id;

-- name: recent_commits
SELECT t.namespace, t.name, v.version, v.committed_at_ms, v.operation, v.operation_metrics, v.txn_id, v.group_size,
  v.engine_info
FROM dl_tables t JOIN dl_table_versions v ON v.table_id = t.table_id
WHERE t.dropped_at_ms IS NULL AND v.committed_at_ms >= $since_ms
ORDER BY v.committed_at_ms DESC, t.table_id DESC, v.version DESC LIMIT $limit;

-- name: commits_after
SELECT v.version, v.committed_at_ms, v.operation, v.operation_metrics, v.txn_id, v.group_size, v.engine_info
FROM dl_table_versions v WHERE v.table_id = $table_id AND v.version > $after
ORDER BY v.version LIMIT $limit;

-- name: failed_versions
SELECT s.version, s.status, s.attempts, s.last_error, s.updated_at_ms, v.committed_at_ms
FROM dl_mirror_status s LEFT JOIN dl_table_versions v ON v.table_id = s.table_id AND v.version = s.version
WHERE s.table_id = $table_id AND s.target = $target AND s.version < $before AND s.status = 'FAILED'
ORDER BY s.version DESC LIMIT $limit;

-- name: versions_at_target
SELECT v.version, s.status, s.attempts, s.last_error, s.updated_at_ms, v.committed_at_ms
FROM dl_table_versions v
LEFT JOIN dl_mirror_status s ON s.table_id = v.table_id AND s.version = v.version AND s.target = $target
WHERE v.table_id = $table_id AND v.version >= $first AND v.version < $before
  AND (s.status IS NULL OR s.status <> 'FAILED')
ORDER BY v.version DESC LIMIT $limit;

-- name: tombstone_totals
-- The totals of the files that a vacuum may delete (see `tombstones_between`).
SELECT count(*), coalesce(sum(coalesce(r.size, 0)), 0) FROM dl_remove_files r
WHERE r.table_id = $table_id AND coalesce(r.deletion_timestamp, 0) <= $before_ms
  AND (r.version > $after_version OR coalesce(r.deletion_timestamp, 0) > $after_ms);

-- name: last_operation_at
SELECT v.version, v.committed_at_ms, coalesce(v.extra, '') FROM dl_table_versions v
WHERE v.table_id = $table_id AND v.operation = $operation
ORDER BY v.version DESC LIMIT 1;

-- name: audit_page
SELECT a.audit_id, a.at_ms, a.user_name, a.action, t.namespace, t.name, a.version, a.txn_id,
  t.dropped_at_ms
FROM dl_audit_log a LEFT JOIN dl_tables t ON t.table_id = a.table_id
WHERE a.at_ms < $before_ms OR (a.at_ms = $before_ms AND a.audit_id < $before_id)
ORDER BY a.at_ms DESC, a.audit_id DESC LIMIT $limit;
