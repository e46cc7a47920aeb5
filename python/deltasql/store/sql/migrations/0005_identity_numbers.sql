-- The last number that was reserved for each identity column. A transaction reserves numbers before it writes them, so this
-- number can be ahead of the high-water mark in the metadata, which the next commit raises. A column without a row has
-- reserved nothing beyond its mark.
CREATE TABLE dl_identity_numbers (
  table_id {bigint} NOT NULL,
  column_name {text} NOT NULL,
  last_number {bigint} NOT NULL,
  PRIMARY KEY (table_id, column_name)
){strict};
