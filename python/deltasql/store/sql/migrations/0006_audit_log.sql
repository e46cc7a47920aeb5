-- Who changed what through the console. A row is written in the SQL transaction of the change, so neither is there without
-- the other. version and txn_id are those of a commit; NULL for a change of the publishing status.
CREATE TABLE dl_audit_log (
  audit_id {text} PRIMARY KEY,
  at_ms {bigint} NOT NULL,
  user_name {text} NOT NULL,
  action {text} NOT NULL,
  table_id {bigint} NOT NULL,
  version {bigint},
  txn_id {text}
){strict};
CREATE INDEX dl_audit_log_at ON dl_audit_log (at_ms);
