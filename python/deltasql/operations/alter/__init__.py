"""ALTER TABLE: properties, columns, constraints, table features and clustering columns."""
