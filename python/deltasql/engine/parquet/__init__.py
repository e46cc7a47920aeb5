"""Writing Parquet data files with Delta statistics."""
