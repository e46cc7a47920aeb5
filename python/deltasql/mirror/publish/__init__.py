"""Publishing ratified commits to `_delta_log`, to replicas and to DuckDB catalog files."""
