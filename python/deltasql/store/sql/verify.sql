-- name: added_per_version
SELECT f.added_version, count(*), {use:size_sum} FROM dl_add_files f
WHERE f.table_id = $table_id AND f.added_version <= $last GROUP BY f.added_version;

-- name: ended_per_version
SELECT f.removed_version, count(*), {use:size_sum} FROM dl_add_files f
WHERE f.table_id = $table_id AND f.removed_version <= $last GROUP BY f.removed_version;
