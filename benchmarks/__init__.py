"""Benchmarks of deltasql beside deltalake, DuckLake and bare SQL: `python -m benchmarks --help`."""
