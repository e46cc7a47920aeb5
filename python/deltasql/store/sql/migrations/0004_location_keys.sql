-- The folder of every table in one spelling. Two tables share a folder if their keys are the same; one is inside the other
-- if its key begins with the other's. Filled by the store, which follows symbolic links. live_location_key is the same key
-- while the table lives, NULL once it is dropped: unique among live tables, as live_name is. A table of its own, since
-- DuckDB 1.5 cannot replay its log after an ALTER of a table whose default is a sequence.
CREATE TABLE dl_table_locations (
  table_id {bigint} PRIMARY KEY,
  location_key {text}{bytewise} NOT NULL,
  live_location_key {text}{bytewise} UNIQUE
){strict};
CREATE INDEX dl_table_locations_key ON dl_table_locations (location_key);
-- Files that a table has outside of its own folder, as a shallow clone does: a vacuum of their folder keeps them.
{outside_index}
