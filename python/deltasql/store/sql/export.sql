-- name: count_live_files
SELECT count(*) FROM dl_add_files f WHERE f.table_id = $table_id AND {use:live_at_version};
