-- Queries for streams that read the whole catalog.

-- name: txn_version_in_catalog
SELECT max(found.txn_version) FROM (
  SELECT (SELECT a.txn_version FROM dl_txn_actions a
          WHERE a.table_id = t.table_id AND a.app_id = $app_id
          ORDER BY a.version DESC LIMIT 1) AS txn_version
  FROM dl_tables t
) found;
