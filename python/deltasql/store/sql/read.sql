-- name: metadata_at
SELECT version, id, name, description, schema_string, partition_columns, configuration, format, created_time, extra
FROM dl_metadata_updates WHERE table_id = $table_id AND version <= $version
ORDER BY version DESC LIMIT 1;

-- name: metadata_of
-- The metadata that exactly this version wrote. Planning takes half the time of `metadata_at`, so the first open is
-- faster.
SELECT version, id, name, description, schema_string, partition_columns, configuration, format, created_time, extra
FROM dl_metadata_updates WHERE table_id = $table_id AND version = $version;

-- name: protocol_of
SELECT version, min_reader_version, min_writer_version, reader_features, writer_features, extra
FROM dl_protocol_updates WHERE table_id = $table_id AND version = $version;

-- part: commit_columns
v.version, v.committed_at_ms, v.txn_id, v.group_size, v.operation, v.operation_parameters, v.operation_metrics,
  v.engine_info, v.user_metadata, v.is_blind_append, v.read_version, v.isolation_level, v.commit_timestamp,
  v.in_commit_timestamp, v.extra, v.next_file_id;

-- name: history
-- The columns are in the order that `VersionRow.from_row` in store/records.py expects.
SELECT {use:commit_columns} FROM dl_table_versions v
WHERE v.table_id = $table_id AND v.version <= $last AND v.version >= $first
ORDER BY v.version DESC LIMIT $limit;

-- name: version_bounds
-- Two subqueries, because SQLite reads every version for min and max in one.
SELECT
  (SELECT min(version) FROM dl_table_versions WHERE table_id = $table_id),
  (SELECT max(version) FROM dl_table_versions WHERE table_id = $table_id);

-- name: version_exists
SELECT 1 FROM dl_table_versions WHERE table_id = $table_id AND version = $version;

-- name: named_version_bounds
SELECT t.namespace, t.name,
  (SELECT min(v.version) FROM dl_table_versions v WHERE v.table_id = t.table_id),
  (SELECT max(v.version) FROM dl_table_versions v WHERE v.table_id = t.table_id)
FROM dl_tables t WHERE t.table_id = $table_id;

-- name: operation_until
SELECT version FROM dl_table_versions
WHERE table_id = $table_id AND version <= $version AND operation = $operation
ORDER BY version LIMIT 1;

-- part: version_state
v.version, v.committed_at_ms, v.next_file_id,
  (SELECT max(m.version) FROM dl_metadata_updates m WHERE m.table_id = v.table_id AND m.version <= v.version),
  (SELECT max(p.version) FROM dl_protocol_updates p WHERE p.table_id = v.table_id AND p.version <= v.version);

-- name: head_at_version
SELECT v.table_id, {use:version_state}
FROM dl_table_versions v WHERE v.table_id = $table_id AND v.version = $version;

-- name: head_at_time
SELECT v.table_id, {use:version_state}
FROM dl_table_versions v WHERE v.table_id = $table_id AND v.committed_at_ms <= $timestamp_ms
ORDER BY v.committed_at_ms DESC, v.version DESC LIMIT 1;

-- name: group_members
SELECT t.table_uuid, t.table_id, v.version, v.committed_at_ms
FROM dl_table_versions v JOIN dl_tables t ON t.table_id = v.table_id
WHERE v.txn_id = $txn_id ORDER BY t.table_id;

-- name: adds_between
SELECT f.file_id, f.path, p.partition_values, f.size, f.modification_time, f.data_change, f.stats, f.tags,
  f.deletion_vector, f.base_row_id, f.default_row_commit_version, f.clustering_provider, f.extra, f.added_version
FROM dl_add_files f
JOIN dl_partitions p ON p.table_id = f.table_id AND p.partition_id = f.partition_id
WHERE f.table_id = $table_id AND f.file_id >= $first_file_id AND f.file_id < $next_file_id
ORDER BY f.file_id;

