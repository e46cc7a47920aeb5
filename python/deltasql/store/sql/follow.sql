-- name: set_table_properties
UPDATE dl_tables SET properties = $properties WHERE table_id = $table_id;
