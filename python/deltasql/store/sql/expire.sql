-- Expire history: $first is the first version that stays. The rows of the versions before it are deleted first. Then no
-- reader or writer can use these versions, and the rows that only they need are deleted in batches.

-- name: expired_versions
SELECT count(*) FROM dl_table_versions WHERE table_id = $table_id AND version < $first;

-- name: expire_versions
DELETE FROM dl_table_versions WHERE table_id = $table_id AND version < $first;

-- part: old_files
FROM dl_add_files f
WHERE f.table_id = $table_id AND f.removed_version IS NOT NULL AND f.removed_version <= $first;

-- name: expired_files
SELECT count(*) {use:old_files};

-- name: expire_files
DELETE FROM dl_add_files WHERE table_id = $table_id AND file_id IN (SELECT f.file_id {use:old_files} LIMIT $limit);

-- part: old_statistics
FROM dl_file_stats
WHERE table_id = $table_id AND column_id = $column_id AND file_id >= $first_file_id AND file_id < $next_file_id;

-- part: file_left_in_range
-- coalesce, because the files must be found by their ids: an index on removed_version finds all that are left.
SELECT 1 FROM dl_add_files f
WHERE f.table_id = $table_id AND f.file_id >= dl_file_stats.file_id AND f.file_id <= dl_file_stats.last_file_id
  AND coalesce(f.removed_version, 9223372036854775807) > $first;

-- name: expired_file_statistics
SELECT count(*) {use:old_statistics} AND NOT EXISTS ({use:file_left_in_range});

-- name: expired_file_statistics [postgres]
-- With OFFSET 0, PostgreSQL looks up the files of each range. Otherwise it may compare each range with all files.
SELECT count(*) {use:old_statistics} AND NOT EXISTS ({use:file_left_in_range} OFFSET 0);

-- name: expire_file_statistics
-- Deletes the ranges of which no file is left.
DELETE {use:old_statistics} AND NOT EXISTS ({use:file_left_in_range});

-- name: expire_file_statistics [postgres]
DELETE {use:old_statistics} AND NOT EXISTS ({use:file_left_in_range} OFFSET 0);

-- part: old_tombstones
FROM dl_remove_files r
WHERE r.table_id = $table_id AND r.version < $first AND r.version <= $vacuumed_version
  AND coalesce(r.deletion_timestamp, 0) <= $vacuumed_ms AND coalesce(r.deletion_timestamp, 0) <= $retained_ms;

-- name: expired_tombstones
SELECT count(*) {use:old_tombstones};

-- name: expire_tombstones
-- Removed files that a vacuum has deleted, and that no checkpoint of the log lists.
DELETE FROM dl_remove_files
WHERE table_id = $table_id AND (version, ordinal) IN (SELECT r.version, r.ordinal {use:old_tombstones} LIMIT $limit);

-- name: tombstones_to_vacuum
SELECT count(*) FROM dl_remove_files r
WHERE r.table_id = $table_id AND r.version < $first
  AND (r.version > $vacuumed_version OR coalesce(r.deletion_timestamp, 0) > $vacuumed_ms);

-- part: old_change_files
FROM dl_cdc_files c WHERE c.table_id = $table_id AND c.version < $first AND c.version < $vacuumed_version;

-- name: expired_change_files
SELECT count(*) {use:old_change_files};

-- name: expire_change_files
DELETE FROM dl_cdc_files
WHERE table_id = $table_id AND (version, ordinal) IN (SELECT c.version, c.ordinal {use:old_change_files} LIMIT $limit);

-- part: old_metadata
FROM dl_metadata_updates m
WHERE m.table_id = $table_id AND m.version < (
  SELECT max(n.version) FROM dl_metadata_updates n WHERE n.table_id = $table_id AND n.version <= $first);

-- name: expired_metadata
SELECT count(*) {use:old_metadata};

-- name: expire_metadata
DELETE FROM dl_metadata_updates
WHERE table_id = $table_id AND version IN (SELECT m.version {use:old_metadata} LIMIT $limit);

-- part: old_protocols
FROM dl_protocol_updates p
WHERE p.table_id = $table_id AND p.version < (
  SELECT max(n.version) FROM dl_protocol_updates n WHERE n.table_id = $table_id AND n.version <= $first);

-- name: expired_protocols
SELECT count(*) {use:old_protocols};

-- name: expire_protocols
DELETE FROM dl_protocol_updates
WHERE table_id = $table_id AND version IN (SELECT p.version {use:old_protocols} LIMIT $limit);

-- part: old_transactions
FROM dl_txn_actions a
WHERE a.table_id = $table_id AND a.version < $first AND EXISTS (
  SELECT 1 FROM dl_txn_actions b
  WHERE b.table_id = $table_id AND b.app_id = a.app_id AND b.version > a.version AND b.version <= $first);

-- name: expired_transactions
SELECT count(*) {use:old_transactions};

-- name: expire_transactions
DELETE FROM dl_txn_actions
WHERE table_id = $table_id AND (app_id, version) IN (SELECT a.app_id, a.version {use:old_transactions} LIMIT $limit);

-- part: old_domains
FROM dl_domain_metadata d
WHERE d.table_id = $table_id AND d.version < $first AND EXISTS (
  SELECT 1 FROM dl_domain_metadata e
  WHERE e.table_id = $table_id AND e.domain = d.domain AND e.version > d.version AND e.version <= $first);

-- name: expired_domains
SELECT count(*) {use:old_domains};

-- name: expire_domains
DELETE FROM dl_domain_metadata
WHERE table_id = $table_id AND (domain, version) IN (SELECT d.domain, d.version {use:old_domains} LIMIT $limit);

-- part: old_statuses
FROM dl_mirror_status s WHERE s.table_id = $table_id AND s.version < $first;

-- name: expired_statuses
SELECT count(*) {use:old_statuses};

-- name: expire_statuses
DELETE FROM dl_mirror_status
WHERE table_id = $table_id AND (target, version) IN (SELECT s.target, s.version {use:old_statuses} LIMIT $limit);

-- name: configurations_since
SELECT DISTINCT m.configuration FROM dl_metadata_updates m
WHERE m.table_id = $table_id AND m.version >= (
  SELECT max(n.version) FROM dl_metadata_updates n WHERE n.table_id = $table_id AND n.version <= $first);
