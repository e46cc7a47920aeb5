-- name: insert_loaded_file
INSERT INTO dl_add_files (table_id, file_id, path, path_key, partition_id, size, modification_time, data_change, stats,
  num_records, tags, deletion_vector, base_row_id, default_row_commit_version, clustering_provider, extra,
  added_version, removed_version)
VALUES ($table_id, $file_id, $path, $path_key, $partition_id, $size, $modification_time, $data_change, $stats,
  $num_records, $tags, $deletion_vector, $base_row_id, $default_row_commit_version, $clustering_provider, $extra,
  $added_version, $removed_version);

-- name: end_files [sqlite]
UPDATE dl_add_files SET removed_version = json_extract(e.value, '$[1]')
FROM json_each($pairs) e
WHERE dl_add_files.table_id = $table_id AND dl_add_files.file_id = json_extract(e.value, '$[0]');

-- name: end_files [postgres]
UPDATE dl_add_files SET removed_version = e.version
FROM unnest($file_ids::bigint[], $versions::bigint[]) AS e (file_id, version)
WHERE dl_add_files.table_id = $table_id AND dl_add_files.file_id = e.file_id;

-- name: end_files [duckdb]
UPDATE dl_add_files SET removed_version = e.version
FROM (SELECT unnest($file_ids) AS file_id, unnest($versions) AS version) e
WHERE dl_add_files.table_id = $table_id AND dl_add_files.file_id = e.file_id;

-- name: loading_properties
SELECT properties FROM dl_tables WHERE table_id = $table_id AND dropped_at_ms IS NOT NULL;

-- name: loading_properties [postgres]
SELECT properties FROM dl_tables WHERE table_id = $table_id AND dropped_at_ms IS NOT NULL FOR UPDATE;

-- name: set_loading_properties
UPDATE dl_tables SET properties = $properties WHERE table_id = $table_id AND dropped_at_ms IS NOT NULL;
