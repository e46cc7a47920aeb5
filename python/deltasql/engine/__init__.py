"""The data plane: who reads and writes Parquet."""
