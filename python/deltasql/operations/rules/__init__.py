"""What a table accepts: schema, constraints, NOT NULL, table features."""
