-- part: target_columns
t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.created_at_ms, t.dropped_at_ms, t.properties,
  coalesce(g.target, 'table'), coalesce(g.kind, 'delta'), coalesce(g.location, t.location),
  coalesce(g.published_version, -1), coalesce(g.further_targets, 0), coalesce(g.state, 'ACTIVE'),
  coalesce(g.attempts, 0), coalesce(g.next_attempt_ms, 0), g.last_error, g.claimed_by, coalesce(g.claimed_until_ms, 0),
  h.version, v.committed_at_ms, g.target;

-- part: target_tables
dl_tables t JOIN dl_table_heads h ON h.table_id = t.table_id
  LEFT JOIN dl_mirror_targets g ON g.table_id = t.table_id
  LEFT JOIN dl_table_versions v ON v.table_id = t.table_id AND v.version = coalesce(g.published_version, -1) + 1;

-- name: targets_of
SELECT {use:target_columns}
FROM {use:target_tables}
WHERE t.table_id = $table_id
ORDER BY CASE WHEN g.target = 'table' THEN 0 ELSE 1 END, g.created_at_ms, g.target;

-- name: targets_of_all
SELECT {use:target_columns}
FROM {use:target_tables}
WHERE t.dropped_at_ms IS NULL OR h.version > coalesce(g.published_version, -1)
ORDER BY t.namespace, t.name, t.table_id, g.created_at_ms, g.target;

-- name: claimed_targets
SELECT {use:target_columns}
FROM {use:target_tables}
WHERE g.claimed_by = $claimed_by
ORDER BY g.table_id, g.target;

-- name: insert_mirror_target
INSERT INTO dl_mirror_targets (table_id, target, kind, location, created_at_ms, published_version, further_targets,
  state, attempts, next_attempt_ms, last_error, claimed_by, claimed_until_ms)
VALUES ($table_id, $target, $kind, $location, $created_at_ms, $published_version, $further_targets,
  $state, $attempts, $next_attempt_ms, $last_error, $claimed_by, $claimed_until_ms)
ON CONFLICT (table_id, target) DO NOTHING;

-- name: add_missing_targets
-- A table has no row for its own location if the process that created it does not publish, or failed before it
-- published.
INSERT INTO dl_mirror_targets
SELECT t.table_id, 'table', 'delta', NULL, t.created_at_ms, -1, 0, 'ACTIVE', 0, 0, NULL, NULL, 0
FROM dl_tables t JOIN dl_table_heads h ON h.table_id = t.table_id
WHERE NOT EXISTS (SELECT 1 FROM dl_mirror_targets g WHERE g.table_id = t.table_id AND g.target = 'table')
ON CONFLICT (table_id, target) DO NOTHING;

-- name: delete_mirror_target
DELETE FROM dl_mirror_targets WHERE table_id = $table_id AND target = $target;

-- name: count_further_targets
UPDATE dl_mirror_targets
SET further_targets = (SELECT count(*) FROM dl_mirror_targets o WHERE o.table_id = $table_id AND o.target <> 'table')
WHERE table_id = $table_id AND target = 'table';

-- name: complete_versions
INSERT INTO dl_mirror_status (table_id, version, target, status, attempts, last_error, updated_at_ms)
WITH RECURSIVE span (version) AS (
  SELECT $first UNION ALL SELECT version + 1 FROM span WHERE version < $last
)
SELECT $table_id, version, $target, 'COMPLETE', 1, NULL, $now_ms FROM span WHERE TRUE
ON CONFLICT (table_id, target, version) DO UPDATE
SET status = excluded.status, attempts = dl_mirror_status.attempts + 1, last_error = NULL,
    updated_at_ms = excluded.updated_at_ms;

-- name: complete_versions [duckdb]
INSERT INTO dl_mirror_status (table_id, version, target, status, attempts, last_error, updated_at_ms)
SELECT $table_id, r.version, $target, 'COMPLETE', 1, NULL, $now_ms FROM range($first, $last + 1) AS r (version)
ON CONFLICT (table_id, target, version) DO UPDATE
SET status = excluded.status, attempts = dl_mirror_status.attempts + 1, last_error = NULL,
    updated_at_ms = excluded.updated_at_ms;

-- name: complete_versions [postgres]
INSERT INTO dl_mirror_status (table_id, version, target, status, attempts, last_error, updated_at_ms)
SELECT $table_id, span.version, $target, 'COMPLETE', 1, NULL, $now_ms FROM generate_series($first, $last) AS span (version)
ON CONFLICT (table_id, target, version) DO UPDATE
SET status = excluded.status, attempts = dl_mirror_status.attempts + 1, last_error = NULL,
    updated_at_ms = excluded.updated_at_ms;

-- name: advance_target
-- Changes nothing if another process advanced the target, reset its published version, or quarantined it.
UPDATE dl_mirror_targets
SET published_version = $last, state = 'ACTIVE', attempts = 0, next_attempt_ms = 0, last_error = NULL
WHERE table_id = $table_id AND target = $target AND published_version >= $after AND published_version < $last
  AND state <> 'QUARANTINED'
