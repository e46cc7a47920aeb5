-- name: apply_settings [postgres]
-- Applies the settings of a connection, and returns the effective settings. Our default timeouts apply only if the
-- server, the database and the role set none. If $backend_pid is not this server process, nothing is set and no row is
-- returned.
SELECT current_schema(), current_setting('search_path'), current_setting('lock_timeout'),
  current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')
FROM (
  SELECT set_config('search_path', coalesce($search_path, current_setting('search_path')), $is_local),
    set_config('lock_timeout', CASE WHEN $has_lock_timeout OR current_setting('lock_timeout') = '0'
      THEN $lock_timeout ELSE current_setting('lock_timeout') END, $is_local),
    set_config('statement_timeout', CASE WHEN $has_statement_timeout OR current_setting('statement_timeout') = '0'
      THEN $statement_timeout ELSE current_setting('statement_timeout') END, $is_local),
    set_config('idle_in_transaction_session_timeout',
      CASE WHEN $has_idle_timeout OR current_setting('idle_in_transaction_session_timeout') = '0'
      THEN $idle_timeout ELSE current_setting('idle_in_transaction_session_timeout') END, $is_local)
  WHERE $backend_pid::bigint IN (0, pg_backend_pid())
) AS applied;

-- name: use_settings [postgres]
-- Applies the same settings to one transaction. This is needed behind a pooler, where clients share a session, and for
-- bulk timeouts.
SELECT set_config('search_path', $search_path, TRUE), set_config('lock_timeout', $lock_timeout, TRUE),
  set_config('statement_timeout', $statement_timeout, TRUE),
  set_config('idle_in_transaction_session_timeout', $idle_timeout, TRUE);

-- name: allow_idle [postgres]
-- For transactions that access the object store between statements, such as a cutover.
SET LOCAL idle_in_transaction_session_timeout = '10min';

-- name: lock_holders [postgres]
-- The sessions that block $pid, directly or through other waiting sessions, and do not wait themselves. If $pid is 0,
-- those that block any waiting session with this application name.
WITH RECURSIVE chain AS (
  SELECT unnest(pg_blocking_pids(a.pid)) AS pid FROM pg_stat_activity a
  WHERE CASE WHEN $pid::bigint <> 0 THEN a.pid = $pid
    ELSE a.wait_event_type = 'Lock' AND a.application_name = $application_name AND a.datname = current_database() END
  UNION
  SELECT unnest(pg_blocking_pids(c.pid)) FROM chain c
)
SELECT a.pid, a.usename, a.application_name, a.client_addr::text, a.state,
  extract(epoch FROM clock_timestamp() - a.state_change)::float8
FROM chain c JOIN pg_stat_activity a ON a.pid = c.pid
WHERE cardinality(pg_blocking_pids(a.pid)) = 0
ORDER BY a.xact_start;