-- name: removes_between
SELECT path, deletion_timestamp, data_change, extended_file_metadata, partition_values, size, stats, tags,
  deletion_vector, base_row_id, default_row_commit_version, extra, version
FROM dl_remove_files WHERE table_id = $table_id AND version > $after AND version <= $last
ORDER BY version, ordinal;

-- name: metadata_between
SELECT version, id, name, description, schema_string, partition_columns, configuration, format, created_time, extra
FROM dl_metadata_updates WHERE table_id = $table_id AND version > $after AND version <= $last ORDER BY version;

-- name: protocol_between
SELECT version, min_reader_version, min_writer_version, reader_features, writer_features, extra
FROM dl_protocol_updates WHERE table_id = $table_id AND version > $after AND version <= $last ORDER BY version;

-- name: txns_between
SELECT version, app_id, txn_version, last_updated, extra
FROM dl_txn_actions WHERE table_id = $table_id AND version > $after AND version <= $last ORDER BY version, app_id;

-- name: domains_between
SELECT version, domain, configuration, removed, extra
FROM dl_domain_metadata WHERE table_id = $table_id AND version > $after AND version <= $last ORDER BY version, domain;

-- name: cdc_between
SELECT version, path, partition_values, size, data_change, tags, extra
FROM dl_cdc_files WHERE table_id = $table_id AND version > $after AND version <= $last ORDER BY version, ordinal;

-- name: txn_version_of
SELECT txn_version FROM dl_txn_actions
WHERE table_id = $table_id AND app_id = $app_id AND version <= $version
ORDER BY version DESC LIMIT 1;

-- name: txn_versions
SELECT a.app_id, a.txn_version, a.last_updated, a.extra FROM dl_txn_actions a
JOIN (SELECT app_id, max(version) AS version FROM dl_txn_actions
      WHERE table_id = $table_id AND version <= $version GROUP BY app_id) latest
  ON latest.app_id = a.app_id AND latest.version = a.version
WHERE a.table_id = $table_id ORDER BY a.app_id;

-- name: domains_at
SELECT d.domain, d.configuration, d.removed, d.extra FROM dl_domain_metadata d
JOIN (SELECT domain, max(version) AS version FROM dl_domain_metadata
      WHERE table_id = $table_id AND version <= $version GROUP BY domain) latest
  ON latest.domain = d.domain AND latest.version = d.version
WHERE d.table_id = $table_id ORDER BY d.domain;

-- name: partitions
SELECT partition_id, partition_values FROM dl_partitions WHERE table_id = $table_id ORDER BY partition_id;

-- part: size_sum
-- The high and low 32 bits are summed separately, because SQLite raises an error for integer sums of 2^63 or more.
-- Totals this large become floating-point numbers there.
coalesce(sum(f.size >> 32) * 4294967296 + sum(f.size & 4294967295), 0)

-- name: live_totals
SELECT count(*), {use:size_sum}, sum(f.num_records >> 32) * 4294967296 + sum(f.num_records & 4294967295),
  count(f.num_records) FROM dl_add_files f
WHERE f.table_id = $table_id AND {use:live_at_version} AND {use:version_is_left};

-- name: removed_ids_between
-- The id -1 means that the version $after has expired. Then the ids of removed files may be incomplete.
SELECT file_id FROM dl_add_files
WHERE table_id = $table_id AND removed_version > $after AND removed_version <= $last
UNION ALL
SELECT -1 WHERE NOT EXISTS (SELECT 1 FROM dl_table_versions WHERE table_id = $table_id AND version = $after);

-- part: file_columns
f.file_id, f.path, f.partition_id, f.size, f.modification_time, f.data_change, coalesce(f.stats, '') AS stats,
  f.num_records, coalesce(f.tags, '') AS tags, coalesce(f.deletion_vector, '') AS deletion_vector, f.base_row_id,
  f.default_row_commit_version, coalesce(f.clustering_provider, '') AS clustering_provider,
  coalesce(f.extra, '') AS extra, f.added_version;