RETURNING further_targets;

-- name: record_published [postgres]
-- advance_target and complete_versions in one statement. It does not wait for the disk, because the published files
-- show what a power failure may have lost.
WITH relaxed AS (
  SELECT set_config('synchronous_commit', 'off', TRUE) AS setting
), moved AS (
  UPDATE dl_mirror_targets
  SET published_version = $last, state = 'ACTIVE', attempts = 0, next_attempt_ms = 0, last_error = NULL
  WHERE table_id = $table_id AND target = $target AND published_version >= $after AND published_version < $last
    AND state <> 'QUARANTINED'
  RETURNING further_targets
), recorded AS (
  INSERT INTO dl_mirror_status (table_id, version, target, status, attempts, last_error, updated_at_ms)
  SELECT $table_id, span.version, $target, 'COMPLETE', 1, NULL, $now_ms
  FROM moved, relaxed, generate_series($first, $last) AS span (version) WHERE relaxed.setting = 'off'
  ON CONFLICT (table_id, target, version) DO UPDATE
  SET status = excluded.status, attempts = dl_mirror_status.attempts + 1, last_error = NULL,
      updated_at_ms = excluded.updated_at_ms
)
SELECT further_targets FROM moved;

-- name: set_mirror_status
INSERT INTO dl_mirror_status (table_id, version, target, status, attempts, last_error, updated_at_ms)
VALUES ($table_id, $version, $target, $status, 1, $last_error, $now_ms)
ON CONFLICT (table_id, target, version) DO UPDATE
SET status = excluded.status, attempts = dl_mirror_status.attempts + 1, last_error = excluded.last_error,
    updated_at_ms = excluded.updated_at_ms;

-- name: mirror_statuses
SELECT v.version, s.status, s.attempts, s.last_error, s.updated_at_ms, v.committed_at_ms
FROM dl_table_versions v
LEFT JOIN dl_mirror_status s ON s.table_id = v.table_id AND s.version = v.version AND s.target = $target
WHERE v.table_id = $table_id AND v.version > $after AND v.version <= $last
ORDER BY v.version DESC;

-- name: delete_mirror_statuses
DELETE FROM dl_mirror_status WHERE table_id = $table_id AND target = $target AND version >= $first;

-- name: set_target_state
UPDATE dl_mirror_targets
SET state = $state, attempts = $attempts, next_attempt_ms = $next_attempt_ms, last_error = $last_error
WHERE table_id = $table_id AND target = $target;

-- name: fail_target
-- A quarantined target stays quarantined.
UPDATE dl_mirror_targets
SET state = $state, attempts = attempts + 1, next_attempt_ms = $next_attempt_ms, last_error = $last_error
WHERE table_id = $table_id AND target = $target AND state <> 'QUARANTINED';

-- name: set_published_version
UPDATE dl_mirror_targets SET published_version = $version WHERE table_id = $table_id AND target = $target;

-- part: due_targets
SELECT g.table_id, g.target FROM dl_mirror_targets g JOIN dl_table_heads h ON h.table_id = g.table_id
  WHERE h.version > g.published_version AND g.state <> 'QUARANTINED'
    AND (g.next_attempt_ms <= $now_ms OR g.next_attempt_ms > $longest_ms)
    AND (g.claimed_by IS NULL OR g.claimed_until_ms <= $now_ms OR g.claimed_until_ms > $longest_ms)
  ORDER BY g.claimed_until_ms, g.table_id, g.target
  LIMIT $limit;

-- name: claim_targets
-- Targets whose leases ended first come first. An expired lease may be taken over.
UPDATE dl_mirror_targets SET claimed_by = $claimed_by, claimed_until_ms = $until_ms
WHERE (table_id, target) IN ({use:due_targets})
RETURNING table_id;

-- name: claim_targets [postgres]
WITH due AS (
  {use:due_targets}
  FOR UPDATE OF g SKIP LOCKED
)
UPDATE dl_mirror_targets m SET claimed_by = $claimed_by, claimed_until_ms = $until_ms
FROM due WHERE m.table_id = due.table_id AND m.target = due.target
RETURNING m.table_id;

-- name: release_claim
UPDATE dl_mirror_targets SET claimed_by = NULL, claimed_until_ms = $now_ms
WHERE table_id = $table_id AND target = $target AND claimed_by = $claimed_by;

-- name: relax_durability [sqlite]
PRAGMA synchronous = NORMAL;

-- name: relax_durability [postgres]
SET LOCAL synchronous_commit = off;

-- name: restore_durability [sqlite]
PRAGMA synchronous = FULL;

-- name: removes_per_version
SELECT version, count(*) FROM dl_remove_files
WHERE table_id = $table_id AND version > $after AND version <= $last GROUP BY version;

-- name: ended_versions
SELECT DISTINCT removed_version FROM dl_add_files
WHERE table_id = $table_id AND removed_version > $after AND removed_version <= $last;
