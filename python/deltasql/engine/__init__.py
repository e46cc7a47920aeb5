"""Engines, which read and write the rows of tables in Parquet files."""
