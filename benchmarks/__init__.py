"""Benchmarks of deltasql, deltalake, DuckLake and plain SQL: `python -m benchmarks --help`."""
