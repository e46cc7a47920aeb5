"""SQLite as the database of a catalog."""
