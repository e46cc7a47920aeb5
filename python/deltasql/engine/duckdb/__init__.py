"""The engine for data that fits one machine: DuckDB in this process."""
