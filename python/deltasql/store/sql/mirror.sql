-- name: set_mirror_status
INSERT INTO dl_mirror_status (table_id, version, target, status, attempts, last_error, updated_at_ms)
VALUES ($table_id, $version, $target, $status, 1, $last_error, $updated_at_ms)
ON CONFLICT (table_id, target, version) DO UPDATE
SET status = excluded.status, attempts = dl_mirror_status.attempts + 1, last_error = excluded.last_error,
    updated_at_ms = excluded.updated_at_ms;

-- name: last_published
SELECT max(version) FROM dl_mirror_status
WHERE table_id = $table_id AND target = $target AND status = 'COMPLETE';
