-- name: lock_heads
SELECT h.table_id, h.version, h.committed_at_ms, h.next_file_id, h.metadata_version, h.protocol_version, t.live_name
FROM dl_table_heads h JOIN dl_tables t ON t.table_id = h.table_id
WHERE h.table_id {in:table_ids};

-- name: lock_heads [postgres]
-- Every transaction locks heads in this order. The row of dl_tables is locked too. Otherwise a transaction that waited
-- for the head would see the table name from before its wait.
SELECT h.table_id, h.version, h.committed_at_ms, h.next_file_id, h.metadata_version, h.protocol_version, t.live_name
FROM dl_table_heads h JOIN dl_tables t ON t.table_id = h.table_id
WHERE h.table_id {in:table_ids}
ORDER BY h.table_id
FOR UPDATE OF h FOR KEY SHARE OF t;

-- name: head_as_known [sqlite]
SELECT h.version, h.committed_at_ms, h.next_file_id
FROM dl_table_heads h JOIN dl_tables t ON t.table_id = h.table_id
WHERE h.table_id = $table_id AND t.live_name = $live_name AND h.metadata_version = $metadata_version
  AND h.protocol_version = $protocol_version;

-- name: read_head
SELECT h.table_id, h.version, h.committed_at_ms, h.next_file_id, h.metadata_version, h.protocol_version, t.live_name
FROM dl_table_heads h JOIN dl_tables t ON t.table_id = h.table_id
WHERE h.table_id = $table_id;

-- name: read_head [postgres]
-- A subquery, because PostgreSQL plans it faster than a join. This makes the first open of a table faster.
SELECT h.table_id, h.version, h.committed_at_ms, h.next_file_id, h.metadata_version, h.protocol_version,
  (SELECT t.live_name FROM dl_tables t WHERE t.table_id = h.table_id)
FROM dl_table_heads h WHERE h.table_id = $table_id;

-- name: insert_head
INSERT INTO dl_table_heads (table_id, version, committed_at_ms, next_file_id, metadata_version, protocol_version)
VALUES ($table_id, $version, $committed_at_ms, $next_file_id, $metadata_version, $protocol_version);

-- name: move_head
UPDATE dl_table_heads
SET version = $version, committed_at_ms = $committed_at_ms, next_file_id = $next_file_id,
    metadata_version = $metadata_version, protocol_version = $protocol_version
WHERE table_id = $table_id;

-- name: insert_version
INSERT INTO dl_table_versions (table_id, version, committed_at_ms, txn_id, group_size, operation, operation_parameters,
  operation_metrics, engine_info, user_metadata, is_blind_append, read_version, isolation_level, commit_timestamp,
  in_commit_timestamp, extra, next_file_id)
VALUES ($table_id, $version, $committed_at_ms, $txn_id, $group_size, $operation, $operation_parameters,
  $operation_metrics, $engine_info, $user_metadata, $is_blind_append, $read_version, $isolation_level, $commit_timestamp,
  $in_commit_timestamp, $extra, $next_file_id);

-- name: insert_add_file
INSERT INTO dl_add_files (table_id, file_id, path, path_key, partition_id, size, modification_time, data_change, stats,
  num_records, tags, deletion_vector, base_row_id, default_row_commit_version, clustering_provider, extra, added_version)
VALUES ($table_id, $file_id, $path, $path_key, $partition_id, $size, $modification_time, $data_change, $stats,
  $num_records, $tags, $deletion_vector, $base_row_id, $default_row_commit_version, $clustering_provider, $extra,
  $added_version);

-- name: insert_file_stats
INSERT INTO dl_file_stats (table_id, column_id, file_id, last_file_id, min_key, max_key, null_count, num_records,
  file_bounds)
VALUES ($table_id, $column_id, $file_id, $last_file_id, $min_key, $max_key, $null_count, $num_records, $file_bounds);

-- name: insert_remove_file
INSERT INTO dl_remove_files (table_id, version, ordinal, path, deletion_timestamp, data_change, extended_file_metadata,
  partition_values, size, stats, tags, deletion_vector, base_row_id, default_row_commit_version, extra)
VALUES ($table_id, $version, $ordinal, $path, $deletion_timestamp, $data_change, $extended_file_metadata,
  $partition_values, $size, $stats, $tags, $deletion_vector, $base_row_id, $default_row_commit_version, $extra);

-- name: live_by_key
SELECT path_key, file_id, path FROM dl_add_files
WHERE table_id = $table_id AND removed_version IS NULL AND path_key {in:keys};

-- name: mark_removed
UPDATE dl_add_files SET removed_version = $version
WHERE table_id = $table_id AND file_id {in:file_ids};

-- name: insert_partition
INSERT INTO dl_partitions (table_id, partition_id, partition_values)
VALUES ($table_id, $partition_id, $partition_values);

-- name: partitions_by_value
SELECT partition_values, partition_id FROM dl_partitions
WHERE table_id = $table_id AND partition_values {in:partition_values};

-- name: last_partition_id
SELECT coalesce(max(partition_id), 0) FROM dl_partitions WHERE table_id = $table_id;

-- name: insert_skipping_column
INSERT INTO dl_skipping_columns (table_id, column_id, path, type, first_file_id)
VALUES ($table_id, $column_id, $path, $type, $first_file_id);

-- name: end_skipping_column
UPDATE dl_skipping_columns SET end_file_id = $end_file_id WHERE table_id = $table_id AND column_id = $column_id;

