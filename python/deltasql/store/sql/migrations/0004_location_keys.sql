-- A table's folder in one spelling. Two tables share a folder if their keys are the same; one is inside the other if
-- its key begins with the other's. Filled by the store, which follows symbolic links.
ALTER TABLE dl_tables ADD COLUMN location_key {text}{bytewise};
-- The same key while the table lives, NULL once it is dropped: unique among live tables, as live_name is.
ALTER TABLE dl_tables ADD COLUMN live_location_key {text}{bytewise};
CREATE INDEX dl_tables_location_key ON dl_tables (location_key);
CREATE UNIQUE INDEX dl_tables_live_location_key ON dl_tables (live_location_key);
-- Files that a table has outside of its own folder, as a shallow clone does: a vacuum of their folder keeps them.
{outside_index}