-- part: live_at_version
f.added_version <= $version AND (f.removed_version IS NULL OR f.removed_version > $version);

-- part: version_is_left
-- Without this condition, some rows of an expired version would be returned.
EXISTS (SELECT 1 FROM dl_table_versions e WHERE e.table_id = $table_id AND e.version = $version);

-- name: files_all
SELECT {use:file_columns}
FROM dl_add_files f
WHERE f.table_id = $table_id AND f.file_id >= $first_file_id AND f.file_id < $next_file_id AND {use:live_at_version} AND {use:version_is_left}
ORDER BY f.file_id;

-- name: files_brief
SELECT f.file_id, f.path, f.partition_id, f.size, f.modification_time, f.num_records, f.added_version
FROM dl_add_files f
WHERE f.table_id = $table_id AND f.file_id >= $first_file_id AND f.file_id < $next_file_id AND {use:live_at_version} AND {use:version_is_left}
ORDER BY f.file_id;

-- name: files_to_read
SELECT f.file_id, f.path, f.partition_id, f.size, f.modification_time, f.num_records, coalesce(f.deletion_vector, '') AS deletion_vector
FROM dl_add_files f
WHERE f.table_id = $table_id AND f.file_id >= $first_file_id AND f.file_id < $next_file_id AND {use:live_at_version} AND {use:version_is_left}
ORDER BY f.file_id;

-- name: files_in_partitions
SELECT {use:file_columns}
FROM dl_add_files f
WHERE f.table_id = $table_id AND f.partition_id {in:partition_ids} AND f.partition_id > 0 AND {use:live_at_version} AND {use:version_is_left}
ORDER BY +f.file_id;

-- name: files_in_partitions [sqlite]
SELECT {use:file_columns}
FROM dl_add_files f
WHERE f.table_id = $table_id AND f.partition_id {in:partition_ids} AND likely(f.partition_id > 0) AND {use:live_at_version} AND {use:version_is_left}
ORDER BY +f.file_id;

-- name: stats_ranges_overlapping
SELECT file_id, last_file_id, file_bounds FROM dl_file_stats
WHERE table_id = $table_id AND column_id = $column_id AND file_id < $next_file_id
  AND (min_key IS NULL OR (min_key <= $high AND max_key >= $low))
ORDER BY file_id;

-- name: files_in_ranges [sqlite]
SELECT {use:file_columns}
FROM json_each($pairs) r
CROSS JOIN dl_add_files f ON f.table_id = $table_id
  AND f.file_id BETWEEN json_extract(r.value, '$[0]') AND json_extract(r.value, '$[1]')
WHERE {use:live_at_version} AND {use:version_is_left}
ORDER BY f.file_id;

-- name: files_in_ranges [postgres]
-- An array of ids: for a join with the ranges, the planner expects a ninth of the table for each range.
SELECT {use:file_columns}
FROM dl_add_files f
WHERE f.table_id = $table_id AND f.file_id = ANY (ARRAY(
    SELECT generate_series(r.first_id, r.last_id)
    FROM unnest($firsts::bigint[], $lasts::bigint[]) AS r (first_id, last_id)
  ))
  AND {use:live_at_version} AND {use:version_is_left}
ORDER BY f.file_id;

-- name: files_in_ranges [duckdb]
SELECT {use:file_columns}
FROM dl_add_files f
WHERE f.table_id = $table_id
  AND f.file_id >= list_aggregate($firsts, 'min') AND f.file_id <= list_aggregate($lasts, 'max')
  AND f.file_id IN (
    SELECT unnest(range(r.first_id, r.last_id + 1))
    FROM (SELECT unnest($firsts) AS first_id, unnest($lasts) AS last_id) r
  )
  AND {use:live_at_version} AND {use:version_is_left}
ORDER BY f.file_id;
