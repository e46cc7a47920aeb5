"""What a write must meet: the table's schema and types, NOT NULL, constraints."""
