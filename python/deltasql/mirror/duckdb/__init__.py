"""A DuckDB file with a view for each table of a catalog."""
