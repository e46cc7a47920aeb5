"""Parquet data files: writing, statistics, footers and errors."""
