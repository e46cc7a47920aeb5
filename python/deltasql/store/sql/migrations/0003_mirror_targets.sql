-- Where a table's commits are published to, and how far each place got. No location: the table's own.
CREATE TABLE dl_mirror_targets (
  table_id {bigint} NOT NULL,
  target {text} NOT NULL,
  kind {text} NOT NULL,
  location {text},
  created_at_ms {bigint} NOT NULL,
  published_version {bigint} NOT NULL,
  further_targets {bigint} NOT NULL,
  state {text} NOT NULL,
  attempts {bigint} NOT NULL,
  next_attempt_ms {bigint} NOT NULL,
  last_error {text},
  claimed_by {text},
  claimed_until_ms {bigint} NOT NULL,
  PRIMARY KEY (table_id, target)
){strict}{hot_rows};

INSERT INTO dl_mirror_targets
SELECT t.table_id, 'table', 'delta', NULL, t.created_at_ms,
  coalesce((SELECT max(s.version) FROM dl_mirror_status s
            WHERE s.table_id = t.table_id AND s.target = 'table' AND s.status = 'COMPLETE'), -1),
  0, 'ACTIVE', 0, 0, NULL, NULL, 0
FROM dl_tables t;
