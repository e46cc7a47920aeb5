"""The DuckDB engine, which runs in this process."""