-- name: skipping_columns
SELECT column_id, path, type, first_file_id, end_file_id FROM dl_skipping_columns
WHERE table_id = $table_id ORDER BY column_id;

-- name: insert_metadata
INSERT INTO dl_metadata_updates (table_id, version, id, name, description, schema_string, partition_columns,
  configuration, format, created_time, extra)
VALUES ($table_id, $version, $id, $name, $description, $schema_string, $partition_columns,
  $configuration, $format, $created_time, $extra);

-- name: insert_protocol
INSERT INTO dl_protocol_updates (table_id, version, min_reader_version, min_writer_version, reader_features,
  writer_features, extra)
VALUES ($table_id, $version, $min_reader_version, $min_writer_version, $reader_features,
  $writer_features, $extra);

-- name: insert_txn
INSERT INTO dl_txn_actions (table_id, app_id, version, txn_version, last_updated, extra)
VALUES ($table_id, $app_id, $version, $txn_version, $last_updated, $extra);

-- name: insert_audit
INSERT INTO dl_audit_log (audit_id, at_ms, user_name, action, table_id, version, txn_id)
VALUES ($audit_id, $at_ms, $user_name, $action, $table_id, $version, $txn_id);

-- name: insert_domain_metadata
INSERT INTO dl_domain_metadata (table_id, domain, version, configuration, removed, extra)
VALUES ($table_id, $domain, $version, $configuration, $removed, $extra);

-- name: insert_cdc_file
INSERT INTO dl_cdc_files (table_id, version, ordinal, path, partition_values, size, data_change, tags, extra)
VALUES ($table_id, $version, $ordinal, $path, $partition_values, $size, $data_change, $tags, $extra);

-- name: clear_staged_files
DELETE FROM dl_staged_files WHERE txn_id = $txn_id;

-- name: insert_staged_file
INSERT INTO dl_staged_files (txn_id, table_id, path, staged_at_ms) VALUES ($txn_id, $table_id, $path, $staged_at_ms);

-- name: staged_files_before
SELECT txn_id, table_id, path, staged_at_ms FROM dl_staged_files
WHERE staged_at_ms < $before_ms ORDER BY staged_at_ms, path;

-- name: append_one_file [postgres]
-- Ratifies a blind append of one file with a single statement: the head is locked, updated and released in one round
-- trip. The locks are the same as in lock_heads, in the same order. The statement writes nothing and returns no row if
-- the table was renamed or dropped, its metadata changed, or a vacuum took over an intent of the transaction. It uses
-- joins and no subqueries: after waiting for a row lock, PostgreSQL checks the conditions again, and must not run a
-- part that writes a second time.
WITH held AS (
  SELECT h.table_id FROM dl_table_heads h JOIN dl_tables t ON t.table_id = h.table_id
  WHERE h.table_id = $table_id AND t.live_name = $live_name AND h.metadata_version = $metadata_version
    AND h.protocol_version = $protocol_version
  FOR UPDATE OF h FOR KEY SHARE OF t
), adopted AS (
  DELETE FROM dl_staged_files s USING held WHERE s.txn_id = $txn_id RETURNING s.path
), whole AS MATERIALIZED (
  SELECT held.table_id FROM held, (SELECT count(*) AS files FROM adopted) a WHERE a.files >= $intents
), moved AS (
  UPDATE dl_table_heads h
  SET version = h.version + 1, committed_at_ms = greatest($now_ms, h.committed_at_ms + 1),
      next_file_id = h.next_file_id + 1
  FROM whole WHERE h.table_id = whole.table_id
  RETURNING h.table_id, h.version, h.committed_at_ms, h.next_file_id
), file AS (
  INSERT INTO dl_add_files (table_id, file_id, path, path_key, partition_id, size, modification_time, data_change, stats,
    num_records, tags, deletion_vector, base_row_id, default_row_commit_version, clustering_provider, extra,
    added_version)
  SELECT m.table_id, m.next_file_id - 1, $path, $path_key, $partition_id, $size, $modification_time, $data_change,
    $file_stats, $num_records, $tags, $deletion_vector, $base_row_id, $default_row_commit_version,
    $clustering_provider, $extra, m.version
  FROM moved m
), bounds AS (
  INSERT INTO dl_file_stats (table_id, column_id, file_id, last_file_id, min_key, max_key, null_count, num_records)
  SELECT m.table_id, s.id, m.next_file_id - 1, m.next_file_id - 1, decode(s.low, 'hex'), decode(s.high, 'hex'),
    s.nulls, s.rows
  FROM moved m, json_to_recordset($bounds::json) AS s (id bigint, low text, high text, nulls bigint, rows bigint)
), committed AS (
  INSERT INTO dl_table_versions (table_id, version, committed_at_ms, txn_id, group_size, operation,
    operation_parameters, operation_metrics, engine_info, user_metadata, is_blind_append, isolation_level,
    read_version, commit_timestamp, in_commit_timestamp, extra, next_file_id)
  SELECT m.table_id, m.version, m.committed_at_ms, $txn_id, 1, $operation, $operation_parameters,
    $operation_metrics, $engine_info, $user_metadata, TRUE, $isolation_level, $read_version, m.committed_at_ms,
    CASE WHEN $in_commit_timestamps THEN m.committed_at_ms END, $info_extra, m.next_file_id
  FROM moved m
)
SELECT m.version, m.committed_at_ms FROM moved m;
