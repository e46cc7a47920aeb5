"""PostgreSQL as the database of a catalog."""
