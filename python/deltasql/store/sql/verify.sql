-- name: added_per_version
SELECT added_version, count(*), sum(size) FROM dl_add_files
WHERE table_id = $table_id AND added_version <= $last GROUP BY added_version;

-- name: ended_per_version
SELECT removed_version, count(*), sum(size) FROM dl_add_files
WHERE table_id = $table_id AND removed_version <= $last GROUP BY removed_version;
