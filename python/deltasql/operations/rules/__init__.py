"""The rules that written rows must meet: the table's schema and types, NOT NULL, constraints."""
