-- name: table_by_name
SELECT t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.created_at_ms, t.dropped_at_ms, t.properties
FROM dl_tables t WHERE t.live_name = $live_name;

-- name: names_alike
-- Finds names that are equal except for the case of ASCII letters.
SELECT namespace, name FROM dl_tables
WHERE dropped_at_ms IS NULL AND lower(name) = $name AND lower(namespace) = $namespace
ORDER BY namespace, name;

-- name: names_alike [postgres]
-- COLLATE "C" limits lower() to ASCII letters. Without it, the result for other letters depends on the collation of the
-- database.
SELECT namespace, name FROM dl_tables
WHERE dropped_at_ms IS NULL AND lower(name COLLATE "C") = $name AND lower(namespace COLLATE "C") = $namespace
ORDER BY namespace, name;

-- name: count_tables
SELECT count(*) FROM dl_tables WHERE dropped_at_ms IS NULL;

-- name: list_tables
SELECT t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.created_at_ms, t.dropped_at_ms, t.properties
FROM dl_tables t
WHERE t.dropped_at_ms IS NULL AND ($namespace IS NULL OR t.namespace = $namespace)
ORDER BY t.namespace, t.name;

-- name: list_tables [postgres]
SELECT t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.created_at_ms, t.dropped_at_ms, t.properties
FROM dl_tables t
WHERE t.dropped_at_ms IS NULL AND ($namespace::text IS NULL OR t.namespace = $namespace)
ORDER BY t.namespace, t.name;

-- name: list_dropped
SELECT t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.created_at_ms, t.dropped_at_ms, t.properties
FROM dl_tables t
WHERE t.dropped_at_ms IS NOT NULL
ORDER BY t.dropped_at_ms DESC, t.table_id DESC;

-- name: insert_table
INSERT INTO dl_tables (table_uuid, namespace, name, live_name, location, created_at_ms, properties)
VALUES ($table_uuid, $namespace, $name, $live_name, $location, $created_at_ms, $properties)
RETURNING table_id;

-- name: rename_table
UPDATE dl_tables SET namespace = $namespace, name = $name, live_name = $live_name WHERE table_id = $table_id;

-- name: drop_table
UPDATE dl_tables SET live_name = NULL, dropped_at_ms = $dropped_at_ms
WHERE table_id = $table_id AND dropped_at_ms IS NULL;

-- name: undrop_table
UPDATE dl_tables SET live_name = $live_name, namespace = $namespace, name = $name, dropped_at_ms = NULL
WHERE table_id = $table_id AND dropped_at_ms IS NOT NULL;

-- name: list_namespaces
SELECT namespace FROM dl_namespaces
UNION
SELECT DISTINCT namespace FROM dl_tables WHERE dropped_at_ms IS NULL
ORDER BY namespace;

-- name: insert_namespace
INSERT INTO dl_namespaces (namespace, created_at_ms) VALUES ($namespace, $created_at_ms)
ON CONFLICT (namespace) DO NOTHING;

-- name: delete_namespace
DELETE FROM dl_namespaces WHERE namespace = $namespace;

-- name: heads_as_of
-- If the version at that time has expired, the first version that is left is returned: its time is later.
SELECT t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.created_at_ms, t.dropped_at_ms, t.properties,
  {use:version_state}
FROM dl_tables t JOIN dl_table_versions v ON v.table_id = t.table_id
WHERE t.created_at_ms <= $timestamp_ms AND (t.dropped_at_ms IS NULL OR t.dropped_at_ms > $timestamp_ms)
  AND v.version = coalesce(
    (SELECT w.version FROM dl_table_versions w
     WHERE w.table_id = t.table_id AND w.committed_at_ms <= $timestamp_ms
     ORDER BY w.committed_at_ms DESC, w.version DESC LIMIT 1),
    (SELECT nullif(min(e.version), 0) FROM dl_table_versions e WHERE e.table_id = t.table_id))
ORDER BY t.namespace, t.name;

-- name: tables_at
-- The tables at one of these locations; dropped tables come last.
SELECT t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.created_at_ms, t.dropped_at_ms, t.properties
FROM dl_table_locations l JOIN dl_tables t ON t.table_id = l.table_id
WHERE l.location_key {in:location_keys}
ORDER BY CASE WHEN t.dropped_at_ms IS NULL THEN 0 ELSE 1 END, t.table_id DESC;

-- name: live_tables_inside
SELECT t.table_id, t.table_uuid, t.namespace, t.name, t.location, t.created_at_ms, t.dropped_at_ms, t.properties
FROM dl_table_locations l JOIN dl_tables t ON t.table_id = l.table_id
WHERE l.location_key > $location_key AND l.location_key < $end_key AND t.dropped_at_ms IS NULL
ORDER BY t.table_id LIMIT 1;

-- name: replicas
-- The folders to which live tables are replicated.
SELECT t.namespace, t.name, g.location
FROM dl_mirror_targets g JOIN dl_tables t ON t.table_id = g.table_id
WHERE g.kind = 'delta' AND g.location IS NOT NULL AND t.dropped_at_ms IS NULL
ORDER BY t.namespace, t.name, g.target;

-- name: location_keys_inside
-- Dropped tables are included, because their files still exist.
SELECT location_key FROM dl_table_locations WHERE location_key > $location_key AND location_key < $end_key;

-- name: insert_location
INSERT INTO dl_table_locations (table_id, location_key, live_location_key)
VALUES ($table_id, $location_key, $live_location_key);

-- name: leave_location
UPDATE dl_table_locations SET live_location_key = NULL WHERE table_id = $table_id;

-- name: take_location
UPDATE dl_table_locations SET live_location_key = location_key WHERE table_id = $table_id;

-- name: unrecorded_locations
-- Tables without a location key, and dropped tables with a unique key. 0.1.0 does not know dl_table_locations: this is
-- how it leaves a table that it creates or drops while it is still running after the upgrade.
SELECT t.table_id, t.location, t.dropped_at_ms, coalesce(l.location_key, '')
FROM dl_tables t LEFT JOIN dl_table_locations l ON l.table_id = t.table_id
WHERE l.table_id IS NULL OR (t.dropped_at_ms IS NOT NULL AND l.live_location_key IS NOT NULL)
ORDER BY t.table_id;
